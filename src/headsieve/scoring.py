"""Scoring tasks with and without heads, outside any search."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.intervals import value_interval
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.models.heads import AnyUnit
from headsieve.models.knockout import require_unmodified
from headsieve.progress import Progress
from headsieve.results import TaskScore
from headsieve.scores import Score
from headsieve.sensing.problem import to_masks
from headsieve.tasks import HarnessOptions
from headsieve.tasks.selection import by_name
from headsieve.verify import claim
from headsieve.workbench import task_words

if TYPE_CHECKING:
    from headsieve.models.loading import Model


def score(
    model: Model,
    tasks: Sequence[str | os.PathLike[str]],
    *,
    knockout: Sequence[AnyUnit | str] | None = None,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | Literal["auto"] = "auto",
    harness: HarnessOptions | None = None,
    progress: Progress | None = None,
) -> dict[str, TaskScore]:
    """Measure tasks on all their items but the few-shot examples.

    Parameters
    ----------
    model : Model
    tasks : sequence of str or path
        Built-in names, task files, or ``lm-eval:NAME``.
    knockout : sequence of Head, Unit or str, optional
        Heads, or other units of one kind, to knock out.
    seed : int
        Of the choice of few-shot examples, and of items where there is a limit.
    limit : int, optional
        Items of each task at most; of lm-evaluation-harness' tasks, the first so many documents.
    batch_size : int or "auto"
    harness : HarnessOptions, optional
        How tasks of lm-evaluation-harness are asked.
    progress : Progress, optional

    Returns
    -------
    dict of str to TaskScore

    Raises
    ------
    HeadsieveError
        If a task or head is unknown.
    """
    progress = progress or Progress()
    if limit is not None and limit < 1:
        raise HeadsieveError(f"The limit must be at least 1 item, not {limit}.")
    if seed < 0:
        raise HeadsieveError(f"The seed must be 0 or more, not {seed}.")
    require_unmodified(model.hf, model.geometry)
    columns: tuple[int, ...] = ()
    if knockout is not None:
        model = model.with_units(model.geometry.units_of(knockout))
        columns = tuple(sorted(model.geometry.columns(knockout)))
    if knockout is not None and not columns:
        raise HeadsieveError("No heads to knock out were given.")
    named = by_name(task_words(tasks, "tasks"), {}, harness)
    item_sets = {name: task.whole(model, seed, limit) for name, task in named.items()}
    measurer = Measurer(
        model,
        item_sets,
        Journal(),
        batch_size=batch_size,
        on_measured=lambda _name, count: progress.advance(count),
    )
    masks = to_masks([(), columns] if columns else [()], len(model.geometry))
    progress.stage("Scoring", len(masks) * len(item_sets))
    rng = np.random.default_rng([seed, 1])
    results: dict[str, TaskScore] = {}
    for name, item_set in item_sets.items():
        before, *after = measurer.measure(masks, name)
        results[name] = _task_score(item_set.metric, before, after[0] if after else None, rng)
    return results


def _task_score(
    metric: str, before: Score, after: Score | None, rng: np.random.Generator
) -> TaskScore:
    if after is not None:
        return TaskScore(**claim(metric, before, after, rng).model_dump())
    return TaskScore.model_validate(
        {
            "metric": metric,
            "items": len(before.value),
            "baseline": before.metric,
            "knocked_out": None,
            "drop": None,
            "ci": value_interval(metric, before.value, rng),
        }
    )
