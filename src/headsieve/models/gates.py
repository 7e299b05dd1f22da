"""Gates on heads: factors of their outputs, through which gradients flow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from headsieve.models.heads import Geometry


@contextmanager
def gates(hf: nn.Module, geometry: Geometry, values: Tensor) -> Iterator[None]:
    """Multiply every head's output by its gate while the context lasts.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    geometry : Geometry
    values : Tensor, shape (rows, heads)
        One leaves a head alone, zero is a knockout. One row for every row of the batches that run
        inside.
    """
    handles = []
    first = 0
    try:
        for layer in geometry.layers:
            part = values[:, first : first + layer.heads]
            first += layer.heads
            projection = hf.get_submodule(layer.projection)
            columns = part.repeat_interleave(layer.head_dim, dim=1).unsqueeze(1)

            def multiply(
                module: nn.Module, args: tuple[Any, ...], columns: Tensor = columns
            ) -> tuple[Any, ...]:
                weight = next(module.parameters())
                return (args[0] * columns.to(weight.device, args[0].dtype), *args[1:])

            handles.append(projection.register_forward_pre_hook(multiply))
        yield
    finally:
        for handle in handles:
            handle.remove()
