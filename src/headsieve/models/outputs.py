"""Reading what heads give: their mean outputs, and their outputs at single places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headsieve.models.heads import Geometry, LayerHeads


def mean_outputs(
    hf: nn.Module, geometry: Geometry, sequences: Iterable[Tensor]
) -> dict[int, Tensor]:
    """Mean output of all heads of each layer over every token of some sequences.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    geometry : Geometry
    sequences : iterable of Tensor of int, shape (1, tokens)

    Returns
    -------
    dict of int to Tensor of float32, shape (heads * head_dim,), on the CPU
        By the number of the layer.
    """
    sums = {
        layer.layer: torch.zeros(layer.heads * layer.head_dim, dtype=torch.float64)
        for layer in geometry.layers
    }
    count = 0

    def add(layer: int, outputs: Tensor) -> None:
        sums[layer] += outputs.sum(0, dtype=torch.float32).cpu()

    with _reading(hf, geometry, add):
        for tokens in sequences:
            _run(hf, tokens)
            count += tokens.shape[1]
    return {layer: (total / count).float() for layer, total in sums.items()}


def outputs_at(
    hf: nn.Module, geometry: Geometry, sequences: Sequence[Tensor], places: Sequence[int]
) -> dict[int, Tensor]:
    """Outputs of all heads of each layer at one token of each sequence.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    geometry : Geometry
    sequences : sequence of Tensor of int, shape (1, tokens)
    places : sequence of int
        The token of each sequence.

    Returns
    -------
    dict of int to Tensor of float32, shape (sequences, heads * head_dim), on the CPU
        By the number of the layer.
    """
    found: dict[int, list[Tensor]] = {layer.layer: [] for layer in geometry.layers}
    place = 0

    def keep(layer: int, outputs: Tensor) -> None:
        found[layer].append(outputs[place].float().cpu())

    with _reading(hf, geometry, keep):
        for tokens, place in zip(sequences, places, strict=True):  # noqa: B007  # read by keep
            _run(hf, tokens)
    return {layer: torch.stack(rows) for layer, rows in found.items()}


@contextmanager
def _reading(
    hf: nn.Module, geometry: Geometry, read: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Show each layer's heads' outputs, of shape (tokens, width), while the context lasts."""

    def hook(layer: LayerHeads) -> Any:
        return lambda _module, args: read(layer.layer, args[0].flatten(0, -2))

    handles: list[Any] = []
    try:
        for layer in geometry.layers:
            projection = hf.get_submodule(layer.projection)
            handles.append(projection.register_forward_pre_hook(hook(layer)))
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.inference_mode()
def _run(hf: nn.Module, tokens: Tensor) -> None:
    hf(input_ids=tokens.to(next(hf.parameters()).device))
