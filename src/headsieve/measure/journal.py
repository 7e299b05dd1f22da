"""The journal: every finished measurement, in SQLite, never lost and never made twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.scores import GRADIENT_COST, Score

# Raise this when the same model, items and mask come to give other numbers than before.
SCORING_VERSION = 1

_MEASUREMENTS = """
CREATE TABLE IF NOT EXISTS measurements (
    model TEXT NOT NULL, items TEXT NOT NULL, dtype TEXT NOT NULL, scoring INTEGER NOT NULL,
    mask TEXT NOT NULL, task TEXT NOT NULL, log_prob BLOB NOT NULL, value BLOB NOT NULL,
    margin BLOB NOT NULL,
    tokens INTEGER NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (model, items, dtype, scoring, mask)
) WITHOUT ROWID
"""
_GRADIENTS = """
CREATE TABLE IF NOT EXISTS gradients (
    model TEXT NOT NULL, items TEXT NOT NULL, dtype TEXT NOT NULL, scoring INTEGER NOT NULL,
    mask TEXT NOT NULL, task TEXT NOT NULL, gradient BLOB NOT NULL,
    tokens INTEGER NOT NULL, seconds REAL NOT NULL,
    PRIMARY KEY (model, items, dtype, scoring, mask)
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Key:
    """What a measurement is a measurement of.

    Attributes
    ----------
    model, items : str
        Fingerprints.
    dtype : str
    mask : str
        Names of the heads knocked out, in the model's order, separated by commas.
    ablation : str
        What they give instead of their outputs: ``zero``, or a replacement's label.
    """

    model: str
    items: str
    dtype: str
    mask: str
    ablation: str = "zero"

    @property
    def columns(self) -> tuple[str | int, ...]:
        """The key as the tables hold it; an ablation that is not zero follows its mask."""
        mask = self.mask if self.ablation == "zero" else f"{self.mask} {self.ablation}"
        return (self.model, self.items, self.dtype, SCORING_VERSION, mask)


@dataclass(frozen=True)
class Entry:
    """A finished measurement: its key, its task's name, its score and what it cost."""

    key: Key
    task: str
    score: Score
    tokens: int
    seconds: float


class Journal:
    """Measurements in a file, or in memory without a path.

    Parameters
    ----------
    path : Path, optional
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        try:
            self._connection = sqlite3.connect(path or ":memory:")
            with self._connection:
                self._connection.execute(_MEASUREMENTS)
                self._connection.execute(_GRADIENTS)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def get(self, key: Key) -> Score | None:
        """The score of a measurement made before, or None."""
        row = self._first(
            "SELECT log_prob, value, margin FROM measurements"
            " WHERE model = ? AND items = ? AND dtype = ? AND scoring = ? AND mask = ?",
            key.columns,
        )
        return None if row is None else self._score(row)

    def masks(self, model: str, items: str, dtype: str, ablation: str = "zero") -> dict[str, Score]:
        """All scores of one item set under one ablation, that of the unmodified model among them.

        They are by the mask's heads as in `Key`, in order of their names.
        """
        try:
            rows = self._connection.execute(
                "SELECT mask, log_prob, value, margin FROM measurements"
                " WHERE model = ? AND items = ? AND dtype = ? AND scoring = ? ORDER BY mask",
                (model, items, dtype, SCORING_VERSION),
            ).fetchall()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        found = {}
        for stored, *blobs in rows:
            mask, _, label = stored.partition(" ")
            if not mask or (label or "zero") == ablation:
                found[mask] = self._score(blobs)
        return found

    def add(self, entries: Iterable[Entry]) -> None:
        """Keep finished measurements: all of them or, if the process dies, none."""
        rows = [
            (
                *(*entry.key.columns, entry.task),
                entry.score.log_prob.tobytes(),
                entry.score.value.tobytes(),
                entry.score.margin.tobytes(),
                *(entry.tokens, entry.seconds),
            )
            for entry in entries
        ]
        if rows:
            self._insert("measurements", rows)

    def gradient(self, key: Key) -> NDArray[np.float64] | None:
        """A gradient computed before, or None; empty if there was none to be had."""
        row = self._first(
            "SELECT gradient FROM gradients"
            " WHERE model = ? AND items = ? AND dtype = ? AND scoring = ? AND mask = ?",
            key.columns,
        )
        if row is None:
            return None
        return np.zeros(0) if row[0] == b"" else self._numbers(row[0])

    def add_gradient(
        self, key: Key, task: str, gradient: NDArray[np.float64], tokens: int, seconds: float
    ) -> None:
        """Keep a gradient; an empty one says that there is none to be had."""
        self._insert("gradients", [(*key.columns, task, gradient.tobytes(), tokens, seconds)])

    def totals(self) -> tuple[int, int, float]:
        """Number of measurements, and the tokens and seconds they took.

        A gradient counts as `GRADIENT_COST` measurements.
        """
        row = self._first(
            "SELECT SUM(count), SUM(tokens), SUM(seconds) FROM"
            " (SELECT 1 AS count, tokens, seconds FROM measurements"
            " UNION ALL SELECT ?, tokens, seconds FROM gradients WHERE gradient != x'')",
            (GRADIENT_COST,),
        )
        count, tokens, seconds = row or (0, 0, 0)
        return int(count or 0), int(tokens or 0), float(seconds or 0)

    def _score(self, blobs: Sequence[object]) -> Score:
        log_prob, value, margin = (self._numbers(blob) for blob in blobs)
        if not len(log_prob) == len(value) == len(margin):
            raise HeadsieveError(f"{self._path} is damaged: item scores are missing.")
        return Score(log_prob, value, margin)

    def _numbers(self, blob: object) -> NDArray[np.float64]:
        if not isinstance(blob, bytes) or not blob or len(blob) % 8:
            raise HeadsieveError(f"{self._path} is damaged: a measurement holds no numbers.")
        return np.frombuffer(blob)

    def _first(self, query: str, values: tuple[object, ...]) -> tuple[Any, ...] | None:
        try:
            row: tuple[Any, ...] | None = self._connection.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise self._failure(error) from error
        return row

    def _insert(self, table: str, rows: Sequence[tuple[object, ...]]) -> None:
        places = ", ".join("?" * len(rows[0]))
        try:
            with self._connection:
                self._connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)
        except sqlite3.Error as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Close the file; what was added stays."""
        self._connection.close()

    def _failure(self, error: sqlite3.Error) -> HeadsieveError:
        return HeadsieveError(f"Cannot keep measurements in {self._path}: {error}.")
