"""All subsets of the selected heads: shares that add up, and who backs up whom."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.interactions import measure_interactions, require_interactions
from headsieve.models.loading import Model
from headsieve.report import words
from headsieve.scores import Score, margin_of

pytest.importorskip("shapiq", reason="the extra interactions is not installed")

SELECTED = (2, 5, 7)


class Bench:
    """Stands for a workbench whose items are worth 1 less what a set of heads costs."""

    def __init__(self, model: Model, cost: dict[frozenset[int], np.ndarray]) -> None:
        self.model = model
        self._cost = cost

    def held_out(self, masks: np.ndarray, _task: str) -> list[Score]:
        values = [1 - self._cost[frozenset(np.flatnonzero(mask).tolist())] for mask in masks]
        return [Score(value, value, margin_of(value)) for value in values]


def subsets(heads: tuple[int, ...] = SELECTED) -> list[frozenset[int]]:
    return [
        frozenset(some)
        for count in range(len(heads) + 1)
        for some in itertools.combinations(heads, count)
    ]


@given(st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_shares_add_up_to_the_drop(llama: Model, costs: list[float]) -> None:
    cost = {one: np.full(4, value) for one, value in zip(subsets(), costs, strict=True)}
    cost[frozenset()] = np.zeros(4)
    found = measure_interactions(Bench(llama, cost), "a", SELECTED, np.random.default_rng(0))  # type: ignore[arg-type]
    assert sum(one.value for one in found.shapley) == pytest.approx(cost[frozenset(SELECTED)][0])
    assert len(found.subsets) == 8
    assert found.subsets[0].heads == []


def test_backups_and_overlaps_are_told_apart(llama: Model) -> None:
    """Heads 2 and 5 back each other up; 5 and 7 do the same damage."""
    cost = {}
    for one in subsets():
        lost = np.zeros(40)
        lost[:20] = {2, 5} <= one
        lost[20:] = bool({5, 7} & one)
        cost[one] = lost
    found = measure_interactions(Bench(llama, cost), "a", SELECTED, np.random.default_rng(0))  # type: ignore[arg-type]
    two, five, seven = (str(llama.geometry.heads[column]) for column in SELECTED)
    value = {pair.heads: pair.value for pair in found.pairs}
    assert value == pytest.approx({(two, five): 0.5, (two, seven): 0, (five, seven): -0.5})
    said = words.interacting(found)
    assert [sentence.split(":")[0] for sentence in said] == [
        f"{two} and {five} back each other up",
        f"{five} and {seven} overlap",
    ]


def test_too_many_heads_are_refused() -> None:
    with pytest.raises(HeadsieveError, match="may have 5 heads at most, not 6"):
        require_interactions(6)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(HeadsieveError, match=r"pip install headsieve\[interactions\]"):
        require_interactions(3)
