"""The head-count curve: what each further head knocked out does to every task."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from headsieve.errors import HeadsieveError

if TYPE_CHECKING:
    from headsieve.results import Interval

_COLUMNS = ("task", "metric", "knocked_out", "head", "value", "ci_low", "ci_high")


@dataclass(frozen=True)
class Curve:
    """Claim metrics of the capability and its controls with 0, 1, … K heads knocked out.

    Attributes
    ----------
    heads : tuple of str
        The K heads in order of knocking out.
    metric : dict of str to str
        What each task's values are: ``log_prob``, or a share (``accuracy``, ``acc_norm``).
    values : dict of str to tuple of float
        K + 1 values of each task; the first is the unmodified model's.
    capability : str
        Which of the tasks is the capability; the others are controls.
    ci : tuple of tuple of float
        K + 1 intervals (95 %) of the capability's metric.
    """

    heads: tuple[str, ...]
    metric: dict[str, str]
    values: dict[str, tuple[float, ...]]
    capability: str
    ci: tuple[Interval, ...]

    def __post_init__(self) -> None:
        if self.capability not in self.values or set(self.values) != set(self.metric):
            raise HeadsieveError("A curve needs values and a metric for every task it names.")
        points = len(self.heads) + 1
        if {len(self.ci), *map(len, self.values.values())} != {points}:
            raise HeadsieveError(
                f"A curve over {len(self.heads)} heads has {points} values for each task and as "
                "many intervals."
            )

    @property
    def idle(self) -> tuple[str, ...]:
        """Heads that, after those before them, do not lower the capability's metric."""
        own = self.values[self.capability]
        return tuple(
            head
            for head, before, after in zip(self.heads, own[:-1], own[1:], strict=True)
            if after >= before
        )

    def to_csv(self) -> str:
        """The curve as a CSV table, a line for each task and count, numbers unrounded.

        The capability comes first, and only its lines have an interval.
        """
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        controls = (task for task in self.values if task != self.capability)
        for task in (self.capability, *controls):
            for count, value in enumerate(self.values[task]):
                head = self.heads[count - 1] if count else ""
                ci = self.ci[count] if task == self.capability else ("", "")
                writer.writerow((task, self.metric[task], count, head, value, *ci))
        return text.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> Curve:
        """Read what `to_csv` wrote.

        Raises
        ------
        HeadsieveError
            If the text is not such a table.
        """
        rows = list(csv.DictReader(io.StringIO(text)))
        if not rows or tuple(rows[0]) != _COLUMNS:
            raise HeadsieveError(f"A curve's CSV file has the columns {', '.join(_COLUMNS)}.")
        capability = rows[0]["task"]
        own = [row for row in rows if row["task"] == capability]
        values: dict[str, tuple[float, ...]] = {}
        try:
            for row in rows:
                values[row["task"]] = (*values.get(row["task"], ()), float(row["value"]))
            ci = tuple((float(row["ci_low"]), float(row["ci_high"])) for row in own)
        except (TypeError, ValueError) as error:
            raise HeadsieveError(f"A curve's CSV file holds something odd: {error}.") from error
        if not np.isfinite([*chain.from_iterable(values.values()), *chain.from_iterable(ci)]).all():
            raise HeadsieveError("A curve's CSV file holds something that is no finite number.")
        return cls(
            heads=tuple(row["head"] for row in own[1:]),
            metric={row["task"]: row["metric"] for row in rows},
            values=values,
            capability=capability,
            ci=ci,
        )
