"""Final answers of worked solutions, as GSM8K is marked.

The rules are those of lm-evaluation-harness's task `gsm8k` (version 3), so that figures compare: an
answer counts by *strict* match if it stands behind ``####``, as in the reference solutions, and by
*flexible* match if it is the last number of the text.
"""

from __future__ import annotations

import re

# A number, digits, commas and points in any order; the flexible one may bear a dollar sign.
_STRICT = re.compile(r"#### (-?[0-9.,]+)")
_FLEXIBLE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")


def strict_answer(solution: str) -> str | None:
    """What stands behind the first ``####``; None if there is no number."""
    match = _STRICT.search(solution)
    return match[1] if match else None


def flexible_answer(solution: str) -> str | None:
    """The last number of a text; None if it has none."""
    numbers = _FLEXIBLE.findall(solution)
    return numbers[-1] if numbers else None


def normal_form(answer: str) -> str:
    """An answer without thousands separators, dollar signs and one full stop at its end."""
    return answer.replace(",", "").replace("$", "").removesuffix(".")


def same_answer(found: str | None, reference: str) -> bool:
    """Whether an answer found in a text is a reference solution's.

    Numbers compare as text, as in the harness: ``8.0`` is not ``8``.

    Parameters
    ----------
    found : str or None
        From `strict_answer` or `flexible_answer`.
    reference : str
        The reference solution, which ends in ``#### `` and the answer, or the answer alone.
    """
    _, _, expected = reference.rpartition("#### ")
    return found is not None and normal_form(found) == normal_form(expected)
