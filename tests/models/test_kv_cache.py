"""The cache that is appended to in place keeps what transformers' own keeps."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.cache_utils import DynamicLayer

from headsieve.models.kv_cache import RoomyLayer


@given(
    st.lists(st.one_of(st.integers(1, 70), st.sampled_from(["select", "drop"])), max_size=12),
    st.integers(0, 9),
)
@settings(max_examples=50, deadline=None)
def test_it_is_the_same_cache(steps: list[int | str], seed: int) -> None:
    """Numbers append so many tokens."""
    draw = torch.Generator().manual_seed(seed)
    roomy, plain = RoomyLayer(), DynamicLayer()
    rows = 5
    for step in steps:
        if isinstance(step, int):
            keys = torch.randn((rows, 2, step, 4), generator=draw)
            values = torch.randn((rows, 2, step, 3), generator=draw)
            found, expected = roomy.update(keys, values), plain.update(keys, values)
            assert torch.equal(found[0], expected[0])
            assert torch.equal(found[1], expected[1])
        elif step == "drop" and plain.get_seq_length() > 1:
            roomy.crop(-1)
            plain.crop(-1)
        elif step == "select" and plain.get_seq_length():
            index = torch.randint(rows, (max(1, rows - 1),), generator=draw)
            rows = len(index)
            roomy.reorder_cache(index)
            plain.reorder_cache(index)
    assert roomy.get_seq_length() == plain.get_seq_length()


def test_most_tokens_are_appended_without_a_copy() -> None:
    layer = RoomyLayer()
    one = torch.ones((2, 2, 1, 4))
    places = {layer.update(one, one)[0].data_ptr() for _ in range(100)}
    assert len(places) <= 3
