"""How sure a head's effect is: a random-effects model of everything that was measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headsieve.sensing.problem import Masks

FloatArray = NDArray[np.float64]

# Variances of effects that are tried, as multiples of the variance left over: what all heads
# of a mask together contribute to its score, from nothing to all but everything.
_RATIOS = np.concatenate([[0.0], np.geomspace(1e-3, 1e5, 50)])
# Fewer masks than this say nothing of a variance.
_FEWEST_MASKS = 6
_TINY = 1e-12


@dataclass(frozen=True)
class Posterior:
    """What masks of several heads say of heads that were not knocked out alone.

    Attributes
    ----------
    mean, deviation : ndarray of float, shape (heads,)
        Of each head's effect. Zero and infinite where the masks say nothing.
    unexplained : float
        Standard deviation of a score that no head's effect explains: interactions, saturation,
        noise.
    """

    mean: FloatArray
    deviation: FloatArray
    unexplained: float


def posterior(masks: Masks, changes: FloatArray, known: FloatArray) -> Posterior:
    """Effects of heads as draws from one normal distribution, given the scores of masks.

    A mixed model: the change of a mask's score is a multiple of what its heads cost alone where
    that is known (effects saturate, so less than one), plus the sum of its other heads' effects,
    plus what is left over. The effects' common mean and the multiple are fixed effects; means and
    variances given the data are the best linear unbiased predictions (Henderson 1975). The
    likelihood of the effects' variance is the restricted one (Patterson and Thompson 1971), and it
    is averaged over with a prior uniform in the standard deviation (Gelman 2006): a maximum would
    often be zero, and the intervals empty.

    Parameters
    ----------
    masks : ndarray of bool, shape (masks, heads)
        Masks of more than one head.
    changes : ndarray of float, shape (masks,)
        Their scores less that of the unmodified model.
    known : ndarray of float, shape (heads,)
        Effects of heads that were knocked out alone, NaN for others.
    """
    heads = masks.shape[1]
    other = np.isnan(known)
    design = masks[:, other].astype(float)
    fixed = np.stack([masks @ np.nan_to_num(known), design.sum(axis=1)], axis=1)
    if np.linalg.matrix_rank(fixed) < 2:
        fixed = fixed[:, 1:]
    mean, deviation = np.zeros(heads), np.full(heads, np.inf)
    spare = len(masks) - fixed.shape[1]
    if len(masks) < _FEWEST_MASKS or not design.any():
        return Posterior(mean, deviation, 0.0)
    common = np.zeros((fixed.shape[1], design.shape[1]))
    common[-1] = 1.0
    # In the basis of the masks' overlaps every covariance is diagonal.
    overlaps, basis = np.linalg.eigh(design @ design.T)
    fixed, changes, design = basis.T @ fixed, basis.T @ changes, basis.T @ design
    ratios = _RATIOS * len(masks) / overlaps.sum()
    log_weights, means, variances, residuals = [], [], [], []
    for ratio in ratios:
        precision = 1 / (1 + ratio * overlaps)
        information = (fixed.T * precision) @ fixed
        coefficients = np.linalg.solve(information, (fixed.T * precision) @ changes)
        left = changes - fixed @ coefficients
        residual = float((precision * left**2).sum()) / spare + _TINY
        weighted = precision[:, None] * design
        uncertain = common - ratio * fixed.T @ weighted
        means.append(coefficients @ common + ratio * (weighted.T @ left))
        variances.append(
            residual
            * (
                ratio * (1 - ratio * (design * weighted).sum(axis=0))
                + (uncertain * np.linalg.solve(information, uncertain)).sum(axis=0)
            )
        )
        residuals.append(residual)
        log_weights.append(
            0.5 * np.log(precision).sum()
            - 0.5 * spare * np.log(residual)
            - 0.5 * np.linalg.slogdet(information)[1]
        )
    weights = np.exp(np.array(log_weights) - max(log_weights)) * np.gradient(np.sqrt(ratios))
    weights /= weights.sum()
    mean[other] = weights @ means
    spread = np.array(variances) + (np.array(means) - mean[other]) ** 2
    deviation[other] = np.sqrt(weights @ spread)
    return Posterior(mean, deviation, float(np.sqrt(weights @ residuals)))
