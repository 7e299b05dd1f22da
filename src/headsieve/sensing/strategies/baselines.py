"""Strategies to compare with: the paper's recipe and exhaustive search."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.sensing.choice import frontier
from headsieve.sensing.designs import stratified
from headsieve.sensing.problem import Answer, Ledger, Problem, Question, to_masks, to_sets
from headsieve.sensing.recovery import Effects, estimate, lasso
from headsieve.sensing.strategies.recommendation import Recommendation

PAPER_DENSITY = 0.02


def paper(problem: Problem) -> Generator[Question, Answer, Recommendation]:
    """The recipe of arXiv 2603.03335: random masks of 2 %, the Lasso on z-scored accuracies.

    The whole budget goes into one stratified design. The most negative coefficients are the
    heads. Controls play no part in it, and neither does the unmodified model.
    """
    rng = np.random.default_rng(problem.seed)
    ledger = Ledger(problem)
    masks = stratified(problem.budget, problem.heads, PAPER_DENSITY, rng)
    yield from ledger.ask(to_sets(masks), [problem.capability])
    scores = ledger.scores[problem.capability]
    sets = list(scores)
    accuracy = np.array([scores[chosen].metric for chosen in sets])
    coefficients = lasso(to_masks(sets, problem.heads), accuracy)
    best = np.argsort(coefficients, kind="stable")[: problem.set_size]
    nothing = np.zeros(problem.heads)
    return Recommendation(
        selected=tuple(int(head) for head in best if coefficients[head] < 0),
        effects=Effects(coefficients, coefficients, coefficients, nothing, nothing, ()),
        frontier=[],
        evaluations=ledger.spent,
        control_evaluations=0,
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
    selectivity = effects.effect - np.minimum(effects.control_effect, 0)
    best = np.argsort(selectivity, kind="stable")[: problem.set_size]
    return Recommendation(
        selected=tuple(int(head) for head in best if selectivity[head] < 0),
        effects=effects,
        frontier=frontier(ledger),
        evaluations=ledger.spent,
        control_evaluations=ledger.control_evaluations,
    )
