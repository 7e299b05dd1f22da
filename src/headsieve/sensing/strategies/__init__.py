"""Strategies: each asks for masks, is told their scores, and recommends a set of heads.

A strategy is a generator: it yields a `Question`, is sent the answer, and returns a
`Recommendation`. It draws from its own generator only, so the same answers lead to the same
questions, and replaying a journal resumes a search.
"""

from __future__ import annotations

from collections.abc import Callable

from headsieve.errors import HeadsieveError
from headsieve.sensing.problem import Problem
from headsieve.sensing.strategies.adaptive import adaptive
from headsieve.sensing.strategies.bandits import greedy, halving, thompson
from headsieve.sensing.strategies.baselines import exhaustive, paper
from headsieve.sensing.strategies.recommendation import Search

Strategy = Callable[[Problem], Search]

STRATEGIES: dict[str, Strategy] = {
    "adaptive": adaptive,
    "exhaustive": exhaustive,
    "greedy": greedy,
    "halving": halving,
    "paper": paper,
    "thompson": thompson,
}


def find_strategy(name: str) -> Strategy:
    """A strategy by its name.

    Raises
    ------
    HeadsieveError
        If there is none of this name.
    """
    try:
        return STRATEGIES[name]
    except KeyError:
        raise HeadsieveError(
            f"There is no strategy {name!r}; use {', '.join(sorted(STRATEGIES))}."
        ) from None
