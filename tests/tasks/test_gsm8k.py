"""Final answers by both of the harness's rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headsieve.tasks.gsm8k import flexible_answer, same_answer, strict_answer

REFERENCE = "She sells 16 - 3 - 4 = <<16-3-4=9>>9 eggs.\nShe makes 9 * 2 = $<<9*2=18>>18.\n#### 18"
DATA = Path(__file__).parents[3] / "shared/benchmarks/gsm8k/test.jsonl"


@pytest.mark.parametrize(
    ("solution", "strict", "flexible"),
    [
        ("9 * 2 = 18\n#### 18", "18", "18"),
        ("#### 18\n#### 19", "18", "19"),
        ("The answer is 18.", None, "18."),
        ("It costs $1,234.50", None, "$1,234.50"),
        ("#### -7", "-7", "-7"),
        ("#### $18", None, "$18"),
        ("####18", None, "18"),
        ("#### eighteen", None, None),
        ("", None, None),
        ("18 apples, and 3 pears", None, "3"),
        ("so 18 ...", None, "..."),
    ],
)
def test_answers_are_found(solution: str, strict: str | None, flexible: str | None) -> None:
    assert strict_answer(solution) == strict
    assert flexible_answer(solution) == flexible


@pytest.mark.parametrize("found", ["18", "18.", "$18", "$18.", "1,8"])
def test_the_way_it_is_written_does_not_count(found: str) -> None:
    assert same_answer(found, REFERENCE)


@pytest.mark.parametrize("found", [None, "", ".", "18.0", "-18", "81", "180"])
def test_another_answer_is_wrong(found: str | None) -> None:
    assert not same_answer(found, REFERENCE)


@given(st.integers(), st.text())
def test_a_number_in_thousands_is_found_behind_any_text(number: int, before: str) -> None:
    reference = f"#### {number}"
    solution = before.replace("####", "") + f"\n#### {number:,}\n"
    assert same_answer(strict_answer(solution), reference)
    assert same_answer(flexible_answer(solution), reference)


@pytest.mark.skipif(not DATA.exists(), reason="the benchmark data is not here")
def test_every_reference_solution_is_right() -> None:
    rows = map(json.loads, DATA.read_text(encoding="utf-8").splitlines())
    for answer in (row["answer"] for row in rows):
        assert same_answer(strict_answer(answer), answer)
        assert same_answer(flexible_answer(answer), answer)
