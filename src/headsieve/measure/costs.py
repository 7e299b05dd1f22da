"""What forward passes take: floating-point operations and memory, from the shapes of a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.measure.packing import Row
from headsieve.measure.texts import Prompt
from headsieve.models.architecture import decoder_layers

if TYPE_CHECKING:
    from headsieve.models.loading import Model


@dataclass(frozen=True)
class Work:
    """Forward passes through the model, and the operations of their matrix products.

    Those of the language-model head stand apart: with many words, what it makes is slow to write.
    """

    passes: int = 0
    layer_flops: float = 0.0
    head_flops: float = 0.0

    @property
    def flops(self) -> float:
        """Of layers and head."""
        return self.layer_flops + self.head_flops

    def __add__(self, other: Work) -> Work:
        return Work(
            self.passes + other.passes,
            self.layer_flops + other.layer_flops,
            self.head_flops + other.head_flops,
        )


class ModelCosts:
    """Counts operations: two a multiplication, in matrix products only.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        config = model.hf.config.get_text_config(decoder=True)
        self._weights = np.array(
            [_active_weights(layer, config) for layer in decoder_layers(model.hf)]
        )
        # Of a query and a key, in every layer.
        self._pairs = np.zeros(len(self._weights))
        for layer in model.geometry.layers:
            self._pairs[layer.layer] = 4 * layer.heads * layer.head_dim
        self._head = 2.0 * model.hf.get_output_embeddings().weight.numel()

    def forward(self, row: Row, entries: Sequence[int]) -> Work:
        """Of one row in one pass, under a mask for each layer at which one enters."""
        nodes = len(row.tokens)
        layers = nodes * (2 * self._weights + self._pairs * nodes)
        flops = sum(float(layers[entry:].sum()) for entry in entries)
        return Work(1, flops, len(entries) * float(self._head * len(row.keep)))

    def writing(self, prompts: Sequence[Prompt], masks: int, rows_at_once: int) -> Work:
        """Of continuing prompts to their limits under so many masks, once they are read."""
        flops, steps_of_all = 0.0, 0
        for prompt in prompts:
            steps = prompt.max_new_tokens
            seen = len(prompt.tokens) + steps / 2  # on average
            flops += steps * float((2 * self._weights + self._pairs * seen).sum())
            steps_of_all += steps
        longest = max((prompt.max_new_tokens for prompt in prompts), default=0)
        passes = longest * math.ceil(masks * len(prompts) / rows_at_once)
        return Work(passes, masks * flops, masks * steps_of_all * self._head)


def mask_bytes(model: Model, row: Row) -> int:
    """What computing a packed row under one mask takes, about: the most of layers and logits."""
    return max(_layer_bytes(model, row), logit_bytes(model, row))


def _layer_bytes(model: Model, row: Row) -> int:
    config = model.hf.config.get_text_config(decoder=True)
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    numbers = len(row.tokens) * (8 * config.hidden_size + 3 * inner)
    return int(numbers * model.hf.dtype.itemsize)


def gradient_bytes(model: Model, row: Row) -> int:
    """What a backward pass over a packed row takes, about: every layer at once, logits thrice."""
    layers = len(decoder_layers(model.hf)) * _layer_bytes(model, row)
    return int(layers + 3 * logit_bytes(model, row))


def logit_bytes(model: Model, row: Row) -> int:
    """What the logits of a packed row under one mask take."""
    words = model.hf.get_output_embeddings().weight.shape[0]
    return int(len(row.keep) * words * model.hf.dtype.itemsize)


def prompt_bytes(model: Model, prompt: Prompt) -> int:
    """What the keys and values of a prompt and of what may follow it take."""
    numbers = sum(2 * layer.kv_heads * layer.head_dim for layer in model.geometry.layers)
    tokens = len(prompt.tokens) + prompt.max_new_tokens
    return int(tokens * numbers * model.hf.dtype.itemsize)


def kept_bytes(model: Model, rows: Sequence[Row], limit: int) -> int:
    """What the hidden states that enter every layer take, as the engine keeps them."""
    config = model.hf.config.get_text_config(decoder=True)
    numbers: int = len(decoder_layers(model.hf)) * config.hidden_size
    a_token = numbers * model.hf.dtype.itemsize
    return int(min(sum(len(row.tokens) for row in rows) * a_token, limit))


def _active_weights(layer: Any, config: Any) -> float:
    """Weights that a token meets: of experts only those that are chosen for it."""
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    chosen = getattr(config, "num_experts_per_tok", None)
    share = chosen / experts if experts and chosen else 1.0
    return float(
        sum(
            weight.numel() * (share if weight.dim() == 3 else 1.0)
            for weight in layer.parameters()
            if weight.dim() in (2, 3)
        )
    )
