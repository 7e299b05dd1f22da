"""How well effects that add up explain the scores of masks they were not fitted to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headsieve.sensing.problem import Columns, to_masks
from headsieve.sensing.recovery import lasso

_FOLDS = 5
_FEWEST = 10


@dataclass(frozen=True)
class Linearity:
    """Measured search scores of masks, and predictions by a sparse linear model.

    Attributes
    ----------
    measured, predicted : tuple of float
        One a mask, in nats.
    sizes : tuple of int
        Heads knocked out by each.
    r_squared : float
        1 if the predictions are right, 0 if they are no better than the mean.
    """

    measured: tuple[float, ...]
    predicted: tuple[float, ...]
    sizes: tuple[int, ...]
    r_squared: float


def linearity(scores: Mapping[Columns, float], heads: int, seed: int) -> Linearity | None:
    """Predict every mask's score from effects that the Lasso finds in four fifths of the others.

    Parameters
    ----------
    scores : mapping of tuple of int to float
        Search score of each set of heads that was measured; the unmodified model is left out of
        what is predicted.
    heads : int
        Heads of the model.
    seed : int
        Of the five parts.

    Returns
    -------
    Linearity or None
        None for fewer than ten masks, or if all scores are the same.
    """
    sets = [chosen for chosen in scores if chosen]
    measured = np.array([scores[chosen] for chosen in sets])
    if len(sets) < _FEWEST or np.ptp(measured) == 0:
        return None
    masks = to_masks(sets, heads)
    predicted: NDArray[np.float64] = np.zeros(len(sets))
    order = np.random.default_rng(seed).permutation(len(sets))
    for part in np.array_split(order, _FOLDS):
        others = np.setdiff1d(order, part)
        effects = lasso(masks[others], measured[others])
        base = (measured[others] - masks[others] @ effects).mean()
        predicted[part] = base + masks[part] @ effects
    residual = ((measured - predicted) ** 2).sum()
    return Linearity(
        tuple(measured.tolist()),
        tuple(predicted.tolist()),
        tuple(len(chosen) for chosen in sets),
        float(1 - residual / ((measured - measured.mean()) ** 2).sum()),
    )
