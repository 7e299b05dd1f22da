"""The one kind of error a user is meant to read."""

from __future__ import annotations


class HeadsieveError(Exception):
    """Something the user asked for cannot be done; the message says what is wrong and what to do.

    The command line prints the message alone and exits with status 2.
    """
