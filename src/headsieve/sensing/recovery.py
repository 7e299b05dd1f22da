"""Recovery: from the scores of masks to the effect of each head, with uncertainty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from sklearn.linear_model import Lasso

from headsieve.scores import Score
from headsieve.sensing.problem import Columns, Ledger, Masks, to_masks
from headsieve.sensing.uncertainty import posterior

FloatArray = NDArray[np.float64]

PAPER_ALPHA = 0.01
RESAMPLINGS = 200
# A head is general if it costs so many nats and so large a share of the controls need it too.
NOTICEABLE = 0.1
_SHARED_BY = 0.5
_CONFIDENCE = 0.95


def lasso(masks: Masks, scores: FloatArray, alpha: float = PAPER_ALPHA) -> FloatArray:
    """Effects by the Lasso on z-scored scores, the paper's decoder (arXiv 2603.03335).

    Parameters
    ----------
    masks : ndarray of bool, shape (masks, heads)
    scores : ndarray of float, shape (masks,)
    alpha : float
        Weight of the l1 penalty, for scores of unit variance.

    Returns
    -------
    ndarray of float, shape (heads,)
        Change of the score when the head is knocked out, in the score's own unit.
    """
    spread = float(scores.std())
    if spread == 0:
        return np.zeros(masks.shape[1])
    standard = (scores - scores.mean()) / spread
    fitted = Lasso(alpha=alpha, max_iter=20_000, random_state=0).fit(masks.astype(float), standard)
    return np.asarray(fitted.coef_, dtype=np.float64) * spread


@dataclass(frozen=True)
class Effects:
    """What is known of every head, all arrays of length heads.

    Attributes
    ----------
    effect : ndarray
        Change of the capability's search score (nats) when the head is knocked out.
    low, high : ndarray
        Ends of its 95 % interval.
    selection : ndarray
        Share of resamplings of masks and items in which the head is among the best.
    control_effect : ndarray
        Its worst (most negative) effect on a control's search score; NaN where no control was
        measured.
    general : tuple of int
        Heads that the capability needs but most controls need as well, worst first.
    """

    effect: FloatArray
    low: FloatArray
    high: FloatArray
    selection: FloatArray
    control_effect: FloatArray
    general: Columns


ItemScores = Callable[[Score], FloatArray]


def floored(score: Score) -> FloatArray:
    """Item scores whose mean is the search score."""
    return score.floored


def smooth(score: Score) -> FloatArray:
    """Item scores whose mean is the smooth accuracy."""
    return score.smooth


def item_matrix(scores: Sequence[Score], item_scores: ItemScores = floored) -> FloatArray:
    """Item scores of several masks, shape (masks, items)."""
    return np.stack([item_scores(score) for score in scores])


@dataclass(frozen=True)
class _TaskData:
    """One task's measurements: random and larger masks to decode, single knockouts to read off."""

    base: FloatArray  # (items,)
    masks: Masks  # (masks, heads)
    items: FloatArray  # (masks, items)
    singles: NDArray[np.int64]
    single_items: FloatArray  # (singles, items)

    def effects(
        self, rows: NDArray[np.int64], columns: NDArray[np.int64], *, sparse: bool = False
    ) -> FloatArray:
        """Effects from a selection of masks and of items."""
        base = self.base[columns].mean()
        masks, scores = self.masks[rows], self.items[np.ix_(rows, columns)].mean(axis=1)
        known = np.full(self.masks.shape[1], np.nan)
        known[self.singles] = self.single_items[:, columns].mean(axis=1) - base
        if not sparse:
            decoded = posterior(masks, scores - base, known).mean
        elif len(rows) > 1:
            decoded = lasso(masks, scores)
        else:
            decoded = np.zeros(len(known))
        return np.where(np.isnan(known), decoded, known)


def _task_data(
    scores: Mapping[Columns, Score], heads: int, item_scores: ItemScores = floored
) -> _TaskData | None:
    if () not in scores:
        return None
    singles = [chosen for chosen in scores if len(chosen) == 1]
    others = [chosen for chosen in scores if len(chosen) > 1]
    base = item_scores(scores[()])
    empty = np.zeros((0, len(base)))
    return _TaskData(
        base,
        to_masks(others, heads),
        item_matrix([scores[chosen] for chosen in others], item_scores) if others else empty,
        np.array([chosen[0] for chosen in singles], dtype=np.int64),
        item_matrix([scores[chosen] for chosen in singles], item_scores) if singles else empty,
    )


def decode(ledger: Ledger, task: str, item_scores: ItemScores = floored) -> FloatArray:
    """Effect of every head on a task's score: measured alone, or else by the random-effects model.

    Parameters
    ----------
    ledger : Ledger
    task : str
    item_scores : callable
        `floored` for the search score, `smooth` for the smooth accuracy.

    Returns
    -------
    ndarray of float, shape (heads,)
    """
    return _decode(ledger, task, item_scores, sparse=False)


def decode_sparsely(ledger: Ledger, task: str, item_scores: ItemScores = floored) -> FloatArray:
    """Effect of every head on a task's score: measured alone, or else by the Lasso."""
    return _decode(ledger, task, item_scores, sparse=True)


def _decode(ledger: Ledger, task: str, item_scores: ItemScores, *, sparse: bool) -> FloatArray:
    data = _task_data(ledger.scores[task], ledger.problem.heads, item_scores)
    if data is None:
        return np.zeros(ledger.problem.heads)
    return data.effects(np.arange(len(data.masks)), np.arange(len(data.base)), sparse=sparse)


def estimate(ledger: Ledger, rng: np.random.Generator) -> Effects:
    """Effects of all heads, with intervals and selection probabilities.

    Selection probabilities are shares of `RESAMPLINGS` resamplings of masks and items together.
    """
    problem = ledger.problem
    effects = {task: decode(ledger, task) for task in problem.tasks}
    effect = effects[problem.capability]
    data = _task_data(ledger.scores[problem.capability], problem.heads)
    selected = np.zeros((RESAMPLINGS, problem.heads), dtype=bool)
    controls = np.array([effects[task] for task in problem.controls])
    worst = controls.min(axis=0) if len(controls) else np.full(problem.heads, np.nan)
    low = high = effect
    if data is not None:
        low, high = _intervals(data, effect)
        draws = resamplings(len(data.masks), len(data.base), rng)
        for number, (rows, columns) in enumerate(draws):
            resampled = data.effects(rows, columns)
            selectivity = resampled - np.fmin(worst, 0)
            best = np.argsort(selectivity, kind="stable")[: problem.set_size]
            selected[number, best] = selectivity[best] < 0
    return Effects(
        effect, low, high, selected.mean(axis=0), worst, _general(effect, high, controls)
    )


def _intervals(data: _TaskData, effect: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of every head's interval.

    A head that was knocked out alone: its effect, give or take what other items would say. Any
    other: what the random-effects model says of it. A head of which nothing is known costs no more
    than the worst mask.
    """
    base = data.base.mean()
    changes = data.items.mean(axis=1) - base
    known = np.full(len(effect), np.nan)
    known[data.singles] = effect[data.singles]
    others = posterior(data.masks, changes, known)
    differences = data.single_items - data.base
    deviation = others.deviation.copy()
    deviation[data.singles] = differences.std(axis=1) / np.sqrt(len(data.base))
    quantile = stats.norm.ppf((1 + _CONFIDENCE) / 2)
    most = max(np.abs(changes).max(initial=0), np.abs(effect).max())
    reach = np.where(np.isfinite(deviation), quantile * deviation, most)
    return effect - reach, effect + reach


def resamplings(
    masks: int, items: int, rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Draw masks and items together with replacement, `RESAMPLINGS` times."""
    for _ in range(RESAMPLINGS):
        yield rng.integers(masks, size=masks), rng.integers(items, size=items)


def percentile_interval(resampled: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ends of the 95 % interval of every head, from effects of shape (resamplings, heads)."""
    tail = 100 * (1 - _CONFIDENCE) / 2
    low, high = np.percentile(resampled, [tail, 100 - tail], axis=0)
    return low, high


def _general(effect: FloatArray, high: FloatArray, controls: FloatArray) -> Columns:
    """Heads that the capability needs and at least half of the controls need half as much."""
    if not len(controls):
        return ()
    shared = (controls <= effect / 2).mean(axis=0) >= _SHARED_BY
    needed = np.flatnonzero((high < 0) & (effect <= -NOTICEABLE) & shared)
    return tuple(int(column) for column in needed[np.argsort(effect[needed])])
