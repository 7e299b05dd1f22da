"""How chosen heads act together: Shapley values and interactions, exact, from all their subsets."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.intervals import mean_interval
from headsieve.results import HeadPair, HeadShare, Interactions, SubsetDrop
from headsieve.sensing.problem import Columns

if TYPE_CHECKING:
    from headsieve.workbench import Workbench

MOST_HEADS = 5
"""All subsets of so many are 32 evaluations."""


def require_interactions(heads: int) -> None:
    """Refuse what cannot be done, before anything is measured.

    Parameters
    ----------
    heads : int
        Heads in a set, at most.

    Raises
    ------
    HeadsieveError
        If shapiq is missing or the sets may be too large.
    """
    if importlib.util.find_spec("shapiq") is None:
        raise HeadsieveError(
            "Interactions need the package shapiq; install it with: pip install "
            "headsieve[interactions]"
        )
    if heads > MOST_HEADS:
        raise HeadsieveError(
            f"Interactions need all subsets of a set, so that it may have {MOST_HEADS} heads at "
            f"most, not {heads}."
        )


def measure_interactions(
    bench: Workbench, capability: str, selected: Columns, rng: np.random.Generator
) -> Interactions:
    """Measure every subset of a set of heads on the capability's held-out items.

    What a set of heads costs, the mean over items of what each is worth before and after, is a
    game whose players are the heads. Its Shapley values (L. S. Shapley, *A value for n-person
    games*, 1953) share the whole drop out among them; the interaction of a pair is the Shapley
    interaction index (M. Grabisch and M. Roubens, *An axiomatic approach to the concept of
    interaction among players in cooperative games*, 1999): what the two cost together beyond what
    each costs, on average over the subsets of the others. Intervals are bootstraps over items.

    Parameters
    ----------
    bench : Workbench
    capability : str
    selected : tuple of int
        At least one head, at most `MOST_HEADS`.
    rng : numpy.random.Generator
    """
    names = [str(bench.model.geometry.heads[column]) for column in selected]
    subsets = np.array(list(itertools.product([False, True], repeat=len(selected))))
    masks = np.zeros((len(subsets), len(bench.model.geometry)), dtype=bool)
    masks[:, list(selected)] = subsets
    value = np.stack([score.value for score in bench.held_out(masks, capability)])
    lost = value[0] - value  # (subsets, items)
    pairs = list(itertools.combinations(range(len(selected)), 2))
    shares = _weights(subsets, "SV", [(place,) for place in range(len(selected))]) @ lost
    joint = _weights(subsets, "SII", pairs) @ lost if pairs else np.zeros((0, lost.shape[1]))
    return Interactions(
        subsets=[
            SubsetDrop(
                heads=[name for name, out in zip(names, subset, strict=True) if out],
                drop=float(drop),
            )
            for subset, drop in zip(subsets, lost.mean(axis=1), strict=True)
        ],
        shapley=[
            HeadShare(head=name, value=float(by_item.mean()), ci=mean_interval(by_item, rng))
            for name, by_item in zip(names, shares, strict=True)
        ],
        pairs=[
            HeadPair(
                heads=(names[one], names[other]),
                value=float(by_item.mean()),
                ci=mean_interval(by_item, rng),
            )
            for (one, other), by_item in zip(pairs, joint, strict=True)
        ],
    )


def _weights(
    subsets: NDArray[np.bool_], index: str, interactions: Sequence[tuple[int, ...]]
) -> NDArray[np.float64]:
    """What each subset's cost counts in an index, which is linear in them.

    Found by games in which one subset alone costs anything.

    Returns
    -------
    ndarray of float, shape (interactions, subsets)
    """
    from shapiq import ExactComputer

    place = {tuple(subset): number for number, subset in enumerate(subsets.tolist())}
    columns = []
    for unit in np.eye(len(subsets)):

        def game(
            wanted: NDArray[np.bool_], unit: NDArray[np.float64] = unit
        ) -> NDArray[np.float64]:
            return np.array([unit[place[tuple(one)]] for one in wanted.astype(bool).tolist()])

        found = ExactComputer(game, subsets.shape[1])(index, len(interactions[0]))
        columns.append([float(found[one]) for one in interactions])
    return np.array(columns).T
