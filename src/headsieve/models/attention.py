"""Attention that does not compute what a mask hides, as it does between branches of a tree."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# Queries that are computed together, against all keys that any of them sees.
_QUERIES = 64


@contextmanager
def sparse_attention() -> Iterator[None]:
    """Skip hidden keys while the context lasts, in models whose attention is transformers' "sdpa".

    PyTorch's kernel computes every query against every key and then hides what a mask says. In a
    packed row most is hidden. Others' attention is left as it is, and so is that on a GPU, where
    asking which keys are seen would wait for the device.
    """
    ALL_ATTENTION_FUNCTIONS["sdpa"] = _sparse
    try:
        yield
    finally:
        del ALL_ATTENTION_FUNCTIONS["sdpa"]


def _sparse(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, None]:
    if (
        attention_mask is None
        or attention_mask.shape[:2] != (1, 1)
        or attention_mask.shape[2] <= _QUERIES
        or attention_mask.device.type != "cpu"
    ):
        plain: tuple[Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, **options
        )
        return plain
    # Queries of the heads that share keys stand one below another, so that no key is repeated.
    rows, heads, length, width = query.shape
    shared = heads // key.shape[1]
    query = query.view(rows, key.shape[1], shared, length, width)
    parts: list[Tensor] = []
    for first in range(0, length, _QUERIES):
        block = query[:, :, :, first : first + _QUERIES]
        mask = attention_mask[:, :, first : first + _QUERIES]
        seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min
        columns = seen[0, 0].any(dim=0).nonzero()[:, 0]
        output = nn.functional.scaled_dot_product_attention(
            block.flatten(2, 3),
            key.index_select(2, columns),
            value.index_select(2, columns),
            mask.index_select(3, columns).repeat(1, 1, shared, 1),
            scale=options.get("scaling"),
        )
        parts.append(output.view(rows, heads, -1, output.shape[-1]))
    return torch.cat(parts, dim=2).transpose(1, 2).contiguous(), None
