"""Designs: which heads each mask knocks out.

A design is a 0/1 matrix of m masks by p heads. `bernoulli` and `stratified` are those of Bair, Xu,
Sun and Kolter, *Compressed Sensing for Capability Localization in Large Language Models*
(arXiv 2603.03335); `dispersed` keeps apart the heads that they leave together.
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


def dispersed(
    count: int,
    heads: int,
    density: float,
    rng: np.random.Generator,
    *,
    before: Masks | None = None,
) -> Masks:
    """Masks as of `stratified` in which heads meet again as seldom as possible.

    Two heads that are in the same masks cannot be told apart, and two that share many are hard to.
    Where every head is used once more, each in turn goes to the mask whose members it has met
    least; heads that end up with the same column change places with others.

    Parameters
    ----------
    count, heads : int
    density : float
    rng : numpy.random.Generator
    before : ndarray of bool, shape (any, heads), optional
        Masks measured before, which these go on from.

    Returns
    -------
    ndarray of bool, shape (count, heads)
    """
    size = max(1, round(density * heads))
    earlier = np.zeros((0, heads), dtype=bool) if before is None else before
    masks = np.concatenate([earlier, np.zeros((count, heads), dtype=bool)])
    row = first = len(earlier)
    while row < len(masks):
        uses = masks[:row].sum(axis=0)
        order = np.lexsort((rng.random(heads), uses))
        unused = order[: int((uses == uses.min()).sum())]
        if len(unused) < size:
            # One mask takes the last heads that are not yet used as often as others, and others.
            _share_out(masks[:row], masks[row : row + 1], order, size)
            row += 1
            continue
        step = slice(row, row + min(len(masks) - row, len(unused) // size))
        _share_out(masks[:row], masks[step], unused, size)
        _tell_apart(masks[:row], masks[step], unused, rng)
        row = step.stop
    return masks[first:]


def _share_out(earlier: Masks, part: Masks, order: NDArray[np.int64], size: int) -> None:
    """Fill new masks with heads taken in order, each where it meets fewest that it met before."""
    # How many members of each new mask were in each earlier one.
    met = np.zeros((len(earlier), len(part)))
    # The emptier of equally good masks first, so that all fill up together; a full one never.
    filled = np.zeros(len(part))
    for head in order:
        rows = np.flatnonzero(earlier[:, head])
        best = int((met[rows].sum(axis=0) + filled).argmin())
        part[best, head] = True
        met[rows, best] += 1
        filled[best] += 1 / (size + 1)
        if part[best].sum() == size:
            filled[best] = np.inf
            if np.isinf(filled).all():
                return


def _tell_apart(
    earlier: Masks, part: Masks, order: NDArray[np.int64], rng: np.random.Generator
) -> None:
    """Let heads of equal columns change places with others, as far as that tells them apart.

    Each of the heads is in one of the new masks at most, so exchanging two leaves all counts.
    """
    columns = np.packbits(earlier[:, order], axis=0)
    kinds, kind = np.unique(columns, axis=1, return_inverse=True)
    place = np.where(part[:, order].any(axis=0), part[:, order].argmax(axis=0), len(part))
    count = np.zeros((kinds.shape[1], len(part) + 1), dtype=np.int64)
    np.add.at(count, (kind, place), 1)
    if count.size < len(order):
        return
    for one in np.flatnonzero(count[kind, place] > 1):
        mine = place[one]
        free = (count[kind[one], place] == 0) & (count[kind, mine] == 0)
        if count[kind[one], mine] == 1 or not free.any():
            continue
        other = rng.choice(np.flatnonzero(free))
        for head, new in ((one, place[other]), (other, mine)):
            count[kind[head], place[head]] -= 1
            count[kind[head], new] += 1
            place[head] = new
    part[:, order] = place == np.arange(len(part))[:, None]
