"""What a method kept of the truth, and whether its intervals are honest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headsieve.sensing.problem import Columns
from headsieve.sensing.recovery import Effects

FloatArray = NDArray[np.float64]

TOP = 5
# A head of which a resampling share of so much is selected is called certain.
CERTAIN = 0.9
# An effect below this share of the largest is none that anyone looks for.
_OF_NOTE = 0.05


@dataclass(frozen=True)
class Truth:
    """What is known of a case's heads.

    Attributes
    ----------
    effect : ndarray, shape (heads,)
        On the capability's search score, in nats.
    selective : ndarray, shape (heads,)
        The effect less the worst effect on a control: what a ranking is held against.
    """

    effect: FloatArray
    selective: FloatArray

    @property
    def best(self) -> NDArray[np.int64]:
        """The `TOP` most selective heads, fewer where fewer have an effect of note."""
        order = np.argsort(self.selective, kind="stable")[:TOP]
        of_note = self.selective[order] < _OF_NOTE * self.selective[order[0]]
        return np.asarray(order[of_note], dtype=np.int64)

    def kept(self, top: Columns) -> float:
        """Share of the effect of the best heads that the chosen ones have."""
        found = np.minimum(self.selective[list(top[: len(self.best)])], 0).sum()
        return float(found / self.selective[self.best].sum())

    def recall(self, top: Columns) -> float:
        """Share of the best heads that were chosen."""
        return len(set(top[:TOP]) & set(self.best.tolist())) / len(self.best)


@dataclass(frozen=True)
class Run:
    """What one method made of one case with one seed and budget.

    `drop` and `control_drop`, the largest, are those of the chosen set on held-out items, in the
    tasks' own metric; NaN where no set was chosen.
    """

    evaluations: int
    kept: float
    recall: float
    drop: float
    control_drop: float


@dataclass(frozen=True)
class Calibration:
    """Intervals and certainty of one run, held against the truth.

    Attributes
    ----------
    covered, intervals : int
        Intervals that hold the true effect, and how many there are.
    false, certain : int
        Heads called certain that have no effect of their own, and how many are called so.
    """

    covered: int
    intervals: int
    false: int
    certain: int


def selectivity(effects: Sequence[FloatArray]) -> FloatArray:
    """Effect on the capability, the first, less the worst effect on a control."""
    capability, *controls = effects
    if not controls:
        return capability
    return np.asarray(capability - np.minimum(np.min(controls, axis=0), 0))


def calibrate(effects: Effects, truth: Truth) -> Calibration:
    """Hold the intervals of all heads, and the heads called certain, against the truth.

    A head called certain is false if it costs the capability hardly more than the controls.
    """
    inside = (effects.low <= truth.effect) & (truth.effect <= effects.high)
    certain = np.flatnonzero(effects.selection >= CERTAIN)
    none = truth.selective > _OF_NOTE * truth.selective[truth.best[0]]
    return Calibration(int(inside.sum()), len(inside), int(none[certain].sum()), len(certain))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and its standard error over seeds (zero for a single one); NaN left out."""
    known = np.array([value for value in values if not np.isnan(value)])
    if not len(known):
        return float("nan"), float("nan")
    error = known.std(ddof=1) / np.sqrt(len(known)) if len(known) > 1 else 0.0
    return float(known.mean()), float(error)
