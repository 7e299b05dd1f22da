"""Modularity: tau by hand, its null distribution, clusters."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.sensing.modularity import (
    beyond_shared,
    cluster,
    leaves,
    modularity,
    shares,
    specificity,
)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def test_shares_are_of_what_each_capability_loses() -> None:
    effects = np.array([[-1.0, 0.5, 0.0], [-3.0, -2.0, 0.1]])
    assert shares(effects).tolist() == [[0.25, 0, 0], [0.75, 1, 0]]


def test_tau_by_hand() -> None:
    # One head for one of three capabilities (tau 1), one that all need alike (tau 0).
    assert specificity(np.array([[0.5, 0, 0]])) == 1
    assert specificity(np.array([[0.5, 0.5, 0.5]])) == 0
    # 1 - 0.2 / 0.4 = 0.5 and 1 - 0 = 1, over two.
    assert specificity(np.array([[0.4, 0.2, 0.0]])) == pytest.approx(0.75)
    # Heads count by what they do: 0.6 of the first and 1.5 of another.
    both = specificity(np.array([[0.4, 0.2, 0.0], [0.5, 0.5, 0.5]]))
    assert both == pytest.approx(0.75 * 0.6 / 2.1)


@given(
    st.integers(2, 6).flatmap(
        lambda width: st.lists(
            st.lists(st.floats(0, 1), min_size=width, max_size=width), min_size=1, max_size=6
        )
    )
)
def test_specificity_is_from_0_to_1(rows: list[list[float]]) -> None:
    assert -1e-9 <= specificity(np.array(rows)) <= 1 + 1e-9


def test_modules_and_general_heads_are_told_from_chance() -> None:
    apart = -np.repeat(np.eye(6), 3, axis=0)
    found = modularity(apart, rng())
    assert found.specificity == 1 > found.null_interval[1]
    assert found.p_value < 0.01
    general = np.zeros((18, 6))
    general[:3] = -1
    found = modularity(general, rng())
    assert found.specificity == 0 < found.null_interval[0]
    assert found.p_value < 0.01
    by_chance = modularity(rng().normal(size=(18, 6)), rng())
    assert by_chance.null_interval[0] < by_chance.specificity < by_chance.null_interval[1]
    assert by_chance == modularity(rng().normal(size=(18, 6)), rng())


def test_capabilities_with_the_same_heads_stand_side_by_side() -> None:
    # All need the first head; the first and third share another, and so do the second and fourth.
    effects = -np.array([[9.0, 9, 9, 9], [1, 0, 1, 0], [0, 1, 0, 1]])
    tree = cluster(beyond_shared(shares(effects)))
    order = leaves(tree)
    assert {frozenset(order[:2]), frozenset(order[2:])} == {frozenset({0, 2}), frozenset({1, 3})}
    assert tree[-1][2] > 1 > tree[0][2]
    # What has no features is like nothing, and no error.
    assert sorted(leaves(cluster(np.zeros((3, 2))))) == [0, 1, 2]
