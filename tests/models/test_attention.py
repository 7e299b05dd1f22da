"""Attention that skips what a mask hides gives what attention over everything gives."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from headsieve.measure.engine import row_logits
from headsieve.measure.packing import TokenSequence, pack
from headsieve.models.attention import sparse_attention
from tests.tiny import tiny_model

WIDTH = 8


def attention(
    mask: torch.Tensor, heads: int, shared: int, seed: int, *, sparse: bool
) -> torch.Tensor:
    """Of random queries, keys and values."""
    module = nn.Module()
    module.num_key_value_groups = shared  # type: ignore[assignment]  # as models do
    draw = torch.Generator().manual_seed(seed)
    length = mask.shape[-1]
    query = torch.randn((2, heads * shared, length, WIDTH), generator=draw)
    key, value = torch.randn((2, 2, heads, length, WIDTH), generator=draw)
    options = {"dropout": 0.0, "scaling": 0.7}
    with sparse_attention() if sparse else nullcontext():
        compute = ALL_ATTENTION_FUNCTIONS["sdpa"]
    found: torch.Tensor = compute(module, query, key, value, mask, **options)[0]
    return found


@st.composite
def trees(draw: st.DrawFn) -> torch.Tensor:
    """Masks of random trees: every node sees its ancestors and itself."""
    length = draw(st.integers(1, 200))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    far = draw(st.integers(1, length))
    sees = np.eye(length, dtype=bool)
    for node in range(1, length):
        sees[node] |= sees[rng.integers(max(0, node - far), node)]
    return torch.from_numpy(sees)[None, None]


@given(trees(), st.integers(1, 2), st.integers(1, 3), st.integers(0, 9), st.booleans())
@settings(max_examples=60, deadline=None)
def test_it_is_the_same_attention(
    sees: torch.Tensor, heads: int, shared: int, seed: int, added: bool
) -> None:
    mask = sees
    if added:
        mask = torch.zeros(sees.shape).masked_fill(~sees, torch.finfo(torch.float32).min)
    found = attention(mask, heads, shared, seed, sparse=True)
    expected = attention(mask, heads, shared, seed, sparse=False)
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_hidden_keys_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    """48 short branches behind a prefix: no block of queries meets the others' branches."""
    pairs = []
    compute = nn.functional.scaled_dot_product_attention

    def counted(query: torch.Tensor, key: torch.Tensor, *rest: object, **options: object) -> object:
        pairs.append(query.shape[1] * query.shape[2] * key.shape[2])
        return compute(query, key, *rest, **options)  # type: ignore[arg-type]  # as given

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", counted)
    model = tiny_model("llama")
    sequences = [TokenSequence((*range(40), 50 + one, 9, 8, 7, 6, 5), 41) for one in range(48)]
    (row,) = pack(sequences, attention_cost=0.0)
    row_logits(model, row, 1)
    layers = model.geometry.layers
    everything = sum(layer.heads for layer in layers) * len(row.tokens) ** 2
    assert 0 < sum(pairs) < 0.5 * everything


def test_it_ends_with_the_context() -> None:
    with pytest.raises(ValueError, match="within"), sparse_attention():
        raise ValueError("within")
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is sdpa_attention_forward
