"""Worked examples of `mbpp.yaml`, which the harness loads."""

from __future__ import annotations

from typing import Any


def usual(rows: Any) -> Any:
    """The tasks 2, 3 and 4, which everybody gives as examples."""
    return rows.filter(lambda row: row["task_id"] in (2, 3, 4))
