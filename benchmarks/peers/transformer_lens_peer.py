"""TransformerLens: hooks on the output projection's input, one mask at a time."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from transformer_lens.model_bridge import TransformerBridge

from peers import MaskByMask
from peers.batches import add_scores, batches
from works import Work

if TYPE_CHECKING:
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model


class TransformerLens(MaskByMask):
    """A bridge around the loaded model, which it switches to eager attention."""

    packages = ("transformer-lens",)

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        pad = model.tokenizer.pad_token_id or 0
        self.batches = batches(work.item_set.sequences, pad, model.device)
        # It changes the tokenizer that it is given.
        tokenizer = copy.deepcopy(model.tokenizer)
        self.bridge = TransformerBridge.boot_transformers(
            model.hf.name_or_path, hf_model=model.hf, tokenizer=tokenizer, dtype=model.hf.dtype
        )

    @torch.inference_mode()
    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        sums = np.zeros(len(self.work.item_set.sequences))
        by_layer: dict[int, list[int]] = defaultdict(list)
        for head in heads:
            by_layer[head.layer].append(head.index)
        # What is called z: the output projection's input, (batch, places, heads, head size).
        hooks = [(f"blocks.{layer}.attn.o.hook_in", _zero(one)) for layer, one in by_layer.items()]
        for batch in self.batches:
            logits = self.bridge.run_with_hooks(
                batch.tokens, attention_mask=batch.mask, use_cache=False, fwd_hooks=hooks
            )
            add_scores(sums, logits, batch)
        return sums


def _zero(indices: list[int]) -> Callable[..., torch.Tensor]:
    def zero(value: torch.Tensor, hook: object) -> torch.Tensor:
        value = value.clone()
        value[:, :, indices] = 0
        return value

    return zero
