"""Plain loops over transformers: forward pre-hooks, one mask at a time, padded batches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from peers import MaskByMask, Peer, tokens_of
from peers.batches import Batch, add_scores, batches
from works import Masks, Work, heads_of

if TYPE_CHECKING:
    from headsieve.models.heads import Geometry, Head
    from headsieve.models.loading import Model


def columns_by_layer(geometry: Geometry, heads: Iterable[Head]) -> dict[int, list[int]]:
    """Columns of the output projection's input that belong to the heads, by layer."""
    columns: dict[int, list[int]] = defaultdict(list)
    sizes = {layer.layer: layer.head_dim for layer in geometry.layers}
    for head in heads:
        size = sizes[head.layer]
        columns[head.layer] += range(head.index * size, (head.index + 1) * size)
    return dict(columns)


@contextmanager
def zeroed(hf: torch.nn.Module, geometry: Geometry, heads: Iterable[Head]) -> Iterator[None]:
    """Zero heads by hooks of this module's own, not headsieve's."""
    projections = {layer.layer: layer.projection for layer in geometry.layers}
    handles = []
    for layer, columns in columns_by_layer(geometry, heads).items():

        def zero(
            _module: torch.nn.Module, args: tuple[Any, ...], columns: list[int] = columns
        ) -> tuple[Any, ...]:
            values = args[0].clone()
            values[..., columns] = 0
            return (values,)

        projection = hf.get_submodule(projections[layer])
        handles.append(projection.register_forward_pre_hook(zero))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Plain(MaskByMask):
    """Right padding, logits of every place."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        self.batches = self._batches()

    @torch.inference_mode()
    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        sums = np.zeros(len(self.work.item_set.sequences))
        with zeroed(self.model.hf, self.model.geometry, heads):
            for batch in self.batches:
                self._add(sums, batch)
        return sums

    def _batches(self) -> list[Batch]:
        pad = self.model.tokenizer.pad_token_id or 0
        return batches(self.work.item_set.sequences, pad, self.model.device)

    def _add(self, sums: NDArray[np.float64], batch: Batch) -> None:
        output = self.model.hf(input_ids=batch.tokens, attention_mask=batch.mask, use_cache=False)
        add_scores(sums, output.logits, batch)


class AnswersOnly(Plain):
    """Left padding, so that the answers stand together at the end, and logits there only."""

    def _batches(self) -> list[Batch]:
        pad = self.model.tokenizer.pad_token_id or 0
        return batches(self.work.item_set.sequences, pad, self.model.device, side="left")

    def _add(self, sums: NDArray[np.float64], batch: Batch) -> None:
        output = self.model.hf(
            input_ids=batch.tokens,
            attention_mask=batch.mask,
            position_ids=batch.positions,
            logits_to_keep=batch.tokens.shape[1] - batch.first_place,
            use_cache=False,
        )
        add_scores(sums, output.logits, batch, first_place=batch.first_place)


class Generate(Peer):
    """``generate`` of transformers, one mask after the other: all prompts in one padded batch."""

    def __init__(self, model: Model, work: Work) -> None:
        super().__init__(model, work)
        longest = max(map(len, work.prompts))
        self.pad = model.tokenizer.pad_token_id or 0
        self.tokens = torch.tensor(
            [[self.pad] * (longest - len(one)) + list(one) for one in work.prompts],
            device=model.device,
        )
        self.mask = torch.tensor(
            [[0] * (longest - len(one)) + [1] * len(one) for one in work.prompts],
            device=model.device,
        )

    @staticmethod
    def applies(work: Work) -> bool:
        return bool(work.new_tokens)

    @torch.inference_mode()
    def score(self, masks: Masks) -> NDArray[np.float64]:
        ends = self.model.hf.generation_config.eos_token_id
        ends = {ends} if isinstance(ends, int) else set(ends or ())
        answers = []
        for mask in masks:
            with zeroed(self.model.hf, self.model.geometry, heads_of(self.model, mask)):
                output = self.model.hf.generate(
                    input_ids=self.tokens,
                    attention_mask=self.mask,
                    max_new_tokens=self.work.new_tokens,
                    do_sample=False,
                    pad_token_id=self.pad,
                )
            said = output[:, self.tokens.shape[1] :].tolist()
            texts = [list(takewhile(lambda token: token not in ends, text)) for text in said]
            answers.append(tokens_of(texts, self.work.new_tokens))
        return np.array(answers)
