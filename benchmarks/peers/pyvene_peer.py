"""pyvene: a function intervenes on the output projection's input, one mask at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyvene
import torch
from numpy.typing import NDArray

from peers import MaskByMask
from peers.batches import add_scores, batches
from peers.plain import columns_by_layer
from works import Work

if TYPE_CHECKING:
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model


class Pyvene(MaskByMask):
    """An intervenable model a mask, around the loaded one."""

    packages = ("pyvene",)

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        pad = model.tokenizer.pad_token_id or 0
        self.batches = batches(work.item_set.sequences, pad, model.device)

    @torch.inference_mode()
    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        sums = np.zeros(len(self.work.item_set.sequences))
        projections = {layer.layer: layer.projection for layer in self.model.geometry.layers}
        edits = [
            # It wants numbers in brackets: model.layers[3].self_attn.
            {
                "component": re.sub(r"\.(\d+)", r"[\1]", projections[layer]) + ".input",
                "intervention": _zero(columns),
            }
            for layer, columns in columns_by_layer(self.model.geometry, heads).items()
        ]
        edited = pyvene.IntervenableModel(edits, model=self.model.hf)
        for batch in self.batches:
            _original, output = edited(
                {"input_ids": batch.tokens, "attention_mask": batch.mask, "use_cache": False}
            )
            add_scores(sums, output.logits, batch)
        return sums


def _zero(columns: list[int]) -> Callable[[torch.Tensor, object], torch.Tensor]:
    def zero(value: torch.Tensor, _source: object) -> torch.Tensor:
        value = value.clone()
        value[..., columns] = 0
        return value

    return zero
