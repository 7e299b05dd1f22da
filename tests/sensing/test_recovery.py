from __future__ import annotations

import numpy as np
import pytest

from headsieve.scores import Score, margin_of
from headsieve.sensing.designs import stratified
from headsieve.sensing.problem import Ledger, Problem, Question, to_masks, to_sets
from headsieve.sensing.recovery import estimate, lasso
from tests.sensing.oracle import GENERAL, SELECTIVE, Oracle

HEADS = 60


def test_lasso_finds_planted_heads() -> None:
    rng = np.random.default_rng(0)
    masks = stratified(80, HEADS, 0.08, rng)
    planted = np.zeros(HEADS)
    planted[[4, 17, 50]] = -1.0, -0.7, -0.5
    scores = masks @ planted + rng.normal(0, 0.05, 80)
    effects = lasso(masks, scores)
    assert set(np.argsort(effects)[:3]) == {4, 17, 50}
    assert effects[4] == pytest.approx(-1.0, abs=0.15)


def test_lasso_of_equal_scores_is_nothing() -> None:
    masks = stratified(10, HEADS, 0.05, np.random.default_rng(0))
    assert not lasso(masks, np.full(10, -1.0)).any()


def ledger() -> Ledger:
    """Tell a ledger of random masks and of the planted heads alone."""
    oracle = Oracle({"skill": [*SELECTIVE, *GENERAL], "control": GENERAL})
    told = Ledger(Problem(HEADS, "skill", {"control": 0.05}, 80, 3, seed=0))
    masks = stratified(60, HEADS, 0.05, np.random.default_rng(1))
    sets = [(), *to_sets(masks), *((head,) for head in (*SELECTIVE, *GENERAL, 0))]
    answer = oracle.answer(Question(to_masks(sets, HEADS), told.problem.tasks))
    for task, scores in answer.items():
        told.scores[task].update(zip(sets, scores, strict=True))
    return told


def test_effects_come_with_intervals_selection_and_control_effects() -> None:
    effects = estimate(ledger(), np.random.default_rng(0))
    needed = [*SELECTIVE, *GENERAL]
    assert (effects.effect[needed] < -0.8).all()
    assert (effects.low <= effects.effect).all()
    assert (effects.effect <= effects.high).all()
    assert (effects.high[needed] < 0).all()
    assert effects.selection[list(SELECTIVE)].min() > 0.9
    assert effects.selection[list(GENERAL)].max() < 0.5
    assert (effects.control_effect[list(GENERAL)] < -0.8).all()
    assert set(effects.general[:2]) == set(GENERAL)


def test_sets_and_masks_are_the_same_thing() -> None:
    sets = [(), (0,), (2, 5, 59)]
    assert to_sets(to_masks(sets, HEADS)) == sets


@pytest.mark.parametrize(
    ("chance", "left"), [(0.0, 0.6 / 0.9), (0.5, 0.1 / 0.4), (0.6, 0.0), (0.9, -2.0)]
)
def test_what_a_set_leaves_is_counted_above_chance(chance: float, left: float) -> None:
    told = Ledger(Problem(3, "skill", {}, 9, 1, seed=0, chance=chance))
    for heads, accuracy in (((), 0.9), ((0,), 0.6)):
        value = np.full(4, accuracy)
        told.scores["skill"][heads] = Score(np.log(value), value, margin_of(value))
    assert told.remaining(()) == 1
    assert told.remaining((0,)) == pytest.approx(left)
