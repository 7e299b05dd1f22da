from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.tasks import Item, ItemTask


def task(items: int, shots: int = 5) -> ItemTask:
    return ItemTask("t", "answer", tuple(Item(f"<{n}>", ("x\n",)) for n in range(items)), shots)


@given(st.integers(20, 300), st.integers(0, 6), st.integers(0, 9), st.none() | st.integers(5, 200))
def test_examples_search_and_held_out_items_are_disjoint(
    items: int, shots: int, seed: int, limit: int | None
) -> None:
    split = task(items, shots).split(seed, limit)
    examples = split.prefix.split("x\n")[:-1]
    prompts = [*examples, *(item.prompt for item in split.search + split.held_out)]
    assert len(examples) == shots
    assert len(set(prompts)) == len(prompts)
    assert set(prompts) <= {item.prompt for item in task(items).items}
    assert len(split.search) >= 5
    assert split.held_out


def test_a_limit_holds_for_both_parts() -> None:
    split = task(300).split(seed=0, limit=7)
    assert (len(split.search), len(split.held_out)) == (7, 7)


def test_a_split_depends_on_the_seed_alone() -> None:
    first = task(100).split(seed=1)
    random.seed(5)
    np.random.seed(5)  # the global state is what must not matter
    assert task(100).split(seed=1) == first
    assert task(100).split(seed=2) != first


@pytest.mark.parametrize(
    ("items", "limit", "message"),
    [
        (17, None, "has 17 items; at least 18 are needed"),
        (17, 5, "has 17 items; at least 18 are needed"),
        (5, 5, "has 5 items, of which 5 would be few-shot examples"),
        (3, None, "has 3 items, of which 5 would be few-shot examples"),
        (100, 4, "limit of 4"),
    ],
)
def test_too_few_items_are_told(items: int, limit: int | None, message: str) -> None:
    with pytest.raises(HeadsieveError, match=message):
        task(items).split(0, limit)


def test_a_name_that_is_no_unicode_can_be_split() -> None:
    # What a C locale makes of the bytes of a file name.
    items = tuple(Item(str(number), ("x",)) for number in range(20))
    assert ItemTask("\udcc3\udca4", "answer", items).split(0).search
