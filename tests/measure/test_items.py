from __future__ import annotations

import math

import numpy as np
import pytest
import tokenizers
import transformers

from headsieve.errors import HeadsieveError
from headsieve.measure.items import tokenize
from headsieve.measure.texts import Responses
from headsieve.tasks import Item
from tests.tiny import byte_tokenizer

TOKENIZER = byte_tokenizer()


def test_scored_is_what_follows_the_prompt() -> None:
    items = tokenize([Item("hot ->", (" cold\n",))], "a -> b\n", "answer", TOKENIZER)
    (sequence,) = items.sequences
    assert TOKENIZER.decode(sequence.tokens[: sequence.start]) == "a -> b\nhot ->"
    assert TOKENIZER.decode(sequence.tokens[sequence.start :]) == " cold\n"


def test_plain_text_is_scored_from_its_second_token() -> None:
    items = tokenize([Item("", ("abc",))], "", "text", TOKENIZER)
    assert items.sequences[0].start == 1
    score = items.score(Responses(np.array([-3.0]), np.array([True]), np.array([1.0])))
    assert score.log_prob.tolist() == score.value.tolist() == [-1.5]


def test_a_choice_is_scored_against_the_others() -> None:
    items = tokenize(
        [Item("x", (" a", " b")), Item("y", (" a", " b", " c"), 2)], "", "choice", TOKENIZER
    )
    score = items.score(
        Responses(np.log([0.3, 0.1, 0.2, 0.1, 0.1]), np.zeros(5, dtype=bool), np.zeros(5))
    )
    np.testing.assert_allclose(score.log_prob, [math.log(0.75), math.log(0.25)])
    assert score.value.tolist() == [1.0, 0.0]
    np.testing.assert_allclose(score.margin, [math.log(3), math.log(0.5)])


def test_an_answer_is_right_if_greedy_decoding_says_it() -> None:
    items = tokenize([Item("x", ("a",)), Item("y", ("b",))], "", "answer", TOKENIZER)
    score = items.score(
        Responses(np.array([-0.1, -20.0]), np.array([True, False]), np.array([3.0, -4.0]))
    )
    assert score.metric == 0.5
    assert score.smooth_accuracy == pytest.approx(0.5, abs=0.01)
    assert score.search == pytest.approx((-0.1 - 12) / 2)


def test_the_fingerprint_changes_with_what_is_measured() -> None:
    item = Item("x", (" a", " b"))
    sets = [
        tokenize([item], "", "choice", TOKENIZER),
        tokenize([item], "prefix", "choice", TOKENIZER),
        tokenize([Item("x", (" a", " b"), 1)], "", "choice", TOKENIZER),
        tokenize([Item("x", (" a",)), Item("x", (" b",))], "", "answer", TOKENIZER),
    ]
    assert len({items.fingerprint for items in sets}) == len(sets)
    assert tokenize([item], "", "choice", TOKENIZER).fingerprint == sets[0].fingerprint


def test_an_item_of_one_token_is_told() -> None:
    with pytest.raises(HeadsieveError, match="'a' is a single token"):
        tokenize([Item("", ("a",))], "", "text", TOKENIZER)


def test_choices_are_scored_behind_the_same_tokens() -> None:
    # "b" merges with the end of the prompt and "c" does not.
    model = tokenizers.models.BPE({"x": 0, "a": 1, "b": 2, "c": 3, "ab": 4}, [("a", "b")])
    merging = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(model))
    items = tokenize([Item("xa", ("b", "c"))], "", "choice", merging)
    assert [(one.tokens, one.start) for one in items.sequences] == [((0, 4), 1), ((0, 1, 3), 1)]
