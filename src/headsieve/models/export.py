"""Edited checkpoints: heads scaled for good, in the weights of their output projections."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from headsieve.errors import HeadsieveError, first_line
from headsieve.models.heads import NOUNS
from headsieve.models.knockout import HeadScaling, scaled_heads
from headsieve.models.loading import DTYPES, Model, load_model, quiet
from headsieve.models.outputs import mean_outputs

if TYPE_CHECKING:
    from headsieve.models.heads import AnyUnit

# Logits of the hooked model and of the checkpoint may differ by so much, in nats: a knockout is
# exact in every type, and only the attention kernels may differ; a scaled weight and a bias are
# rounded, and every layer above carries that on.
_KNOCKOUT_TOLERANCE = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.4}
_TOLERANCE = _KNOCKOUT_TOLERANCE | {"float32": 1e-3}
_SHARD_SIZE = "5GB"
_PROBE = (
    "A model is asked to go on with this text: the capital of France is Paris, 12 times 12 is 144, "
    "and the opposite of early is late.\ndef add(a, b):\n    return a + b\n"
)
_PROBE_TOKENS = 128


@dataclass(frozen=True)
class Edit:
    """What is done to heads of a model.

    Attributes
    ----------
    heads : tuple of str
    scale : float
        Factor of their outputs: 0 knocks them out.
    mean : bool
        Whether they are scaled about their mean outputs, not about zero.
    scalings : tuple of HeadScaling
        The same, layer by layer.
    silenced : tuple of str
        Where whole layers are knocked out: the projections that come to give nothing.
    """

    heads: tuple[str, ...]
    scale: float
    mean: bool
    scalings: tuple[HeadScaling, ...]
    silenced: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        model: Model,
        heads: Sequence[AnyUnit | str],
        *,
        scale: float = 0.0,
        mean_over: Sequence[str] | None = None,
    ) -> Edit:
        """Prepare an edit.

        Parameters
        ----------
        model : Model
        heads : sequence of Head, Unit or str
        scale : float
        mean_over : sequence of str, optional
            Texts over whose tokens the heads' outputs are averaged; without them heads are scaled
            about zero.

        Raises
        ------
        HeadsieveError
            If the model lacks a head, none is given, or the scale changes nothing.
        """
        geometry = model.geometry.of(model.geometry.units_of(heads))
        columns = np.array(geometry.columns(heads), dtype=int)
        if not len(columns):
            raise HeadsieveError("No heads to change were given.")
        if not torch.isfinite(torch.tensor(scale)) or scale == 1:
            raise HeadsieveError(f"A scale of {scale:g} makes no other model; 0 is a knockout.")
        whole = geometry.units in ("attention-layers", "mlp-layers")
        if whole and (scale != 0 or mean_over is not None):
            raise HeadsieveError(
                f"{NOUNS[geometry.units][1]} can only be knocked out: export without --scale and "
                "--mean."
            )
        means = {}
        if mean_over is not None:
            tokens = [model.tokenizer(text, return_tensors="pt")["input_ids"] for text in mean_over]
            means = mean_outputs(model.hf, model.geometry, tokens)
        scalings, silenced = [], []
        for site in geometry.sites:
            own = columns[(site.columns.start <= columns) & (columns < site.columns.stop)]
            if not len(own):
                continue
            if site.width is None:
                silenced.append(site.module)
                continue
            factor = torch.ones(site.columns.stop - site.columns.start, site.width)
            factor[own - site.columns.start] = scale
            factor = factor.flatten()
            shift = None if not means else (1 - factor) * means[site.layer]
            scalings.append(HeadScaling(site.layer, site.module, factor, shift))
        names = tuple(str(geometry.heads[column]) for column in columns)
        return cls(names, scale, mean_over is not None, tuple(scalings), tuple(silenced))

    def describe(self) -> str:
        """What was done to the heads, as in ``knocked out`` or ``scaled by 0.5``."""
        if self.mean and self.scale == 0:
            return "set to the mean output"
        if self.mean:
            return f"scaled by {self.scale} about the mean output"
        return "knocked out" if self.scale == 0 else f"scaled by {self.scale}"

    @property
    def is_knockout(self) -> bool:
        """Whether the heads give nothing any more."""
        return self.scale == 0 and not self.mean

    def hooked(self, model: Model) -> AbstractContextManager[None]:
        """The same edit made by hooks, while the context lasts."""
        if self.is_knockout:
            return model.knockout(self.heads)
        return scaled_heads(model.hf, self.scalings)


def save_edited(model: Model, edit: Edit, folder: Path, dtype: str) -> float:
    """Write an edited checkpoint and load it again to see that it does what the hooks do.

    Weights, configuration, generation configuration, tokenizer and chat template are written as
    transformers writes them. The model itself is left as it is.

    Parameters
    ----------
    model : Model
    edit : Edit
    folder : Path
        Made if need be.
    dtype : {"float32", "bfloat16", "float16"}
        Of the weights that are written.

    Returns
    -------
    float
        Largest difference of a logit between the checkpoint and the hooked model, both with
        weights of `dtype`.

    Raises
    ------
    HeadsieveError
        If the weights cannot be edited (they are quantized, or their projection takes no bias),
        or if the checkpoint is not the hooked model.
    """
    _require_plain_weights(model.hf)
    source = replace(model, hf=_sharing_copy(model.hf, DTYPES[dtype]))
    edited = _sharing_copy(source.hf, DTYPES[dtype])
    _apply(edited, edit.scalings)
    _silence(edited, edit.silenced)
    # What is written is not quantized, whatever the file was that it came from.
    if hasattr(edited.config, "quantization_config"):
        del edited.config.quantization_config
    edited.hf_quantizer = None
    _require_changed(edited, source.hf, edit)
    try:
        with quiet():
            edited.save_pretrained(folder, max_shard_size=_SHARD_SIZE)
            model.tokenizer.save_pretrained(folder)
    except Exception as error:  # the writers raise whatever a full disk makes them raise
        raise HeadsieveError(f"Cannot write the checkpoint: {first_line(error)}.") from error
    del edited

    loaded = load_model(folder, device=str(model.device), dtype=dtype)
    tokens = _probe(source)
    if not torch.equal(tokens, _probe(loaded)):
        raise HeadsieveError("The tokenizer that was written splits text in another way.")
    with edit.hooked(source):
        expected = _logits(source, tokens)
    difference = float((_logits(loaded, tokens) - expected).abs().max())
    tolerance = (_KNOCKOUT_TOLERANCE if edit.is_knockout else _TOLERANCE)[dtype]
    if not difference <= tolerance:
        raise HeadsieveError(
            f"The checkpoint is not the hooked model: their logits differ by {difference:.2g}. "
            "Nothing was exported; headsieve cannot edit this architecture "
            f"({type(model.hf).__name__})."
        )
    return difference


def _require_plain_weights(hf: Any) -> None:
    plain = set(DTYPES.values())
    for name, parameter in hf.named_parameters():
        if parameter.dtype not in plain:
            kind = str(parameter.dtype).removeprefix("torch.")
            raise HeadsieveError(
                f"The model's weights are quantized ({name} is {kind}); export from its 16- or "
                "32-bit checkpoint."
            )


def _require_changed(edited: Any, source: Any, edit: Edit) -> None:
    """Refuse a scaling that rounding undoes: what is exported must be another model."""
    if edit.is_knockout:
        return
    for scaling in edit.scalings:
        one, other = (hf.get_submodule(scaling.projection) for hf in (edited, source))
        if scaling.shift is None and torch.equal(one.weight, other.weight):
            dtype = str(one.weight.dtype).removeprefix("torch.")
            raise HeadsieveError(
                f"In {dtype}, heads {edit.describe()} are what they were (layer "
                f"{scaling.layer}); choose another scale."
            )


def _sharing_copy(hf: Any, dtype: torch.dtype) -> Any:
    """A model of its own whose weights are those of another, where they have that type already."""
    # What deepcopy finds in its memo it does not copy. Buffers keep their type, as in loading.
    memo: dict[int, Any] = {
        id(parameter): nn.Parameter(parameter.detach().to(dtype), requires_grad=False)
        for parameter in hf.parameters()
    }
    return copy.deepcopy(hf, memo)


def _apply(hf: Any, scalings: Sequence[HeadScaling]) -> None:
    """Put scalings of heads into the weights of a model."""
    if any(scaling.shift is not None for scaling in scalings):
        _require_biases(hf, scalings)
    for scaling in scalings:
        projection = hf.get_submodule(scaling.projection)
        weight, factor = projection.weight, scaling.factor.to(projection.weight.device)
        # transformers' Conv1D (GPT-2) keeps its weight as (inputs, outputs).
        inputs_first = hasattr(projection, "nf")
        exact = weight.float()
        changed = exact * (factor[:, None] if inputs_first else factor)
        projection.weight = nn.Parameter(changed.to(weight.dtype), requires_grad=False)
        if scaling.shift is not None:
            shift = scaling.shift.to(weight.device)
            moved = shift @ exact if inputs_first else exact @ shift
            bias = projection.bias.float() + moved
            projection.bias = nn.Parameter(bias.to(weight.dtype), requires_grad=False)


def _silence(hf: Any, modules: Sequence[str]) -> None:
    """Make projections give nothing, whatever they take."""
    for name in modules:
        projection = hf.get_submodule(name)
        if not isinstance(getattr(projection, "weight", None), nn.Parameter):
            raise HeadsieveError(
                f"{name} is a mixture of experts ({type(projection).__name__}), which no single "
                "projection ends; headsieve exports dense MLP layers only."
            )
        for part in ("weight", "bias"):
            parameter = getattr(projection, part, None)
            if parameter is not None:
                zeros = nn.Parameter(torch.zeros_like(parameter), requires_grad=False)
                setattr(projection, part, zeros)


def _require_biases(hf: Any, scalings: Sequence[HeadScaling]) -> None:
    """Give the output projections biases, of zero, if this architecture can have them.

    Several architectures have biases in all attention projections or in none
    (``attention_bias``); plain transformers then loads them.
    """
    lacking = [
        scaling.projection
        for scaling in scalings
        if getattr(hf.get_submodule(scaling.projection), "bias", None) is None
    ]
    if not lacking:
        return
    if getattr(hf.config, "attention_bias", None) is False:
        hf.config.attention_bias = True
        with torch.device("meta"):
            shape = type(hf)(hf.config)
        present = dict(hf.named_parameters())
        for name, parameter in shape.named_parameters():
            if name not in present:
                owner, _, own_name = name.rpartition(".")
                zeros = torch.zeros(parameter.shape, dtype=hf.dtype, device=hf.device)
                bias = nn.Parameter(zeros, requires_grad=False)
                hf.get_submodule(owner).register_parameter(own_name, bias)
        lacking = [name for name in lacking if hf.get_submodule(name).bias is None]
    if lacking:
        raise HeadsieveError(
            f"{type(hf).__name__} has no bias in its attention output projection "
            f"({lacking[0]}), so no checkpoint can hold the mean output of a head; "
            "export without --mean."
        )


def _probe(model: Model) -> torch.Tensor:
    tokens: torch.Tensor = model.tokenizer(_PROBE, return_tensors="pt")["input_ids"]
    return tokens[:, :_PROBE_TOKENS]


def _logits(model: Model, tokens: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = model.hf(input_ids=tokens.to(model.device)).logits
    return logits.float()
