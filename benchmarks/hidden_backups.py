"""Heads that back each other up: how often a search finds both, where neither alone does anything.

A simulated model of 270 heads has a capability that needs one of two heads: with either it answers,
without both it does not. Every head takes a little off every item's margin besides, as noise. A
strategy has found the two if the set that it recommends has both.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from headsieve.scores import Score
from headsieve.sensing.problem import Answer, AnyQuestion, Problem, Question
from headsieve.sensing.strategies import find_strategy, search

HEADS = 270
ITEMS = 32
PAIR = (70, 180)
_MARGIN, _SPREAD = 1.5, 0.7
_LOSS = 6.0
_BACKGROUND = 0.02


class Model:
    """A capability with a pair of heads behind it, and a control without."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.margin = {task: rng.normal(_MARGIN, _SPREAD, ITEMS) for task in ("skill", "control")}
        self.background = rng.exponential(_BACKGROUND, HEADS)

    def answer(self, question: AnyQuestion) -> Answer:
        assert isinstance(question, Question)
        return {
            task: [self._score(task, mask) for mask in question.masks] for task in question.tasks
        }

    def _score(self, task: str, mask: NDArray[np.bool_]) -> Score:
        lost = mask @ self.background
        if task == "skill" and mask[list(PAIR)].all():
            lost += _LOSS
        margin = self.margin[task] - lost
        return Score(-np.logaddexp(0, -margin), (margin > 0).astype(float), margin)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="simulated models (%(default)s)")
    options = parser.parse_args()
    print("| strategy | budget | both found | one found |")
    print("| --- | --- | --- | --- |")
    for strategy, budget in (("exhaustive", HEADS + 1), ("adaptive", 100)):
        found = []
        for seed in range(options.seeds):
            problem = Problem(
                heads=HEADS,
                capability="skill",
                controls={"control": 0.05},
                budget=budget,
                set_size=5,
                seed=seed,
                in_nats=frozenset(),
            )
            selected = search(find_strategy(strategy), problem, Model(seed).answer).selected
            found.append(len(set(selected) & set(PAIR)))
        both, one = found.count(2), found.count(1)
        print(f"| {strategy} | {budget} | {both} of {options.seeds} | {one} of {options.seeds} |")


if __name__ == "__main__":
    main()
