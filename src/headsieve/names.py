"""Lists of names in one word of a command line: separated by commas, quoted where they hold one."""

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
        rows = list(csv.reader([text], skipinitialspace=True, strict=True))
    except csv.Error:
        raise HeadsieveError(
            f"The list {text!r} has a quote that is out of place; quote whole names, as in "
            '"odd, name.json",plural.'
        ) from None
    return [name.strip() for row in rows for name in row if name.strip()]


def join_names(names: Iterable[str]) -> str:
    """A list of names that `split_names` reads."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()
