"""Knockouts: what DESIGN section 5 says is always true (1, 2, 3, 5 and 6)."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.models.knockout import KnockoutError, knockout
from headsieve.models.loading import Model
from tests.tiny import CONFIGS, MakeModel, Masks, count_hooks

TOKENS = torch.arange(30, 70)[None]


def logits(model: Model, tokens: torch.Tensor = TOKENS) -> torch.Tensor:
    with torch.inference_mode():
        return torch.as_tensor(model.hf(input_ids=tokens).logits)


def edited(model: Model, mask: NDArray[np.bool_]) -> Model:
    """Copy a model and zero the masked heads' part of the output projections' weights."""
    result = copy.copy(model)
    result.hf = copy.deepcopy(model.hf)
    for column in np.flatnonzero(mask):
        head = model.geometry.heads[column]
        layer = model.geometry.layers[head.layer]
        own = slice(head.index * layer.head_dim, (head.index + 1) * layer.head_dim)
        weight: Any = result.hf.get_submodule(layer.projection).weight.data
        if "c_proj" in layer.projection:  # Conv1D: inputs are rows
            weight[own] = 0
        else:
            weight[:, own] = 0
    return result


def test_without_a_knockout_logits_are_those_of_transformers_bit_for_bit(model: Model) -> None:
    before = logits(model)
    nothing = np.zeros((1, len(model.geometry)), dtype=bool)
    with knockout(model.hf, model.geometry, nothing):
        assert torch.equal(logits(model), before)
    with model.knockout(["L1H2"]):
        assert not torch.equal(logits(model), before)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", CONFIGS)
def test_a_knockout_equals_zeroed_weights_row_by_row(
    make_model: MakeModel, family: str, attention: str, masks: Masks
) -> None:
    model = make_model(family, attention)
    with knockout(model.hf, model.geometry, masks):
        together = logits(model, TOKENS.expand(len(masks), -1))
    for row, mask in zip(together, masks, strict=True):
        torch.testing.assert_close(row, logits(edited(model, mask))[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cached", [True, False])
def test_in_generation_it_holds_for_the_prompt_and_every_new_token(
    model: Model, cached: bool
) -> None:
    heads = ["L0H1", "L2H3"]
    mask = np.isin(np.arange(len(model.geometry)), model.geometry.columns(heads))

    def generated(hf: Any) -> list[int]:
        return list(
            hf.generate(TOKENS, max_new_tokens=6, do_sample=False, use_cache=cached)[0].tolist()
        )

    with model.knockout(heads):
        knocked_out = generated(model.hf)
    assert knocked_out == generated(edited(model, mask).hf)


def test_a_layer_that_is_skipped_is_an_error(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(llama.hf.model.layers[1], "forward", lambda hidden, **_: hidden)
    with pytest.raises(KnockoutError, match="layer 1 had no effect"), llama.knockout(["L1H0"]):
        logits(llama)


def test_heads_that_give_nothing_are_an_error(llama: Model) -> None:
    mute = copy.copy(llama)
    mute.hf = copy.deepcopy(llama.hf)
    mute.hf.model.layers[1].self_attn.v_proj.weight.data.zero_()
    with (
        pytest.raises(KnockoutError, match=r"^L1H0, L1H3: nothing but zeros"),
        mute.knockout(["L1H3", "L1H0", "L2H1"]),
    ):
        logits(mute)


def test_heads_that_give_nothing_may_be_allowed_but_a_skipped_layer_may_not(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    mute = copy.copy(llama)
    mute.hf = copy.deepcopy(llama.hf)
    mute.hf.model.layers[1].self_attn.v_proj.weight.data.zero_()
    mask = np.isin(np.arange(len(llama.geometry)), [4])[None]
    before = logits(mute)
    with knockout(mute.hf, mute.geometry, mask, allow_mute=True):
        assert torch.equal(logits(mute), before)
    monkeypatch.setattr(mute.hf.model.layers[1], "forward", lambda hidden, **_: hidden)
    with (
        pytest.raises(KnockoutError, match="layer 1 had no effect"),
        knockout(mute.hf, mute.geometry, mask, allow_mute=True),
    ):
        logits(mute)


def test_no_forward_pass_inside_is_an_error(llama: Model) -> None:
    with pytest.raises(KnockoutError, match="No forward pass"), llama.knockout(["L1H0"]):
        pass


def test_another_number_of_rows_is_an_error(llama: Model) -> None:
    masks = np.ones((2, len(llama.geometry)), dtype=bool)
    with (
        pytest.raises(KnockoutError, match="3 rows but there are 2 masks"),
        knockout(llama.hf, llama.geometry, masks),
    ):
        logits(llama, TOKENS.expand(3, -1))


def test_a_mask_of_another_length_is_an_error(llama: Model) -> None:
    with (
        pytest.raises(HeadsieveError, match="5 entries but the model has 12 heads"),
        knockout(llama.hf, llama.geometry, np.ones((1, 5), dtype=bool)),
    ):
        pass


def test_no_heads_is_an_error(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="No heads"):
        llama.knockout([])


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, torch.OutOfMemoryError])
def test_no_hook_is_left_after_an_error(llama: Model, error: type[BaseException]) -> None:
    def fail() -> None:
        with llama.knockout(["L0H0", "L2H1"]):
            assert count_hooks(llama.hf) == 3
            raise error

    with pytest.raises(error):
        fail()
    assert count_hooks(llama.hf) == 0


def test_no_hook_is_left_after_an_interrupted_forward_pass(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(llama.hf.model.layers[2].mlp, "forward", interrupt)
    with pytest.raises(KeyboardInterrupt), llama.knockout(["L0H0"]):
        logits(llama)
    assert count_hooks(llama.hf) == 0
