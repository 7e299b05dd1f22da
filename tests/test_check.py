"""Checks of a model can fail, and say so."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import headsieve.check
import headsieve.models.knockout
from headsieve.check import check_model
from headsieve.errors import HeadsieveError
from headsieve.models.loading import Model
from tests.tiny import count_hooks, tiny_model


def failed(model: Model) -> set[str]:
    return {one.name for one in check_model(model) if one.holds is not True}


@pytest.fixture
def broken() -> Model:
    """Give a copy of a tiny model that may be broken."""
    llama = tiny_model("llama")
    model = copy.copy(llama)
    model.hf = copy.deepcopy(llama.hf)
    return model


def test_a_projection_that_reads_elsewhere_is_noticed(broken: Model) -> None:
    projection: Any = broken.hf.model.layers[1].self_attn.o_proj

    def shuffled(states: torch.Tensor) -> torch.Tensor:
        # As if the heads stood in another order than headsieve thinks.
        return torch.nn.functional.linear(states.roll(12, dims=-1), projection.weight)

    def halves(states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(states + states.mean(0), projection.weight)

    projection.forward = shuffled
    assert "zeroed weights" in failed(broken)
    projection.forward = halves
    assert "rows" in failed(broken)


def test_a_layer_that_is_skipped_is_noticed(broken: Model) -> None:
    broken.hf.model.layers[1].forward = lambda hidden, **_: hidden
    assert "every layer" in failed(broken)


def test_a_layer_without_effect_is_named(broken: Model) -> None:
    broken.hf.model.layers[1].self_attn.o_proj.weight.data.zero_()
    (check,) = check_model(broken, ["every layer"])
    assert (check.holds, check.note) == (False, "no effect in 1")


def test_a_hook_that_stays_is_noticed(broken: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    plain: Callable[..., Any] = headsieve.models.knockout.knockout

    def leaving(hf: Any, *arguments: Any, **options: Any) -> Any:
        hf.register_forward_hook(lambda *_: None)
        return plain(hf, *arguments, **options)

    monkeypatch.setattr(headsieve.check, "knockout", leaving)
    assert failed(broken) == {"nothing left"}


def test_a_cache_that_is_not_read_is_noticed(broken: Model) -> None:
    forward = broken.hf.forward

    def forgetful(*arguments: Any, cache: Any = None, **options: Any) -> Any:
        output = forward(*arguments, cache=cache, **options)
        if cache is not None:
            for layer in cache.layers:
                layer.values.zero_()
        return output

    broken.hf.forward = forgetful
    assert "generation" in failed(broken)


def test_quantized_weights_are_not_compared(broken: Model) -> None:
    projection = broken.hf.model.layers[0].self_attn.o_proj
    weight = projection.weight.detach()
    projection.weight = torch.nn.Parameter(weight.to(torch.int8), requires_grad=False)
    projection.forward = lambda states: torch.nn.functional.linear(states, weight)
    checks = {one.name: one for one in check_model(broken)}
    for name in ("zeroed weights", "generation"):
        assert checks[name].holds is None
        assert "quantized" in checks[name].note
    assert checks["rows"].holds


def test_a_model_with_heads_knocked_out_is_not_checked() -> None:
    llama = tiny_model("llama")
    with pytest.raises(HeadsieveError, match="knocked out already"), llama.knockout(["L0H0"]):
        check_model(llama)
    assert count_hooks(llama.hf) == 0


def test_what_is_no_number_does_not_hold(llama: Model) -> None:
    broken = copy.deepcopy(llama)
    with torch.no_grad():
        broken.hf.model.layers[1].self_attn.o_proj.weight[0, 0] = torch.nan
    checks = check_model(broken, ["zeroed weights", "generation"])
    assert [one.holds for one in checks] == [False, False]
