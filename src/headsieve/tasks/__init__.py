"""Tasks: built in, or read from a file."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from headsieve.errors import HeadsieveError
from headsieve.tasks.builtin import builtin_names, load_builtin
from headsieve.tasks.files import load_task_file
from headsieve.tasks.task import Item, Split, Task

__all__ = ["Item", "Split", "Task", "builtin_names", "load_task"]


def load_task(name: str) -> Task:
    """Load a task by its built-in name or from a ``.json`` or ``.jsonl`` file.

    Raises
    ------
    HeadsieveError
        If there is no such task, or the file is wrong.
    """
    if name in builtin_names():
        return load_builtin(name)
    # Unlike Path.expanduser, this leaves the name of an unknown user alone.
    path = Path(os.path.expanduser(name))
    if path.suffix in (".json", ".jsonl"):
        return load_task_file(path)
    close = difflib.get_close_matches(name, builtin_names(), n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise HeadsieveError(
        f"There is no task {name!r}; {hint}`headsieve tasks` lists the built-in ones, and a file "
        "must end in .json or .jsonl."
    )
