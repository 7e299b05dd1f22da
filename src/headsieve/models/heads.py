"""Attention heads: their names, and where each of them writes in a loaded model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headsieve.errors import HeadsieveError

if TYPE_CHECKING:
    from torch import nn

_HEAD_NAME = re.compile(r"L(\d+)H(\d+)", re.IGNORECASE)

# What transformers calls the output projection of its attention blocks, most common first.
_PROJECTION_NAMES = ("o_proj", "out_proj", "c_proj", "dense", "wo")


class Head(NamedTuple):
    """One query head, written ``L13H4``: layer 13, head 4, both counted from 0."""

    layer: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        return f"L{self.layer}H{self.index}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """Read a head from its name.

        Raises
        ------
        HeadsieveError
            If the text is not of the form ``L13H4``.
        """
        match = _HEAD_NAME.fullmatch(text.strip())
        if match is None:
            raise HeadsieveError(f"{text!r} is not a head; write layer and head as in L13H4.")
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer.

    Attributes
    ----------
    layer : int
    heads : int
        Query heads.
    head_dim : int
        Columns of the projection's input that belong to one head.
    kv_heads : int
        Key-value heads; ``heads // kv_heads`` query heads share one.
    projection : str
        Name of the attention output projection among the model's modules.
    """

    layer: int
    heads: int
    head_dim: int
    kv_heads: int
    projection: str


class Geometry:
    """All heads of a model in one order: by layer, then by index.

    A mask over the model is a row of ``len(geometry)`` zeros and ones in this order.

    Parameters
    ----------
    layers : sequence of LayerHeads
        The layers whose heads can be knocked out.
    uncovered : sequence of int
        Layers without such heads (linear attention, state space).
    """

    def __init__(self, layers: Sequence[LayerHeads], uncovered: Sequence[int] = ()) -> None:
        self.layers = tuple(layers)
        self.uncovered = tuple(uncovered)
        self.heads = tuple(
            Head(layer.layer, index) for layer in self.layers for index in range(layer.heads)
        )
        self._column = {head: column for column, head in enumerate(self.heads)}

    def __len__(self) -> int:
        return len(self.heads)

    def column(self, head: Head | str) -> int:
        """Position of a head in a mask.

        Raises
        ------
        HeadsieveError
            If that is no head, or the model has no such head.
        """
        if isinstance(head, str):
            head = Head.parse(head)
        if not isinstance(head, Head):
            raise HeadsieveError(f"{head!r} is not a head; write layer and head as in L13H4.")
        try:
            return self._column[head]
        except KeyError:
            raise HeadsieveError(f"The model has no head {head}; {self.describe()}.") from None

    def columns(self, heads: Iterable[Head | str]) -> list[int]:
        """Positions of several heads in a mask, in their order and without repetition.

        Raises
        ------
        HeadsieveError
            If the model lacks one of them, or if a single head is given in place of several.
        """
        if isinstance(heads, (str, Head)) or not isinstance(heads, Iterable):
            raise HeadsieveError(f"Give heads as a list, as in ['L13H4'], not {heads!r}.")
        return list(dict.fromkeys(self.column(head) for head in heads))

    def to_dict(self) -> dict[str, Any]:
        """Layers with their heads, the total, and the layers not covered, for JSON."""
        return {
            "heads": len(self),
            "layers": [asdict(layer) for layer in self.layers],
            "uncovered": list(self.uncovered),
        }

    def describe(self) -> str:
        """One clause on the shape, as in ``layers 0 to 29 have 9 heads each``."""
        counts = {layer.heads for layer in self.layers}
        numbers = [layer.layer for layer in self.layers]
        if len(counts) == 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
            return f"layers {numbers[0]} to {numbers[-1]} have {counts.pop()} heads each"
        return "its heads are " + ", ".join(
            f"L{layer.layer}H0-L{layer.layer}H{layer.heads - 1}" for layer in self.layers
        )


def find_geometry(hf: nn.Module) -> Geometry:
    """Find every attention head of a transformers model by looking at its modules.

    Nothing is assumed to be the same in all layers: the projection, its width and the head size
    are read from each layer's own modules and must fit one another.

    Raises
    ------
    HeadsieveError
        If no layer holds an attention block with an output projection, or if one's width is no
        multiple of its head size.
    """
    whole: Any = hf.config
    config = whole.get_text_config(decoder=True)
    stack_name, stack = _layer_stack(hf)
    layers: list[LayerHeads] = []
    uncovered: list[int] = []
    for number, block in enumerate(stack):
        found = _attention(block)
        if found is None:
            uncovered.append(number)
            continue
        name, attention, projection_name = found
        width = _input_width(attention.get_submodule(projection_name))
        head_dim = _head_dim(attention, config)
        heads, rest = divmod(width, head_dim)
        path = f"{stack_name}.{number}.{name}.{projection_name}"
        if rest or heads == 0:
            raise HeadsieveError(
                f"Layer {number}: the attention output projection {path} takes {width} numbers, "
                f"which is no multiple of the head size {head_dim}; headsieve does not know this "
                f"architecture ({config.model_type})."
            )
        layers.append(
            LayerHeads(number, heads, head_dim, _kv_heads(attention, config, heads), path)
        )
    if not layers:
        raise HeadsieveError(
            f"No attention heads found in {type(hf).__name__}; headsieve needs a decoder whose "
            f"attention blocks end in an output projection ({', '.join(_PROJECTION_NAMES)})."
        )
    return Geometry(layers, uncovered)


def decoder_layers(hf: Any) -> nn.ModuleList:
    """The model's own list of decoder layers."""
    return _layer_stack(hf)[1]


def _layer_stack(hf: Any) -> tuple[str, nn.ModuleList]:
    from torch import nn

    count = int(hf.config.get_text_config(decoder=True).num_hidden_layers)
    stacks = [
        (name, module)
        for name, module in hf.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == count
    ]
    # Some blocks hold lists of their own (experts, say) that may have the same length; the stack
    # of layers is the outermost.
    if not stacks:
        raise HeadsieveError(f"{type(hf).__name__} has no list of {count} decoder layers.")
    return min(stacks, key=lambda stack: stack[0].count("."))


def _attention(block: nn.Module) -> tuple[str, nn.Module, str] | None:
    """The block's attention module: its name, itself, and the name of its output projection."""
    for name, module in block.named_children():
        if "att" not in name.lower() or "linear" in name.lower():
            continue
        for owner, prefix in ((module, name), *_attention_children(module, name)):
            for projection in _PROJECTION_NAMES:
                if hasattr(owner, projection):
                    return prefix, owner, projection
    return None


def _attention_children(module: nn.Module, name: str) -> list[tuple[nn.Module, str]]:
    # GPT-Neo keeps the projection one level further down (attn.attention.out_proj).
    return [
        (child, f"{name}.{child_name}")
        for child_name, child in module.named_children()
        if "att" in child_name.lower()
    ]


def _input_width(projection: Any) -> int:
    if hasattr(projection, "in_features"):
        return int(projection.in_features)
    # transformers' Conv1D (GPT-2) keeps its weight as (inputs, outputs).
    if hasattr(projection, "nf") and projection.weight.shape[1] == projection.nf:
        return int(projection.weight.shape[0])
    raise HeadsieveError(
        f"The attention output projection is a {type(projection).__name__}, of which headsieve "
        "does not know the input width."
    )


def _head_dim(attention: nn.Module, config: object) -> int:
    # Multi-head latent attention has value heads of another size than its queries; what reaches
    # the output projection are values.
    for owner in (attention, config):
        for name in ("v_head_dim", "head_dim", "head_size", "attention_head_size"):
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return int(config.hidden_size) // int(config.num_attention_heads)  # type: ignore[attr-defined]  # every decoder configuration has both


def _kv_heads(attention: nn.Module, config: object, heads: int) -> int:
    # The block's own numbers first: a configuration may hold one that its architecture leaves
    # aside (Falcon), or one that is not that of every layer.
    groups = getattr(attention, "num_key_value_groups", None)
    if isinstance(groups, int) and groups > 0:
        return heads // groups
    for owner in (attention, config):
        for name in ("num_key_value_heads", "num_kv_heads", "kv_heads"):
            value = getattr(owner, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return heads
