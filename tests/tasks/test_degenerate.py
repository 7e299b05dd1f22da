"""Faults of form in generated answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.tasks.degenerate import Fault, find_faults, is_looping


@given(st.text(), st.booleans(), st.booleans())
def test_each_fault_stands_for_itself(text: str, parsed: bool, cut_off: bool) -> None:
    faults = find_faults(text, parsed=parsed, cut_off=cut_off)
    if text.strip():
        assert (Fault.UNPARSEABLE in faults) == (not parsed)
        assert (Fault.CUT_OFF in faults) == cut_off
        assert (Fault.LOOPING in faults) == is_looping(text)
        assert Fault.EMPTY not in faults
    else:
        assert faults == {Fault.EMPTY}


@given(
    st.text(max_size=300),
    st.text(min_size=1, max_size=200).filter(lambda unit: unit.strip() == unit),
    st.integers(4, 8),
    st.integers(0, 199),
)
def test_a_repeated_end_is_a_loop(before: str, unit: str, times: int, more: int) -> None:
    times = max(times, -(-60 // len(unit)))
    text = before + unit * times + unit[: more % len(unit)]
    # White space at the end may take a part of the last piece with it.
    if text.rstrip() == text:
        assert is_looping(text)
        assert is_looping(text + "\n \n")


@given(st.permutations([f"word{number}" for number in range(60)]))
def test_words_that_all_differ_are_no_loop(words: list[str]) -> None:
    assert not is_looping(" ".join(words))


@given(st.text(max_size=59))
def test_a_short_text_is_no_loop(text: str) -> None:
    assert not is_looping(text)


@pytest.mark.parametrize(
    ("text", "looping"),
    [
        ("The answer is 4. " * 4, True),
        ("The answer is 4. " * 3, False),
        ("The answer is 4. " * 20 + "So it is 5.", False),
        ("0" * 60, True),
        ("ha ha ha ha ha ha ha ha", False),
        ("    return x\n" * 3 + "    return y\n", False),
        ("def f(x):\n    return x + 1\n\n" * 5, True),
    ],
)
def test_loops(text: str, looping: bool) -> None:
    assert is_looping(text) is looping
