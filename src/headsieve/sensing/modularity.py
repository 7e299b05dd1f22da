"""How far capabilities share their heads: specificity against its null distribution, clusters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster import hierarchy
from scipy.spatial import distance

FloatArray = NDArray[np.float64]

PERMUTATIONS = 9999
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class Modularity:
    """Specificity of heads, beside what chance would give.

    Attributes
    ----------
    specificity : float
        See `specificity`.
    null_mean : float
        Its mean where each capability's effects are permuted over the heads.
    null_interval : tuple of float
        The middle 95 % of those.
    p_value : float
        Two-sided: how often a permutation is as far from the middle of them.
    """

    specificity: float
    null_mean: float
    null_interval: tuple[float, float]
    p_value: float


def shares(effects: FloatArray) -> FloatArray:
    """What each head has of what each capability loses, shape as given (heads, capabilities).

    Effects that are no loss count as none; of a capability that loses nothing all shares are 0.
    """
    losses = np.maximum(-effects, 0.0)
    totals = losses.sum(axis=0)
    return np.asarray(np.divide(losses, totals, out=np.zeros_like(losses), where=totals > 0))


def beyond_shared(shared: FloatArray) -> FloatArray:
    """Profiles of capabilities, shape (capabilities, heads), less what all have in common.

    Heads that all need would make all alike; what is left tells who is like whom.
    """
    return np.asarray(shared - shared.mean(axis=1, keepdims=True)).T


def specificity(shared: FloatArray) -> float:
    """Specificity of heads to capabilities: tau, averaged over heads by what they do.

    A head's tau is the mean of ``1 - x / max(x)`` over all but the capability of its largest share
    x: 1 if one capability alone needs the head, 0 if all need it alike. It is the index of tissue
    specificity of genes of Yanai et al. (Bioinformatics 21, 650-659, 2005).

    Parameters
    ----------
    shared : ndarray of float, shape (heads, capabilities)
        What `shares` gives, of two capabilities or more.
    """
    largest = shared.max(axis=1)
    weights = shared.sum(axis=1)
    if not weights.any():
        return 0.0
    # (n - sum of x / max) / (n - 1), in which the largest share adds nothing.
    tau = (shared.shape[1] - weights / np.where(largest > 0, largest, 1.0)) / (shared.shape[1] - 1)
    return float(np.average(tau, weights=weights))


def modularity(effects: FloatArray, rng: np.random.Generator) -> Modularity:
    """Specificity of heads against that of effects that meet by chance.

    Parameters
    ----------
    effects : ndarray of float, shape (heads, capabilities)
        All measured in the same way.
    rng : numpy.random.Generator
        Of the permutations.
    """
    shared = shares(effects)
    found = specificity(shared)
    null = np.array(
        [specificity(rng.permuted(shared, axis=0)) for _ in range(PERMUTATIONS)], dtype=float
    )
    tail = 100 * (1 - _CONFIDENCE) / 2
    low, high = np.percentile(null, [tail, 100 - tail])
    far = np.abs(null - null.mean()) >= abs(found - null.mean()) - 1e-12
    return Modularity(
        found,
        float(null.mean()),
        (float(low), float(high)),
        float((far.sum() + 1) / (PERMUTATIONS + 1)),
    )


def cluster(profiles: FloatArray) -> FloatArray:
    """Average-linkage clustering by the cosine of profiles, similar neighbours side by side.

    Parameters
    ----------
    profiles : ndarray of float, shape (things, features)
        Two things or more. Those without any feature are like no other.

    Returns
    -------
    ndarray of float, shape (things - 1, 4)
        A linkage matrix of scipy, its leaves in optimal order.
    """
    apart = distance.pdist(profiles, "cosine")
    apart = np.clip(np.nan_to_num(apart, nan=1.0), 0.0, 2.0)
    found: FloatArray = hierarchy.linkage(apart, "average", optimal_ordering=True)
    return found


def leaves(tree: FloatArray) -> list[int]:
    """The order of things in a clustering."""
    return [int(leaf) for leaf in hierarchy.leaves_list(tree)]
