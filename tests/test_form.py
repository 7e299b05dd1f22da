"""Is it the knowledge or the form? Planted cases."""

from __future__ import annotations

import numpy as np
import pytest

from headsieve.form import lettered, written
from headsieve.results import Claim
from headsieve.tasks.degenerate import Fault
from headsieve.tasks.letters import are_letters, in_words


def claim(before: float, after: float, ci: tuple[float, float] | None = None) -> Claim:
    drop = before - after
    return Claim(
        metric="acc",
        items=100,
        baseline=before,
        knocked_out=after,
        drop=drop,
        ci=ci or (drop - 0.1, drop + 0.1),
    )


def check(letters: Claim, text: Claim | None, trivial: Claim | None) -> bool | None:
    return lettered(letters, text, trivial, chance=0.25, trivial_chance=0.25).explains


def test_letters_that_fall_to_chance_while_words_do_not_are_form() -> None:
    # As the layer-0 heads of the paper's 1B and 3B models do to MMLU.
    found = lettered(
        claim(0.46, 0.245), claim(0.42, 0.41), claim(0.95, 0.26), chance=0.25, trivial_chance=0.25
    )
    assert found.explains
    assert found.reason == (
        "answers by letter go from 0.46 to 0.24, the same answers in words only from 0.42 to 0.41"
    )


@pytest.mark.parametrize(
    ("letters", "text", "trivial", "explains"),
    [
        # What is known falls however it is asked; trivial questions stay.
        (claim(0.7, 0.3), claim(0.6, 0.3), claim(0.95, 0.94), False),
        # It falls in words, too, so that the letters are not all of it.
        (claim(0.7, 0.3), claim(0.6, 0.3), claim(0.95, 0.3), False),
        # Words cannot tell, trivial questions can.
        (claim(0.7, 0.3), claim(0.3, 0.3), claim(0.95, 0.3), True),
        (claim(0.7, 0.3), None, claim(0.95, 0.93), False),
        # Nothing can tell.
        (claim(0.7, 0.3), claim(0.27, 0.25), claim(0.3, 0.25), None),
        (claim(0.3, 0.1), claim(0.6, 0.6), claim(0.9, 0.3), None),
        # There is nothing to be explained.
        (claim(0.7, 0.68), claim(0.6, 0.6), claim(0.9, 0.3), False),
    ],
)
def test_cases(letters: Claim, text: Claim, trivial: Claim, explains: bool | None) -> None:
    assert check(letters, text, trivial) is explains


def test_lost_answers_that_are_newly_broken_are_form() -> None:
    lost = np.array([True, True, True, False])
    before = np.zeros((4, len(Fault)), dtype=bool)
    before[:, list(Fault).index(Fault.CUT_OFF)] = True
    after = before.copy()
    after[:2, list(Fault).index(Fault.LOOPING)] = True
    found = written(claim(0.9, 0.15), lost, before, after)
    assert found.explains
    assert found.reason == "2 of 3 lost answers are newly looping"
    assert found.faults["looping"] == (0.0, 0.5)
    assert found.faults["cut off"] == (1.0, 1.0)
    # Faults that were there before explain nothing.
    assert written(claim(0.9, 0.15), lost, before, before).explains is False


def test_a_prompt_in_words_keeps_its_examples() -> None:
    prompt = "About birds.\n\nOne?\nA. owl\nB. elm\nAnswer: A\n\nTwo?\nA. red\nB. wren\nAnswer:"
    assert in_words(prompt, 2) == (
        "About birds.\n\nOne?\nAnswer: owl\n\nTwo?\nAnswer:",
        ("red", "wren"),
    )
    assert in_words("Two?\nAnswer:", 2) is None
    assert in_words(prompt, 3) is None


@pytest.mark.parametrize(
    ("choices", "letters"),
    [
        (("A", "B", "C"), True),
        ((" A", " B"), True),
        (("(A)", "(B)"), True),
        (("A", "C"), False),
        (("yes", "no"), False),
        (("A",), False),
    ],
)
def test_letters_are_told(choices: tuple[str, ...], letters: bool) -> None:
    assert are_letters(choices) is letters
