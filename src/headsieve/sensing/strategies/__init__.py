"""Strategies: each asks for masks, is told their scores, and recommends a set of heads.

A strategy is a generator: it yields a `Question`, is sent the answer, and returns a
`Recommendation`. It draws from its own generator only, so the same answers lead to the same
questions, and replaying a journal resumes a search.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from headsieve.errors import HeadsieveError
from headsieve.sensing.problem import Answer, AnyQuestion, Problem
from headsieve.sensing.strategies.adaptive import adaptive
from headsieve.sensing.strategies.bandits import greedy, halving, thompson
from headsieve.sensing.strategies.baselines import attribution, exhaustive, paper
from headsieve.sensing.strategies.recommendation import Recommendation, Search

Strategy = Callable[[Problem], Search]
Found = TypeVar("Found")

STRATEGIES: dict[str, Strategy] = {
    "adaptive": adaptive,
    "attribution": attribution,
    "exhaustive": exhaustive,
    "greedy": greedy,
    "halving": halving,
    "paper": paper,
    "thompson": thompson,
}


def search(
    strategy: Strategy, problem: Problem, answer: Callable[[AnyQuestion], Answer]
) -> Recommendation:
    """Answer a strategy's questions until it recommends a set."""
    return answered(strategy(problem), answer)


def answered(
    asking: Generator[AnyQuestion, Answer, Found], answer: Callable[[AnyQuestion], Answer]
) -> Found:
    """Answer all questions; returns what the one who asks ends with."""
    try:
        question = next(asking)
        while True:
            question = asking.send(answer(question))
    except StopIteration as end:
        found: Found = end.value
        return found


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
