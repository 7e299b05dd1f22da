"""A model and the tasks that it is measured on: search and held-out items, through one journal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.intervals import proportion_interval
from headsieve.measure.ablation import Ablation, Replacement
from headsieve.measure.items import ItemSet, tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.workers import BatchSize, Workers
from headsieve.progress import Progress
from headsieve.scores import Score
from headsieve.sensing.problem import Answer, AnyQuestion, GradientQuestion, Masks
from headsieve.tasks import Task

if TYPE_CHECKING:
    from headsieve.models.loading import Model

CONTROL_SEARCH_ITEMS = 24
# Accuracy must be above chance by this much, at the lower end of its 95 % interval.
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
) -> dict[str, ItemSet]:
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
    dict of str to ItemSet
        Under ``NAME search`` and ``NAME held-out``.
    """
    item_sets: dict[str, ItemSet] = {}
    for name, task in {**capabilities, **controls}.items():
        split = task.split(seed, limit)
        search = split.search
        if name in controls:
            search = search[:control_items]
        for part, items in (("search", search), ("held-out", split.held_out)):
            item_sets[f"{name} {part}"] = tokenize(items, split.prefix, task.kind, model.tokenizer)
    return item_sets


def replacements(
    item_sets: Mapping[str, ItemSet], ablation: Ablation, seed: int
) -> dict[str, Replacement]:
    """What knocked-out heads give in the item sets of `split_tasks`; empty where it is zero."""
    if ablation == "zero":
        return {}
    return {
        name: Replacement(ablation, item_sets[f"{name.rpartition(' ')[0]} search"], seed)
        for name in item_sets
    }


class Workbench:
    """Measures named tasks on their search or held-out items.

    Parameters
    ----------
    model : Model
    capabilities, controls : mapping of str to Task
    item_sets : mapping of str to ItemSet
        What `split_tasks` makes of them.
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
        capabilities: Mapping[str, Task],
        controls: Mapping[str, Task],
        item_sets: Mapping[str, ItemSet],
        journal: Journal,
        *,
        replacements: Mapping[str, Replacement] | None = None,
        batch_size: BatchSize,
        progress: Progress,
        workers: Workers | None = None,
    ) -> None:
        self.model = model
        self.capabilities = dict(capabilities)
        self.tasks = {**capabilities, **controls}
        self.metrics = {name: task.metric for name, task in self.tasks.items()}
        self.journal = journal
        self.progress = progress
        self._measurer = Measurer(
            model,
            item_sets,
            journal,
            replacements=replacements,
            batch_size=batch_size,
            on_measured=lambda _name, count: progress.advance(count),
            workers=workers,
        )

    def search(self, masks: Masks, task: str) -> list[Score]:
        """Scores on search items, one a mask."""
        return self._measurer.measure(masks, f"{task} search")

    def held_out(self, masks: Masks, task: str) -> list[Score]:
        """Scores on held-out items, one a mask."""
        return self._measurer.measure(masks, f"{task} held-out")

    def measure_held_out(self, masks: Masks, tasks: Sequence[str]) -> None:
        """Measure several tasks' held-out items at once, for `held_out` to find."""
        self._measurer.measure_all(masks, [f"{task} held-out" for task in tasks])

    def answer(self, question: AnyQuestion) -> Answer:
        """Measure what a strategy asks for, on search items."""
        if isinstance(question, GradientQuestion):
            return {task: self._measurer.gradient(f"{task} search") for task in question.tasks}
        return self._search(question.masks, question.tasks)

    def check_baselines(self, *, force: bool) -> None:
        """Refuse capabilities that the model hardly has, and tell of controls that cannot fall.

        Raises
        ------
        HeadsieveError
            If a capability's accuracy is not clearly above chance and `force` is not set.
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
        """Tasks whose accuracy is not clearly above chance, and what it is.

        Capabilities come first, and controls are measured after them: a capability that is refused
        costs no control.
        """
        self.progress.stage("Unmodified model", len(self.tasks))
        nothing = np.zeros((1, len(self.model.geometry)), dtype=bool)
        controls = [name for name in self.tasks if name not in self.capabilities]
        for names in (list(self.capabilities), controls):
            for name, (score,) in self._search(nothing, names).items():
                task = self.tasks[name]
                least = task.chance + _ABOVE_CHANCE
                if task.kind != "text" and (lower := _lower_end(score)) < least:
                    yield (
                        name,
                        f"accuracy is {score.metric:.2f} on {len(score.value)} search items, not "
                        f"clearly above chance (its 95 % interval begins at {lower:.2f} and should "
                        f"at {least:.2f})",
                    )

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


def _lower_end(score: Score) -> float:
    """Lower end of the accuracy's 95 % interval (Wilson)."""
    return proportion_interval(int(score.value.sum()), len(score.value))[0]
