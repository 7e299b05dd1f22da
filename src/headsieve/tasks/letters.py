"""Questions that are answered by a letter: the same ones answered in words, and trivial ones.

A head that a letter-choice task needs may hold what is asked, or only the letters. The answers'
own text and a task that is trivial but for its letters tell the two apart (`headsieve.form`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from headsieve.measure.items import ContinuationItems, ItemSet, tokenize
from headsieve.tasks.data import load_data
from headsieve.tasks.task import Item

TEXT = "answers in words"
TRIVIAL = "trivial questions"

_LETTER = re.compile(r"\s*\(?([A-J])\)?\.?\s*")
_OPTION = re.compile(r"\s*\(?([A-J])[.):]+\s+(.+?)\s*")
# A worked example ends in "Answer: B".
_ANSWERED = re.compile(r"(.*[:>])\s*\(?([A-J])\)?\.?\s*")
_SHOTS = 4
_CHOICES = 4


def are_letters(choices: Sequence[str]) -> bool:
    """Whether choices are the letters A, B, C, … and nothing else."""
    found = [match[1] if (match := _LETTER.fullmatch(choice)) else "" for choice in choices]
    return len(found) > 1 and found == [chr(ord("A") + number) for number in range(len(found))]


def in_words(prompt: str, choices: int) -> tuple[str, tuple[str, ...]] | None:
    """A letter-choice prompt without its options and letters, and the options' own texts.

    Worked examples in the prompt come to be answered in words, too.

    Parameters
    ----------
    prompt : str
        With each option on a line of its own, as in ``A. text``.
    choices : int
        How many options the question has.

    Returns
    -------
    tuple of str and tuple of str, or None
        None where the options of the question are not found in the prompt.
    """
    options: dict[str, str] = {}
    kept = []
    for line in prompt.split("\n"):
        if option := _OPTION.fullmatch(line):
            if option[1] == "A":
                options = {}
            options[option[1]] = option[2]
        elif (answer := _ANSWERED.fullmatch(line)) and answer[2] in options:
            kept.append(f"{answer[1]} {options[answer[2]]}")
            options = {}
        else:
            kept.append(line)
    texts = tuple(options.get(chr(ord("A") + number), "") for number in range(choices))
    if len(options) != choices or not all(texts) or len(set(texts)) < choices:
        return None
    return "\n".join(kept), texts


def letter_companions(questions: Sequence[Item], prefix: str, tokenizer: Any) -> dict[str, ItemSet]:
    """What stands beside a letter-choice task: its items in words, and the trivial questions.

    Parameters
    ----------
    questions : sequence of Item
    prefix : str
        Worked examples before each.
    tokenizer : transformers tokenizer

    Returns
    -------
    dict of str to ItemSet
        Empty for questions that are not answered by letters; without `TEXT` where the options of
        one are not found in its prompt.
    """
    if not all(are_letters(question.continuations) for question in questions):
        return {}
    companions: dict[str, ItemSet] = {TRIVIAL: trivial_questions(tokenizer)}
    worded = []
    for question in questions:
        found = in_words(prefix + question.prompt, len(question.continuations))
        if found is None:
            return companions
        prompt, texts = found
        worded.append(Item(prompt.rstrip(), tuple(f" {text}" for text in texts), question.correct))
    companions[TEXT] = tokenize(worded, "", "choice", tokenizer)
    return companions


def trivial_questions(tokenizer: Any) -> ContinuationItems:
    """Questions that are trivial but for being answered by a letter, behind worked examples."""
    items = _trivial_items()
    prefix = "".join(
        f"{item.prompt}{item.continuations[item.correct]}\n\n" for item in items[:_SHOTS]
    )
    return tokenize(items[_SHOTS:], prefix, "choice", tokenizer)


def _trivial_items() -> list[Item]:
    """One question for each word: the first ones, the examples, of different kinds and letters."""
    kinds: dict[str, list[str]] = load_data("letters")["kinds"]
    names = list(kinds)
    words = chain.from_iterable(zip(*kinds.values(), strict=True))
    items = []
    for number, word in enumerate(words):
        round_, kind = divmod(number, len(names))
        right = (number + round_) % _CHOICES
        options = [
            kinds[names[(kind + 1 + other) % len(names)]][
                (round_ + other) % len(kinds[names[kind]])
            ]
            for other in range(_CHOICES - 1)
        ]
        options.insert(right, word)
        listed = "".join(
            f"{chr(ord('A') + place)}. {option}\n" for place, option in enumerate(options)
        )
        items.append(
            Item(
                f"Which of these is {names[kind]}?\n{listed}Answer:",
                tuple(f" {chr(ord('A') + place)}" for place in range(_CHOICES)),
                right,
            )
        )
    return items
