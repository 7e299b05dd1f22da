"""Built-in capabilities: data files beside this module, and number problems made with a seed."""

from __future__ import annotations

import json
import operator
import re
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.tasks.files import load_task_file
from headsieve.tasks.task import Item, ItemTask

if TYPE_CHECKING:
    from collections.abc import Callable

_GENERATOR_SEED = 0


def _arithmetic(sign: str, operation: Callable[[int, int], int]) -> list[tuple[str, str]]:
    """All problems with two operands from 2 to 12."""
    operands = range(2, 13)
    return [
        (f"{first} {sign} {second}", str(operation(first, second)))
        for first in operands
        for second in operands
    ]


def _next_number() -> list[tuple[str, str]]:
    """Three numbers in a row, and the next."""
    return [(f"{first}, {first + 1}, {first + 2}", str(first + 3)) for first in range(1, 121)]


_GENERATED: dict[str, tuple[str, Callable[[], list[tuple[str, str]]]]] = {
    "addition": ("Sum of two numbers from 2 to 12", lambda: _arithmetic("+", operator.add)),
    "multiplication": (
        "Product of two numbers from 2 to 12",
        lambda: _arithmetic("*", operator.mul),
    ),
    "next-number": ("Three numbers in a row to the next", _next_number),
}


def builtin_names() -> list[str]:
    """Names of all built-in tasks, sorted."""
    files = (entry.name for entry in resources.files(__name__).iterdir())
    names = {name.removesuffix(".json") for name in files if re.fullmatch(r"[a-z-]+\.json", name)}
    return sorted(names | set(_GENERATED))


@cache
def load_builtin(name: str) -> ItemTask:
    """Load a built-in task.

    Raises
    ------
    KeyError
        If there is none of this name.
    """
    if name in _GENERATED:
        description, make = _GENERATED[name]
        problems = make()
        order = np.random.default_rng(_GENERATOR_SEED).permutation(len(problems))
        return ItemTask(
            name=name,
            kind="answer",
            items=tuple(
                Item(f"{problems[number][0]} ->", (f" {problems[number][1]}\n",))
                for number in order
            ),
            shots=5,
            description=description,
            source=f"generated with seed {_GENERATOR_SEED}",
        )
    if name not in builtin_names():
        raise KeyError(name)
    with resources.as_file(resources.files(__name__) / f"{name}.json") as path:
        return load_task_file(Path(path), name)


def describe_builtins() -> list[dict[str, Any]]:
    """One record a built-in task: name, kind, metric, items, accuracy, description, needs.

    The accuracy is the default model's as measured by ``benchmarks/task_accuracy.py``; None where
    the metric is no accuracy.
    """
    with (resources.files(__name__) / "_accuracy.json").open(encoding="utf-8") as file:
        accuracy = json.load(file)["accuracy"]
    records = []
    for name in builtin_names():
        task = load_builtin(name)
        records.append(
            {
                "name": name,
                "kind": task.kind,
                "metric": task.metric,
                "items": len(task.items),
                "accuracy": accuracy.get(name),
                "description": task.description,
                "needs": "",
            }
        )
    return records
