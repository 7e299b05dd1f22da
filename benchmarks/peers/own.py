"""headsieve itself, and headsieve with every layer computed for every mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.measure.engine import Engine
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import InProcess, Measurer
from headsieve.measure.texts import Texts
from headsieve.measure.workers import BatchSize
from peers import Peer
from works import Masks, Work

if TYPE_CHECKING:
    from headsieve.models.loading import Model


class Headsieve(Peer):
    """The measurer that every study uses, with a journal that knows nothing yet."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.measurer = Measurer(model, {"work": work.item_set}, Journal())

    def score(self, masks: Masks) -> NDArray[np.float64]:
        self.measurer.journal = Journal()
        return np.stack([score.log_prob for score in self.measurer.measure(masks, "work")])


class _NoReentry(InProcess):
    """Measuring that computes every layer for every mask."""

    def begin(self, model: Model, texts: Mapping[str, Texts], batch_size: BatchSize) -> None:
        super().begin(model, texts, batch_size)
        self._reentering = Engine(model, reentry=False)


class NoMaskSharing(Headsieve):
    """The same without `Engine`'s start above the layers that a mask leaves as they are."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.measurer = Measurer(model, {"work": work.item_set}, Journal(), workers=_NoReentry())
