"""Intervals of heads that were not knocked out alone hold what those heads really do."""

from __future__ import annotations

import numpy as np
import pytest

from headsieve.sensing.designs import dispersed
from headsieve.sensing.uncertainty import posterior

HEADS = 120
UNKNOWN = np.full(HEADS, np.nan)


@pytest.mark.parametrize("noise", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("spread", [0.0, 0.02, 0.2])
def test_intervals_hold_the_true_effects(noise: float, spread: float) -> None:
    covered = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        masks = dispersed(40, HEADS, 0.1, rng)
        effects = rng.normal(-0.02, spread, HEADS)
        found = posterior(masks, masks @ effects + rng.normal(0, noise, 40), UNKNOWN)
        covered.append(np.abs(effects - found.mean) <= 1.96 * found.deviation)
    assert np.mean(covered) >= 0.9


def test_more_masks_and_less_noise_make_intervals_narrower() -> None:
    rng = np.random.default_rng(0)
    effects = rng.normal(0, 0.1, HEADS)
    widths = []
    for count in (20, 80, 400):
        masks = dispersed(count, HEADS, 0.1, rng)
        found = posterior(masks, masks @ effects + rng.normal(0, 0.01, count), UNKNOWN)
        widths.append(found.deviation.mean())
    assert widths[0] > widths[1] > 2 * widths[2]
    np.testing.assert_allclose(found.mean, effects, atol=0.02)
    assert found.unexplained == pytest.approx(0.01, rel=0.3)


def test_known_heads_are_taken_as_known() -> None:
    rng = np.random.default_rng(0)
    effects = rng.normal(0, 0.01, HEADS)
    effects[:5] = -2.0
    masks = dispersed(60, HEADS, 0.1, rng)
    known = np.where(np.arange(HEADS) < 5, effects, np.nan)
    with_known = posterior(masks, masks @ effects, known)
    without = posterior(masks, masks @ effects, UNKNOWN)
    assert with_known.deviation[5:].mean() < without.deviation[5:].mean() / 3


def test_masks_that_say_nothing_leave_effects_unknown() -> None:
    few = dispersed(3, HEADS, 0.1, np.random.default_rng(0))
    assert np.isinf(posterior(few, np.zeros(3), UNKNOWN).deviation).all()
    assert np.isinf(posterior(few[:0], np.zeros(0), UNKNOWN).deviation).all()
