"""Starting forward passes in the middle: below its lowest knocked-out layer nothing changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headsieve.models.architecture import decoder_layers


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
        inputs.append(_hidden_states(args, options))

    layers = decoder_layers(hf)
    handles = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in layers]
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return inputs


@contextmanager
def enter_at(hf: nn.Module, entries: Sequence[int], inputs: Sequence[Tensor]) -> Iterator[None]:
    """Let each row of a batch enter the decoder at a layer of its own.

    The layers concerned are replaced while the context lasts, so that everything around them
    (embeddings, positions, attention masks, the final norm) stays the model's own. The model is
    to be called with a batch of one row, which sets nothing but the shape; it returns as many rows
    as enter.

    Parameters
    ----------
    hf : torch.nn.Module
    entries : sequence of int
        The first layer that is computed for each row, ascending.
    inputs : sequence of Tensor, shape (1, positions, width)
        What enters each layer.
    """
    layers = decoder_layers(hf)
    replaced = dict(enumerate(layers[: entries[-1] + 1]))
    try:
        for number, layer in replaced.items():
            entering = inputs[number].expand(entries.count(number), -1, -1)
            if number < entries[0]:
                layers[number] = _Skipped(layer)
            elif len(entering):
                layers[number] = _Joined(layer, entering, alone=number == entries[0])
        yield
    finally:
        for number, layer in replaced.items():
            layers[number] = layer


class _Replacement(nn.Module):
    """Stands for a layer, and is it to whoever asks for its attributes."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        # In a list, so that it is no submodule: the model's parameters stay where they are.
        self._layer = [layer]

    def __getattr__(self, name: str) -> Any:
        # Models ask their layers for such things as the type of their attention.
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self._layer[0], name)


class _Skipped(_Replacement):
    """A layer that no row has entered yet."""

    def forward(self, *args: Any, **options: Any) -> Tensor:
        return _hidden_states(args, options)


class _Joined(_Replacement):
    """A layer before which rows join those that are there, or are the first."""

    def __init__(self, layer: nn.Module, entering: Tensor, *, alone: bool) -> None:
        super().__init__(layer)
        self._entering = entering
        self._alone = alone

    def forward(self, *args: Any, **options: Any) -> Any:
        rows = self._entering
        if not self._alone:
            rows = torch.cat([_hidden_states(args, options), rows])
        options.pop("hidden_states", None)
        return self._layer[0](rows, *args[1:], **options)


def _hidden_states(args: tuple[Any, ...], options: dict[str, Any]) -> Tensor:
    hidden: Tensor = args[0] if args else options["hidden_states"]
    return hidden
