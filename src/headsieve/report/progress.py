"""Progress on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bars

from headsieve.progress import Progress

# Without a terminal, a line this often (seconds) at most.
_LINE_EVERY = 15.0


class ConsoleProgress(Progress):
    """Shows what is being measured, how much of it is done and the time left."""

    def __init__(self) -> None:
        # What is told may hold names of tasks and models, square brackets and colons included.
        self._console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        self._bars: Bars | None = None
        if self._console.is_terminal:
            self._bars = Bars(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("evaluations"),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                console=self._console,
            )
        self._bar: TaskID | None = None
        self._name = ""
        self._total = 0
        self._done = 0
        self._started = 0.0
        self._said = 0.0

    def __enter__(self) -> Self:
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._finish(completed=kind is None)
        if self._bars is not None:
            self._bars.stop()

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of about `total` evaluations."""
        self._finish(completed=True)
        self._name, self._total, self._done = name, total, 0
        self._started = self._said = time.monotonic()
        if self._bars is not None:
            self._bar = self._bars.add_task(name, total=total)
        else:
            self._line(f"{name}: up to {total} evaluations")

    def advance(self, count: int) -> None:
        """Count evaluations that were made."""
        self._done += count
        if self._bars is not None and self._bar is not None:
            self._bars.advance(self._bar, count)
            return
        now = time.monotonic()
        if now - self._said >= _LINE_EVERY:
            self._said = now
            left = (now - self._started) / self._done * max(self._total - self._done, 0)
            self._line(
                f"{self._name}: {self._done} of up to {self._total} evaluations, "
                f"at most {left:.0f} s left"
            )

    def note(self, text: str) -> None:
        """Print a sentence."""
        self._line(text)

    def _finish(self, *, completed: bool) -> None:
        if not self._name:
            return
        if self._bars is not None and self._bar is not None:
            # A stage may need fewer evaluations than it could have used, or none on resuming.
            if completed:
                self._bars.update(self._bar, total=self._done, completed=self._done)
        elif completed:
            seconds = time.monotonic() - self._started
            self._line(f"{self._name}: done, {self._done} evaluations in {seconds:.0f} s")
        self._name = ""

    def _line(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)
