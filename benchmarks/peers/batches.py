"""Padded batches, and answers' log-probabilities from their logits: what plain loops share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.measure.packing import TokenSequence

BATCH_SIZE = 16


@dataclass(frozen=True)
class Batch:
    """Sequences of about the same length, without their last tokens, which are only predicted.

    Attributes
    ----------
    numbers : list of int
        Which sequences they are, one a row.
    tokens, mask, positions : Tensor of int, shape (rows, places)
        As `input_ids`, `attention_mask` and `position_ids`.
    rows, places, targets : Tensor of int, shape (scored,)
        Where each scored token is predicted, and what it is.
    """

    numbers: list[int]
    tokens: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    rows: torch.Tensor
    places: torch.Tensor
    targets: torch.Tensor

    @property
    def first_place(self) -> int:
        """The first place at which a scored token is predicted."""
        return int(self.places.min())


def batches(
    sequences: Sequence[TokenSequence],
    pad: int,
    device: torch.device,
    *,
    side: Literal["left", "right"] = "right",
    size: int = BATCH_SIZE,
) -> list[Batch]:
    """Batch sequences by length."""
    order = sorted(range(len(sequences)), key=lambda number: len(sequences[number].tokens))
    return [
        _batch(sequences, order[start : start + size], pad, device, side)
        for start in range(0, len(order), size)
    ]


def add_scores(
    sums: NDArray[np.float64], logits: torch.Tensor, batch: Batch, *, first_place: int = 0
) -> None:
    """Add up the scored tokens' log-probabilities into `sums`, one a sequence.

    Parameters
    ----------
    sums : ndarray of float64, shape (sequences,)
    logits : Tensor, shape (rows, places, vocabulary)
    batch : Batch
    first_place : int
        The place that the logits begin with.
    """
    # In float32 PyTorch's log_softmax over a large vocabulary is off by up to 1e-4 on a CPU.
    scored = logits[batch.rows, batch.places - first_place].double().log_softmax(-1)
    values = scored.gather(1, batch.targets[:, None])[:, 0]
    numbers = np.array(batch.numbers)[batch.rows.cpu().numpy()]
    np.add.at(sums, numbers, values.cpu().numpy())


def _batch(
    sequences: Sequence[TokenSequence],
    numbers: list[int],
    pad: int,
    device: torch.device,
    side: Literal["left", "right"],
) -> Batch:
    length = max(len(sequences[number].tokens) for number in numbers) - 1
    tokens = np.full((len(numbers), length), pad)
    mask = np.zeros_like(tokens)
    positions = np.zeros_like(tokens)
    scored: list[tuple[int, int, int]] = []
    for row, number in enumerate(numbers):
        sequence = sequences[number]
        fed = len(sequence.tokens) - 1
        first = length - fed if side == "left" else 0
        tokens[row, first : first + fed] = sequence.tokens[:-1]
        mask[row, first : first + fed] = 1
        positions[row, first : first + fed] = np.arange(fed)
        scored += [
            (row, first + place - 1, sequence.tokens[place])
            for place in range(sequence.start, fed + 1)
        ]
    parts = (tokens, mask, positions, *np.array(scored).T)
    return Batch(list(numbers), *(torch.as_tensor(part, device=device) for part in parts))
