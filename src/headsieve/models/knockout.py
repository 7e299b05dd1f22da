"""The only place that changes a forward pass: knocking out heads with forward pre-hooks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headsieve.errors import HeadsieveError
from headsieve.models.heads import Head

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from headsieve.models.heads import Geometry, LayerHeads


# Outputs of all heads of each layer, by its number, each of shape (heads * head_dim,).
LayerOutputs = Mapping[int, "Tensor"]


class KnockoutError(HeadsieveError):
    """A knockout did not reach the model, so what was computed under it means nothing."""


@contextmanager
def knockout(
    hf: nn.Module,
    geometry: Geometry,
    masks: NDArray[np.bool_],
    *,
    replacement: LayerOutputs | None = None,
    allow_mute: bool = False,
    entries: Sequence[int] | None = None,
) -> Iterator[None]:
    """Zero heads, or put given outputs in the place of theirs, while the context lasts.

    Each masked head's slice of the attention output projection's input is set to zero, or to the
    replacement's, at every position. Layers in which no row masks a head are left alone, so the
    unmodified model runs exactly as it would without headsieve.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    geometry : Geometry
    masks : ndarray of bool, shape (rows, heads)
        One row for every row of the batches that run inside; a single row serves all.
    replacement : mapping of int to Tensor, optional
        What masked heads give instead, the same at every position; zero without it.
    allow_mute : bool
        Whether the masked heads may give just that already, so that nothing changes.
    entries : sequence of int, optional
        The layer at which each row enters the batch, ascending; by default all are there from the
        first layer on.

    Raises
    ------
    KnockoutError
        If a forward pass of the model did not come through a masked layer, if there was nothing
        left to change there (unless `allow_mute`), if a batch has another number of rows than
        `masks`, or if no forward pass ran at all.
    """
    masks = np.atleast_2d(np.asarray(masks, dtype=bool))
    present = {
        layer.layer: len(masks) if entries is None else bisect_right(entries, layer.layer)
        for layer in geometry.layers
    }
    hooks = _layer_hooks(hf, geometry, masks, present, replacement, allow_mute=allow_mute)
    handles: list[Any] = []

    def check(_module: nn.Module, _args: object, output: object) -> None:
        for hook in hooks:
            hook.check()

    try:
        for hook in hooks:
            projection = hf.get_submodule(hook.layer.projection)
            handles.append(projection.register_forward_pre_hook(hook))
        if hooks:
            handles.append(hf.register_forward_hook(check))
        yield
    finally:
        for handle in handles:
            handle.remove()
    for hook in hooks:
        hook.check_ever_fired()


@dataclass(frozen=True)
class HeadScaling:
    """What becomes of one layer's heads: ``output * factor + shift``.

    Attributes
    ----------
    layer : LayerHeads
    factor : Tensor of float32, shape (heads * head_dim,) or (rows, 1, heads * head_dim)
    shift : Tensor of float32, of either shape, or None
    """

    layer: LayerHeads
    factor: Tensor
    shift: Tensor | None


@contextmanager
def scaled_heads(hf: nn.Module, scalings: Iterable[HeadScaling]) -> Iterator[None]:
    """Scale and shift heads' outputs while the context lasts.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    scalings : iterable of HeadScaling
        One for each layer in which anything changes.
    """

    def hook(scaling: HeadScaling) -> Any:
        def change(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            heads: Tensor = args[0]
            changed = heads * scaling.factor.to(heads)
            if scaling.shift is not None:
                changed = changed + scaling.shift.to(heads)
            return (changed, *args[1:])

        return change

    handles: list[Any] = []
    try:
        for scaling in scalings:
            projection = hf.get_submodule(scaling.layer.projection)
            handles.append(projection.register_forward_pre_hook(hook(scaling)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def gates(
    hf: nn.Module, geometry: Geometry, values: Tensor, replacement: LayerOutputs | None = None
) -> AbstractContextManager[None]:
    """Multiply every head's output by its gate while the context lasts; gradients flow through.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    geometry : Geometry
    values : Tensor, shape (rows, heads)
        One leaves a head alone, zero is a knockout. One row for every row of the batches that run
        inside.
    replacement : mapping of int to Tensor, optional
        What comes in as the gates close, as for `knockout`.
    """
    parts = torch.split(values, [layer.heads for layer in geometry.layers], dim=1)
    scalings = []
    for layer, part in zip(geometry.layers, parts, strict=True):
        factor = part.repeat_interleave(layer.head_dim, dim=1).unsqueeze(1)
        shift = None
        if replacement is not None:
            shift = (1 - factor) * replacement[layer.layer].to(factor)
        scalings.append(HeadScaling(layer, factor, shift))
    return scaled_heads(hf, scalings)


def require_unmodified(hf: nn.Module, geometry: Geometry) -> None:
    """Refuse a model whose heads are knocked out at the moment.

    Raises
    ------
    HeadsieveError
        If the call is made inside a `knockout` context of the same model.
    """
    for layer in geometry.layers:
        hooks = hf.get_submodule(layer.projection)._forward_pre_hooks.values()
        if any(isinstance(hook, _LayerHook) for hook in hooks):
            raise HeadsieveError(
                "Heads of this model are knocked out already; leave the knockout's with block "
                "before measuring it."
            )


def _layer_hooks(
    hf: nn.Module,
    geometry: Geometry,
    masks: NDArray[np.bool_],
    present: dict[int, int],
    replacement: LayerOutputs | None,
    *,
    allow_mute: bool,
) -> list[_LayerHook]:
    if masks.shape[1] != len(geometry):
        raise HeadsieveError(
            f"A mask has {masks.shape[1]} entries but the model has {len(geometry)} heads."
        )
    hooks: list[_LayerHook] = []
    first = 0
    for layer in geometry.layers:
        rows = masks[: present[layer.layer], first : first + layer.heads]
        first += layer.heads
        if rows.any():
            device = next(hf.get_submodule(layer.projection).parameters()).device
            rows_there = torch.from_numpy(rows.copy()).to(device)
            outputs = None if replacement is None else replacement[layer.layer].to(device)
            hooks.append(_LayerHook(layer, rows_there, outputs, allow_mute=allow_mute))
    return hooks


class _LayerHook:
    """Zeroes or replaces one layer's masked heads and remembers that it did."""

    def __init__(
        self, layer: LayerHeads, masks: Tensor, outputs: Tensor | None, *, allow_mute: bool
    ) -> None:
        self.layer = layer
        self.masks = masks
        self.outputs = outputs
        self.allow_mute = allow_mute
        # (rows, 1, width) against activations of (batch, positions, width).
        self.columns = masks.repeat_interleave(layer.head_dim, dim=1).unsqueeze(1)
        self.passes = 0
        self.fired = False
        self.something: Tensor | None = None

    def __call__(self, _module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        heads: Tensor = args[0]
        columns = self.columns
        if heads.dim() == 2:
            # A mixture-of-experts or fused layer may flatten batch and positions into one.
            if columns.shape[0] != 1:
                raise KnockoutError(
                    f"Layer {self.layer.layer} joins the rows of a batch into one; give one mask "
                    "for all of them."
                )
            columns = columns[:, 0]
        elif columns.shape[0] not in (1, heads.shape[0]):
            raise KnockoutError(
                f"The batch has {heads.shape[0]} rows but there are {columns.shape[0]} masks."
            )
        self.fired = True
        if self.outputs is None:
            changed = heads.masked_fill(columns, 0)
        else:
            changed = torch.where(columns, self.outputs.to(heads), heads)
        if not self.allow_mute:
            # Stays on the device: whether anything was there to change is asked once a forward
            # pass.
            self.something = (heads - changed).abs().amax(dim=tuple(range(1, heads.dim())))
        return (changed, *args[1:])

    def check(self) -> None:
        """Raise unless the forward pass that just ended came through here and lost something."""
        if not self.fired:
            raise KnockoutError(
                f"A forward pass did not go through {self.layer.projection}, so the knockout in "
                f"layer {self.layer.layer} had no effect."
            )
        self.fired = False
        self.passes += 1
        if self.something is None:
            return
        masks = self.masks.expand(len(self.something), -1)
        mute = masks[self.something == 0].any(dim=0)
        if bool(mute.any()):
            names = ", ".join(
                str(Head(self.layer.layer, index)) for index in mute.nonzero().flatten().tolist()
            )
            raise KnockoutError(
                f"{names}: nothing but {'zeros' if self.outputs is None else 'the replacement'} "
                "comes from there already, so knocking that out changes nothing."
            )

    def check_ever_fired(self) -> None:
        if not self.passes and not self.fired:
            raise KnockoutError(
                "No forward pass ran while the heads were knocked out; call the model inside the "
                "with block."
            )
