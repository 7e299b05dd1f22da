"""95 % intervals of what is claimed: proportions, paired differences of proportions, means.

The bootstrap has no width where all items agree (32 of 32 right would be 1.00 to 1.00), so answers
that are right or wrong have intervals made for proportions, which do.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headsieve.results import Interval
from headsieve.scores import LOG_PROB

_RESAMPLES = 9999
_CONFIDENCE = 0.95


def proportion_interval(right: int, items: int) -> Interval:
    """Interval of a proportion: Wilson's score interval, without continuity correction."""
    found = stats.binomtest(right, items).proportion_ci(_CONFIDENCE, method="wilson")
    return (float(found.low), float(found.high))


def paired_interval(both: int, lost: int, won: int, neither: int) -> Interval:
    """Interval of the difference of two proportions of the same items.

    Newcombe's square-and-add interval (method 10 of R. G. Newcombe, *Improved confidence intervals
    for the difference between binomial proportions based on paired data*, Statistics in Medicine
    17, 2635-2650, 1998): Wilson's limits of either proportion, joined with the correlation of the
    two, which is corrected for continuity.

    Parameters
    ----------
    both, lost, won, neither : int
        Items right before and after, before only, after only, and never.
    """
    items = both + lost + won + neither
    before, after = (both + lost) / items, (both + won) / items
    low_before, high_before = proportion_interval(both + lost, items)
    low_after, high_after = proportion_interval(both + won, items)
    phi = _correlation(both, lost, won, neither)
    difference = before - after

    def reach(one: float, other: float) -> float:
        return math.sqrt(max(0.0, one**2 - 2 * phi * one * other + other**2))

    return (
        difference - reach(before - low_before, high_after - after),
        difference + reach(high_before - before, after - low_after),
    )


def _correlation(both: int, lost: int, won: int, neither: int) -> float:
    """Phi of the fourfold table, a positive one reduced towards zero by half an item a cell."""
    margins = (both + lost) * (won + neither) * (both + won) * (lost + neither)
    if not margins:
        return 0.0
    product = float(both * neither - lost * won)
    if product > 0:
        product = max(product - (both + lost + won + neither) / 2, 0.0)
    return product / math.sqrt(margins)


def mean_interval(values: NDArray[np.float64], rng: np.random.Generator) -> Interval:
    """Interval of a mean, by the percentile bootstrap over items.

    Given paired differences, it is the paired bootstrap.
    """
    if len(values) < 2:
        return (float(values.mean()), float(values.mean()))
    interval = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=_RESAMPLES,
        confidence_level=_CONFIDENCE,
        method="percentile",
        rng=rng,
    ).confidence_interval
    return (float(interval.low), float(interval.high))


def value_interval(metric: str, values: NDArray[np.float64], rng: np.random.Generator) -> Interval:
    """Interval of a task's metric, from the values of its items."""
    if _right_or_wrong(metric, values):
        return proportion_interval(int(values.sum()), len(values))
    return mean_interval(values, rng)


def drop_interval(
    metric: str,
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    rng: np.random.Generator,
) -> Interval:
    """Interval of a drop of a task's metric, from the values of the same items."""
    if _right_or_wrong(metric, before, after):
        right, still = before > 0, after > 0
        return paired_interval(
            int((right & still).sum()),
            int((right & ~still).sum()),
            int((~right & still).sum()),
            int((~right & ~still).sum()),
        )
    return mean_interval(before - after, rng)


def _right_or_wrong(metric: str, *values: NDArray[np.float64]) -> bool:
    """Whether items are right or wrong and count alike, whatever the metric is called."""
    return metric != LOG_PROB and bool(np.isin(np.concatenate(values), (0.0, 1.0)).all())
