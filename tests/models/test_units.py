"""Units larger than heads: KV groups, attention layers and MLP layers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.models.export import Edit, save_edited
from headsieve.models.heads import UNITS, Head, Unit, Units, parse_unit
from headsieve.models.knockout import KnockoutError, gates, knockout, require_unmodified
from headsieve.models.loading import Model
from tests.families import FAMILIES
from tests.tiny import count_hooks, main_attention, tiny_model

TOKENS = torch.arange(30, 70)[None]
LARGER = [units for units in UNITS if units != "heads"]


@torch.inference_mode()
def logits(hf: Any, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    return torch.as_tensor(hf(input_ids=tokens, use_cache=False).logits)


@given(st.integers(0, 99), st.integers(0, 99), st.sampled_from(UNITS))
def test_a_unit_is_read_from_its_own_name(layer: int, index: int, units: Units) -> None:
    unit: Head | Unit = Head(layer, index)
    if units != "heads":
        unit = Unit(layer, index if units == "kv-groups" else 0, units)
    assert parse_unit(str(unit)) == unit
    assert parse_unit(f" {str(unit).lower()} ") == unit


def test_names_of_units() -> None:
    model = tiny_model("llama")
    names = {units: model.with_units(units).geometry.heads for units in LARGER}
    assert [str(one) for one in names["kv-groups"]][:3] == ["L0G0", "L0G1", "L1G0"]
    assert [str(one) for one in names["attention-layers"]] == ["L0A", "L1A", "L2A"]
    assert [str(one) for one in names["mlp-layers"]] == ["L0M", "L1M", "L2M"]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_kv_group_is_all_query_heads_that_share_a_value(name: str) -> None:
    model = tiny_model(name, main_attention(name))
    layer = model.geometry.layers[-1]
    size = layer.heads // layer.kv_heads
    group = [f"L{layer.layer}H{index}" for index in range(layer.heads - size, layer.heads)]
    with model.knockout([f"L{layer.layer}G{layer.kv_heads - 1}"]):
        found = logits(model.hf)
    with model.knockout(group):
        assert torch.equal(logits(model.hf), found)


@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3", "phi3", "olmo2", "mixtral"])
def test_a_kv_group_is_a_value_head_set_to_zero(name: str) -> None:
    model = tiny_model(name)
    layer = model.geometry.layers[1]
    edited = copy.deepcopy(model.hf)
    attention: Any = edited.model.layers[1].self_attn
    own = slice((layer.kv_heads - 1) * layer.head_dim, layer.kv_heads * layer.head_dim)
    if name == "phi3":  # queries, keys and values in one matrix, values last
        attention.qkv_proj.weight.data[-layer.head_dim :] = 0
    else:
        attention.v_proj.weight.data[own] = 0
        if attention.v_proj.bias is not None:
            attention.v_proj.bias.data[own] = 0
    with model.knockout([f"L1G{layer.kv_heads - 1}"]):
        torch.testing.assert_close(logits(model.hf), logits(edited), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("units", ["attention-layers", "mlp-layers"])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_layer_gives_nothing_row_by_row(name: str, units: Units) -> None:
    """Against the part itself made to give nothing: its last projections zeroed, biases too."""
    model = tiny_model(name, main_attention(name))
    if name == "opt" and units == "mlp-layers":
        with pytest.raises(KnockoutError, match="joins the rows of a batch"):
            logits_under(model.with_units(units), np.eye(3, dtype=bool))
        return
    geometry = model.geometry.of(units)
    masks = np.zeros((2, len(geometry)), dtype=bool)
    masks[0, -1] = masks[1, 0] = True
    together = logits_under(model.with_units(units), masks)
    for row, column in zip(together, (-1, 0), strict=True):
        number = geometry.heads[column].layer
        edited = copy.deepcopy(model.hf)
        for module in (site.module for site in geometry.sites if site.layer == number):
            silence(edited.get_submodule(module))
        torch.testing.assert_close(row, logits(edited)[0], rtol=1e-5, atol=1e-5)
        assert not torch.equal(row, logits(model.hf)[0])


def logits_under(model: Model, masks: np.ndarray) -> torch.Tensor:
    with knockout(model.hf, model.geometry, masks):
        return logits(model.hf, TOKENS.expand(len(masks), -1))


def silence(part: torch.nn.Module) -> None:
    """Make a projection, or every expert of a mixture, give nothing."""
    for name, parameter in part.named_parameters():
        if "." not in name or "down_proj" in name:
            parameter.data.zero_()


@pytest.mark.parametrize("units", LARGER)
@pytest.mark.parametrize("name", ["llama", "qwen2_moe", "gpt_oss", "gpt2"])
def test_a_closed_gate_is_a_knockout(name: str, units: Units) -> None:
    model = tiny_model(name, main_attention(name)).with_units(units)
    values = torch.ones((1, len(model.geometry)))
    values[0, 1] = 0
    with gates(model.hf, model.geometry, values):
        gated = logits(model.hf)
    assert count_hooks(model.hf) == 0
    expected = logits_under(model, values.numpy() == 0)[0]
    torch.testing.assert_close(gated[0], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("units", LARGER)
@pytest.mark.parametrize("name", ["llama", "gpt2", "gemma3"])
def test_what_is_exported_is_the_hooked_model(name: str, units: Units, tmp_path: Path) -> None:
    model = tiny_model(name)
    names = [str(model.geometry.of(units).heads[1])]
    edit = Edit.of(model, names)
    assert edit.heads == tuple(names)
    assert save_edited(model, edit, tmp_path, "float32") < 1e-4


def test_what_cannot_be_exported_is_told(tmp_path: Path) -> None:
    experts = tiny_model("mixtral")
    with pytest.raises(HeadsieveError, match="mixture of experts"):
        save_edited(experts, Edit.of(experts, ["L1M"]), tmp_path / "new", "float32")
    with pytest.raises(HeadsieveError, match="MLP layers can only be knocked out"):
        Edit.of(experts, ["L1M"], scale=0.5)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["L1H0", "L1M"], "heads and MLP layers cannot be mixed"),
        (["L1G2"], "no KV group L1G2; its KV groups are L0G0 to L2G1"),
        (["L3A"], "no attention layer L3A; its attention layers are L0A to L2A"),
        (["L1G"], "write layer and head as in L13H4"),
    ],
)
def test_what_is_no_unit_is_told(names: list[str], message: str) -> None:
    with pytest.raises(HeadsieveError, match=message):
        tiny_model("llama").knockout(names)


def test_unknown_units_are_told() -> None:
    with pytest.raises(HeadsieveError, match="no units 'layers'; use heads, kv-groups"):
        tiny_model("llama").with_units("layers")  # type: ignore[arg-type]  # the mistake


@pytest.mark.parametrize("name", ["L1G0", "L1A", "L1M"])
def test_a_knocked_out_model_is_not_measured(name: str) -> None:
    model = tiny_model("llama")
    with pytest.raises(HeadsieveError, match="knocked out already"), model.knockout([name]):
        require_unmodified(model.hf, model.geometry)


def test_layers_without_heads_have_mlps() -> None:
    geometry = tiny_model("qwen3_next").geometry
    assert [str(one) for one in geometry.of("attention-layers").heads] == ["L0A", "L2A"]
    assert [str(one) for one in geometry.of("mlp-layers").heads] == ["L0M", "L1M", "L2M"]
