"""How a study tells what it is doing; the command line shows it, the library is silent."""

from __future__ import annotations


class Progress:
    """Receives what happens in a study. This one ignores it."""

    def stage(self, name: str, total: int) -> None:
        """A stage begins that will take about `total` evaluations."""

    def advance(self, count: int) -> None:
        """So many evaluations were made."""

    def note(self, text: str) -> None:
        """Something the user should know; one sentence."""
