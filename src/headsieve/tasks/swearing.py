"""How much a model swears: words of a lexicon in its answers, against the unmodified model's."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from headsieve.errors import HeadsieveError

# Letters and digits; an apostrophe within belongs to the word.
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_COLUMNS = ("text", "word", "term", "phrase")


@dataclass(frozen=True)
class Lexicon:
    """Words and phrases to be counted.

    Attributes
    ----------
    entries : frozenset of tuple of str
        Each as its words in lower case.
    left_out : int
        Entries of the file that no text can match word by word: those with symbols for letters
        (``@$$``) and those without letters.
    """

    entries: frozenset[tuple[str, ...]]
    left_out: int = 0

    @property
    def longest(self) -> int:
        """Words in the longest entry."""
        return max(map(len, self.entries))


def load_lexicon(path: Path) -> Lexicon:
    """Read a lexicon: a ``.csv`` file with a header, or one word or phrase a line.

    In a CSV file the words stand in the column ``text``, ``word``, ``term`` or ``phrase``, else in
    the first. In other files empty lines and lines that begin with ``#`` are left out.

    Raises
    ------
    HeadsieveError
        If the file cannot be read or holds no word.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = _column(file) if path.suffix.lower() == ".csv" else _lines(file)
            texts = {" ".join(line.split()).casefold() for line in lines} - {""}
    except FileNotFoundError:
        raise HeadsieveError(f"No lexicon at {path}.") from None
    except UnicodeDecodeError as error:
        raise HeadsieveError(f"{path}: not UTF-8 text (byte {error.start}).") from None
    except OSError as error:
        raise HeadsieveError(f"Cannot read the lexicon {path}: {error.strerror}.") from None
    except csv.Error as error:
        raise HeadsieveError(f"{path}: not a CSV file ({error}).") from None
    entries = {tuple(words(text)) for text in texts if _can_match(text)}
    if not entries:
        raise HeadsieveError(f"{path}: the lexicon holds no word that a text could match.")
    return Lexicon(frozenset(entries), sum(not _can_match(text) for text in texts))


def count_matches(text: str, lexicon: Lexicon) -> int:
    """How often entries of a lexicon stand in a text.

    Whole words match, whatever their case; a phrase matches its words in a row. From left to right
    the longest entry counts, and a word counts once. Spellings that hide a word (symbols for
    letters, letters of other scripts, spaces between letters) do not match unless the lexicon has
    them, nor do inflections.
    """
    tokens = words(text)
    count = place = 0
    while place < len(tokens):
        for length in range(min(lexicon.longest, len(tokens) - place), 0, -1):
            if tuple(tokens[place : place + length]) in lexicon.entries:
                count += 1
                place += length
                break
        else:
            place += 1
    return count


def relative_count(texts: Sequence[str], unmodified: Sequence[str], lexicon: Lexicon) -> float:
    """Matches in a model's answers, divided by those in the unmodified model's to the same prompts.

    Raises
    ------
    HeadsieveError
        If the unmodified model's have none.
    """
    baseline = sum(count_matches(text, lexicon) for text in unmodified)
    if not baseline:
        raise HeadsieveError(
            "The unmodified model used no word of the lexicon on these prompts, so there is "
            "nothing to compare with; use a model that does, or another lexicon."
        )
    return sum(count_matches(text, lexicon) for text in texts) / baseline


def words(text: str) -> list[str]:
    """The words of a text in lower case, hyphens and all other marks being boundaries."""
    return _WORD.findall(text.casefold().replace("\u2019", "'"))


def _column(lines: Iterable[str]) -> Iterable[str]:
    rows = csv.reader(lines)
    header = [name.strip().casefold() for name in next(rows, [])]
    place = next((header.index(name) for name in _COLUMNS if name in header), 0)
    for row in rows:
        if len(row) > place:
            yield row[place]


def _lines(lines: Iterable[str]) -> Iterable[str]:
    return (line for line in lines if not line.startswith("#"))


def _can_match(text: str) -> bool:
    # Only what is lost between words may be missing from them: spaces, hyphens, apostrophes.
    kept = " ".join(words(text))
    marks = r"[\s'\u2019-]+"
    return re.sub(marks, "", kept) == re.sub(marks, "", text) and any(
        letter.isalpha() for letter in kept
    )
