"""What is compared: each method gets a budget and ranks all heads.

A method is a strategy that returns a `Ranking` when it is done. Those that decode random masks
measure the controls under the same masks, and rank by the effect on the capability less the worst
effect on a control, as the strategies of headsieve do; only the paper's own recipe leaves controls
out.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LassoCV, OrthogonalMatchingPursuitCV, RidgeCV

from efficiency.measures import selectivity
from efficiency.shapley import kernel_shap, proxy_spex
from headsieve.sensing.designs import bernoulli, stratified
from headsieve.sensing.problem import (
    Answer,
    AnyQuestion,
    Columns,
    Ledger,
    Masks,
    Problem,
    to_masks,
    to_sets,
)
from headsieve.sensing.recovery import Effects, lasso
from headsieve.sensing.strategies import STRATEGIES, Strategy

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """What a method found.

    Attributes
    ----------
    top : tuple of int
        The heads that it would choose, best first.
    evaluations : int
        Of the capability.
    effects : Effects, optional
        Effects with intervals, where the method gives any.
    selected : tuple of int
        The set that it would knock out.
    """

    top: Columns
    evaluations: int
    effects: Effects | None
    selected: Columns


Method = Callable[[Problem], Generator[AnyQuestion, Answer, Ranking]]
Decoder = Callable[[Masks, FloatArray], FloatArray]


def by_strategy(strategy: Strategy, *, own_order: bool = False) -> Method:
    """A strategy of headsieve; by its own order, or by the selectivity that it estimates."""

    def method(problem: Problem) -> Generator[AnyQuestion, Answer, Ranking]:
        found = yield from strategy(problem)
        selective = found.effects.effect - np.fmin(np.nan_to_num(found.effects.control_effect), 0)
        order = [int(head) for head in np.argsort(selective, kind="stable")]
        if own_order:
            order = [*found.selected, *(head for head in order if head not in found.selected)]
        top = tuple(order[: problem.set_size])
        return Ranking(top, found.evaluations, found.effects, found.selected)

    return method


def by_decoding(
    design: Callable[[int, int, float, np.random.Generator], Masks],
    density: float,
    decoder: Decoder,
) -> Method:
    """All of the budget in random masks of one density, decoded from the search score."""

    def method(problem: Problem) -> Generator[AnyQuestion, Answer, Ranking]:
        rng = np.random.default_rng(problem.seed)
        masks = design(problem.budget, problem.heads, density, rng)
        ledger = Ledger(problem)
        yield from ledger.ask(to_sets(masks), problem.tasks)
        measured = to_masks(list(ledger.scores[problem.capability]), problem.heads)
        effects = []
        for task in problem.tasks:
            scores = np.array([score.search for score in ledger.scores[task].values()])
            effects.append(decoder(measured, scores))
        return ranked(effects, problem, ledger.spent)

    return method


def by_coalitions(
    ask: Callable[[int, int, int], Masks], decoder: Callable[[Masks, FloatArray, int], FloatArray]
) -> Method:
    """Coalitions that an approximator of shapiq asks for, and the values that it makes of them."""

    def method(problem: Problem) -> Generator[AnyQuestion, Answer, Ranking]:
        masks = ask(problem.heads, problem.budget, problem.seed)
        sets = to_sets(masks)
        ledger = Ledger(problem)
        yield from ledger.ask(sets, problem.tasks)
        effects = []
        for task in problem.tasks:
            scores = np.array([ledger.scores[task][chosen].search for chosen in sets])
            effects.append(decoder(masks, scores, problem.seed))
        return ranked(effects, problem, ledger.spent)

    return method


def ranked(effects: list[FloatArray], problem: Problem, evaluations: int) -> Ranking:
    """Heads by selectivity, from the effects on all tasks, the capability first."""
    order = np.argsort(selectivity(effects), kind="stable")
    top = tuple(int(head) for head in order[: problem.set_size])
    return Ranking(top, evaluations, None, top)


def at_random(problem: Problem) -> Generator[AnyQuestion, Answer, Ranking]:
    """Single knockouts of heads drawn at random, as many as the budget allows."""
    rng = np.random.default_rng(problem.seed)
    tried = rng.permutation(problem.heads)[: problem.budget - 1]
    ledger = Ledger(problem)
    yield from ledger.ask([(), *((int(head),) for head in tried)], problem.tasks)
    effects = []
    for task in problem.tasks:
        scores = ledger.scores[task]
        effect = np.zeros(problem.heads)
        for head in tried:
            effect[head] = scores[(int(head),)].search - scores[()].search
        effects.append(effect)
    return ranked(effects, problem, ledger.spent)


def _cross_validated_lasso(masks: Masks, scores: FloatArray) -> FloatArray:
    return _fitted(LassoCV(cv=5, alphas=30, max_iter=5000), masks, scores)


def _matching_pursuit(masks: Masks, scores: FloatArray) -> FloatArray:
    most = min(30, len(masks) // 4)
    return _fitted(OrthogonalMatchingPursuitCV(cv=5, max_iter=max(1, most)), masks, scores)


def _ridge(masks: Masks, scores: FloatArray) -> FloatArray:
    return _fitted(RidgeCV(alphas=np.logspace(-2, 4, 25)), masks, scores)


def _fitted(
    model: LassoCV | OrthogonalMatchingPursuitCV | RidgeCV, masks: Masks, scores: FloatArray
) -> FloatArray:
    spread = float(scores.std())
    if spread == 0:
        return np.zeros(masks.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Columns that are alike are what many masks of few heads have; it is no news.
        warnings.filterwarnings("ignore", message="Orthogonal matching pursuit ended prematurely")
        fitted = model.fit(masks.astype(float), (scores - scores.mean()) / spread)
    return np.asarray(fitted.coef_, dtype=np.float64) * spread


def available() -> tuple[dict[str, Method], list[str]]:
    """Methods by name, and a line for each that cannot be had here."""
    methods: dict[str, Method] = {
        "adaptive": by_strategy(STRATEGIES["adaptive"]),
        "random": at_random,
        "paper-bernoulli": by_decoding(bernoulli, 0.02, lasso),
        "paper": by_strategy(STRATEGIES["paper"], own_order=True),
        "lasso-cv": by_decoding(stratified, 0.04, _cross_validated_lasso),
        "matching-pursuit": by_decoding(stratified, 0.04, _matching_pursuit),
        "ridge": by_decoding(bernoulli, 0.075, _ridge),
        "thompson": by_strategy(STRATEGIES["thompson"], own_order=True),
        "halving": by_strategy(STRATEGIES["halving"], own_order=True),
        "greedy": by_strategy(STRATEGIES["greedy"], own_order=True),
        "attribution": by_strategy(STRATEGIES["attribution"], own_order=True),
        "exhaustive": by_strategy(STRATEGIES["exhaustive"]),
    }
    left_out = []
    if importlib.util.find_spec("shapiq") is None:
        left_out.append("shapiq is not installed: kernel-shap and proxy-spex are left out.")
    else:
        methods["kernel-shap"] = by_coalitions(*kernel_shap)
        if importlib.util.find_spec("lightgbm") is None:
            left_out.append("lightgbm is not installed: proxy-spex is left out.")
        else:
            methods["proxy-spex"] = by_coalitions(*proxy_spex)
    return methods, left_out
