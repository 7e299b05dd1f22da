"""What is wrong with a generated answer, whether or not it is right.

A knockout may break the way a model answers and not what it knows; these faults tell.
"""

from __future__ import annotations

from enum import StrEnum

_LONGEST_UNIT = 200
_FEWEST_REPEATS = 4
_SHORTEST_LOOP = 60


class Fault(StrEnum):
    """A fault of form.

    ``EMPTY``
        No character but white space.
    ``UNPARSEABLE``
        The task's rule found no answer in it.
    ``CUT_OFF``
        It reached the limit on new tokens before it came to an end.
    ``LOOPING``
        It ends in a repetition (see `is_looping`).
    """

    EMPTY = "empty"
    UNPARSEABLE = "unparseable"
    CUT_OFF = "cut off"
    LOOPING = "looping"


def find_faults(answer: str, *, parsed: bool, cut_off: bool) -> frozenset[Fault]:
    """All faults of an answer; an empty one has no other.

    Parameters
    ----------
    answer : str
        The generated text, up to where it stopped.
    parsed : bool
        Whether the task's rule found an answer in it, right or wrong.
    cut_off : bool
        Whether generation stopped at its limit on new tokens, and at no stop string or end token.
    """
    if not answer.strip():
        return frozenset({Fault.EMPTY})
    present = {
        Fault.UNPARSEABLE: not parsed,
        Fault.CUT_OFF: cut_off,
        Fault.LOOPING: is_looping(answer),
    }
    return frozenset(fault for fault, is_present in present.items() if is_present)


def is_looping(text: str) -> bool:
    """Whether a text ends in the same piece again and again.

    The rule: a piece of at most 200 characters stands at least four times in a row at the end,
    the last time perhaps cut short after three whole ones, and all of it takes 60 characters or
    more. White space at the end is left out.
    """
    text = text.rstrip()
    for unit in range(1, min(_LONGEST_UNIT, len(text) // (_FEWEST_REPEATS - 1)) + 1):
        needed = max((_FEWEST_REPEATS - 1) * unit + 1, _SHORTEST_LOOP)
        if needed > len(text):
            continue
        # A text repeats a piece of this length exactly where it equals itself moved by as much.
        if text[-needed:-unit] == text[unit - needed :]:
            return True
    return False
