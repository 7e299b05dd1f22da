"""Generation under masks: what plain transformers say, whatever shares a batch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from headsieve.errors import HeadsieveError
from headsieve.measure.generation import Generator, encode_prompt
from headsieve.models.architecture import decoder_layers
from headsieve.models.knockout import LayerOutputs, knockout
from headsieve.models.loading import Model
from tests.tiny import CONFIGS, Masks, byte_tokenizer, count_hooks, tiny_model

PROMPTS = ("a shared beginning, one", "a shared beginning, number two", "another", "a shared b")
NEW = 12


def tokens_of(texts: Sequence[str]) -> list[tuple[int, ...]]:
    return [encode_prompt(byte_tokenizer(), text) for text in texts]


def some_masks(model: Model, count: int = 3, seed: int = 0) -> Masks:
    masks = np.random.default_rng(seed).random((count, len(model.geometry))) < 0.25
    masks[0] = False
    return masks


@torch.inference_mode()
def plain(
    model: Model,
    prompt: tuple[int, ...],
    mask: np.ndarray,
    new: int = NEW,
    replacement: LayerOutputs | None = None,
) -> list[int]:
    """Greedy decoding without a cache, one token a forward pass."""
    tokens = list(prompt)
    ends = model.hf.generation_config.eos_token_id
    with knockout(model.hf, model.geometry, mask[None], replacement=replacement, allow_mute=True):
        for _ in range(new):
            token = int(model.hf(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())
            if token == ends:
                break
            tokens.append(token)
    return tokens[len(prompt) :]


def test_knocked_out_heads_may_give_something_else(llama: Model) -> None:
    prompts, masks = tokens_of(PROMPTS), some_masks(llama)
    replacement = {
        layer.layer: torch.randn(layer.heads * layer.head_dim, generator=torch.Generator())
        for layer in llama.geometry.layers
    }
    writing = Generator(llama, prompts, max_new_tokens=NEW, replacement=replacement)
    found = [[list(one.tokens) for one in row] for row in writing.generate(masks)]
    expected = [
        [plain(llama, prompt, mask, replacement=replacement) for prompt in prompts]
        for mask in masks
    ]
    assert found == expected
    assert found != [[plain(llama, prompt, mask) for prompt in prompts] for mask in masks]


@pytest.mark.parametrize("family", CONFIGS)
def test_says_what_uncached_decoding_says(family: str) -> None:
    # Longer than the sliding window of those families that have one.
    model = tiny_model(family)
    prompts = tokens_of(PROMPTS)
    masks = some_masks(model)
    found = Generator(model, prompts, max_new_tokens=NEW).generate(masks)
    for mask, row in zip(masks, found, strict=True):
        for prompt, continuation in zip(prompts, row, strict=True):
            assert list(continuation.tokens) == plain(model, prompt, mask)
    assert count_hooks(model.hf) == 0


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt2"])
def test_says_what_transformers_generate_says(family: str) -> None:
    model = tiny_model(family)
    [prompt] = tokens_of(["some prompt"])
    masks = some_masks(model)
    found = Generator(model, [prompt], max_new_tokens=NEW).generate(masks)
    for mask, [continuation] in zip(masks, found, strict=True):
        with knockout(model.hf, model.geometry, mask[None], allow_mute=True):
            whole = model.hf.generate(torch.tensor([prompt]), max_new_tokens=NEW, do_sample=False)
        expected = [token for token in whole[0, len(prompt) :].tolist() if token != 256]
        assert list(continuation.tokens) == expected


@settings(max_examples=5, deadline=None)
@given(
    texts=st.lists(st.text("abc ", min_size=1, max_size=30), min_size=1, max_size=4),
    rows=st.integers(1, 9),
    seed=st.integers(0, 100),
)
def test_does_not_depend_on_what_shares_a_batch(texts: list[str], rows: int, seed: int) -> None:
    model = tiny_model("llama")
    prompts = tokens_of(texts)
    masks = some_masks(model, seed=seed)
    found = Generator(model, prompts, max_new_tokens=5, rows_at_once=rows).generate(masks)
    for mask, row in zip(masks, found, strict=True):
        for prompt, continuation in zip(prompts, row, strict=True):
            alone = Generator(model, [prompt], max_new_tokens=5).generate(mask[None])
            assert continuation == alone[0][0]


def test_prompts_enter_above_the_layers_that_a_mask_leaves_as_they_are() -> None:
    model = tiny_model("llama")
    generator = Generator(model, tokens_of(PROMPTS), max_new_tokens=3)
    top = np.zeros((2, len(model.geometry)), dtype=bool)
    top[0, -1] = top[1, -2] = True
    generator.generate(top)
    read: dict[int, int] = {}
    handles = []
    for number, layer in enumerate(decoder_layers(model.hf)):

        def count(_layer: object, args: tuple[torch.Tensor], number: int = number) -> None:
            if args[0].shape[1] > 1:
                read[number] = read.get(number, 0) + 1

        handles.append(layer.get_submodule("mlp").register_forward_pre_hook(count))
    try:
        generator.generate(top[::-1])
    finally:
        for handle in handles:
            handle.remove()
    assert list(read) == [model.geometry.layers[-1].layer]


def test_stops_before_a_stop_string_and_says_so() -> None:
    model = tiny_model("llama")
    prompts = tokens_of(PROMPTS)
    masks = some_masks(model)
    free = Generator(model, prompts, max_new_tokens=NEW).generate(masks)
    stop = next(letter for letter in free[0][0].text[2:] if letter.isascii())
    stopped = Generator(model, prompts, max_new_tokens=NEW, stop=[stop]).generate(masks)
    assert any(one.ended for row in stopped for one in row)
    for before, after in zip(chain(*free), chain(*stopped), strict=True):
        assert stop not in after.text
        if stop in before.text:
            assert after.ended
            assert after.text == before.text[: before.text.index(stop)]
            assert len(after.tokens) < len(before.tokens)
        else:
            assert after == before


def test_one_begin_of_text_token() -> None:
    class Tokenizer:
        bos_token = "<s>"

        def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
            return {"input_ids": [1] * (add_special_tokens + text.count("<s>")) + [7]}

    assert encode_prompt(Tokenizer(), "hello") == (1, 7)
    assert encode_prompt(Tokenizer(), "<s>hello") == (1, 7)


def test_refuses_what_it_cannot_continue() -> None:
    model = tiny_model("llama")
    with pytest.raises(HeadsieveError, match="without tokens"):
        Generator(model, [()], max_new_tokens=3)
    with pytest.raises(HeadsieveError, match="At least one new token"):
        Generator(model, [(1,)], max_new_tokens=0)
    with pytest.raises(HeadsieveError, match="one row at once"):
        Generator(model, [(1,)], max_new_tokens=1, rows_at_once=0)
    for stop in ("xy", [""]):
        with pytest.raises(HeadsieveError, match="stop strings must be a list"):
            Generator(model, [(1,)], max_new_tokens=1, stop=stop)
    with pytest.raises(HeadsieveError, match="at most 512"):
        Generator(model, [(1,) * 510], max_new_tokens=3)


def test_a_model_that_keeps_nothing_cannot_write() -> None:
    config = transformers.OpenAIGPTConfig(
        n_embd=32, n_layer=2, n_head=4, n_positions=64, vocab_size=len(byte_tokenizer())
    )
    model = Model(transformers.OpenAIGPTLMHeadModel(config), byte_tokenizer(), "gpt")
    generator = Generator(model, [[1, 2, 3]], max_new_tokens=2)
    with pytest.raises(HeadsieveError, match="gpt keeps no keys and values"):
        generator.generate(np.zeros((1, len(model.geometry)), dtype=bool))
