from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headsieve.sensing.designs import bernoulli, stratified
from tests.tiny import Masks

shapes = (st.integers(1, 60), st.integers(1, 50), st.floats(0.01, 1.0), st.integers(0, 99))


@given(*shapes)
def test_stratified_masks_use_all_heads_equally(
    count: int, heads: int, density: float, seed: int
) -> None:
    masks = stratified(count, heads, density, np.random.default_rng(seed))
    assert masks.shape == (count, heads)
    assert set(masks.sum(axis=1)) == {max(1, round(density * heads))}
    for first in range(1, count + 1):
        uses = masks[:first].sum(axis=0)
        assert uses.max() - uses.min() <= 1


def test_stratified_masks_continue_where_others_ended() -> None:
    rng = np.random.default_rng(0)
    first = stratified(3, 20, 0.2, rng)
    second = stratified(2, 20, 0.2, rng, used=first.sum(axis=0))
    assert np.concatenate([first, second]).sum(axis=0).tolist() == [1] * 20


@given(*shapes)
def test_bernoulli_masks_are_never_empty(count: int, heads: int, density: float, seed: int) -> None:
    masks = bernoulli(count, heads, density, np.random.default_rng(seed))
    assert masks.shape == (count, heads)
    assert masks.any(axis=1).all()


def test_bernoulli_masks_have_their_density() -> None:
    masks = bernoulli(500, 200, 0.1, np.random.default_rng(0))
    assert masks.mean() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("design", [stratified, bernoulli])
def test_masks_depend_on_the_seed_alone(design: Callable[..., Masks]) -> None:
    first = design(20, 50, 0.05, np.random.default_rng(3))
    np.random.seed(7)  # the global state is what must not matter
    torch.manual_seed(7)
    assert np.array_equal(design(20, 50, 0.05, np.random.default_rng(3)), first)
    assert not np.array_equal(design(20, 50, 0.05, np.random.default_rng(4)), first)
