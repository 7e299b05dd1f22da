"""How many operations a work needs at least, and how many a second this machine reaches."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from headsieve.measure.engine import lowest_layer
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
    predicted. Layers below a mask's lowest head count nothing: the unmodified model's serve.
    """
    sequences = work.item_set.sequences
    nodes = {one.tokens[:end] for one in sequences for end in range(1, len(one.tokens))}
    read = {one.tokens[:end] for one in sequences for end in range(one.start, len(one.tokens))}
    pairs = sum(len(node) for node in nodes)
    layers = np.zeros(len(decoder_layers(model.hf)))
    for number, layer in enumerate(decoder_layers(model.hf)):
        weights = sum(weight.numel() for weight in layer.parameters() if weight.dim() == 2)
        layers[number] = 2 * weights * len(nodes)
    for attention in model.geometry.layers:
        layers[attention.layer] += 4 * attention.heads * attention.head_dim * pairs
    head = 2 * model.hf.get_output_embeddings().weight.numel() * len(read)
    first = [lowest_layer(model.geometry, mask[None]) for mask in work.masks]
    return float(np.mean([layers[layer:].sum() + head for layer in first]))


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
