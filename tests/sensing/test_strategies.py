from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.sensing.problem import Answer, AnyQuestion, GradientQuestion, Problem
from headsieve.sensing.strategies import STRATEGIES, find_strategy
from headsieve.sensing.strategies.adaptive import steered
from tests.sensing.oracle import GENERAL, SELECTIVE, Oracle, run

HEADS = 60
NEEDS = {"skill": [*SELECTIVE, *GENERAL], "other": GENERAL, "third": [11]}


def problem(budget: int = 80, seed: int = 0, heads: int = HEADS, set_size: int = 5) -> Problem:
    return Problem(heads, "skill", {"other": 0.05, "third": 0.05}, budget, set_size, seed)


@pytest.mark.parametrize("seed", range(3))
def test_adaptive_finds_the_selective_heads_and_no_general_one(seed: int) -> None:
    found = run(STRATEGIES["adaptive"], problem(seed=seed), Oracle(NEEDS))
    assert set(SELECTIVE) <= set(found.selected)
    assert not {*GENERAL, 11} & set(found.selected)
    assert found.frontier[-1].drop > 0.7


def test_gradients_lead_to_the_selective_heads_with_fewer_evaluations() -> None:
    few = replace(problem(budget=30), prior="gradient")
    oracle = Oracle(NEEDS)
    found = run(STRATEGIES["adaptive"], few, oracle)
    assert set(SELECTIVE) <= set(found.selected)
    assert oracle.slopes_asked == 2  # of the capability, then of the controls
    assert found.evaluations == oracle.evaluations("skill") + 3 <= 30
    assert found.control_evaluations == sum(
        oracle.evaluations(task) + 3 for task in ("other", "third")
    )


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_refuses_a_budget_that_tells_nothing(strategy: str) -> None:
    with pytest.raises(HeadsieveError, match=r"need|learns nothing"):
        run(STRATEGIES[strategy], problem(budget=2), Oracle(NEEDS))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_keeps_to_its_budget_and_counts_truly(strategy: str) -> None:
    oracle = Oracle(NEEDS)
    found = run(STRATEGIES[strategy], problem(), oracle)
    gradients = 3 * bool(oracle.slopes_asked)
    assert found.evaluations == oracle.evaluations("skill") + gradients <= 80
    assert found.control_evaluations == sum(
        oracle.evaluations(task) + gradients for task in ("other", "third")
    )
    assert len(found.selected) <= 5
    assert len(found.effects.effect) == HEADS


@pytest.mark.parametrize(
    ("budget", "heads", "set_size"), [(20, 2, 1), (60, 12, 2), (40, 30, 4), (20, 90, 5)]
)
def test_adaptive_ends_whatever_the_shape(budget: int, heads: int, set_size: int) -> None:
    oracle = Oracle({"skill": [0], "other": [1], "third": []})
    found = run(STRATEGIES["adaptive"], problem(budget, 0, heads, set_size), oracle)
    assert oracle.evaluations("skill") <= budget
    assert len(found.selected) <= set_size


def test_adaptive_finds_nothing_where_nothing_is() -> None:
    oracle = Oracle({"skill": [], "other": [], "third": []}, background=0)
    assert run(STRATEGIES["adaptive"], problem(), oracle).selected == ()


@pytest.mark.parametrize("strategy", ["paper", "exhaustive"])
def test_the_baselines_find_planted_heads(strategy: str) -> None:
    oracle = Oracle({"skill": SELECTIVE, "other": [], "third": []}, nats=2.5)
    found = run(STRATEGIES[strategy], problem(budget=120, set_size=3), oracle)
    assert set(found.selected) == set(SELECTIVE)


def test_attribution_finds_the_selective_heads_and_confirms_them() -> None:
    oracle = Oracle(NEEDS)
    found = run(STRATEGIES["attribution"], problem(budget=12, set_size=3), oracle)
    assert set(found.selected) == set(SELECTIVE)
    assert oracle.evaluations("skill") == 1 + 8
    assert (found.effects.high[list(SELECTIVE)] < 0).all()


def test_greedy_finds_the_selective_heads_with_every_head_tried_in_every_round() -> None:
    oracle = Oracle(NEEDS)
    found = run(STRATEGIES["greedy"], problem(budget=1000, set_size=3), oracle)
    assert set(found.selected) == set(SELECTIVE)
    assert found.evaluations == 1 + 60 + 59 + 58


def test_greedy_ends_when_no_head_is_worth_its_place() -> None:
    oracle = Oracle({"skill": [7], "other": GENERAL, "third": []}, nats=6.0)
    found = run(STRATEGIES["greedy"], problem(budget=1000), oracle)
    assert found.selected == (7,)
    assert found.evaluations == 1 + 60 + 59


def test_thompson_and_halving_find_a_strong_head_and_pass_over_general_ones() -> None:
    needs = {"skill": [7, *GENERAL], "other": GENERAL, "third": []}
    for name in ("thompson", "halving"):
        found = run(STRATEGIES[name], problem(budget=150), Oracle(needs, nats=2.5))
        assert found.selected[0] == 7
        assert not set(found.selected) & set(GENERAL)


def test_thompson_measures_sets_of_the_size_to_be_found() -> None:
    oracle = Oracle(NEEDS)
    run(STRATEGIES["thompson"], problem(), oracle)
    sizes = {int(size) for question in oracle.asked for size in question.masks.sum(axis=1)}
    assert sizes == {0, 5}


def test_paper_effects_are_nats_with_intervals_and_say_nothing_of_controls() -> None:
    oracle = Oracle({"skill": SELECTIVE, "other": [], "third": []}, nats=2.5)
    effects = run(STRATEGIES["paper"], problem(budget=120, set_size=3), oracle).effects
    needed = list(SELECTIVE)
    # Planted are 2.5 nats, of which the Lasso keeps most; coefficients of accuracy are below 1.
    assert (effects.effect[needed] < -1.5).all()
    assert (effects.low[needed] < effects.effect[needed]).all()
    assert (effects.effect[needed] <= effects.high[needed]).all()
    # Each head is in one mask alone, which a third of the resamplings leave out.
    assert (effects.high[needed] <= 0).all()
    assert effects.selection[needed].min() > 0.5
    assert np.isnan(effects.control_effect).all()


def test_paper_masks_are_its_own() -> None:
    oracle = Oracle(NEEDS)
    run(STRATEGIES["paper"], problem(budget=100, heads=300), oracle)
    (question,) = oracle.asked
    assert question.tasks == ("skill",)
    assert question.masks.shape == (100, 300)
    assert set(question.masks.sum(axis=1)) == {6}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_seed_asks_the_same_whatever_the_global_random_state(strategy: str) -> None:
    class Reseeding(Oracle):
        def answer(self, question: AnyQuestion) -> Answer:
            number = len(self.asked) + 100
            random.seed(number)
            np.random.seed(number)
            torch.manual_seed(number)
            return super().answer(question)

    first, second = Oracle(NEEDS), Reseeding(NEEDS)
    found = run(STRATEGIES[strategy], problem(), first)
    again = run(STRATEGIES[strategy], problem(), second)
    assert len(first.asked) == len(second.asked)
    for one, other in zip(first.asked, second.asked, strict=True):
        assert one.tasks == other.tasks
        assert np.array_equal(one.masks, other.masks)
    assert found.selected == again.selected
    assert np.array_equal(found.effects.low, again.effects.low)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("adaptive", "too small for the adaptive"),
        ("exhaustive", "of 61"),
        ("greedy", "60 evaluations a head"),
        ("halving", "a budget of 26"),
    ],
)
def test_too_small_a_budget_is_told(strategy: str, message: str) -> None:
    with pytest.raises(HeadsieveError, match=message):
        run(STRATEGIES[strategy], problem(budget=15), Oracle(NEEDS))


def test_an_unknown_strategy_is_told_with_the_known_ones() -> None:
    with pytest.raises(HeadsieveError, match="use adaptive, attribution, exhaustive"):
        find_strategy("guess")


@given(
    density=st.floats(0.001, 0.5),
    left=st.floats(-0.5, 1.2),
)
def test_masks_become_denser_the_more_they_leave(density: float, left: float) -> None:
    after = steered(density, left)
    assert 0 < after <= 0.5
    assert density / 2 <= after <= density * 2
    if 0.05 <= left <= 0.95:
        assert (after > density) <= (left > 0.5)
        assert (after < density) <= (left < 0.5) or density == 0.5


def test_a_search_without_gradients_goes_on_without(monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = Oracle(NEEDS)
    answer = oracle.answer

    def no_slopes(question: AnyQuestion) -> Answer:
        return {} if isinstance(question, GradientQuestion) else answer(question)

    monkeypatch.setattr(oracle, "answer", no_slopes)
    found = run(STRATEGIES["adaptive"], replace(problem(budget=80), prior="gradient"), oracle)
    assert set(SELECTIVE) <= set(found.selected)
    assert found.evaluations == oracle.evaluations("skill") <= 80
