"""The honest rival: a plain loop that computes what all sequences begin with once a mask."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.measure.packing import TokenSequence
from peers import MaskByMask, NotApplicableError
from peers.batches import add_scores, batches
from peers.plain import zeroed
from works import Work

if TYPE_CHECKING:
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model

# What is left of an item behind the prefix is short, so more of them make a batch.
_BATCH_SIZE = 64
_SHORTEST_PREFIX = 8


class CachedPrefix(MaskByMask):
    """The prefix's keys and values once a mask, then the rest of each item in padded batches."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        sequences = work.item_set.sequences
        columns = zip(*(one.tokens for one in sequences), strict=False)
        shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
        # The token before the first scored one is needed behind the prefix, to predict it.
        length = min(shared, min(one.start for one in sequences) - 1)
        if length < _SHORTEST_PREFIX:
            raise NotApplicableError("its items have no prefix in common")
        rest = [TokenSequence(one.tokens[length:], one.start - length) for one in sequences]
        pad = model.tokenizer.pad_token_id or 0
        self.prefix = torch.tensor([sequences[0].tokens[:length]], device=model.device)
        self.batches = batches(rest, pad, model.device, size=_BATCH_SIZE)

    @torch.inference_mode()
    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        sums = np.zeros(len(self.work.item_set.sequences))
        length = self.prefix.shape[1]
        hf = self.model.hf
        with zeroed(hf, self.model.geometry, heads):
            prefix = hf(input_ids=self.prefix, use_cache=True, logits_to_keep=1).cache
            for batch in self.batches:
                rows = len(batch.numbers)
                cache = copy.deepcopy(prefix)
                cache.batch_repeat_interleave(rows)
                seen = torch.ones((rows, length), dtype=batch.mask.dtype, device=batch.mask.device)
                output = hf(
                    input_ids=batch.tokens,
                    attention_mask=torch.cat([seen, batch.mask], dim=1),
                    position_ids=length + batch.positions,
                    cache=cache,
                    use_cache=True,
                    logits_to_keep=batch.tokens.shape[1] - batch.first_place,
                )
                add_scores(sums, output.logits, batch, first_place=batch.first_place)
        return sums
