"""nnsight: the output projection's input is edited in a trace, one mask at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import nnsight
import numpy as np
import torch
from numpy.typing import NDArray

from peers import MaskByMask
from peers.batches import Batch, add_scores, batches
from peers.plain import columns_by_layer
from works import Work

if TYPE_CHECKING:
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model


class NNsight(MaskByMask):
    """The loaded model, wrapped."""

    packages = ("nnsight",)

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        pad = model.tokenizer.pad_token_id or 0
        self.batches = batches(work.item_set.sequences, pad, model.device)
        self.wrapped: Any = nnsight.NNsight(model.hf)
        self.projections = {
            layer.layer: reduce(_child, layer.projection.split("."), self.wrapped)
            for layer in model.geometry.layers
        }

    @torch.inference_mode()
    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        sums = np.zeros(len(self.work.item_set.sequences))
        # A trace must come by its modules in the order in which the model does.
        edits = [
            (self.projections[layer], columns)
            for layer, columns in sorted(columns_by_layer(self.model.geometry, heads).items())
        ]
        for batch in self.batches:
            add_scores(sums, self._logits(batch, edits), batch)
        return sums

    def _logits(self, batch: Batch, edits: list[tuple[Any, list[int]]]) -> torch.Tensor:
        wrapped = self.wrapped
        with wrapped.trace(input_ids=batch.tokens, attention_mask=batch.mask, use_cache=False):
            for projection, columns in edits:
                projection.input[..., columns] = 0
            logits = wrapped.output.logits.save()
        result: torch.Tensor = logits
        return result


def _child(parent: Any, name: str) -> Any:
    return parent[int(name)] if name.isdigit() else getattr(parent, name)
