"""Is it the knowledge or the form? Planted cases."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tokenizers import pre_tokenizers

from headsieve import locate
from headsieve.form import lettered, written
from headsieve.models.loading import Model
from headsieve.results import Claim
from headsieve.tasks.degenerate import Fault
from headsieve.tasks.letters import are_letters, in_words

LETTERS = ("A", "B", "C", "D")
BIRDS = ("owl", "wren", "hawk", "crow", "duck", "swan", "gull", "kite")
QUESTIONS = 80


def planted(*, letters: int, words: int) -> Model:
    """A model of two layers of four heads that knows each question's letter and word.

    Question words carry both in their embeddings. All heads look everywhere alike. In layer 0 the
    head `letters` brings the letters to the answer, the head `words` the words; the others, and
    layer 1, move noise about.
    """
    asked = [f"question{number}" for number in range(QUESTIONS)]
    known = ["<end>", "?", ".", ":", "Answer", *LETTERS, *BIRDS, *asked]
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: place for place, word in enumerate(known)}, "<end>")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    config = transformers.LlamaConfig(
        vocab_size=len(known),
        hidden_size=64,
        intermediate_size=8,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
        architectures=["LlamaForCausalLM"],
    )
    hf = transformers.LlamaForCausalLM(config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weights in hf.parameters():
            if weights.ndim == 2:
                weights.zero_()
        embedding, reading = hf.model.embed_tokens.weight, hf.lm_head.weight
        embedding[:, 32:] = torch.randn((len(known), 32), generator=generator)
        for number, name in enumerate(asked):
            letter, word = number % 4, number * 5 % 8
            embedding[known.index(name), [letter, 4 + word]] = 4
        for place, name in enumerate([*LETTERS, *BIRDS]):
            reading[known.index(name), 16 + place] = 1
        for number, layer in enumerate(hf.model.layers):
            attention = layer.self_attn
            attention.v_proj.weight[:, 32:] = torch.randn((64, 32), generator=generator)
            attention.o_proj.weight[32:] = torch.randn((32, 64), generator=generator) / 8
            for head, start, end in ((letters, 0, 4), (words, 4, 12)) if number == 0 else ():
                for place in range(start, end):
                    attention.v_proj.weight[16 * head + place] = torch.eye(64)[place]
                    attention.o_proj.weight[:, 16 * head + place] = 30 * torch.eye(64)[16 + place]
    wrapped = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="<end>"
    )
    return Model(hf.eval(), wrapped, "planted")


def write_questions(folder: Path) -> tuple[str, str]:
    """Questions answered by a letter, and the same ones without options, answered by a bird."""
    by_letter, by_word = [], []
    for number in range(QUESTIONS):
        right = BIRDS[number * 5 % 8]
        options = [BIRDS[(number * 5 + other) % 8] for other in (1, 3, 6)]
        options.insert(number % 4, right)
        listed = "\n".join(f"{one}. {bird}" for one, bird in zip(LETTERS, options, strict=True))
        prompt = f"question{number} ?"
        by_letter.append(
            {
                "prompt": f"{prompt}\n{listed}\nAnswer:",
                "choices": list(LETTERS),
                "answer": number % 4,
            }
        )
        by_word.append({"prompt": prompt, "choices": options, "answer": number % 4})
    names = []
    for name, rows in (("letters", by_letter), ("words", by_word)):
        path = folder / f"{name}.json"
        path.write_text(json.dumps(rows), encoding="utf-8")
        names.append(str(path))
    return names[0], names[1]


def test_a_head_that_holds_the_letters_is_form(tmp_path: Path) -> None:
    by_letter, by_word = write_questions(tmp_path)
    model = planted(letters=2, words=1)
    study = locate(model, [by_letter], controls=[by_word], budget=40, seed=0)
    found = study["letters"]
    assert found.selected == ["L0H2"]
    assert found.verification.capability.baseline == 1
    form = found.verification.form
    assert form is not None
    assert form.explains
    assert form.text is not None
    assert form.text.knocked_out == 1


def test_a_head_that_holds_what_is_asked_is_not_form(tmp_path: Path) -> None:
    by_letter, _ = write_questions(tmp_path)
    study = locate(planted(letters=2, words=2), [by_letter], controls=["text"], budget=40, seed=0)
    found = study["letters"]
    assert found.selected == ["L0H2"]
    form = found.verification.form
    assert form is not None
    assert form.explains is False
    assert form.text is not None
    assert form.text.baseline == 1


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
