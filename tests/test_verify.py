"""Verification: statistics that can be worked out by hand, and random sets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from headsieve.results import Verification
from headsieve.scores import Score
from headsieve.sensing.problem import Columns, Masks, to_sets
from headsieve.verify import RANDOM_SETS, claim, p_value, verify

FloatArray = NDArray[np.float64]
METRICS = {"skill": "accuracy", "other": "accuracy", "text": "log_prob"}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def score(values: Any) -> Score:
    values = np.asarray(values, dtype=float)
    return Score(values - 1, values, np.zeros_like(values))


class Bench:
    """Every head knocked out makes two more of 30 items wrong; remembers the masks asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, list[Columns]] = {}

    def __call__(self, masks: Masks, task: str) -> list[Score]:
        sets = to_sets(masks)
        self.asked.setdefault(task, []).extend(sets)
        return [score(np.arange(30) >= 2 * len(chosen)) for chosen in sets]


def check(selected: Columns, heads: int = 12) -> tuple[Verification, Bench]:
    bench = Bench()
    return verify(selected, "skill", METRICS, heads, bench, rng()), bench


@pytest.mark.parametrize(("lost", "won"), [(5, 0), (8, 2), (3, 3), (1, 4), (0, 6)])
def test_right_and_wrong_answers_are_compared_by_mcnemars_exact_test(lost: int, won: int) -> None:
    differences = np.array([1.0] * lost + [-1.0] * won + [0.0] * 20)
    changed = lost + won
    by_hand = sum(math.comb(changed, more) for more in range(lost, changed + 1)) / 2**changed
    assert p_value(differences, rng()) == pytest.approx(by_hand, rel=1e-12)


def test_other_differences_are_permuted() -> None:
    # Of the 2 ** 5 choices of signs only the true one reaches the mean.
    assert p_value(np.array([0.1, 0.2, 0.3, 0.4, 0.7]), rng()) == pytest.approx(1 / 32)
    assert p_value(-np.array([0.1, 0.2, 0.3, 0.4, 0.7]), rng()) == 1
    # Too many to enumerate: at random, but the same with the same seed.
    many = np.random.default_rng(1).normal(0.2, 1, 40)
    assert p_value(many, rng()) == p_value(many, rng())
    assert 0.01 < p_value(many, rng()) < 0.5


def test_nothing_changed_is_no_evidence() -> None:
    assert p_value(np.zeros(10), rng()) == 1


@pytest.mark.parametrize(("heads", "count"), [(12, RANDOM_SETS), (6, 14), (5, 4)])
def test_random_sets_are_other_sets_of_the_same_size(heads: int, count: int) -> None:
    selected = (3, 1) if heads > 5 else (3,)
    verification, bench = check(selected, heads)
    sets = bench.asked["skill"][3:]  # after the two of the claim, and the unmodified model
    assert len(sets) == len(set(sets)) == count
    assert {len(chosen) for chosen in sets} == {len(selected)}
    assert tuple(sorted(selected)) not in sets
    assert verification.random_sets.count == count
    assert verification.random_sets.mean_drop == pytest.approx(2 * len(selected) / 30)
    assert verification.random_sets.max_drop == pytest.approx(2 * len(selected) / 30)


@pytest.mark.parametrize("selected", [(), (0, 1, 2, 3)], ids=["no head", "all heads"])
def test_where_no_other_set_exists_none_is_measured(selected: Columns) -> None:
    verification, _ = check(selected, heads=4)
    assert verification.random_sets.model_dump() == {"count": 0, "mean_drop": 0, "max_drop": 0}


def test_no_heads_change_nothing() -> None:
    verification, _ = check(())
    assert verification.capability.p_value == 1
    for name, one in {"skill": verification.capability, **verification.controls}.items():
        assert one.drop == 0
        # No answer changed on 30 items, which does not prove that none would on others.
        assert one.ci == (0, 0) if METRICS[name] == "log_prob" else one.ci[0] < 0 < one.ci[1]


def test_a_claim_for_every_task_in_its_own_metric() -> None:
    verification, bench = check((0, 5, 7))
    assert {name: one.metric for name, one in verification.controls.items()} == {
        "other": "accuracy",
        "text": "log_prob",
    }
    assert verification.capability.metric == "accuracy"
    assert verification.capability.items == 30
    assert bench.asked["other"] == [(), (0, 5, 7)]
    assert verification.capability.p_value == pytest.approx(2**-6)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-20, 0), st.floats(-20, 0)), min_size=1, max_size=12),
    st.booleans(),
)
def test_a_drop_is_the_difference_and_a_p_value_a_probability(
    pairs: list[tuple[float, float]], as_answers: bool
) -> None:
    before, after = (np.array(column) for column in zip(*pairs, strict=True))
    if as_answers:
        before, after = before > -10, after > -10
    one = claim("accuracy", score(before), score(after), rng())
    assert one.drop == one.baseline - one.knocked_out
    assert one.ci[0] <= one.ci[1]
    assert 0 < p_value(score(before).value - score(after).value, rng()) <= 1
