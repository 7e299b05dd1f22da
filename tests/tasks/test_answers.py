"""What is written in place of short answers, to see whether they are answers at all."""

from __future__ import annotations

import numpy as np
import pytest
import transformers

from headsieve.measure.texts import Continuation, Responses
from headsieve.models.loading import Model
from headsieve.tasks import Item
from headsieve.tasks.answers import answer_companions, answer_prompts
from headsieve.tasks.degenerate import Fault
from headsieve.tasks.judged import FAULTS
from tests.tiny import byte_tokenizer

ITEMS = (Item("ab ->", (" cd\n",)), Item("abc ->", (" d\n",)))


def test_prompts_leave_room_for_the_longest_answer(llama: Model) -> None:
    one, other = answer_prompts(ITEMS, "q -> r\n", llama)
    assert one is not None
    assert other is not None
    assert llama.tokenizer.decode(one.tokens).endswith("q -> r\nab ->")
    assert one.max_new_tokens == other.max_new_tokens == len(" cd\n") + 4
    assert one.stop == ("\n",)


def test_faults_are_of_answers_that_are_empty_or_do_not_end(llama: Model) -> None:
    faults = answer_companions(ITEMS, "", llama)[FAULTS]
    said = (Continuation((1,), " x", True), Continuation((1, 2), " y z", False))
    nothing = np.zeros(0)
    responses = Responses(nothing, nothing.astype(bool), nothing, said)
    value = faults.score(responses).value.reshape(2, -1)
    assert not value[0].any()
    assert value[1].tolist() == [fault is Fault.CUT_OFF for fault in Fault]


def test_long_answers_are_not_judged_by_their_end(llama: Model) -> None:
    assert not answer_companions((Item("a", (" " + "b" * 30 + "\n",)), *ITEMS), "", llama)


@pytest.mark.parametrize("answer", [" cd", "\ncd\n", " c\nd\n"])
def test_answers_that_are_not_one_line_are_not_judged_by_it(answer: str, llama: Model) -> None:
    items = (Item("ab ->", (answer,)), *ITEMS)
    assert not answer_companions(items, "", llama)
    (prompt, *_) = answer_prompts(items, "", llama)
    assert prompt is not None
    assert prompt.stop == (() if "\n" in answer[:-1] else ("\n",))


@pytest.mark.parametrize("prefix", ["", "q" * 600])
def test_a_model_that_cannot_write_or_has_no_room_is_not_asked(prefix: str, llama: Model) -> None:
    config = transformers.OpenAIGPTConfig(
        n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=len(byte_tokenizer())
    )
    gpt = Model(transformers.OpenAIGPTLMHeadModel(config), byte_tokenizer(), "gpt")
    model = llama if prefix else gpt
    assert answer_prompts(ITEMS, prefix, model) == [None, None]
    assert not answer_companions(ITEMS, prefix, model)
