from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.models.architecture import find_geometry
from headsieve.models.heads import Geometry, Head, LayerHeads
from headsieve.models.loading import Model
from tests.tiny import MakeModel


@given(st.integers(0, 999), st.integers(0, 999))
def test_a_head_is_read_from_its_own_name(layer: int, index: int) -> None:
    head = Head(layer, index)
    assert Head.parse(str(head)) == head
    assert Head.parse(f" {str(head).lower()} ") == head


@pytest.mark.parametrize("text", ["", "nonsense", "L1", "H1", "L1H", "L-1H2", "L1H2,L1H3", "1.2"])
def test_what_is_not_a_head_is_told_so(text: str) -> None:
    with pytest.raises(HeadsieveError, match="as in L13H4"):
        Head.parse(text)


@pytest.mark.parametrize(
    ("family", "kv_heads", "head_dim", "projection"),
    [
        ("llama", 2, 12, "model.layers.1.self_attn.o_proj"),
        ("qwen2", 2, 8, "model.layers.1.self_attn.o_proj"),
        ("qwen3", 2, 16, "model.layers.1.self_attn.o_proj"),
        ("gemma3", 1, 16, "model.layers.1.self_attn.o_proj"),
        ("mistral", 2, 8, "model.layers.1.self_attn.o_proj"),
        ("gpt2", 4, 8, "transformer.h.1.attn.c_proj"),
    ],
)
def test_every_query_head_is_found(
    make_model: MakeModel, family: str, kv_heads: int, head_dim: int, projection: str
) -> None:
    geometry = make_model(family).geometry
    assert len(geometry) == 12
    assert geometry.uncovered == ()
    assert geometry.layers[1] == LayerHeads(1, 4, head_dim, kv_heads, projection)
    assert geometry.describe() == "layers 0 to 2 have 4 heads each"


def test_columns_are_by_layer_then_index(llama: Model) -> None:
    geometry = llama.geometry
    assert [geometry.column(head) for head in geometry.heads] == list(range(12))
    assert geometry.columns(["L2H1", Head(0, 3), "L2H1"]) == [9, 3]


@pytest.mark.parametrize("name", ["L99H0", "L0H4"])
def test_a_head_that_the_model_lacks_is_named_with_what_it_has(llama: Model, name: str) -> None:
    with pytest.raises(HeadsieveError, match=rf"no head {name}; layers 0 to 2 have 4 heads each"):
        llama.knockout([name])


def test_uneven_layers_are_described_one_by_one() -> None:
    geometry = Geometry([LayerHeads(0, 2, 8, 2, "a"), LayerHeads(2, 4, 8, 4, "b")], uncovered=[1])
    assert geometry.describe() == "its heads are L0H0-L0H1, L2H0-L2H3"
    assert geometry.column("L2H0") == 2


def test_a_model_without_attention_heads_is_refused(llama: Model) -> None:
    class Blind(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = llama.hf.config
            self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    with pytest.raises(HeadsieveError, match="No attention heads found in Blind"):
        find_geometry(Blind())


@pytest.mark.parametrize("heads", [None, 3, "L1H1", Head(1, 1)])
def test_what_is_no_list_of_heads_is_told_so(llama: Model, heads: Any) -> None:
    with pytest.raises(HeadsieveError, match="Give heads as a list, as in"):
        llama.knockout(heads)


@pytest.mark.parametrize("head", [3, None, [1, 1], (1, 1)])
def test_a_list_of_what_are_no_heads_is_told_so(llama: Model, head: Any) -> None:
    with pytest.raises(HeadsieveError, match="is not a head; write layer and head as in L13H4"):
        llama.knockout([head])
