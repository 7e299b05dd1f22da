"""Task files: JSON and JSON Lines, read strictly, with errors that name line and field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headsieve.errors import HeadsieveError
from headsieve.measure.items import Kind
from headsieve.tasks.task import Item, ItemTask

DEFAULT_TEMPLATE = "{input} -> {output}"
DEFAULT_SHOTS = 5

# The forms of a row, by the fields that they need.
_FORMS: dict[tuple[str, ...], Kind] = {
    ("input", "output"): "answer",
    ("prompt", "choices", "answer"): "choice",
    ("prompt", "answer"): "answer",
    ("text",): "text",
}
_SETTINGS = {"description", "template", "shots", "delimiter", "source", "items"}


def load_task_file(path: Path, name: str | None = None) -> ItemTask:
    """Read a task from a ``.json`` or ``.jsonl`` file.

    The file holds a list of rows (JSON), one row a line (JSON Lines), or an object whose `items`
    are the rows and which may set `template` (default ``{input} -> {output}``), `shots` (default
    5), `delimiter` (put between a prompt and what follows it where neither has a space there;
    default one space), `description` and `source`. Rows have one of these forms, the same in the
    whole file:

    - ``{"input", "output"}``: few-shot prompts are made from the file's own rows;
    - ``{"prompt", "answer"}``: the answer must follow the prompt;
    - ``{"prompt", "choices", "answer"}``: `answer` is the index of the right choice;
    - ``{"text"}``: plain text, scored by its mean log-probability a token.

    Rows that repeat an earlier row are left out.

    Raises
    ------
    HeadsieveError
        If the file is missing, unreadable or wrong; the message names the line and the field.
    """
    settings, rows = _read(path)
    form: tuple[str, ...] | None = None
    items: dict[str, Item] = {}
    for where, row in rows:
        _check_characters(where, row)
        found = _form(where, row)
        if form is not None and found != form:
            raise HeadsieveError(
                f"{where}: fields {', '.join(found)}, but the rows before have "
                f"{', '.join(form)}; all rows of a file have the same form."
            )
        form = found
        item = _item(where, row, form, settings)
        previous = items.setdefault(item.prompt or item.continuations[0], item)
        if previous != item:
            raise HeadsieveError(
                f"{where}: the same {form[0]} stands earlier in the file with another answer; "
                "keep one of them."
            )
    if form is None:
        raise HeadsieveError(f"{path}: the file holds no items.")
    return ItemTask(
        name=name or path.stem,
        kind=_FORMS[form],
        items=tuple(items.values()),
        shots=settings["shots"] if form == ("input", "output") else 0,
        description=settings.get("description", ""),
        source=settings.get("source", str(path)),
    )


def _read(path: Path) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise HeadsieveError(f"No task file at {path}.") from None
    except UnicodeDecodeError as error:
        raise HeadsieveError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise HeadsieveError(f"Cannot read the task file {path}: {error.strerror}.") from None
    if not text.strip():
        raise HeadsieveError(f"{path}: the file is empty.")
    settings: dict[str, Any] = {"template": DEFAULT_TEMPLATE, "shots": DEFAULT_SHOTS}
    if path.suffix == ".jsonl":
        return settings, [
            (f"{path} line {number}", _parse(line, path, number))
            for number, line in enumerate(text.split("\n"), start=1)
            if line.strip()
        ]
    content = _parse(text, path, 1)
    if isinstance(content, dict):
        settings |= _settings(content, path)
        content = content["items"]
    if not isinstance(content, list):
        raise HeadsieveError(f"{path}: expected a list of rows or an object with a list `items`.")
    lines = _row_lines(text)
    return settings, [
        (f"{path} line {next(lines, '?')}, row {number}", row)
        for number, row in enumerate(content, start=1)
    ]


def _parse(text: str, path: Path, first_line: int) -> Any:
    try:
        return json.loads(text, parse_constant=_number, parse_float=_number)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise HeadsieveError(
            f"{path} line {line}: not valid JSON ({error.msg}, column {error.colno})."
        ) from None
    except RecursionError:
        raise HeadsieveError(f"{path} line {first_line}: brackets are nested too deep.") from None
    except ValueError:
        raise HeadsieveError(
            f"{path} line {first_line}: a number there is not finite or has too many digits; write "
            "it in quotes if it is text."
        ) from None


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _check_characters(where: str, content: Any) -> None:
    """Refuse halves of surrogate pairs, which JSON can write but no tokenizer can read."""
    try:
        json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise HeadsieveError(
            f"{where}: {error.object[error.start]!r} is half of a character; write the character "
            "itself."
        ) from None


def _row_lines(text: str) -> Iterator[int]:
    """Lines on which the rows of a JSON list begin (rows hold no objects of their own)."""
    strings_out = re.sub(r'"(?:[^"\\]|\\.)*"', lambda match: " " * len(match[0]), text)
    start = strings_out.find("[")
    for match in re.finditer(r"\{", strings_out[start:]):
        yield text.count("\n", 0, start + match.start()) + 1


def _settings(content: dict[str, Any], path: Path) -> dict[str, Any]:
    unknown = sorted(set(content) - _SETTINGS)
    if unknown:
        known = ", ".join(sorted(_SETTINGS))
        raise HeadsieveError(f"{path}: unknown field {unknown[0]!r}; a task object has {known}.")
    if "items" not in content:
        raise HeadsieveError(f"{path}: the object has no field 'items' with the list of rows.")
    for field in ("description", "template", "delimiter", "source"):
        if field in content and not isinstance(content[field], str):
            raise HeadsieveError(f"{path}: field {field!r} must be text.")
    settings = {field: value for field, value in content.items() if field != "items"}
    _check_characters(str(path), settings)
    template = content.get("template", DEFAULT_TEMPLATE)
    counts = [template.count(field) for field in ("{input}", "{output}")]
    if counts != [1, 1] or not template.rstrip().endswith("{output}"):
        raise HeadsieveError(
            f"{path}: field 'template' must hold {{input}} once and {{output}} once, at its end."
        )
    shots = content.get("shots", DEFAULT_SHOTS)
    if isinstance(shots, bool) or not isinstance(shots, int) or shots < 0:
        raise HeadsieveError(f"{path}: field 'shots' must be a whole number, 0 or more.")
    return settings


def _form(where: str, row: Any) -> tuple[str, ...]:
    if not isinstance(row, dict):
        raise HeadsieveError(
            f"{where}: expected an object with fields, not {json.dumps(row)[:40]}."
        )
    for form in _FORMS:
        if set(form) <= set(row):
            return form
    forms = "; ".join(", ".join(form) for form in _FORMS)
    raise HeadsieveError(
        f"{where}: fields {', '.join(map(str, row)) or '(none)'} fit no form of a row ({forms})."
    )


def _item(where: str, row: dict[str, Any], form: tuple[str, ...], settings: dict[str, Any]) -> Item:
    if form == ("input", "output"):
        before, after = settings["template"].rstrip().split("{input}")
        prompt = before + _text(where, row, "input") + after.removesuffix("{output}")
        # A space before the answer belongs to the answer's first token.
        stripped = prompt.rstrip(" ")
        return Item(stripped, (prompt[len(stripped) :] + _text(where, row, "output") + "\n",))
    if form == ("text",):
        return Item("", (_text(where, row, "text"),))
    prompt = _text(where, row, "prompt")
    delimiter = settings.get("delimiter", " ")
    if form == ("prompt", "answer"):
        return Item(prompt, (_joined(prompt, _text(where, row, "answer"), delimiter),))
    choices = row["choices"]
    if not isinstance(choices, list) or len(choices) < 2:
        raise HeadsieveError(f"{where}: field 'choices' must be a list of at least two texts.")
    for choice in choices:
        if not isinstance(choice, str) or not choice.strip():
            raise HeadsieveError(f"{where}: field 'choices' holds {choice!r}; each must be text.")
    if len(set(choices)) < len(choices):
        raise HeadsieveError(f"{where}: field 'choices' holds the same choice twice.")
    answer = row["answer"]
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(choices):
        raise HeadsieveError(
            f"{where}: field 'answer' must be the index of the right choice, 0 to "
            f"{len(choices) - 1}, not {answer!r}."
        )
    return Item(prompt, tuple(_joined(prompt, choice, delimiter) for choice in choices), answer)


def _text(where: str, row: dict[str, Any], field: str) -> str:
    value = row[field]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise HeadsieveError(f"{where}: field {field!r} must be text that is not empty.")
    return value


def _joined(prompt: str, continuation: str, delimiter: str) -> str:
    if prompt[-1].isspace() or continuation[0].isspace():
        return continuation
    return delimiter + continuation
