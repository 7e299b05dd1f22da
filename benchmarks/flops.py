"""How many operations a work needs at least, and how many a second this machine reaches."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.measure.engine import lowest_layer
from headsieve.measure.packing import TokenSequence
from headsieve.models.architecture import decoder_layers
from headsieve.models.loading import DTYPES

if TYPE_CHECKING:
    from headsieve.models.loading import Model
    from works import Work

# Sides of the square matrices whose product is timed.
_SIDE = {"cpu": 1024, "cuda": 8192}


def needed_flops(model: Model, work: Work) -> float:
    """Floating-point operations that a mask needs on average when nothing is computed twice.

    Counted are matrix products only, two operations a multiplication: for every distinct prefix of
    the work's sequences the weights of the layers from the mask's lowest head upward and its
    attention to the tokens before it; and the language-model head where a scored token is
    predicted. Layers below a mask's lowest head count nothing: the unmodified model's serve, except
    for tokens that the model writes, which differ from mask to mask.
    """
    sequences: Sequence[TokenSequence] = work.item_set.sequences
    if work.new_tokens:
        # As if the tokens to come were known, and no two texts shared any.
        sequences = [
            TokenSequence((*prompt, *[-1 - number] * work.new_tokens), len(prompt))
            for number, prompt in enumerate(work.prompts)
        ]
    nodes = {one.tokens[:end] for one in sequences for end in range(1, len(one.tokens))}
    read = {one.tokens[:end] for one in sequences for end in range(one.start, len(one.tokens))}
    written = {node for node in nodes if work.new_tokens and node[-1] < 0}
    given = _layer_flops(model, nodes - written)
    always = _layer_flops(model, written).sum()
    head = 2 * model.hf.get_output_embeddings().weight.numel() * len(read)
    first = [lowest_layer(model.geometry, mask[None]) for mask in work.masks]
    return float(np.mean([given[layer:].sum() + always + head for layer in first]))


def _layer_flops(model: Model, nodes: Collection[tuple[int, ...]]) -> NDArray[np.float64]:
    """Operations of each layer at the last tokens of distinct prefixes."""
    pairs = sum(map(len, nodes))
    layers = np.zeros(len(decoder_layers(model.hf)))
    for number, layer in enumerate(decoder_layers(model.hf)):
        weights = sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)
        layers[number] = 2 * weights * len(nodes)
    for attention in model.geometry.layers:
        layers[attention.layer] += 4 * attention.heads * attention.head_dim * pairs
    return layers


def matrix_peak(dtype: str, device: str) -> float:
    """Operations a second in the product of two large matrices: the best of five.

    Fewer where a product takes seconds, as in a type that the processor does not know.
    """
    side = _SIDE.get(device, _SIDE["cuda"])
    one = torch.randn(side, side, device=device).to(DTYPES[dtype])
    seconds: list[float] = []
    while len(seconds) < 5 and sum(seconds) < 1:
        started = time.perf_counter()
        # Reading a number waits for the device.
        (one @ one)[0, 0].item()
        seconds.append(time.perf_counter() - started)
    return 2 * side**3 / min(seconds)
