from __future__ import annotations

import operator
import re

import pytest

from headsieve.tasks.builtin import builtin_names, load_builtin

_OPERATORS = {"+": operator.add, "*": operator.mul}


@pytest.mark.parametrize("name", builtin_names())
def test_every_builtin_task_is_whole(name: str) -> None:
    task = load_builtin(name)
    assert task.name == name
    assert task.description
    assert len(task.items) >= 60
    prompts = [item.prompt or item.continuations[0] for item in task.items]
    assert len(set(prompts)) == len(prompts)
    for item in task.items:
        assert 0 <= item.correct < len(item.continuations)
        assert len(set(item.continuations)) == len(item.continuations)
        assert all(continuation.strip() for continuation in item.continuations)
    if task.kind == "choice":
        assert all(len(item.continuations) >= 2 for item in task.items)
    split = task.split(seed=0)
    assert len(split.search) >= (5 if task.kind == "text" else 24)
    assert len(split.held_out) >= 20


@pytest.mark.parametrize("name", ["addition", "multiplication"])
def test_arithmetic_is_right(name: str) -> None:
    for item in load_builtin(name).items:
        problem = re.fullmatch(r"(\d+) ([+*]) (\d+) ->", item.prompt)
        assert problem
        result = _OPERATORS[problem[2]](int(problem[1]), int(problem[3]))
        assert item.continuations == (f" {result}\n",)


def test_next_number_is_right() -> None:
    for item in load_builtin("next-number").items:
        first, second, third = map(int, re.findall(r"\d+", item.prompt))
        assert (second, third) == (first + 1, first + 2)
        assert item.continuations == (f" {first + 3}\n",)
