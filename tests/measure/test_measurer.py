"""The measurer: DESIGN section 5, points 4 (rows), 5 (out of memory) and 8 (measured once)."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from headsieve.errors import HeadsieveError
from headsieve.measure.items import ContinuationItems, ItemSet, tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.packing import TokenSequence
from headsieve.measure.texts import Responses
from headsieve.models.loading import Model
from headsieve.scores import Score
from headsieve.tasks import Item
from tests.tiny import CONFIGS, MakeModel, Masks, byte_tokenizer, count_hooks, tiny_model

_TOKENIZER = byte_tokenizer()
SHORT = {
    "answer": tokenize(
        [Item("ab ->", (" cd\n",)), Item("abc ->", (" d\n",)), Item("x ->", (" y\n",))],
        "q -> r\n",
        "answer",
        _TOKENIZER,
    ),
    "choice": tokenize(
        [Item("A cat", (" is", " are")), Item("Dogs", (" is", " are", " am"), 1)],
        "",
        "choice",
        _TOKENIZER,
    ),
    "text": tokenize([Item("", ("The end.",)), Item("", ("The ends",))], "", "text", _TOKENIZER),
}
# Longer than the sliding windows of the tiny models.
LONG = {
    "answer": tokenize(
        [Item("ab ->", (" cd\n",)), Item("abc ->", (" d\n",))], "e -> f\n" * 5, "answer", _TOKENIZER
    )
}


def measurer(
    model: Model,
    item_sets: Mapping[str, ItemSet] = SHORT,
    journal: Journal | None = None,
    batch_size: int | Literal["auto"] = "auto",
) -> Measurer:
    return Measurer(model, item_sets, journal or Journal(), batch_size=batch_size)


def plainly(model: Model, masks: Masks, items: ItemSet) -> list[Score]:
    """Score with transformers alone, one sequence after the other."""
    scores = []
    for mask in masks:
        heads = [model.geometry.heads[column] for column in np.flatnonzero(mask)]
        totals, greedy, margins = [], [], []
        for sequence in items.sequences:
            with torch.inference_mode(), model.knockout(heads) if heads else nullcontext():
                logits = model.hf(torch.tensor([sequence.tokens])).logits[0]
            predictions = logits[sequence.start - 1 : -1].log_softmax(-1)
            targets = torch.tensor(sequence.tokens[sequence.start :])
            totals.append(predictions.gather(1, targets[:, None]).sum().item())
            greedy.append(bool((predictions.argmax(-1) == targets).all()))
            target = predictions.gather(1, targets[:, None])
            others = predictions.scatter(1, targets[:, None], -torch.inf).amax(1, keepdim=True)
            margins.append((target - others).min().item())
        scores.append(items.score(Responses(np.array(totals), np.array(greedy), np.array(margins))))
    return scores


def assert_same(found: list[Score], expected: list[Score]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.log_prob, other.log_prob, rtol=0, atol=1e-4)
        np.testing.assert_allclose(one.value, other.value, rtol=0, atol=1e-4)
        np.testing.assert_allclose(one.margin, other.margin, rtol=0, atol=1e-4)


@contextmanager
def forward_passes(model: Model) -> Iterator[list[int]]:
    """Note the number of rows that come out of every forward pass inside."""
    rows: list[int] = []

    def note(_module: object, _args: object, output: Any) -> None:
        rows.append(len(output.logits))

    handle = model.hf.register_forward_hook(note)
    try:
        yield rows
    finally:
        handle.remove()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", CONFIGS)
def test_packed_scores_are_those_of_a_plain_loop(
    make_model: MakeModel, family: str, attention: str, masks: Masks
) -> None:
    model = make_model(family, attention)
    packed = measurer(model)
    for name, items in SHORT.items():
        assert_same(packed.measure(masks, name), plainly(model, masks, items))
    assert packed.packed


def test_what_the_model_says_counts_as_right(model: Model, masks: Masks) -> None:
    prompt = _TOKENIZER("q -> r\nab ->", return_tensors="pt")
    said = model.hf.generate(**prompt, max_new_tokens=3, do_sample=False)[0].tolist()
    sequence = TokenSequence(tuple(said), prompt["input_ids"].shape[1])
    items = {"said": ContinuationItems("answer", (sequence,), (1,), ((0,),))}
    (score,) = measurer(model, items).measure(masks[:1], "said")
    assert score.metric == 1


@pytest.mark.parametrize(("family", "packs"), [("llama", True), ("mistral", False)])
def test_what_is_longer_than_a_sliding_window_is_not_packed(
    make_model: MakeModel, family: str, packs: bool, masks: Masks
) -> None:
    model = make_model(family)
    careful = measurer(model, LONG)
    assert_same(careful.measure(masks, "answer"), plainly(model, masks, LONG["answer"]))
    assert careful.packed == packs


@pytest.mark.parametrize("batch_size", [1, 3, "auto"])
def test_scores_depend_on_neither_batch_size_nor_order(
    model: Model, masks: Masks, batch_size: int | Literal["auto"]
) -> None:
    reference = measurer(model).measure(masks, "answer")
    order = [3, 0, 2, 1]
    other = measurer(model, batch_size=batch_size).measure(masks[order], "answer")
    assert_same(other, [reference[number] for number in order])


_WORDS = st.text("abc \n", min_size=1, max_size=12)


@settings(max_examples=25)
@given(
    masks=arrays(bool, st.tuples(st.integers(1, 5), st.just(12))),
    prompts=st.lists(_WORDS, min_size=1, max_size=4),
    endings=st.lists(_WORDS, min_size=2, max_size=3),
    prefix=st.text("ab", max_size=20),
    batch_size=st.sampled_from([1, 2, 7, "auto"]),
)
def test_any_masks_and_items_score_what_a_plain_loop_says(
    masks: Masks,
    prompts: list[str],
    endings: list[str],
    prefix: str,
    batch_size: int | Literal["auto"],
) -> None:
    items = tokenize(
        [Item(prompt, tuple(endings)) for prompt in prompts], prefix, "choice", _TOKENIZER
    )
    model = tiny_model("llama")
    found = measurer(model, {"drawn": items}, batch_size=batch_size).measure(masks, "drawn")
    assert_same(found, plainly(model, masks, items))


def test_nothing_is_measured_twice(llama: Model, masks: Masks, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "m.sqlite")
    first = measurer(llama, journal=journal)
    scores = first.measure(masks[[0, 1, 1, 0]], "choice")
    assert journal.totals()[0] == 2
    journal.close()
    second = measurer(llama, journal=Journal(tmp_path / "m.sqlite"))
    with forward_passes(llama) as passes:
        again = second.measure(masks[[0, 1, 1, 0]], "choice")
        assert not passes
        second.measure(masks, "choice")
        assert passes
    for one, other in zip(scores, again, strict=True):
        assert one.log_prob.tobytes() == other.log_prob.tobytes()
        assert one.value.tobytes() == other.value.tobytes()


def test_an_interrupted_call_keeps_its_finished_batches(llama: Model, masks: Masks) -> None:
    journal = Journal()
    told = []

    def interrupt(name: str, count: int) -> None:
        told.append((name, count))
        raise KeyboardInterrupt

    interrupted = Measurer(llama, SHORT, journal, batch_size=3, on_measured=interrupt)
    with pytest.raises(KeyboardInterrupt):
        interrupted.measure(masks, "text")
    assert told == [("text", 3)]
    assert journal.totals()[0] == 3
    assert_same(
        measurer(llama, journal=journal).measure(masks, "text"),
        measurer(llama).measure(masks, "text"),
    )


def test_little_memory_makes_small_batches(llama: Model, masks: Masks) -> None:
    thrifty = copy.copy(llama)
    thrifty.memory = 1
    with forward_passes(llama) as rows:
        expected = measurer(llama).measure(masks, "text")
    assert max(rows) > 1
    with forward_passes(thrifty) as rows:
        found = measurer(thrifty).measure(masks, "text")
    # Masks that ways to compute are compared under are not the user's.
    assert set(rows[-len(masks) :]) == {1}
    assert_same(found, expected)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        MemoryError(),
        RuntimeError("not enough memory"),
    ],
    ids=["cuda", "python", "cpu"],
)
def test_out_of_memory_halves_the_batch(
    llama: Model, masks: Masks, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = measurer(llama).measure(masks, "answer")
    short_of_memory = measurer(llama)
    short_of_memory.measure(~masks[:1], "answer")  # how to compute it is decided here
    forward = llama.hf.forward
    tried: list[int] = []

    def narrow(**options: Any) -> Any:
        output = forward(**options)
        tried.append(len(output.logits))
        if tried[-1] > 2:
            raise error
        return output

    monkeypatch.setattr(llama.hf, "forward", narrow)
    found = short_of_memory.measure(masks, "answer")
    # First a row of the unmodified model is recorded, from which all masks start.
    assert tried[:2] == [1, 4]
    assert max(tried[2:]) == 2
    assert_same(found, expected)
    assert count_hooks(llama.hf) == 0


def test_a_batch_of_one_that_does_not_fit_is_an_error(
    llama: Model, masks: Masks, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_of_memory = measurer(llama)

    def full(**_: object) -> None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(llama.hf, "forward", full)
    with pytest.raises(torch.OutOfMemoryError):
        short_of_memory.measure(masks, "answer")
    assert count_hooks(llama.hf) == 0


def test_other_errors_are_not_taken_for_lack_of_memory(
    llama: Model, masks: Masks, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = measurer(llama)

    def fail(**_: object) -> None:
        raise RuntimeError("shapes do not fit")

    monkeypatch.setattr(llama.hf, "forward", fail)
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        broken.measure(masks, "answer")


def test_numbers_that_are_not_finite_are_an_error(
    llama: Model, masks: Masks, monkeypatch: pytest.MonkeyPatch
) -> None:
    overflowing = measurer(llama)
    forward = llama.hf.forward

    def overflow(**options: Any) -> Any:
        output = forward(**options)
        output.logits = output.logits * torch.inf
        return output

    monkeypatch.setattr(llama.hf, "forward", overflow)
    with pytest.raises(HeadsieveError, match="not finite numbers; float32 is wide enough"):
        overflowing.measure(masks, "answer")


def test_a_narrow_type_that_overflows_gets_advice(llama: Model) -> None:
    narrow = copy.copy(llama)
    narrow.hf = copy.deepcopy(llama.hf).half()
    narrow.hf.model.norm.weight.data.fill_(torch.nan)
    with pytest.raises(HeadsieveError, match="not finite numbers; float16 may be too narrow"):
        measurer(narrow).measure(np.zeros((1, 12), dtype=bool), "answer")


# Items of one task that share a long prefix, so that the last ones lie far from it in the row.
FORKED = {
    "choice": tokenize(
        [Item("The question is the same: " + word, (" yes", " no")) for word in "abcdefgh"],
        "",
        "choice",
        _TOKENIZER,
    ),
    # Longer than anything above, and nothing to share: this alone would say that packing works.
    "text": tokenize([Item("", (letter * 70,)) for letter in "uvwxyz"], "", "text", _TOKENIZER),
}


@pytest.mark.parametrize(
    "config",
    [
        # Local attention and biases by place in the row.
        transformers.GPTNeoConfig(
            vocab_size=len(_TOKENIZER),
            hidden_size=32,
            num_layers=4,
            num_heads=4,
            attention_types=[[["global", "local"], 2]],
            window_size=64,
            max_position_embeddings=512,
            initializer_range=0.25,
        ),
        transformers.MptConfig(
            vocab_size=len(_TOKENIZER), d_model=32, n_heads=4, n_layers=3, max_seq_len=512
        ),
        # A mask for every row of the batch.
        transformers.XGLMConfig(
            vocab_size=len(_TOKENIZER),
            d_model=32,
            ffn_dim=48,
            num_layers=3,
            attention_heads=4,
            init_std=0.25,
            max_position_embeddings=512,
        ),
        # Logits at all positions, whatever is asked for.
        transformers.TrOCRConfig(
            vocab_size=len(_TOKENIZER),
            d_model=32,
            decoder_layers=3,
            decoder_attention_heads=4,
            decoder_ffn_dim=48,
            init_std=0.25,
        ),
    ],
    ids=["gpt_neo", "mpt", "xglm", "trocr"],
)
def test_each_item_set_is_packed_only_where_its_own_rows_are_exact(config: Any) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        hf = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in hf.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(0, 0.25)
    model = Model(hf, _TOKENIZER, "unusual")
    masks = np.eye(3, len(model.geometry), len(model.geometry) // 2, dtype=bool)
    careful = measurer(model, FORKED)
    for name, items in FORKED.items():
        assert_same(careful.measure(masks, name), plainly(model, masks, items))
    assert not careful.packed


def test_a_head_that_gives_nothing_is_measured_to_have_no_effect(llama: Model) -> None:
    mute = copy.copy(llama)
    mute.hf = copy.deepcopy(llama.hf)
    mute.hf.model.layers[1].self_attn.v_proj.weight.data.zero_()
    masks = np.zeros((2, 12), dtype=bool)
    masks[1, 4] = True
    one, other = measurer(mute).measure(masks, "answer")
    assert_same([one], [other])


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_items_beyond_the_last_position_are_refused(make_model: MakeModel, family: str) -> None:
    def of_length(length: int) -> dict[str, ItemSet]:
        return {"long search": tokenize([Item("", ("x" * length,))], "", "text", _TOKENIZER)}

    # The last token needs no position.
    measurer(make_model(family), of_length(513))
    with pytest.raises(HeadsieveError, match=r"long search: an item has 514 tokens .* most 512"):
        measurer(make_model(family), of_length(514))


def test_neither_training_mode_nor_the_default_type_changes_scores(
    make_model: MakeModel, masks: Masks
) -> None:
    model = make_model("gpt2")  # has dropout
    expected = measurer(model).measure(masks, "answer")
    model.hf.train()
    torch.set_default_dtype(torch.float64)
    try:
        found = measurer(model).measure(masks, "answer")
    finally:
        torch.set_default_dtype(torch.float32)
        model.hf.eval()
    assert_same(found, expected)


def test_nothing_is_computed_before_a_set_is_measured(llama: Model, masks: Masks) -> None:
    with forward_passes(llama) as passes:
        lazy = measurer(llama)
        assert not passes
        lazy.measure(masks, "text")
        made = len(passes)
        assert made
        lazy.measure(masks, "text")
        assert len(passes) == made
