"""headsieve itself, and headsieve with every layer computed for every mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.measure.ablation import Replacement
from headsieve.measure.engine import Engine
from headsieve.measure.generation import Generator
from headsieve.measure.in_process import InProcess
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.texts import Texts
from headsieve.measure.workers import BatchSize
from peers import Peer, tokens_of
from works import Masks, Work

if TYPE_CHECKING:
    from headsieve.models.loading import Model


class Headsieve(Peer):
    """The measurer that every study uses, with a journal that knows nothing yet."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.measurer = Measurer(model, {"work": work.item_set}, Journal())
        if work.new_tokens:
            self.generator = Generator(model, work.prompts, max_new_tokens=work.new_tokens)

    @staticmethod
    def applies(work: Work) -> bool:
        return True

    def score(self, masks: Masks) -> NDArray[np.float64]:
        if self.work.new_tokens:
            texts = self.generator.generate(masks)
            return np.array(
                [tokens_of([one.tokens for one in row], self.work.new_tokens) for row in texts]
            )
        self.measurer.journal = Journal()
        return np.stack([score.log_prob for score in self.measurer.measure(masks, "work")])


class _NoReentry(InProcess):
    """Measuring that computes every layer for every mask."""

    def begin(
        self,
        model: Model,
        texts: Mapping[str, Texts],
        replacements: Mapping[str, Replacement],
        batch_size: BatchSize,
    ) -> None:
        super().begin(model, texts, replacements, batch_size)
        self._reentering = Engine(model, reentry=False)


class NoMaskSharing(Headsieve):
    """The same without `Engine`'s start above the layers that a mask leaves as they are."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.measurer = Measurer(model, {"work": work.item_set}, Journal(), workers=_NoReentry())

    @staticmethod
    def applies(work: Work) -> bool:
        return not work.new_tokens
