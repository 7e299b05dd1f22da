"""Where the heads and feed-forward parts of a transformers model are, read from its modules."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headsieve.errors import HeadsieveError
from headsieve.models.heads import Geometry, LayerHeads, LayerMLP

if TYPE_CHECKING:
    from torch import nn

# What transformers calls the output projection of its attention blocks, most common first.
_PROJECTION_NAMES = ("o_proj", "out_proj", "c_proj", "dense", "wo")
# What it calls the feed-forward part of a layer, dense or of experts.
_MLP_NAMES = re.compile(r"mlp|ffn|feed_forward|moe|expert|fc2", re.IGNORECASE)


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
    mlps = [
        LayerMLP(number, modules)
        for number, block in enumerate(stack)
        if (modules := _mlp_outputs(block, f"{stack_name}.{number}", int(config.hidden_size)))
    ]
    return Geometry(layers, uncovered, mlps)


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


def _mlp_outputs(block: nn.Module, path: str, hidden_size: int) -> tuple[str, ...]:
    """Names of the modules whose outputs make up that of the block's feed-forward part."""
    return tuple(
        f"{path}.{name}{_last_projection(child, hidden_size)}"
        for name, child in block.named_children()
        # Norms before and after it bear its name too, but no matrix.
        if _MLP_NAMES.search(name) and any(one.dim() > 1 for one in child.parameters())
    )


def _last_projection(mlp: nn.Module, hidden_size: int) -> str:
    """The projection that a dense feed-forward part ends in; nothing for one of experts.

    Some architectures add the residual stream inside the part, so that its own output is not what
    it contributes.
    """
    linear = {
        name: int(getattr(child, "out_features", 0) or getattr(child, "nf", 0))
        for name, child in mlp.named_children()
        if any(one.dim() > 1 for one in child.parameters())
    }
    if not linear or not all(linear.values()) or list(linear.values())[-1] != hidden_size:
        return ""
    return f".{list(linear)[-1]}"


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
