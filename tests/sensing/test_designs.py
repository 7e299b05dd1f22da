from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headsieve.sensing.designs import bernoulli, dispersed, stratified
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
def test_dispersed_masks_use_all_heads_equally(
    count: int, heads: int, density: float, seed: int
) -> None:
    masks = dispersed(count, heads, density, np.random.default_rng(seed))
    assert set(masks.sum(axis=1)) == {max(1, round(density * heads))}
    for first in range(1, count + 1):
        uses = masks[:first].sum(axis=0)
        assert uses.max() - uses.min() <= 1


@given(st.integers(0, 20), *shapes)
def test_dispersed_masks_go_on_from_those_before(
    earlier: int, count: int, heads: int, density: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    before = dispersed(earlier, heads, density, rng)
    uses = np.concatenate([before, dispersed(count, heads, density / 2, rng, before=before)]).sum(0)
    assert uses.max() - uses.min() <= 1


@given(st.integers(2, 12), st.integers(3, 5), st.integers(0, 99))
def test_dispersed_masks_tell_all_heads_apart(groups: int, rounds: int, seed: int) -> None:
    # Each round is a partition into so many groups; there are twice as many columns as heads.
    heads = max(groups, groups**rounds // 2)
    heads = min(heads - heads % groups, 60)
    masks = dispersed(groups * rounds, heads, 1 / groups, np.random.default_rng(seed))
    assert len(np.unique(masks, axis=1).T) == heads


@pytest.mark.parametrize(("heads", "density", "count"), [(270, 0.04, 45), (300, 0.02, 100)])
def test_dispersed_heads_meet_again_more_seldom_than_stratified_ones(
    heads: int, density: float, count: int
) -> None:
    def meetings(masks: Masks) -> int:
        shared = masks.T.astype(int) @ masks.astype(int)
        return int((shared[np.triu_indices(heads, 1)] > 1).sum())

    by_chance = meetings(stratified(count, heads, density, np.random.default_rng(0)))
    assert meetings(dispersed(count, heads, density, np.random.default_rng(0))) < by_chance / 5


@given(*shapes)
def test_bernoulli_masks_are_never_empty(count: int, heads: int, density: float, seed: int) -> None:
    masks = bernoulli(count, heads, density, np.random.default_rng(seed))
    assert masks.shape == (count, heads)
    assert masks.any(axis=1).all()


def test_bernoulli_masks_have_their_density() -> None:
    masks = bernoulli(500, 200, 0.1, np.random.default_rng(0))
    assert masks.mean() == pytest.approx(0.1, abs=0.005)


@pytest.mark.parametrize("design", [stratified, bernoulli, dispersed])
def test_masks_depend_on_the_seed_alone(design: Callable[..., Masks]) -> None:
    first = design(20, 50, 0.05, np.random.default_rng(3))
    np.random.seed(7)  # the global state is what must not matter
    torch.manual_seed(7)
    assert np.array_equal(design(20, 50, 0.05, np.random.default_rng(3)), first)
    assert not np.array_equal(design(20, 50, 0.05, np.random.default_rng(4)), first)
