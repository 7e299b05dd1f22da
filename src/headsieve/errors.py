"""The one kind of error a user is meant to read."""

from __future__ import annotations


class HeadsieveError(Exception):
    """Something the user asked for cannot be done; the message says what is wrong and what to do.

    The command line prints the message alone and exits with status 2.
    """


class NoGradientError(HeadsieveError):
    """A task's search score has no gradient here."""


def first_line(error: BaseException) -> str:
    """What another library's error says, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].endswith(":"):  # what follows is what it says
        return " ".join(lines)[:300]
    return lines[0] if lines else type(error).__name__
