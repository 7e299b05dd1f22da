"""A model and the tasks that it is measured on: search and held-out items, through one journal."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headsieve.errors import HeadsieveError, NoGradientError
from headsieve.intervals import proportion_interval
from headsieve.measure.ablation import Ablation, Replacement
from headsieve.measure.items import ItemSet
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.workers import BatchSize, Workers
from headsieve.progress import Progress
from headsieve.scores import LOG_PROB, Score
from headsieve.sensing.problem import Answer, AnyQuestion, GradientQuestion, Masks
from headsieve.tasks import Task
from headsieve.tasks.task import CONTROL_SEARCH_ITEMS, TaskItems

if TYPE_CHECKING:
    from headsieve.models.loading import Model

# A capability's metric must be above chance by this much, at the lower end of its 95 % interval.
_ABOVE_CHANCE = 0.1


def task_words(given: Sequence[str | os.PathLike[str]], what: str) -> list[str]:
    """Names and paths of tasks as text.

    Raises
    ------
    HeadsieveError
        If a single one was given, not a list.
    """
    if isinstance(given, (str, os.PathLike)):
        raise HeadsieveError(
            f"The {what} must be a list of names or paths, as in [{os.fspath(given)!r}], not a "
            "single one."
        )
    return [os.fspath(one) for one in given]


def split_tasks(
    model: Model,
    capabilities: Mapping[str, Task],
    controls: Mapping[str, Task],
    *,
    seed: int,
    limit: int | None,
    control_items: int = CONTROL_SEARCH_ITEMS,
) -> dict[str, TaskItems]:
    """Search and held-out items of every task, tokenised.

    Parameters
    ----------
    model : Model
    capabilities, controls : mapping of str to Task
        Controls are searched with fewer items.
    seed : int
        Of the split of items.
    limit : int, optional
        Search items of each task at most, and held-out items too.
    control_items : int
        Search items of each control at most.

    Returns
    -------
    dict of str to TaskItems
    """
    items = {name: task.item_sets(model, seed, limit) for name, task in capabilities.items()}
    for name, task in controls.items():
        own = task.item_sets(model, seed, limit, search_limit=control_items)
        # They tell of heads chosen for the task itself.
        items[name] = replace(own, companions={})
    return items


def replacements(
    items: Mapping[str, TaskItems], ablation: Ablation, seed: int
) -> dict[str, Replacement]:
    """What knocked-out heads give in each task's item sets; empty where it is zero."""
    if ablation == "zero":
        return {}
    found: dict[str, Replacement] = {}
    for task, own in items.items():
        over_search = Replacement.over(ablation, own.search, seed)
        found |= {f"{task} {which}": over_search for which in _item_sets(own)}
    return found


class Workbench:
    """Measures named tasks on their search or held-out items.

    Parameters
    ----------
    model : Model
    capabilities : collection of str
        Names of those tasks that are no controls.
    items : mapping of str to TaskItems
        Of every task, capabilities first.
    journal : Journal
    replacements : mapping of str to Replacement, optional
        What knocked-out heads give in an item set; zero where there is none.
    batch_size : int or "auto"
        Masks in one forward pass.
    progress : Progress
    workers : Workers, optional
        What runs the model; by default this process.
    """

    def __init__(
        self,
        model: Model,
        capabilities: Collection[str],
        items: Mapping[str, TaskItems],
        journal: Journal,
        *,
        replacements: Mapping[str, Replacement] | None = None,
        batch_size: BatchSize,
        progress: Progress,
        workers: Workers | None = None,
    ) -> None:
        self.model = model
        self.capabilities = tuple(capabilities)
        self.items = dict(items)
        self.journal = journal
        self.progress = progress
        self.replacements = dict(replacements or {})
        self._measurer = Measurer(
            model,
            {
                f"{task} {which}": item_set
                for task, own in self.items.items()
                for which, item_set in _item_sets(own).items()
            },
            journal,
            replacements=replacements,
            batch_size=batch_size,
            on_measured=lambda _name, count: progress.advance(count),
            workers=workers,
        )

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of all tasks, capabilities first."""
        return tuple(self.items)

    @property
    def metrics(self) -> dict[str, str]:
        """The metric in which each task's claims are made."""
        return {name: own.held_out.metric for name, own in self.items.items()}

    @property
    def searched_in_nats(self) -> frozenset[str]:
        """Tasks whose search items have no metric but their log-probability."""
        return frozenset(name for name, own in self.items.items() if own.search.metric == LOG_PROB)

    def search(self, masks: Masks, task: str) -> list[Score]:
        """Scores on search items, one a mask."""
        return self._measurer.measure(masks, f"{task} search")

    def held_out(self, masks: Masks, task: str) -> list[Score]:
        """Scores on held-out items, one a mask."""
        return self._measurer.measure(masks, f"{task} held-out")

    def companion(self, masks: Masks, task: str, which: str) -> list[Score]:
        """Scores on what stands beside a task's held-out items (`TaskItems.companions`)."""
        return self._measurer.measure(masks, f"{task} {which}")

    def measure_held_out(self, masks: Masks, tasks: Sequence[str]) -> None:
        """Measure several tasks' held-out items at once, for `held_out` to find."""
        self._measurer.measure_all(masks, [f"{task} held-out" for task in tasks])

    def answer(self, question: AnyQuestion) -> Answer:
        """Measure what a strategy asks for, on search items."""
        if isinstance(question, GradientQuestion):
            return self._gradients(question.tasks)
        return self._search(question.masks, question.tasks)

    def _gradients(self, tasks: Sequence[str]) -> Answer:
        found = {}
        for task in tasks:
            try:
                found[task] = self._measurer.gradient(f"{task} search")
            except NoGradientError as error:
                self.progress.note(f"The search goes without a gradient of {task}: {error}.")
        return found

    def check_baselines(self, *, force: bool) -> None:
        """Refuse capabilities that the model hardly has, and tell of controls that cannot fall.

        Raises
        ------
        HeadsieveError
            If a capability's metric is not clearly above chance and `force` is not set.
        """
        for name, weakness in self.weaknesses():
            what = f"{name}: the model's {weakness}"
            if name not in self.capabilities:
                self.progress.note(f"Control {what}, so it can show little harm.")
            elif not force:
                raise HeadsieveError(
                    f"{what}, so there is too little to localize; choose another capability or use "
                    "--force."
                )
        self._tell_of_slow_ways()

    def weaknesses(self) -> Iterator[tuple[str, str]]:
        """Tasks whose metric is not clearly above chance, and what it is.

        Capabilities come first, and controls are measured after them: a capability that is refused
        costs no control.
        """
        self.progress.stage("Unmodified model", len(self.tasks))
        nothing = np.zeros((1, len(self.model.geometry)), dtype=bool)
        controls = [name for name in self.tasks if name not in self.capabilities]
        for names in (self.capabilities, controls):
            scores = self._search(nothing, names)
            # What is searched on may say nothing of the metric, so what is claimed on must.
            unlike = [name for name in names if self._part(name) == "held-out"]
            self.measure_held_out(nothing, unlike)
            for name in names:
                score = self.held_out(nothing, name)[0] if name in unlike else scores[name][0]
                own = self.items[name]
                items = own.held_out if name in unlike else own.search
                least = items.chance + _ABOVE_CHANCE
                if items.metric != LOG_PROB and (lower := _lower_end(score)) < least:
                    yield (
                        name,
                        f"{items.metric} is {score.metric:.2f} on {len(items)} {self._part(name)} "
                        f"items, not clearly above chance (its 95 % interval begins at {lower:.2f} "
                        f"and should at {least:.2f})",
                    )

    def _part(self, name: str) -> str:
        """Which items show whether the model has a task at all: those of its metric."""
        own = self.items[name]
        return "held-out" if own.search.metric == LOG_PROB != own.held_out.metric else "search"

    def _tell_of_slow_ways(self) -> None:
        for exact, shortcut in (
            (self._measurer.packed, "Sharing prefixes"),
            (self._measurer.reentry, "Skipping the layers below a knockout"),
        ):
            if not exact:
                self.progress.note(
                    f"{shortcut} is not exact for this model and some items, which are therefore "
                    "computed the slow way."
                )

    def _search(self, masks: Masks, tasks: Sequence[str]) -> dict[str, list[Score]]:
        found = self._measurer.measure_all(masks, [f"{task} search" for task in tasks])
        return {task: found[f"{task} search"] for task in tasks}


def _item_sets(items: TaskItems) -> dict[str, ItemSet]:
    """All that is measured of a task, by its name in the journal."""
    return {"search": items.search, "held-out": items.held_out, **items.companions}


def _lower_end(score: Score) -> float:
    """Lower end of the metric's 95 % interval (Wilson)."""
    # Shares of right answers count as answers do, whose variance theirs cannot exceed.
    right = round(min(max(score.metric, 0.0), 1.0) * len(score.value))
    return proportion_interval(right, len(score.value))[0]
