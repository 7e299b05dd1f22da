"""Several tasks averaged: the sets ``math``, ``code`` and ``general``."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from headsieve.measure.items import ItemSet, JoinedItems
from headsieve.measure.texts import Responses
from headsieve.scores import LOG_PROB, Score
from headsieve.tasks.task import TaskItems

if TYPE_CHECKING:
    from headsieve.models.loading import Model
    from headsieve.tasks.task import Task

MEAN = "mean"


@dataclass(frozen=True)
class TaskSet:
    """Tasks of which each counts alike.

    Attributes
    ----------
    name : str
    tasks : tuple of Task
    """

    name: str
    tasks: tuple[Task, ...]

    @property
    def identity(self) -> Hashable:
        """Those of the tasks."""
        return tuple(task.identity for task in self.tasks)

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """Those of all tasks."""
        return frozenset(fact for task in self.tasks for fact in task.facts)

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """The search items of all tasks, and the held-out items of all; a limit is each task's."""
        parts = [
            task.item_sets(model, seed, limit, search_limit=search_limit) for task in self.tasks
        ]
        return TaskItems(
            average([part.search for part in parts]),
            average([part.held_out for part in parts]),
            {
                name: {
                    dataset: numbers
                    for part in parts
                    for dataset, numbers in part.documents.get(name, {}).items()
                }
                for name in ("search", "held-out")
            },
        )

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All items of all tasks; a limit is each task's."""
        return average([task.whole(model, seed, limit) for task in self.tasks])


@dataclass(frozen=True, eq=False)
class AveragedItems(JoinedItems):
    """Item sets of which each counts alike in the mean, whatever their metrics.

    Where one of them is measured in nats, all are.
    """

    @property
    def metric(self) -> str:
        """That of all parts, ``log_prob`` if that of any, else ``mean`` (of shares)."""
        metrics = {part.metric for part in self.parts}
        if LOG_PROB in metrics:
            return LOG_PROB
        return metrics.pop() if len(metrics) == 1 else MEAN

    def score(self, responses: Responses) -> Score:
        """Item scores of all parts."""
        score = super().score(responses)
        if self.metric == LOG_PROB:
            return replace(score, value=self.weights * score.floored)
        return score


def average(parts: Sequence[ItemSet]) -> AveragedItems:
    """Item sets as one, in whose mean each of them counts alike."""
    sizes = np.array([len(part) for part in parts])
    return AveragedItems(tuple(parts), np.repeat(sizes.sum() / (len(sizes) * sizes), sizes))
