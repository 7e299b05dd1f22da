"""Which tasks are controls."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headsieve.tasks.builtin import load_builtin
from headsieve.tasks.selection import CONTROL_COUNT, TEXT_CONTROL, select_tasks
from tests.taskfiles import write_task


@pytest.fixture(autouse=True)
def skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a task file."""
    monkeypatch.chdir(tmp_path)
    write_task(Path("skill.json"))


def test_default_controls_fill_up_to_five_and_text() -> None:
    _, alone = select_tasks(["antonym"], None)
    assert len(alone) == CONTROL_COUNT + 1
    assert "antonym" not in alone
    named, others = select_tasks(["antonym", "plural", "skill.json"], None)
    assert list(named) == ["antonym", "plural", "skill"]
    assert len(others) == CONTROL_COUNT - 2 + 1
    assert not set(named) & set(others)
    assert TEXT_CONTROL in others


def test_a_builtin_about_the_same_things_is_no_default_control() -> None:
    items = load_builtin("capital").items[:30]
    pairs = [
        {
            "input": item.prompt.removesuffix("->").strip(),
            "output": item.continuations[item.correct].strip(),
        }
        for item in items
    ]
    content = {"template": "Q: {input}? A: {output}", "items": pairs}
    Path("country-capital.json").write_text(json.dumps(content))
    _, others = select_tasks(["country-capital.json"], None)
    assert "capital" not in others
    assert len(others) == CONTROL_COUNT + 1
    assert "capital" in select_tasks(["skill.json"], None)[1]
    # A control that is asked for is taken all the same.
    assert "capital" in select_tasks(["country-capital.json"], ["capital"])[1]
