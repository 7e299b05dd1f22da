"""Starting a forward pass in the middle: below the lowest knocked-out layer nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headsieve.models.heads import decoder_layers


def record_layer_inputs(hf: nn.Module, run: Callable[[], object]) -> list[Tensor]:
    """Hidden states that enter each decoder layer of the unmodified model.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    run : callable
        Makes one forward pass of it.

    Returns
    -------
    list of Tensor, one a layer
    """
    inputs: list[Tensor] = []

    def record(_layer: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        inputs.append(args[0] if args else options["hidden_states"])

    layers = decoder_layers(hf)
    handles = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in layers]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return inputs


@contextmanager
def enter_at(hf: nn.Module, number: int, hidden: Tensor) -> Iterator[None]:
    """Skip the decoder layers below `number`; that layer is given `hidden` instead.

    The layers are replaced while the context lasts, so that everything around them (embeddings,
    positions, attention masks, the final norm) stays the model's own.

    Parameters
    ----------
    hf : torch.nn.Module
    number : int
        The first layer that is computed.
    hidden : Tensor, shape (rows, positions, width)
    """
    layers = decoder_layers(hf)
    skipped = list(layers[:number])
    try:
        for place in range(number):
            layers[place] = _Skipped(skipped[place], hidden)
        yield
    finally:
        for place, layer in enumerate(skipped):
            layers[place] = layer


class _Skipped(nn.Module):
    """Stands for a layer whose output is known or does not matter."""

    def __init__(self, layer: nn.Module, hidden: Tensor) -> None:
        super().__init__()
        # In a list, so that it is no submodule: the model's parameters stay where they are.
        self._layer = [layer]
        self._hidden = hidden

    def forward(self, *_args: Any, **_options: Any) -> torch.Tensor:
        return self._hidden

    def __getattr__(self, name: str) -> Any:
        # Models ask their layers for such things as the type of their attention.
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._layer[0], name)
