"""Data files of the paper's capabilities: words, prompts, published figures."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def load_data(name: str) -> dict[str, Any]:
    """The content of ``NAME.json`` beside this module."""
    content: dict[str, Any] = json.loads(
        (resources.files(__name__) / f"{name}.json").read_text(encoding="utf-8")
    )
    return content
