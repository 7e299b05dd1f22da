"""Run methods on a case: every budget, every seed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from efficiency.measures import Calibration, Run, Truth, calibrate
from efficiency.methods import Method, Ranking
from efficiency.shapley import UnableError
from headsieve.errors import HeadsieveError
from headsieve.sensing.problem import Answer, AnyQuestion, Columns, Problem

# Methods that need as many evaluations as they need, whatever the budget: so many times the heads.
_ROUNDS = {"exhaustive": 1, "greedy": 5}
# Above so many heads iterative greedy search takes too long to be compared.
_MOST_GREEDY = 300


class Subject(Protocol):
    """What a search is run on."""

    def problem(self, budget: int) -> Problem:
        """What the search is given."""
        ...

    def answer(self, question: AnyQuestion) -> Answer:
        """Scores of the masks that were asked for, or gradients where there are any."""
        ...

    def truth(self) -> Truth:
        """What is known of the heads."""
        ...

    def held_out_drops(self, chosen: Columns) -> tuple[float, float]:
        """Drop of the capability, and the largest of a control, on held-out items."""
        ...


# Makes the subject of a seed.
MakeSubject = Callable[[int], Subject]


@dataclass
class Comparison:
    """Runs of each method at each budget, and how honest the default search is.

    Attributes
    ----------
    heads : int
    runs : dict
        Of each method and budget, one run a seed.
    calibration : list of Calibration
    """

    heads: int
    runs: dict[str, dict[int, list[Run]]] = field(default_factory=dict)
    calibration: list[Calibration] = field(default_factory=list)


def pooled(comparisons: Sequence[Comparison]) -> Comparison:
    """The runs of several cases of one model taken together."""
    together = Comparison(comparisons[0].heads)
    for one in comparisons:
        for name, runs in one.runs.items():
            for budget, found in runs.items():
                together.runs.setdefault(name, {}).setdefault(budget, []).extend(found)
        together.calibration += one.calibration
    return together


def compare(
    case: str,
    make: MakeSubject,
    methods: Mapping[str, Method],
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> Comparison:
    """Let every method search, at every budget it can use, once a seed."""
    comparison = Comparison(make(seeds[0]).problem(1).heads)
    told: set[str] = set()
    for seed in seeds:
        subject = make(seed)
        truth = subject.truth()
        for name, method in methods.items():
            print(f"{case}, seed {seed}: {name}", file=sys.stderr)
            for budget in enough(name, comparison.heads, budgets):
                try:
                    ranking = answered(method, subject.problem(budget), subject)
                except (HeadsieveError, UnableError) as error:
                    # Some methods cannot do with few evaluations, or with many heads.
                    if str(error) not in told:
                        print(f"{case}: {name} is left out at {budget}: {error}", file=sys.stderr)
                    told.add(str(error))
                    continue
                run = _judged(ranking, truth, subject)
                comparison.runs.setdefault(name, {}).setdefault(budget, []).append(run)
                if name == "adaptive" and ranking.effects is not None:
                    comparison.calibration.append(calibrate(ranking.effects, truth))
    return comparison


def answered(method: Method, problem: Problem, subject: Subject) -> Ranking:
    """Answer a method's questions until it has its ranking."""
    search = method(problem)
    try:
        question = next(search)
        while True:
            question = search.send(subject.answer(question))
    except StopIteration as end:
        ranking: Ranking = end.value
        return ranking


def _judged(ranking: Ranking, truth: Truth, subject: Subject) -> Run:
    drop, control_drop = float("nan"), float("nan")
    if ranking.selected:
        drop, control_drop = subject.held_out_drops(tuple(sorted(ranking.selected)))
    return Run(
        ranking.evaluations,
        truth.kept(ranking.top),
        truth.recall(ranking.top),
        drop,
        control_drop,
    )


def enough(method: str, heads: int, budgets: Sequence[int]) -> Sequence[int]:
    """The budgets that a method is given: these, but for one that needs what it needs."""
    if method not in _ROUNDS:
        return budgets
    if method == "greedy" and heads > _MOST_GREEDY:
        return []
    return [1 + _ROUNDS[method] * heads]
