"""Intervals: published values, no collapse, coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.intervals import (
    drop_interval,
    mean_interval,
    paired_interval,
    proportion_interval,
    value_interval,
)

COUNTS = st.tuples(*[st.integers(0, 30)] * 4).filter(any)


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize(
    ("right", "items", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilsons_interval_as_published(right: int, items: int, low: float, high: float) -> None:
    # Newcombe, Statistics in Medicine 17, 857-872 (1998), method 3.
    assert proportion_interval(right, items) == pytest.approx((low, high), abs=5e-5)


def test_an_interval_covers_the_mean_and_depends_on_the_seed_alone() -> None:
    values = np.random.default_rng(2).normal(size=50)
    low, high = mean_interval(values, rng())
    assert low < values.mean() < high
    assert (low, high) == mean_interval(values, rng())
    # The normal approximation is close for 50 values.
    half = 1.96 * values.std() / math.sqrt(50)
    assert (high - low) / 2 == pytest.approx(half, rel=0.1)


def test_an_interval_of_one_value_is_that_value() -> None:
    assert mean_interval(np.array([0.3]), rng()) == (0.3, 0.3)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17, 2635-2650 (1998), method 10.
        ((36, 12, 2, 0), 0.0569, 0.3404),
        ((20, 12, 2, 16), 0.0562, 0.3292),
        # Fagerland, Lydersen and Laake, Statistics in Medicine 33, 2850-2875 (2014): Bentur et al.
        ((1, 1, 7, 12), -0.507, -0.026),
    ],
)
def test_newcombes_interval_as_published(
    counts: tuple[int, int, int, int], low: float, high: float
) -> None:
    assert paired_interval(*counts) == pytest.approx((low, high), abs=5e-4)


@given(COUNTS)
def test_an_interval_of_a_drop_holds_it_and_has_a_width(counts: tuple[int, int, int, int]) -> None:
    both, lost, won, neither = counts
    low, high = paired_interval(*counts)
    assert -1 - 1e-9 <= low < high <= 1 + 1e-9
    assert low <= (lost - won) / sum(counts) <= high
    # Before and after change places, and right and wrong.
    assert paired_interval(both, won, lost, neither) == pytest.approx((-high, -low))
    assert paired_interval(neither, lost, won, both) == pytest.approx((low, high))


def test_all_right_is_not_certain() -> None:
    ones = np.ones(32)
    low, high = value_interval("accuracy", ones, rng())
    assert (low, high) == pytest.approx((32 / (32 + 1.959964**2), 1))
    low, high = drop_interval("accuracy", ones, ones, rng())
    assert low < 0 < high
    low, high = drop_interval("accuracy", ones, 0 * ones, rng())
    assert 0.8 < low < 0.9
    assert high == 1


def test_log_probabilities_are_resampled() -> None:
    before, after = rng().normal(-2, 1, 40), rng().normal(-3, 1, 40)
    assert drop_interval("log_prob", before, after, rng()) == mean_interval(before - after, rng())
    assert value_interval("log_prob", before, rng()) == mean_interval(before, rng())


def test_it_covers_the_true_drop_about_as_often_as_it_says() -> None:
    draws = rng().multinomial(50, (0.55, 0.3, 0.05, 0.1), size=600)
    held = [low <= 0.25 <= high for low, high in (paired_interval(*map(int, one)) for one in draws)]
    assert 0.92 < np.mean(held) < 0.985
