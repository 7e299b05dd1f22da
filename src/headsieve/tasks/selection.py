"""Which tasks a study is about: the capabilities that were named, and their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headsieve.errors import HeadsieveError
from headsieve.tasks import HarnessOptions, Task, load_task

# Controls when none are named: cheap to measure and different in kind, filled up to so many.
DEFAULT_CONTROLS = (
    *("copying", "plural", "capital", "addition", "agreement"),
    *("category", "first-letter", "capitalize", "antonym"),
)
CONTROL_COUNT = 5
TEXT_CONTROL = "text"

# Two tasks are about the same thing when this share of the smaller one's items is in both.
_SAME_SUBJECT = 0.1


def select_tasks(
    capabilities: Sequence[str],
    controls: Sequence[str] | None,
    harness: HarnessOptions | None = None,
) -> tuple[dict[str, Task], dict[str, Task]]:
    """Load capabilities and controls, by the names under which results list them.

    Without `controls`, the capabilities are each other's, filled up to five from a fixed set of
    built-in tasks, and plain text. A built-in task that shares its items with a capability is
    passed over: it could only fall with it.

    Returns
    -------
    capabilities, controls : dict of str to Task

    Raises
    ------
    HeadsieveError
        If a task is unknown or was named twice, or no capability was named.
    """
    if not capabilities:
        raise HeadsieveError("No capability was named.")
    named = by_name(capabilities, {}, harness)
    if controls is not None:
        return named, by_name(controls, named, harness)
    chosen: dict[str, Task] = {}
    for name in DEFAULT_CONTROLS:
        if len(named) - 1 + len(chosen) >= CONTROL_COUNT:
            break
        control = load_task(name)
        if name not in named and not any(same_subject(control, task) for task in named.values()):
            chosen[name] = control
    if TEXT_CONTROL not in named:
        chosen[TEXT_CONTROL] = load_task(TEXT_CONTROL)
    return named, chosen


def by_name(
    given: Sequence[str], taken: Mapping[str, Task], harness: HarnessOptions | None = None
) -> dict[str, Task]:
    """Load tasks under their names; a file that bears a taken name goes by its path.

    Raises
    ------
    HeadsieveError
        If a task is unknown or was named twice, be it under two names.
    """
    tasks: dict[str, Task] = {}
    for word in given:
        task = load_task(word, harness)
        others = {**taken, **tasks}
        name = task.name if task.name not in others else word
        if name in others:
            raise HeadsieveError(f"The task {word} was named twice.")
        for other, known in others.items():
            if task.identity == known.identity:
                raise HeadsieveError(
                    f"The task {word} was named twice: it has the same items as {other}."
                )
        tasks[name] = task
    return tasks


def same_subject(one: Task, other: Task) -> bool:
    """Whether two tasks are about the same facts, so that one could only fall with the other."""
    smaller = min(len(one.facts), len(other.facts))
    return smaller > 0 and len(one.facts & other.facts) >= _SAME_SUBJECT * smaller
