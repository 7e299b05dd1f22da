"""What answers masks: the smallest interface that measuring here and measuring elsewhere share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from headsieve.measure.texts import Responses, Texts

if TYPE_CHECKING:
    from headsieve.models.loading import Model

BatchSize = int | Literal["auto"]


@dataclass(frozen=True)
class Batch:
    """Masks that are measured together on one item set.

    Attributes
    ----------
    name : str
        Of the item set.
    masks : ndarray of bool, shape (masks, heads)
    """

    name: str
    masks: NDArray[np.bool_]


@dataclass(frozen=True)
class Measured:
    """What the model says under a batch's masks.

    Attributes
    ----------
    responses : list of Responses
        One a mask.
    tokens : list of int
        That the model computed for each mask, what it generated included.
    seconds : float
        That each mask took.
    """

    responses: list[Responses]
    tokens: list[int]
    seconds: float


@dataclass(frozen=True)
class Gradient:
    """A gradient, shape (heads,), with the tokens and seconds it took."""

    values: NDArray[np.float64]
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Way:
    """How an item set is measured.

    Attributes
    ----------
    masks_per_batch : int
    tokens : int
        That the model computes for one mask, as if it continued every prompt to its limit.
    packed : bool
        Whether rows share prefixes.
    reentry : bool
        Whether layers below the lowest knocked-out one are skipped.
    """

    masks_per_batch: int
    tokens: int
    packed: bool
    reentry: bool


class Workers(Protocol):
    """One replica of a model or several; what they answer does not depend on how many.

    Workers run the model and nothing else: they are given texts, and what makes scores of what the
    model says of them stays where it was asked.
    """

    @property
    def device(self) -> str:
        """Kind of device that measures, as in ``cuda``."""

    def begin(self, model: Model, texts: Mapping[str, Texts], batch_size: BatchSize) -> None:
        """Say what will be measured of which model; to be called before anything else."""

    def way(self, name: str) -> Way:
        """How an item set is measured; finding out runs the model."""

    def measure(self, batches: Sequence[Batch]) -> Iterator[tuple[int, Measured]]:
        """Measure batches; yields each one's number and answers, in any order."""

    def gradient(self, name: str, slopes: NDArray[np.float64]) -> Gradient:
        """Gradient of the unmodified model's log-probabilities with respect to gates on heads.

        Parameters
        ----------
        name : str
            Of an item set.
        slopes : ndarray of float64, shape (sequences,)
            Weight of each sequence's log-probability in their sum.
        """
