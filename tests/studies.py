"""Small studies of a tiny model on two task files of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from headsieve.localization import locate
from headsieve.models.loading import Model
from headsieve.progress import Progress
from headsieve.study import Study

OPTIONS: dict[str, Any] = {
    "controls": ["other.json"],
    "budget": 24,
    "heads": 3,
    "max_control_drop": 1.0,
    "limit": 6,
    "force": True,
}


def find(model: Model, *capabilities: str | Path, **options: Any) -> Study:
    return locate(model, capabilities or ["skill.json"], **OPTIONS | options)


def rows(journal: Path) -> int:
    """Evaluations that a journal holds; a gradient costs three."""
    count = "SELECT (SELECT COUNT(*) FROM measurements) + 3 * (SELECT COUNT(*) FROM gradients)"
    with sqlite3.connect(journal) as connection:
        return int(connection.execute(count).fetchone()[0])


class Counting(Progress):
    """Counts evaluations; interrupts, as Ctrl-C does, once there are `last`."""

    def __init__(self, last: int | None = None) -> None:
        self.last = last
        self.made = 0

    def advance(self, count: int) -> None:
        self.made += count
        if self.last is not None and self.made >= self.last:
            raise KeyboardInterrupt
