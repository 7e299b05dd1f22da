"""Rhymes by the dictionary's pronunciations."""

from __future__ import annotations

import pytest

from headsieve.tasks.data import load_data
from headsieve.tasks.rhyming import answered_word, pronunciations, rhymes


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("cat", "hat"),
        ("Cat", "HAT"),
        ("night", "delight"),
        ("nation", "station"),
        ("water", "daughter"),
        # Each has several pronunciations, of which one rhymes.
        ("read", "bed"),
        ("read", "seed"),
        ("wind", "kind"),
        ("wind", "pinned"),
        # The last stress of "butterfly" is a secondary one.
        ("butterfly", "sky"),
    ],
)
def test_words_that_rhyme(word: str, answer: str) -> None:
    assert rhymes(word, answer)
    assert rhymes(answer, word)


@pytest.mark.parametrize(
    ("word", "answer"),
    [
        ("cat", "cat"),
        ("cat", "CAT"),
        ("cat", "dog"),
        ("two", "too"),
        ("night", "knight"),
        ("love", "move"),
        ("nation", "kitchen"),
        ("cat", "zzyzxq"),
        ("zzyzxq", "zzyzxq"),
        ("cat", ""),
        ("orange", "purple"),
    ],
)
def test_words_that_do_not(word: str, answer: str) -> None:
    assert not rhymes(word, answer)
    assert not rhymes(answer, word)


def test_the_looser_rule_asks_for_the_last_vowel_only() -> None:
    assert rhymes("nation", "kitchen", rule="final")
    assert rhymes("cat", "hat", rule="final")
    assert not rhymes("cat", "cat", rule="final")
    assert not rhymes("two", "too", rule="final")
    assert not rhymes("cat", "dog", rule="final")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        (" hat\nWord: dog", "hat"),
        ('"Hat."', "hat"),
        ("1. don\u2019t", "don't"),
        ("42 ...", None),
        ("", None),
    ],
)
def test_the_first_word_is_the_answer(text: str, word: str | None) -> None:
    assert answered_word(text) == word


def test_our_words_are_known_and_apart() -> None:
    data = load_data("rhyming")
    words, examples = data["words"], data["examples"]
    assert len(words) == len(set(words)) >= 300
    assert all(pronunciations(word) for word in words)
    assert all(rhymes(*pair) for pair in examples)
    assert not {word for word, _ in examples} & set(words)
    assert data["template"].count("{word}") == 1
