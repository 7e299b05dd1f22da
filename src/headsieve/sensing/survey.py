"""A survey: many capabilities under the same masks, each the others' control.

Like a strategy it asks and is told, so that replaying a journal resumes it. It ends with what was
measured, from which effects and sets are read off for each capability.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import cast

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.scores import Score
from headsieve.sensing.designs import dispersed
from headsieve.sensing.problem import (
    Answer,
    AnyQuestion,
    Columns,
    GradientQuestion,
    Ledger,
    Problem,
    to_sets,
)
from headsieve.sensing.recovery import FloatArray
from headsieve.sensing.strategies.adaptive import (
    SMALLEST_BUDGET,
    candidates,
    expected,
    proposal,
)
from headsieve.sensing.strategies.recommendation import Step

# Shares of the budget: until the end of the screening, and of the single knockouts.
_SCREENED = 0.4
_SINGLED = 0.8

# The pilot: so many masks at each of these densities.
_PILOT_DENSITIES = (0.02, 0.04, 0.08)
_PILOT_MASKS = 2
# Masks tell most when they take about half of what the capabilities have.
_AIM = 0.5

Survey = Generator[AnyQuestion, Answer, list[Ledger]]


def survey(problems: Sequence[Problem]) -> Survey:
    """Measure many capabilities under the same masks.

    1. Measure the unmodified model and, with a gradient prior, gradients; then two random masks at
       each of three densities, and more at the one that leaves about half of the capabilities.
    2. Decode effects for each capability. In turn, all capabilities together and each of them name
       the head that promises most (to the latter in selectivity), which is knocked out alone.
    3. In turn, each capability names the set that promises it most.

    Every mask is measured on every capability.

    Parameters
    ----------
    problems : sequence of Problem
        One a capability, of the same model, budget, seed and prior. Controls are the other
        capabilities, or some of them.

    Returns
    -------
    list of Ledger
        One a problem; all of them hold the same scores.

    Raises
    ------
    HeadsieveError
        If the budget is too small for all stages.
    """
    first = problems[0]
    if first.budget < SMALLEST_BUDGET:
        raise HeadsieveError(
            f"A budget of {first.budget} is too small for an atlas, whose stages need "
            f"{SMALLEST_BUDGET}; raise --budget."
        )
    names = tuple(problem.capability for problem in problems)
    scores: dict[str, dict[Columns, Score]] = {name: {} for name in names}
    gradients: dict[str, FloatArray] = {}
    ledgers = [Ledger(problem) for problem in problems]
    for ledger in ledgers:
        ledger.scores, ledger.gradients = scores, gradients
    yield from ledgers[0].ask([()], names)
    if first.prior == "gradient":
        answer = yield GradientQuestion(names)
        gradients |= {name: cast(FloatArray, found) for name, found in answer.items()}
    yield from _screen(ledgers, names)
    yield from _singles(ledgers, names)
    yield from _sets(ledgers, names)
    return ledgers


def _spent(ledgers: Sequence[Ledger]) -> int:
    """Evaluations so far, of the capability that took most: not every one has a gradient."""
    return max(one.spent for one in ledgers)


def _screen(ledgers: Sequence[Ledger], names: Sequence[str]) -> Step:
    problem = ledgers[0].problem
    rng = np.random.default_rng(problem.seed)
    masks = np.zeros((0, problem.heads), dtype=bool)
    left: list[float] = []
    for density in _PILOT_DENSITIES:
        more = dispersed(_PILOT_MASKS, problem.heads, density, rng, before=masks)
        masks = np.concatenate([masks, more])
        yield from ledgers[0].ask(to_sets(more), names)
        left.append(
            float(
                np.mean([max(one.remaining(mask), 0) for one in ledgers for mask in to_sets(more)])
            )
        )
    density = _PILOT_DENSITIES[int(np.argmin(np.abs(np.array(left) - _AIM)))]
    count = int(_SCREENED * problem.budget) - _spent(ledgers)
    more = dispersed(max(count, 0), problem.heads, density, rng, before=masks)
    yield from ledgers[0].ask(to_sets(more), names)


def _singles(ledgers: Sequence[Ledger], names: Sequence[str]) -> Step:
    last = int(_SINGLED * ledgers[0].problem.budget)
    while (count := last - _spent(ledgers)) > 0:
        effects = expected(ledgers[0], names)
        measured = {chosen for chosen in ledgers[0].scores[names[0]] if len(chosen) == 1}
        named = [next(iter(candidates(one, effects)), None) for one in ledgers]
        shared = _general(effects)
        turn = [next((one for one in shared if one not in measured), None), *named]
        chosen = list(dict.fromkeys(one for one in turn if one is not None))[:count]
        if not chosen:
            return
        yield from ledgers[0].ask(chosen, names)


def _general(effects: dict[str, FloatArray]) -> list[Columns]:
    """Heads by their effect on all capabilities together, the most needed first."""
    shared = np.mean(list(effects.values()), axis=0)
    return [(int(head),) for head in np.argsort(shared, kind="stable")]


def _sets(ledgers: Sequence[Ledger], names: Sequence[str]) -> Step:
    while (count := ledgers[0].problem.budget - _spent(ledgers)) > 0:
        promised = [proposal(one) for one in ledgers]
        chosen = list(dict.fromkeys(one for one in promised if one is not None))[:count]
        if not chosen:
            return
        yield from ledgers[0].ask(chosen, names)
