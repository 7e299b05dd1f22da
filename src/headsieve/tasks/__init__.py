"""Tasks: built in, of the paper, read from a file, or from lm-evaluation-harness."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from headsieve.errors import HeadsieveError
from headsieve.tasks.builtin import builtin_names, load_builtin
from headsieve.tasks.files import load_task_file
from headsieve.tasks.lm_eval.options import PREFIX, HarnessOptions
from headsieve.tasks.task import Item, ItemTask, Split, Task

__all__ = [
    "HarnessOptions",
    "Item",
    "ItemTask",
    "Split",
    "Task",
    "builtin_names",
    "load_task",
]


def load_task(name: str, harness: HarnessOptions | None = None) -> Task:
    """Find a task by its name.

    Parameters
    ----------
    name : str
        A built-in name, one of the paper's capabilities, the path of a ``.json`` or ``.jsonl``
        file, or ``lm-eval:NAME`` for a task, group or tag of lm-evaluation-harness.
    harness : HarnessOptions, optional
        How tasks that come from outside are to be asked and judged.

    Raises
    ------
    HeadsieveError
        If there is no such task, the file is wrong, or something that the task needs is missing.
    """
    if name in builtin_names():
        return load_builtin(name)
    # Loads what the built-in tasks do without.
    from headsieve.tasks.paper_tasks import load_paper_task, paper_names

    if name in paper_names():
        return load_paper_task(name, harness or HarnessOptions())
    if name.startswith(PREFIX):
        from headsieve.tasks.lm_eval.task import HarnessTask

        return HarnessTask(name.removeprefix(PREFIX), harness or HarnessOptions())
    # Unlike Path.expanduser, this leaves the name of an unknown user alone.
    path = Path(os.path.expanduser(name))
    if path.suffix in (".json", ".jsonl"):
        return load_task_file(path)
    close = difflib.get_close_matches(name, [*builtin_names(), *paper_names()], n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    raise HeadsieveError(
        f"There is no task {name!r}; {hint}`headsieve tasks` lists the built-in ones, a file must "
        f"end in .json or .jsonl, and a task of lm-evaluation-harness begins with {PREFIX}"
    )
