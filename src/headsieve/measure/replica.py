"""What runs in a worker's process: one replica of the model, measuring what it is sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import first_line
from headsieve.measure.texts import Texts
from headsieve.measure.workers import Batch, BatchSize, Gradient, Measured, Way

if TYPE_CHECKING:
    from headsieve.measure.measurer import InProcess
    from headsieve.models.heads import Units
    from headsieve.models.loading import Model, Source


@dataclass(frozen=True)
class Facts:
    """What a worker says of itself once it has loaded the model."""

    fingerprint: str
    dtype: str
    device: str
    host: str
    pid: int
    threads: int


class Replica:
    """A model that was loaded from where it is kept, never sent."""

    def __init__(self) -> None:
        self._model: Model | None = None
        self._measuring: InProcess | None = None

    def load(self, source: Source, threads: int) -> Facts:
        """Load the model.

        Raises
        ------
        HeadsieveError
            If it cannot be had.
        """
        import torch

        torch.set_num_threads(threads)
        model = self._model = source.load()
        return Facts(
            fingerprint=model.fingerprint,
            dtype=model.dtype,
            device=str(model.device),
            host=socket.gethostname(),
            pid=os.getpid(),
            threads=threads,
        )

    def begin(self, units: Units, texts: Mapping[str, Texts], batch_size: BatchSize) -> None:
        """Say what will be measured."""
        from headsieve.measure.measurer import InProcess

        if self._model is not None:
            self._measuring = InProcess()
            self._measuring.begin(self._model.with_units(units), texts, batch_size)

    def way(self, name: str) -> Way:
        """How an item set is measured."""
        return self._begun.way(name)

    def compute(self, batch: Batch) -> Measured:
        """Measure a batch.

        Raises
        ------
        MemoryError
            If there is not enough memory, of whatever kind, even for one mask at a time.
        """
        from headsieve.measure.memory import is_out_of_memory

        try:
            return self._begun.compute(batch)
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise MemoryError(first_line(error)) from None
            raise

    def gradient(self, name: str, slopes: NDArray[np.float64]) -> Gradient:
        """Gradient of a weighted sum of an item set's log-probabilities."""
        return self._begun.gradient(name, slopes)

    @property
    def _begun(self) -> InProcess:
        assert self._measuring is not None
        return self._measuring
