"""Verification: what held-out items say of a set of heads that was chosen on other items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from headsieve.intervals import drop_interval
from headsieve.results import (
    CapabilityClaim,
    Claim,
    RandomSets,
    Verification,
)
from headsieve.scores import Score
from headsieve.sensing.problem import Columns, Masks, to_masks

RANDOM_SETS = 20
_RESAMPLES = 9999

Measure = Callable[[Masks, str], Sequence[Score]]


def verify(
    selected: Columns,
    capability: str,
    metrics: Mapping[str, str],
    heads: int,
    measure: Measure,
    rng: np.random.Generator,
    *,
    random_sets: int = RANDOM_SETS,
) -> Verification:
    """Measure a chosen set on held-out items, beside controls and random sets.

    Parameters
    ----------
    selected : tuple of int
        The heads chosen.
    capability : str
    metrics : mapping of str to str
        Metric of the capability and of every control.
    heads : int
        Heads of the model.
    measure : callable
        Scores of a task's held-out items under masks of shape (masks, heads).
    rng : numpy.random.Generator
        For the random sets and the resampling.
    random_sets : int
        How many random sets of the same size to measure.
    """
    masks = to_masks([(), selected], heads)
    claims: dict[str, Claim] = {}
    differences = np.zeros(0)
    for task, metric in metrics.items():
        before, after = measure(masks, task)
        claims[task] = claim(metric, before, after, rng)
        if task == capability:
            differences = before.value - after.value
    drops = _random_drops(selected, capability, heads, measure, rng, random_sets)
    return Verification(
        capability=CapabilityClaim(
            **claims.pop(capability).model_dump(),
            p_value=p_value(differences, rng),
        ),
        controls=claims,
        random_sets=RandomSets(
            count=len(drops),
            mean_drop=float(drops.mean()) if len(drops) else 0.0,
            max_drop=float(drops.max()) if len(drops) else 0.0,
        ),
    )


def claim(metric: str, before: Score, after: Score, rng: np.random.Generator) -> Claim:
    """A task before and after a knockout, with the interval of the drop."""
    return Claim.model_validate(
        {
            "metric": metric,
            "items": len(before.value),
            "baseline": before.metric,
            "knocked_out": after.metric,
            "drop": before.metric - after.metric,
            "ci": drop_interval(metric, before.value, after.value, rng),
        }
    )


def p_value(differences: NDArray[np.float64], rng: np.random.Generator) -> float:
    """One-sided p-value of paired differences: how likely a drop this large is without an effect.

    Under the null hypothesis each difference is as likely to have the other sign. For right and
    wrong answers (or any differences of one size) that is McNemar's exact test; for others the
    signs are permuted, at random where they are too many to be enumerated.
    """
    changed = differences[differences != 0]
    if len(changed) == 0:
        return 1.0
    if len(np.unique(np.abs(changed))) == 1:
        lost = int((changed > 0).sum())
        return float(stats.binomtest(lost, len(changed), alternative="greater").pvalue)
    test = stats.permutation_test(
        (changed,),
        np.mean,
        permutation_type="samples",
        alternative="greater",
        n_resamples=_RESAMPLES,
        rng=rng,
    )
    return float(test.pvalue)


def _random_drops(
    selected: Columns,
    capability: str,
    heads: int,
    measure: Measure,
    rng: np.random.Generator,
    most: int,
) -> NDArray[np.float64]:
    """Drops of the capability under different random sets of as many heads as were chosen.

    Fewer where there are not so many other sets of that size.
    """
    count = min(most, math.comb(heads, len(selected)) - 1)
    if not count:
        return np.zeros(0)
    sets: list[Columns] = [()]
    while len(sets) <= count:
        chosen = tuple(
            sorted(int(head) for head in rng.choice(heads, len(selected), replace=False))
        )
        if chosen not in (*sets, tuple(sorted(selected))):
            sets.append(chosen)
    baseline, *others = measure(to_masks(sets, heads), capability)
    return np.array([baseline.metric - other.metric for other in others])
