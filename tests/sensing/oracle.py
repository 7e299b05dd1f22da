"""A stand-in for model and measurer: scores that follow from planted heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headsieve.scores import Score
from headsieve.sensing.problem import Answer, AnyQuestion, GradientQuestion, Problem, Question
from headsieve.sensing.strategies import Strategy, search
from headsieve.sensing.strategies.recommendation import Recommendation

ITEMS = 40
SELECTIVE = (7, 31, 48)
GENERAL = (3, 20)


@dataclass
class Oracle:
    """Answers questions, and remembers them.

    A planted head costs every item about `nats`, more or less by item, and any head `background`;
    an answer is right while its log-probability is above -1, by the margin between the two.
    """

    needs: Mapping[str, Sequence[int]]
    nats: float = 1.2
    background: float = 0.01
    heads: int = 60
    asked: list[Question] = field(default_factory=list)
    slopes_asked: int = 0

    def answer(self, question: AnyQuestion) -> Answer:
        if isinstance(question, GradientQuestion):
            self.slopes_asked += 1
            return {task: self._slopes(task) for task in question.tasks}
        self.asked.append(question)
        return {
            task: [self._score(task, mask) for mask in question.masks] for task in question.tasks
        }

    def _slopes(self, task: str) -> NDArray[np.float64]:
        heads = np.arange(self.heads)
        closed = [self._score(task, heads == head).search for head in heads]
        return self._score(task, heads < 0).search - np.array(closed)

    def _score(self, task: str, mask: NDArray[np.bool_]) -> Score:
        sensitivity = np.random.default_rng(len(task)).uniform(0.4, 1.6, (ITEMS, mask.size))
        planted = np.isin(np.arange(mask.size), self.needs[task]) * self.nats
        log_prob = -0.1 - sensitivity @ (mask * (planted + self.background))
        return Score(log_prob, (log_prob > -1).astype(float), log_prob + 1)

    def evaluations(self, task: str) -> int:
        """Count the masks asked for."""
        return sum(len(question.masks) for question in self.asked if task in question.tasks)


def run(strategy: Strategy, problem: Problem, oracle: Oracle) -> Recommendation:
    """Let a strategy ask until it recommends."""
    return search(strategy, problem, oracle.answer)
