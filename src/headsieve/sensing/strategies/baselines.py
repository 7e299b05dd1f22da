"""Strategies to compare with: the paper's recipe, exhaustive search, attribution."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.scores import GRADIENT_COST, Score
from headsieve.sensing.choice import frontier
from headsieve.sensing.designs import stratified
from headsieve.sensing.problem import (
    Columns,
    Ledger,
    Masks,
    Problem,
    to_masks,
    to_sets,
)
from headsieve.sensing.recovery import (
    RESAMPLINGS,
    Effects,
    FloatArray,
    estimate,
    lasso,
    percentile_interval,
    resamplings,
)
from headsieve.sensing.strategies.recommendation import Recommendation, Search

PAPER_DENSITY = 0.02
_FEWEST_MASKS = 10


def paper(problem: Problem) -> Search:
    """The recipe of arXiv 2603.03335: random masks of 2 %, the Lasso on z-scored accuracies.

    The whole budget goes into one stratified design. The most negative coefficients are the
    heads. Controls play no part in it, and neither does the unmodified model. The effects that it
    reports are decoded from the same masks, in nats as those of the other strategies.

    Raises
    ------
    HeadsieveError
        If the budget is too small to learn from.
    """
    if problem.budget < _FEWEST_MASKS:
        raise HeadsieveError(
            f"The paper's recipe learns nothing from {problem.budget} masks; it needs at least "
            f"{_FEWEST_MASKS}."
        )
    rng = np.random.default_rng(problem.seed)
    ledger = Ledger(problem)
    masks = stratified(problem.budget, problem.heads, PAPER_DENSITY, rng)
    yield from ledger.ask(to_sets(masks), [problem.capability])
    scores = ledger.scores[problem.capability]
    masks = to_masks(list(scores), problem.heads)
    measured = list(scores.values())
    accuracy = np.array([score.metric for score in measured])
    return Recommendation(
        selected=_most_negative(lasso(masks, accuracy), problem.set_size),
        effects=_paper_effects(masks, measured, problem.set_size, rng),
        frontier=[],
        evaluations=ledger.spent,
        control_evaluations=0,
    )


def _most_negative(coefficients: FloatArray, set_size: int) -> Columns:
    best = np.argsort(coefficients, kind="stable")[:set_size]
    return tuple(int(head) for head in best if coefficients[head] < 0)


def _paper_effects(
    masks: Masks, scores: Sequence[Score], set_size: int, rng: np.random.Generator
) -> Effects:
    """Effects by the Lasso on the search score, masks and items resampled for their uncertainty.

    The selection probability is the share of resamplings in which the paper's rule takes a head.
    """
    log_prob = np.stack([score.floored for score in scores])
    value = np.stack([score.value for score in scores])
    effect = lasso(masks, log_prob.mean(axis=1))
    resampled = np.zeros((RESAMPLINGS, masks.shape[1]))
    selected = np.zeros((RESAMPLINGS, masks.shape[1]), dtype=bool)
    draws = resamplings(len(masks), log_prob.shape[1], rng)
    for number, (rows, columns) in enumerate(draws):
        resampled[number] = lasso(masks[rows], log_prob[np.ix_(rows, columns)].mean(axis=1))
        accuracy = value[np.ix_(rows, columns)].mean(axis=1)
        selected[number, list(_most_negative(lasso(masks[rows], accuracy), set_size))] = True
    low, high = percentile_interval(resampled)
    return Effects(
        effect,
        np.minimum(low, effect),
        np.maximum(high, effect),
        selected.mean(axis=0),
        np.full(masks.shape[1], np.nan),
        (),
    )


def exhaustive(problem: Problem) -> Search:
    """Every head alone, on the capability and all controls; the most selective are the set.

    A head's selectivity is its effect on the capability less its worst effect on a control.

    Raises
    ------
    HeadsieveError
        If the budget is smaller than one evaluation a head and one for the unmodified model.
    """
    needed = problem.heads + 1
    if problem.budget < needed:
        raise HeadsieveError(
            f"Exhaustive search needs a budget of {needed}: one evaluation a head and one of the "
            f"unmodified model; {problem.budget} were given."
        )
    ledger = Ledger(problem)
    yield from ledger.ask([(), *((head,) for head in range(problem.heads))], problem.tasks)
    return _most_selective(ledger)


def attribution(problem: Problem) -> Search:
    """Heads that gradients point at, confirmed by knocking them out one by one.

    The gradient of the search score with respect to a gate on each head foretells, to first order,
    what closing the gate costs (attribution patching with zeros in place of another run; Nanda,
    *Attribution Patching*, 2023). The budget that is left goes into single knockouts of the heads
    that look most selective, and the most selective of these are the set.

    Raises
    ------
    HeadsieveError
        If the budget is smaller than the gradient, the unmodified model and one head.
    """
    needed = GRADIENT_COST + 2
    if problem.budget < needed:
        raise HeadsieveError(
            f"Attribution needs a budget of {needed}: {GRADIENT_COST} evaluations for the "
            "gradient, one of the unmodified model and one of a head; "
            f"{problem.budget} were given."
        )
    ledger = Ledger(problem)
    yield from ledger.ask([()], problem.tasks)
    yield from ledger.ask_gradients()
    asked = problem.tasks if problem.capability in ledger.gradients else [problem.capability]
    if missing := [task for task in asked if task not in ledger.gradients]:
        raise HeadsieveError(
            f"Attribution needs gradients, and there is none of {' and '.join(missing)}; use "
            "another strategy."
        )
    foretold = np.array([-ledger.gradients[task] for task in problem.tasks])
    worst = foretold[1:].min(axis=0, initial=0)
    best = np.argsort(foretold[0] - worst, kind="stable")[: ledger.left]
    yield from ledger.ask([(int(head),) for head in best], problem.tasks)
    return _most_selective(ledger)


def _most_selective(ledger: Ledger) -> Recommendation:
    """The heads of most effect on the capability less their worst effect on a control."""
    problem = ledger.problem
    effects = estimate(ledger, np.random.default_rng(problem.seed))
    selectivity = effects.effect - np.fmin(np.nan_to_num(effects.control_effect), 0)
    best = np.argsort(selectivity, kind="stable")[: problem.set_size]
    return Recommendation(
        selected=tuple(int(head) for head in best if selectivity[head] < 0),
        effects=effects,
        frontier=frontier(ledger),
        evaluations=ledger.spent,
        control_evaluations=ledger.control_evaluations,
    )
