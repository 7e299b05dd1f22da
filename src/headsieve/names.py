"""Words of a command line: lists of names in one word, and values that look like options."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from headsieve.errors import HeadsieveError


def split_names(text: str) -> list[str]:
    """The names of a list, as in ``copying,plural`` or ``"odd, name.json",plural``.

    Raises
    ------
    HeadsieveError
        If a quote is not closed.
    """
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True))
    except csv.Error:
        raise HeadsieveError(
            f"The list {text!r} has a quote that is out of place; quote whole names, as in "
            '"odd, name.json",plural.'
        ) from None
    return [name.strip() for row in rows for name in row if name.strip()]


def join_names(names: Iterable[str]) -> str:
    """A list of names that `split_names` reads."""
    text = io.StringIO()
    # The end of a line is named, or names that hold one would not be quoted.
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue()[:-1]


def option(name: str, value: object) -> list[str]:
    """An option with its value, in one word where the value would be taken for an option."""
    word = str(value)
    return [f"{name}={word}"] if word.startswith("-") else [name, word]
