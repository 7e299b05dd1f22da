"""The one kind of error a user is meant to read."""

from __future__ import annotations


class HeadsieveError(Exception):
    """Something the user asked for cannot be done; the message says what is wrong and what to do.

    The command line prints the message alone and exits with status 2.
    """


def first_line(error: BaseException) -> str:
    """What another library's error says, in one line."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
