"""Small task files, and a tiny model as a folder, for whole studies in a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headsieve.models.loading import Model
from headsieve.results import Result

WORDS = (
    *("cat", "dog", "sun", "sky", "red", "box", "run", "big", "map", "ink"),
    *("owl", "elm", "ant", "bee", "fox", "pig", "hen", "cow", "jar", "lid"),
)


def write_task(path: Path, mark: str = "") -> Path:
    """Write 20 items with two choices each; `mark` tells the prompts of files apart."""
    rows = [
        {"prompt": f"{word}{mark}", "choices": [word[::-1], word[:2]], "answer": number % 2}
        for number, word in enumerate(WORDS)
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return path


def save_model(model: Model, folder: Path) -> Path:
    """Write a checkpoint folder, tokenizer included."""
    model.hf.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


def lasting(result: Result) -> dict[str, Any]:
    """All of a result but the times and the memory that making it took."""
    record = result.to_dict()
    del record["created"], record["cost"]["seconds"], record["cost"]["peak_memory_bytes"]
    return record
