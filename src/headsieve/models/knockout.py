"""The only place that changes a forward pass: knocking out heads and larger units with hooks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from headsieve.errors import HeadsieveError
from headsieve.models.placing import placed

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

    from headsieve.models.heads import AnyUnit, Geometry, Site


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
    """Knock out heads, or the geometry's other units, while the context lasts.

    Each masked head's slice of the attention output projection's input is set to zero, or to the
    replacement's, at every position; where the unit is a whole layer, the output of its attention
    or feed-forward part is set to zero. Layers in which no row masks anything are left alone, so
    the unmodified model runs exactly as it would without headsieve.

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
    hooks = _site_hooks(hf, geometry, masks, entries, replacement, allow_mute=allow_mute)
    handles: list[Any] = []

    def check(_module: nn.Module, _args: object, output: object) -> None:
        for hook in hooks:
            hook.check()

    try:
        for hook in hooks:
            module = hf.get_submodule(hook.site.module)
            if hook.site.width is None:
                handles.append(module.register_forward_hook(hook.after))
            else:
                handles.append(module.register_forward_pre_hook(hook.before))
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
    layer : int
    projection : str
        Name of the module that takes their outputs.
    factor : Tensor of float32, shape (heads * head_dim,) or (rows, 1, heads * head_dim)
    shift : Tensor of float32, of either shape, or None
    """

    layer: int
    projection: str
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
            projection = hf.get_submodule(scaling.projection)
            handles.append(projection.register_forward_pre_hook(hook(scaling)))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def gates(
    hf: nn.Module, geometry: Geometry, values: Tensor, replacement: LayerOutputs | None = None
) -> Iterator[None]:
    """Multiply every unit's output by its gate while the context lasts; gradients flow through.

    Parameters
    ----------
    hf : torch.nn.Module
        A transformers model.
    geometry : Geometry
    values : Tensor, shape (rows, units)
        One leaves a unit alone, zero is a knockout. One row for every row of the batches that run
        inside.
    replacement : mapping of int to Tensor, optional
        What comes in as the gates close, as for `knockout`.
    """

    def before(factor: Tensor, outputs: Tensor | None) -> Any:
        def change(_module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
            gate = factor.to(args[0])
            changed = args[0] * gate
            if outputs is not None:
                changed = changed + (1 - gate) * outputs.to(args[0])
            return (changed, *args[1:])

        return change

    def after(factor: Tensor) -> Any:
        return lambda _module, _args, output: _with_first(output, lambda one: one * factor.to(one))

    handles: list[Any] = []
    try:
        for site in geometry.sites:
            module = hf.get_submodule(site.module)
            part = values[:, site.columns]
            if site.width is None:
                handles.append(module.register_forward_hook(after(part.unsqueeze(1))))
            else:
                factor = part.repeat_interleave(site.width, dim=1).unsqueeze(1)
                outputs = None if replacement is None else replacement[site.layer]
                handles.append(module.register_forward_pre_hook(before(factor, outputs)))
        yield
    finally:
        for handle in handles:
            handle.remove()


def require_unmodified(hf: nn.Module, geometry: Geometry) -> None:
    """Refuse a model of which anything is knocked out at the moment.

    Raises
    ------
    HeadsieveError
        If the call is made inside a `knockout` context of the same model.
    """
    modules = [layer.projection for layer in geometry.layers]
    modules += [module for mlp in geometry.mlps for module in mlp.modules]
    for module in map(hf.get_submodule, modules):
        hooks = (*module._forward_pre_hooks.values(), *module._forward_hooks.values())
        if any(isinstance(getattr(hook, "__self__", None), _SiteHook) for hook in hooks):
            raise HeadsieveError(
                "Heads of this model are knocked out already; leave the knockout's with block "
                "before measuring it."
            )


def _site_hooks(
    hf: nn.Module,
    geometry: Geometry,
    masks: NDArray[np.bool_],
    entries: Sequence[int] | None,
    replacement: LayerOutputs | None,
    *,
    allow_mute: bool,
) -> list[_SiteHook]:
    if masks.shape[1] != len(geometry):
        raise HeadsieveError(
            f"A mask has {masks.shape[1]} entries but the model has {len(geometry)} heads."
        )
    hooks: list[_SiteHook] = []
    for site in geometry.sites:
        present = len(masks) if entries is None else bisect_right(entries, site.layer)
        rows = masks[:present, site.columns]
        if rows.any():
            device = next(hf.get_submodule(site.module).parameters()).device
            # Weights that accelerate keeps elsewhere between calls are on no device; then the
            # first call tells where the layer runs.
            there = torch.device("cpu") if device.type == "meta" else device
            rows_there = placed(rows.copy(), there)
            units = geometry.heads[site.columns]
            outputs = None
            if replacement is not None and site.width is not None:
                outputs = replacement[site.layer].to(there)
            hooks.append(_SiteHook(site, units, rows_there, outputs, allow_mute=allow_mute))
    return hooks


def _with_first(output: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """A module's output with its tensor changed; some return more beside it (router scores)."""
    if isinstance(output, tuple):
        return (change(output[0]), *output[1:])
    return change(output)


class _SiteHook:
    """Zeroes or replaces one site's masked units and remembers that it did."""

    def __init__(
        self,
        site: Site,
        units: Sequence[AnyUnit],
        masks: Tensor,
        outputs: Tensor | None,
        *,
        allow_mute: bool,
    ) -> None:
        self.site = site
        self.units = units
        self.masks = masks
        self.outputs = outputs
        self.allow_mute = allow_mute
        # (rows, 1, width) against activations of (batch, positions, width); a whole output has one
        # unit, whose mask serves all its numbers.
        self.columns = masks.repeat_interleave(site.width or 1, dim=1).unsqueeze(1)
        self.passes = 0
        self.fired = False
        self.something: Tensor | None = None

    def before(self, _module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """A forward pre-hook: zero part of the input."""
        return (self._zeroed(args[0]), *args[1:])

    def after(self, _module: nn.Module, _args: tuple[Any, ...], output: Any) -> Any:
        """A forward hook: zero the output."""
        return _with_first(output, self._zeroed)

    def _zeroed(self, states: Tensor) -> Tensor:
        if self.columns.device != states.device:
            self.columns = self.columns.to(states.device)
            self.masks = self.masks.to(states.device)
        columns = self.columns
        if states.dim() == 2:
            # A mixture-of-experts or fused layer may flatten batch and positions into one.
            if columns.shape[0] != 1:
                raise KnockoutError(
                    f"Layer {self.site.layer} joins the rows of a batch into one; it can be "
                    "knocked out under one mask at a time only (--batch-size 1)."
                )
            columns = columns[:, 0]
        elif columns.shape[0] not in (1, states.shape[0]):
            raise KnockoutError(
                f"The batch has {states.shape[0]} rows but there are {columns.shape[0]} masks."
            )
        self.fired = True
        if self.outputs is None:
            changed = states.masked_fill(columns, 0)
        else:
            changed = torch.where(columns, self.outputs.to(states), states)
        if not self.allow_mute:
            # Stays on the device: whether anything was there to change is asked once a forward
            # pass.
            self.something = (states - changed).abs().amax(dim=tuple(range(1, states.dim())))
        return changed

    def check(self) -> None:
        """Raise unless the forward pass that just ended came through here and lost something."""
        if not self.fired:
            raise KnockoutError(
                f"A forward pass did not go through {self.site.module}, so the knockout in "
                f"layer {self.site.layer} had no effect."
            )
        self.fired = False
        self.passes += 1
        if self.something is None:
            return
        masks = self.masks.expand(len(self.something), -1)
        mute = masks[self.something == 0].any(dim=0)
        if bool(mute.any()):
            names = ", ".join(str(self.units[one]) for one in mute.nonzero().flatten().tolist())
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
