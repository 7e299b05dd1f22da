"""Designs: which heads each mask knocks out.

A design is a 0/1 matrix of m masks by p heads. Both kinds here are those of Bair, Xu, Sun and
Kolter, *Compressed Sensing for Capability Localization in Large Language Models*
(arXiv 2603.03335).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Masks = NDArray[np.bool_]


def bernoulli(count: int, heads: int, density: float, rng: np.random.Generator) -> Masks:
    """Each head is in each mask with probability `density`, independently.

    A mask that came out empty is drawn again: knocking out nothing measures nothing.

    Returns
    -------
    ndarray of bool, shape (count, heads)
    """
    masks = rng.random((count, heads)) < density
    while (empty := ~masks.any(axis=1)).any():
        masks[empty] = rng.random((int(empty.sum()), heads)) < density
    return masks


def stratified(
    count: int,
    heads: int,
    density: float,
    rng: np.random.Generator,
    *,
    used: NDArray[np.int64] | None = None,
) -> Masks:
    """Each mask takes the heads used least so far, ties at random.

    Every mask holds ``round(density * heads)`` heads, at least one, and after any number of masks
    no head has been used more than once more often than another.

    Parameters
    ----------
    count, heads : int
    density : float
    rng : numpy.random.Generator
    used : ndarray of int, shape (heads,), optional
        How often each head was used before.

    Returns
    -------
    ndarray of bool, shape (count, heads)
    """
    size = max(1, round(density * heads))
    uses = np.zeros(heads, dtype=np.int64) if used is None else used.copy()
    masks = np.zeros((count, heads), dtype=bool)
    for mask in masks:
        chosen = np.lexsort((rng.random(heads), uses))[:size]
        mask[chosen] = True
        uses[chosen] += 1
    return masks
