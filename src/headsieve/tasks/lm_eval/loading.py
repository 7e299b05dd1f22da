"""Finding and loading tasks of lm-evaluation-harness."""

from __future__ import annotations

import contextlib
import difflib
import io
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.errors import HeadsieveError, first_line
from headsieve.tasks.lm_eval.options import PREFIX, HarnessOptions

if TYPE_CHECKING:
    from lm_eval.api.group import Group
    from lm_eval.tasks import TaskManager


@dataclass(frozen=True)
class Loaded:
    """What a name stands for.

    Attributes
    ----------
    tasks : tuple of lm_eval.api.task.Task
        One, or those of a group or tag.
    group : lm_eval.api.group.Group or None
    """

    tasks: tuple[Any, ...]
    group: Group | None


@contextlib.contextmanager
def harness() -> Iterator[None]:
    """Let the harness work as in a run of its own, unheard, and leave no trace.

    Global random generators are seeded as it seeds them, because some tasks draw from them, and
    get their state back afterwards.
    """
    import torch

    python, legacy = random.getstate(), np.random.get_state()
    with (
        torch.random.fork_rng(range(torch.cuda.device_count())),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            # Its modules draw numbers even when they are imported.
            from lm_eval.defaults import DEFAULT_OTHER_SEED, DEFAULT_RANDOM_SEED

            random.seed(DEFAULT_RANDOM_SEED)
            np.random.seed(DEFAULT_OTHER_SEED)
            torch.manual_seed(DEFAULT_OTHER_SEED)
            yield
        finally:
            random.setstate(python)
            np.random.set_state(legacy)


def require(name: str, options: HarnessOptions) -> None:
    """Refuse a name that stands for nothing, or for what headsieve does not run.

    Raises
    ------
    HeadsieveError
        If lm-eval is not installed, there is no such task, or it runs what the model writes.
    """
    _reachable(name, options)


def explains(include_path: str, name: str) -> bool:
    """Whether a folder of task files has a task or group of this name.

    Raises
    ------
    HeadsieveError
        If lm-eval is not installed, or there is no such folder.
    """
    _require_folder(include_path)
    return name in _manager(include_path, defaults=False).task_index


def load(name: str, options: HarnessOptions) -> Loaded:
    """Load a task, or all tasks of a group or tag, with their data.

    Raises
    ------
    HeadsieveError
        As `require`, or if a task cannot be loaded.
    """
    manager = _reachable(name, options)
    from lm_eval.defaults import DEFAULT_OTHER_SEED

    try:
        with harness():
            found = manager.load([name])
    except Exception as error:  # a task may be any code
        raise HeadsieveError(
            f"{PREFIX}{name} cannot be loaded, perhaps because its data set is neither here nor "
            f"reachable: {first_line(error)}"
        ) from error
    tasks = tuple(found["tasks"].values())
    for task in tasks:
        if getattr(task, "UNSAFE_CODE", False):
            raise _runs_code(name)
        if getattr(task, "MULTIMODAL", False):
            raise HeadsieveError(f"{PREFIX}{name} shows images or sounds, which is not supported.")
        own = task.get_config("num_fewshot")
        # A task that was made without examples has none, as in the harness.
        if own is None or (options.num_fewshot is not None and own != 0):
            task.set_config("num_fewshot", options.num_fewshot or 0)
        task.set_fewshot_seed(DEFAULT_OTHER_SEED)
    return Loaded(tasks, found["groups"].get(name))


def _reachable(name: str, options: HarnessOptions) -> TaskManager:
    """A manager that knows a name and all it stands for.

    Reading the harness's own thousands of task files takes long, so it is done only for names that
    the user's folder does not explain.
    """
    path = options.include_path
    if path is not None:
        _require_folder(path)
    manager = None if path is None else _manager(path, defaults=False)
    if manager is None or any(one not in manager.task_index for one in _members(manager, name)):
        manager = _manager(path, defaults=True)
    index = manager.task_index
    if name not in index:
        close = difflib.get_close_matches(name, list(index), n=1)
        hint = f"; did you mean {PREFIX}{close[0]}?" if close else ""
        raise HeadsieveError(
            f"lm-evaluation-harness has no task {name!r}{hint} `lm-eval ls tasks` lists them, and "
            "--include-path names a folder with more."
        )
    for member in _members(manager, name):
        entry = index.get(member)
        if entry is not None and (entry.cfg or {}).get("unsafe_code"):
            raise _runs_code(name)
    return manager


def _require_folder(path: str) -> None:
    if not Path(path).is_dir():
        raise HeadsieveError(f"There is no folder {path} with task files.")


@cache
def _manager(include_path: str | None, *, defaults: bool) -> TaskManager:
    try:
        with harness():
            from lm_eval.tasks import TaskManager

            return TaskManager(include_path=include_path, include_defaults=defaults)
    except ImportError as error:
        raise HeadsieveError(
            "Tasks of lm-evaluation-harness need the package lm-eval: "
            "pip install 'headsieve[lm-eval]'."
        ) from error


def _members(manager: TaskManager, name: str) -> list[str]:
    """Names of all tasks and groups that a name stands for, itself included."""
    found: list[str] = []
    waiting = [name]
    while waiting:
        member = waiting.pop()
        if member in found:
            continue
        found.append(member)
        entry = manager.task_index.get(member)
        if entry is None:
            continue
        if entry.kind.name == "TAG":
            waiting += entry.tags
        elif entry.kind.name == "GROUP":
            listed = (entry.cfg or {}).get("task") or []
            waiting += [_name(one) for one in listed] if isinstance(listed, list) else []
    return found


def _name(member: str | dict[str, Any]) -> str:
    return member if isinstance(member, str) else str(member.get("task", member.get("group")))


def _runs_code(name: str) -> HeadsieveError:
    return HeadsieveError(
        f"{PREFIX}{name} is judged by running what the model writes, which headsieve does not let "
        "lm-evaluation-harness do."
    )
