"""Loaders of the data sets under ``../shared/benchmarks``, for the task files beside this module.

The environment variable ``HEADSIEVE_BENCHMARKS`` names another folder.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import datasets

_DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "benchmarks"


def folder() -> Path:
    """Where the data sets are."""
    return Path(os.environ.get("HEADSIEVE_BENCHMARKS", _DEFAULT))


def arithmetic(*, name: str, **_options: Any) -> dict[str, datasets.Dataset]:
    """Sums and products of numbers in words of a question."""
    return _splits(test=_lines(folder() / "gpt3_arithmetic" / f"{name}.jsonl"))


def arc_challenge(**_options: Any) -> dict[str, datasets.Dataset]:
    """Questions with three to five answers, parsed from an instruction."""
    rows = json.loads((folder() / "arc_challenge" / "test.json").read_text())
    parsed = []
    for row in rows:
        question, answers = row["instruction"].split("\n\n")[:2]
        parsed.append(
            {
                "question": question.split("question: ", 1)[1],
                "choices": [one.strip() for one in re.split(r"Answer\d: ", answers)[1:]],
                "gold": int(row["answer"].removeprefix("answer")) - 1,
            }
        )
    return _splits(test=parsed)


def hellaswag(**_options: Any) -> dict[str, datasets.Dataset]:
    """Beginnings with four endings."""
    with bz2.open(folder() / "hellaswag" / "hellaswag_val_full.txt.bz2", "rt") as file:
        lines = file.read().splitlines()
    return _splits(
        test=(
            {"query": lines[at], "gold": int(lines[at + 1]), "choices": lines[at + 2 : at + 6]}
            for at in range(0, len(lines) - 5, 6)
        )
    )


def boolq(**_options: Any) -> dict[str, datasets.Dataset]:
    """Questions about a passage, no or yes."""
    return _splits(test=_lines(folder() / "boolq" / "boolq.jsonl"))


def mmlu(*, subject: str, **_options: Any) -> dict[str, datasets.Dataset]:
    """Questions of one subject, with five examples in ``dev``."""
    parts = {}
    for part in ("test", "dev"):
        with (folder() / "mmlu" / part / f"{subject}_{part}.csv").open(newline="") as file:
            parts[part] = [
                {
                    "question": row["question"],
                    "choices": [row[f"choice{number}"] for number in range(4)],
                    "answer": int(row["answer"]),
                }
                for row in csv.DictReader(file)
            ]
    return _splits(**parts)


def blimp(*, name: str, **_options: Any) -> dict[str, datasets.Dataset]:
    """Minimal pairs of sentences."""
    return _splits(test=_lines(folder() / "blimp" / f"{name}.jsonl"))


def lambada(**_options: Any) -> dict[str, datasets.Dataset]:
    """Passages and their last word."""
    return _splits(test=_lines(folder() / "lambada" / "lambada_openai.jsonl"))


def winogrande(**_options: Any) -> dict[str, datasets.Dataset]:
    """Two beginnings of a sentence and its end."""
    return _splits(test=_lines(folder() / "winogrande" / "winogrande.jsonl"))


def gsm8k(**_options: Any) -> dict[str, datasets.Dataset]:
    """Problems in words with their solutions."""
    place = folder() / "gsm8k"
    return _splits(test=_lines(place / "test.jsonl"), train=_lines(place / "train.jsonl"))


def humaneval(**_options: Any) -> dict[str, datasets.Dataset]:
    """Functions to be finished."""
    with gzip.open(folder() / "humaneval" / "HumanEval.jsonl.gz", "rt") as file:
        return _splits(test=map(json.loads, file))


def mbpp(**_options: Any) -> dict[str, datasets.Dataset]:
    """Functions to be written: the evaluation split, and the three usual examples."""
    rows = list(_lines(folder() / "mbpp" / "mbpp.jsonl"))
    for row in rows:
        del row["challenge_test_list"]
    return _splits(
        test=[row for row in rows if 11 <= row["task_id"] <= 510],
        examples=[row for row in rows if row["task_id"] in (2, 3, 4)],
    )


def context_number(row: dict[str, Any]) -> int:
    """Which of WinoGrande's beginnings is right."""
    return int(row["gold"])


def _lines(path: Path) -> Iterable[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _splits(**parts: Iterable[dict[str, Any]]) -> dict[str, datasets.Dataset]:
    return {name: datasets.Dataset.from_list(list(rows)) for name, rows in parts.items()}
