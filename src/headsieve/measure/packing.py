"""Packing token sequences so that what they share is computed once.

Sequences that begin alike (few-shot examples, a passage, the question of a multiple-choice item)
are merged into a prefix tree, and the tree is laid out in one row. Each token attends to its
ancestors in the tree only, and its position is its depth, so the row computes for every sequence
exactly what the sequence alone would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

# Reading the weights once more costs about as much as so many tokens.
_ROW_COST = 50


@dataclass(frozen=True)
class TokenSequence:
    """Tokens of which those from `start` on are scored."""

    tokens: tuple[int, ...]
    start: int

    def __post_init__(self) -> None:
        if not 0 < self.start < len(self.tokens):
            raise ValueError("a sequence needs a token to score and one before it")


@dataclass(frozen=True, eq=False)
class Row:
    """One packed row; two rows are the same only if they are one object.

    Attributes
    ----------
    tokens, positions : ndarray of int, shape (nodes,)
    attends : ndarray of bool, shape (nodes, nodes), or None
        ``attends[i, j]``: token i sees token j. None: a plain sequence, which the model's own
        causal mask serves.
    keep : ndarray of int, shape (kept,)
        The nodes whose logits are needed, ascending.
    sequences : ndarray of int, shape (scored,)
        For each scored token, the sequence it belongs to.
    predictors : ndarray of int, shape (scored,)
        For each scored token, the place in `keep` of the node that predicts it.
    targets : ndarray of int, shape (scored,)
        The scored tokens.
    """

    tokens: IntArray
    positions: IntArray
    attends: NDArray[np.bool_] | None
    keep: IntArray
    sequences: IntArray
    predictors: IntArray
    targets: IntArray

    def only(self, numbers: Sequence[int], last: int | None = None) -> Row:
        """The same row, of which only some sequences' tokens are scored, or the last ones of them.

        Parameters
        ----------
        numbers : sequence of int
        last : int, optional
            How many tokens of each, at most.
        """
        each = [np.flatnonzero(self.sequences == number) for number in numbers]
        chosen = np.sort(np.concatenate([own if last is None else own[-last:] for own in each]))
        places, predictors = np.unique(self.predictors[chosen], return_inverse=True)
        return replace(
            self,
            keep=self.keep[places],
            sequences=self.sequences[chosen],
            predictors=predictors,
            targets=self.targets[chosen],
        )

    def gap(self, number: int) -> int:
        """How many nodes of others lie among those of a sequence."""
        if self.attends is None:
            return 0
        node = self.keep[self.predictors[self.sequences == number].max()]
        own = np.flatnonzero(self.attends[node])
        return int(own[-1] - own[0] + 1 - len(own))


def pack(
    sequences: Sequence[TokenSequence], *, attention_cost: float, max_nodes: int = 2048
) -> list[Row]:
    """Pack sequences into rows that cost little to compute.

    Few long rows share most, but attention within a row grows with its length squared, and every
    row costs a pass over the weights; the number of rows is the one that costs least in all.

    Parameters
    ----------
    sequences : sequence of TokenSequence
    attention_cost : float
        Cost of one query-key pair relative to the cost of one token outside attention.
    max_nodes : int
        Longest row allowed, unless a single sequence is longer.
    """
    order = sorted(range(len(sequences)), key=lambda number: sequences[number].tokens)
    best: tuple[float, list[list[int]]] | None = None
    for parts in _candidate_counts(len(order)):
        groups = [list(group) for group in np.array_split(np.array(order), parts)]
        sizes = [_tree_size([sequences[number].tokens for number in group]) for group in groups]
        if max(sizes) > max_nodes and parts < len(order):
            continue
        cost = sum(_ROW_COST + size + attention_cost * size**2 for size in sizes)
        if best is None or cost < best[0]:
            best = (cost, groups)
    assert best is not None
    return [_row(sequences, group) for group in best[1]]


def single(sequences: Sequence[TokenSequence]) -> list[Row]:
    """One row a sequence, nothing shared: for models in which packed rows are not exact."""
    rows = [_row(sequences, [number]) for number in range(len(sequences))]
    return [replace(row, attends=None) for row in rows]


def _candidate_counts(count: int) -> list[int]:
    powers = [2**exponent for exponent in range(math.ceil(math.log2(max(count, 1))) + 1)]
    return sorted({min(power, count) for power in powers})


def _tree_size(tokens: Sequence[tuple[int, ...]]) -> int:
    """Nodes of the prefix tree of sequences in lexicographic order."""
    size = 0
    previous: tuple[int, ...] = ()
    for current in tokens:
        size += len(current) - _common(previous, current)
        previous = current
    return size


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    shared = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        shared += 1
    return shared


def _row(sequences: Sequence[TokenSequence], group: Sequence[int]) -> Row:
    tokens: list[int] = []
    parents: list[int] = []
    positions: list[int] = []
    children: dict[tuple[int, int], int] = {}
    scored: list[tuple[int, int, int]] = []
    for number in group:
        sequence = sequences[number]
        parent = -1
        for position, token in enumerate(sequence.tokens):
            if position >= sequence.start:
                scored.append((number, parent, token))
            node = children.get((parent, token))
            # Nothing is read at the last token, so a node for it would be wasted.
            if node is None and position < len(sequence.tokens) - 1:
                node = children[parent, token] = len(tokens)
                tokens.append(token)
                parents.append(parent)
                positions.append(position)
            if node is not None:
                parent = node
    attends = np.eye(len(tokens), dtype=bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            attends[node] |= attends[parent]
    numbers, predictors, targets = (np.array(column) for column in zip(*scored, strict=True))
    keep, places = np.unique(predictors, return_inverse=True)
    return Row(
        np.array(tokens), np.array(positions), attends, keep, numbers, places, np.array(targets)
    )
