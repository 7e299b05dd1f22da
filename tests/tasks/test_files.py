"""Task files: the forms that are read, and what is said of wrong ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headsieve.errors import HeadsieveError
from headsieve.tasks import Item, ItemTask, load_task

INPUT, INPUT_2 = {"input": "hot", "output": "cold"}, {"input": "big", "output": "small"}
ANSWER = {"prompt": "2 + 2 =", "answer": 4}
CHOICE = {"prompt": "The sky is", "choices": ["green", " blue"], "answer": 1}
TEXT = {"text": "Once upon a time."}


def load(path: str) -> ItemTask:
    task = load_task(path)
    assert isinstance(task, ItemTask)
    return task


def write(folder: Path, content: Any, name: str = "mine.json") -> str:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return str(path)


@pytest.mark.parametrize(
    ("row", "kind", "metric", "item"),
    [
        (INPUT, "answer", "accuracy", Item("hot ->", (" cold\n",))),
        (ANSWER, "answer", "accuracy", Item("2 + 2 =", (" 4",))),
        (CHOICE, "choice", "accuracy", Item("The sky is", (" green", " blue"), 1)),
        (TEXT, "text", "log_prob", Item("", ("Once upon a time.",))),
    ],
)
def test_each_form_of_a_row(
    tmp_path: Path, row: dict[str, Any], kind: str, metric: str, item: Item
) -> None:
    task = load(write(tmp_path, [row]))
    assert (task.name, task.kind, task.metric, task.items) == ("mine", kind, metric, (item,))


def test_json_lines_and_a_list_give_the_same(tmp_path: Path) -> None:
    # A line separator inside a text is legal JSON and ends no line.
    rows = [INPUT, INPUT_2, {"input": "a\u2028b", "output": "c"}]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    listed = load(write(tmp_path, rows))
    assert load(write(tmp_path, lines + "\n\n", "mine.jsonl")).items == listed.items


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    assert load(write(tmp_path, "\ufeff" + json.dumps([INPUT]))).items


def test_the_object_form_sets_template_and_shots(tmp_path: Path) -> None:
    content = {"template": "The opposite of {input} is {output}", "shots": 2, "description": "d"}
    task = load(write(tmp_path, content | {"items": [INPUT, INPUT_2]}))
    assert task.items[0] == Item("The opposite of hot is", (" cold\n",))
    assert (task.shots, task.description) == (2, "d")
    assert load(write(tmp_path, [INPUT])).shots == 5


@pytest.mark.parametrize(
    ("delimiter", "prompt", "answer", "continuation"),
    [(" ", "a", "b", " b"), (" ", "a\n", "b", "b"), (" ", "a", " b", " b"), ("", "a", "b", "b")],
)
def test_the_delimiter_fills_a_missing_space(
    tmp_path: Path, delimiter: str, prompt: str, answer: str, continuation: str
) -> None:
    row = {"prompt": prompt, "answer": answer}
    task = load(write(tmp_path, {"delimiter": delimiter, "items": [row]}))
    assert task.items[0].continuations == (continuation,)


def test_repeated_rows_are_left_out(tmp_path: Path) -> None:
    assert len(load(write(tmp_path, [INPUT, INPUT_2, INPUT])).items) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("[]", "holds no items"),
        ("7", "expected a list of rows"),
        ('[\n{"input": "hot",\n}]', "line 3: not valid JSON"),
        ([INPUT, 7], "row 2: expected an object"),
        ([INPUT, {"input": "big"}], "line 6, row 2: fields input fit no form"),
        ([INPUT, ANSWER], "line 6, row 2: fields prompt, answer, but the rows before have input"),
        ([INPUT, INPUT | {"output": "warm"}], "line 6, row 2: the same input"),
        ([INPUT | {"output": " "}], "line 2, row 1: field 'output' must be text"),
        ([INPUT | {"input": None}], "line 2, row 1: field 'input' must be text"),
        ([{"text": ["a"]}], "row 1: field 'text' must be text"),
        ([CHOICE | {"choices": "ab"}], "row 1: field 'choices' must be a list"),
        ([CHOICE | {"choices": ["a"]}], "row 1: field 'choices' must be a list of at least two"),
        ([CHOICE | {"choices": ["a", 2]}], "row 1: field 'choices' holds 2"),
        ([CHOICE | {"choices": ["a", "a"]}], "row 1: field 'choices' holds the same choice twice"),
        ([CHOICE | {"answer": 2}], "row 1: field 'answer' must be the index .* 0 to 1, not 2"),
        ([CHOICE | {"answer": True}], "row 1: field 'answer' must be the index"),
        ([CHOICE | {"answer": "blue"}], "row 1: field 'answer' must be the index"),
        ({"rows": []}, "unknown field 'rows'"),
        ({"shots": 2}, "no field 'items'"),
        ({"shots": -1, "items": []}, "field 'shots' must be a whole number"),
        ({"shots": True, "items": []}, "field 'shots' must be a whole number"),
        ({"template": "{input}", "items": []}, "field 'template' must hold"),
        ({"template": "{input} {output} {output}", "items": []}, "field 'template' must hold"),
        ({"description": "\ud800", "items": []}, r"'\\ud800' is half of a character"),
        ([INPUT, {"input": "\ud800", "output": "x"}], r"line 6, row 2: '\\ud800' is half of a"),
        ([CHOICE | {"choices": ["\udfff", "x"]}], r"row 1: '\\udfff' is half of a character"),
        ("[" * 100_000, "brackets are nested too deep"),
        ('[{"text": ' + "7" * 5000 + "}]", "not finite or has too many digits"),
        ('[{"text": NaN}]', "not finite"),
        ('[{"text": -Infinity}]', "not finite"),
        ('[{"text": 1e400}]', "not finite"),
        ({"description": 1, "items": []}, "field 'description' must be text"),
        ({"items": 1}, "expected a list of rows"),
    ],
)
def test_a_wrong_file_is_told_with_line_and_field(
    tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(HeadsieveError, match=rf"mine\.json.*{message}"):
        load(write(tmp_path, content))


def test_json_lines_errors_name_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(INPUT) + "\n\n{broken", "mine.jsonl")
    with pytest.raises(HeadsieveError, match=r"mine\.jsonl line 3: not valid JSON"):
        load(path)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(HeadsieveError, match="No task file at"):
        load(str(tmp_path / "absent.json"))
    (tmp_path / "latin.json").write_bytes(b'[{"text": "caf\xe9"}]')
    with pytest.raises(HeadsieveError, match=r"not UTF-8 text \(byte 14\)"):
        load(str(tmp_path / "latin.json"))


def test_a_misspelt_task_gets_a_suggestion() -> None:
    with pytest.raises(HeadsieveError, match="did you mean antonym"):
        load("antonmy")


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, [INPUT])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("~/mine.json").items
    with pytest.raises(HeadsieveError, match="No task file at ~nobody-of-this-name/mine"):
        load("~nobody-of-this-name/mine.json")
