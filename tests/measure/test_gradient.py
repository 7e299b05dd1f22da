"""Gradients with respect to gates on heads."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headsieve.errors import NoGradientError
from headsieve.measure.items import ItemSet
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.texts import Responses
from headsieve.models.knockout import gates
from headsieve.models.loading import Model
from tests.measure.test_measurer import SHORT
from tests.tiny import CONFIGS, count_hooks, tiny_model

STEP = 1e-2


def gated_score(model: Model, items: ItemSet, head: int, gate: float) -> float:
    """The search score with one head's gate set, each sequence in a row of its own."""
    values = torch.ones((1, len(model.geometry)))
    values[0, head] = gate
    log_prob = []
    for sequence in items.sequences:
        tokens = torch.tensor([sequence.tokens])
        with torch.inference_mode(), gates(model.hf, model.geometry, values):
            logits = model.hf(tokens, use_cache=False).logits[0].double().log_softmax(dim=-1)
        log_prob.append(
            sum(
                float(logits[place - 1, sequence.tokens[place]])
                for place in range(sequence.start, len(sequence.tokens))
            )
        )
    nothing = np.zeros(len(log_prob))
    return items.score(Responses(np.array(log_prob), nothing.astype(bool), nothing)).search


@pytest.mark.parametrize("family", CONFIGS)
@pytest.mark.parametrize("name", SHORT)
def test_is_the_slope_of_the_search_score(family: str, name: str) -> None:
    model = tiny_model(family)
    gradient = Measurer(model, SHORT, Journal()).gradient(name)
    assert gradient.shape == (len(model.geometry),)
    for head in (0, len(model.geometry) - 1):
        higher, lower = (gated_score(model, SHORT[name], head, 1 + step) for step in (STEP, -STEP))
        assert gradient[head] == pytest.approx((higher - lower) / (2 * STEP), abs=2e-2)
    assert count_hooks(model.hf) == 0


def test_is_computed_once(llama: Model) -> None:
    journal = Journal()
    told: list[tuple[str, int]] = []
    measurer = Measurer(
        llama, SHORT, journal, on_measured=lambda name, count: told.append((name, count))
    )
    name = next(iter(SHORT))
    first = measurer.gradient(name)
    assert told == [(name, 3)]
    cost = journal.totals()
    assert (measurer.gradient(name) == first).all()
    assert told == [(name, 3)]
    assert journal.totals() == cost
    assert cost[0] == 3
    assert cost[1] > 0


def test_a_closed_gate_is_a_knockout(llama: Model) -> None:
    values = torch.ones((1, len(llama.geometry)))
    values[0, 5] = 0
    tokens = torch.arange(30, 50)[None]
    with torch.inference_mode():
        with gates(llama.hf, llama.geometry, values):
            gated = llama.hf(tokens).logits
        with llama.knockout([llama.geometry.heads[5]]):
            assert torch.allclose(llama.hf(tokens).logits, gated, atol=1e-5)


@pytest.mark.parametrize("fails", [False, True])
def test_weights_take_gradients_again_afterwards(
    llama: Model, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    for number, parameter in enumerate(llama.hf.parameters()):
        parameter.requires_grad_(number % 2 == 0)
    if fails:
        monkeypatch.setattr(torch.autograd, "grad", no_backward_pass)
        with pytest.raises(NoGradientError, match="PyTorch says: no kernel for that"):
            Measurer(llama, SHORT, Journal()).gradient("answer")
    else:
        Measurer(llama, SHORT, Journal()).gradient("answer")
    asked = [parameter.requires_grad for parameter in llama.hf.parameters()]
    assert asked == [number % 2 == 0 for number in range(len(asked))]
    assert all(parameter.grad is None for parameter in llama.hf.parameters())
    assert count_hooks(llama.hf) == 0


def no_backward_pass(*_args: object) -> None:
    raise RuntimeError("no kernel for that")
