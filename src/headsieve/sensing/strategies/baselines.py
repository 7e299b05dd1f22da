"""Strategies to compare with: the paper's recipe and exhaustive search."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.scores import Score
from headsieve.sensing.choice import frontier
from headsieve.sensing.designs import stratified
from headsieve.sensing.problem import (
    Answer,
    Columns,
    Ledger,
    Masks,
    Problem,
    Question,
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
from headsieve.sensing.strategies.recommendation import Recommendation

PAPER_DENSITY = 0.02


def paper(problem: Problem) -> Generator[Question, Answer, Recommendation]:
    """The recipe of arXiv 2603.03335: random masks of 2 %, the Lasso on z-scored accuracies.

    The whole budget goes into one stratified design. The most negative coefficients are the
    heads. Controls play no part in it, and neither does the unmodified model. The effects that it
    reports are decoded from the same masks, in nats as those of the other strategies.
    """
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


def exhaustive(problem: Problem) -> Generator[Question, Answer, Recommendation]:
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
    effects = estimate(ledger, np.random.default_rng(problem.seed))
    selectivity = effects.effect - np.fmin(effects.control_effect, 0)
    best = np.argsort(selectivity, kind="stable")[: problem.set_size]
    return Recommendation(
        selected=tuple(int(head) for head in best if selectivity[head] < 0),
        effects=effects,
        frontier=frontier(ledger),
        evaluations=ledger.spent,
        control_evaluations=ledger.control_evaluations,
    )
