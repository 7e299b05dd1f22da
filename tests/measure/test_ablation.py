"""Heads that give a mean or a sampled output instead of zero."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.ablation import Ablation, Replacement, require_ablation
from headsieve.measure.items import ItemSet
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.texts import Responses
from headsieve.models.knockout import KnockoutError, gates, knockout
from headsieve.models.loading import Model
from tests.measure.test_measurer import LONG, SHORT, assert_same
from tests.tiny import CONFIGS, MakeModel, Masks, count_hooks

ABLATIONS: tuple[Ablation, ...] = ("mean", "resample")
RIGHT = {"answer": [0, 1, 2], "choice": [0, 3]}


def measurer(model: Model, ablation: Ablation, journal: Journal | None = None) -> Measurer:
    return Measurer(
        model,
        SHORT,
        journal or Journal(),
        replacements={name: Replacement.over(ablation, SHORT[name], 0) for name in SHORT},
    )


def head_outputs(model: Model, items: ItemSet, numbers: list[int]) -> list[list[Any]]:
    """What enters each layer's output projection, (layers) of (tokens, width), by sequence."""
    found = []
    for number in numbers:
        seen: list[Any] = []
        handles = [
            model.hf.get_submodule(layer.projection).register_forward_pre_hook(
                lambda _module, args, seen=seen: seen.append(args[0].flatten(0, -2))
            )
            for layer in model.geometry.layers
        ]
        with torch.inference_mode():
            model.hf(torch.tensor([items.sequences[number].tokens]))
        for handle in handles:
            handle.remove()
        found.append(seen)
    return found


def plainly(
    model: Model, mask: NDArray[np.bool_], items: ItemSet, outputs: dict[int, torch.Tensor]
) -> Any:
    """Score with transformers and hooks of this test's own, one sequence after the other."""
    handles = []
    for column in np.flatnonzero(mask):
        head = model.geometry.heads[column]
        layer = model.geometry.layers[head.layer]
        own = slice(head.index * layer.head_dim, (head.index + 1) * layer.head_dim)
        vector = outputs[layer.layer][own]

        def put(_module: Any, args: Any, own: slice = own, vector: Any = vector) -> Any:
            changed = args[0].clone()
            changed[..., own] = vector
            return (changed, *args[1:])

        projection = model.hf.get_submodule(layer.projection)
        handles.append(projection.register_forward_pre_hook(put))
    totals, greedy, margins = [], [], []
    for sequence in items.sequences:
        with torch.inference_mode():
            logits = model.hf(torch.tensor([sequence.tokens])).logits[0]
        predictions = logits[sequence.start - 1 : -1].log_softmax(-1)
        targets = torch.tensor(sequence.tokens[sequence.start :])[:, None]
        target = predictions.gather(1, targets)
        totals.append(target.sum().item())
        greedy.append(bool((predictions.argmax(-1, keepdim=True) == targets).all()))
        others = predictions.scatter(1, targets, -torch.inf).amax(1, keepdim=True)
        margins.append((target - others).min().item())
    for handle in handles:
        handle.remove()
    return items.score(Responses(np.array(totals), np.array(greedy), np.array(margins)))


@pytest.mark.parametrize("ablation", ABLATIONS)
@pytest.mark.parametrize("family", CONFIGS)
def test_scores_are_those_of_a_plain_loop_that_puts_the_vector_in(
    make_model: MakeModel, family: str, ablation: Ablation, masks: Masks
) -> None:
    model = make_model(family)
    found = measurer(model, ablation)
    for name, items in SHORT.items():
        outputs = Replacement.over(ablation, items, 0).outputs(model)
        expected = [plainly(model, mask, items, outputs) for mask in masks]
        assert_same(found.measure(masks, name), expected)
        zeroed = Measurer(model, SHORT, Journal()).measure(masks, name)
        assert any(
            (one.log_prob != other.log_prob).any()
            for one, other in zip(zeroed[1:], expected[1:], strict=True)
        )
    # The short ways of computing were taken, so they are what was compared.
    assert found.packed
    assert count_hooks(model.hf) == 0


@pytest.mark.parametrize("name", RIGHT)
def test_a_mean_is_over_every_token_of_the_right_texts(llama: Model, name: str) -> None:
    found = Replacement.over("mean", SHORT[name], 0).outputs(llama)
    seen = head_outputs(llama, SHORT[name], RIGHT[name])
    for layer in llama.geometry.layers:
        mean = torch.cat([one[layer.layer] for one in seen]).mean(0)
        torch.testing.assert_close(found[layer.layer], mean)


@pytest.mark.parametrize("name", RIGHT)
def test_a_sample_is_what_the_head_gave_where_a_right_answer_is_predicted(
    llama: Model, name: str
) -> None:
    items = SHORT[name]
    found = Replacement.over("resample", items, 3).outputs(llama)
    seen = head_outputs(llama, items, RIGHT[name])
    lenders = set()
    for head in llama.geometry.heads:
        layer = llama.geometry.layers[head.layer]
        own = slice(head.index * layer.head_dim, (head.index + 1) * layer.head_dim)
        matches = [
            (number, place)
            for number, outputs in zip(RIGHT[name], seen, strict=True)
            for place in range(items.sequences[number].start - 1, len(outputs[0]) - 1)
            if torch.allclose(outputs[head.layer][place, own], found[head.layer][own], atol=1e-5)
        ]
        assert matches
        lenders.add(matches[0])
    assert len(lenders) > 1


def test_the_same_seed_draws_the_same_and_another_seed_another(llama: Model) -> None:
    def drawn(seed: int) -> torch.Tensor:
        found = Replacement.over("resample", SHORT["answer"], seed).outputs(llama)
        return torch.cat(list(found.values()))

    first = drawn(0)
    torch.manual_seed(5)
    np.random.seed(5)
    assert torch.equal(drawn(0), first)
    assert not torch.equal(drawn(1), first)


def test_no_measurement_answers_for_one_with_another_ablation(llama: Model, masks: Masks) -> None:
    journal = Journal()
    one = {"answer": SHORT["answer"]}
    kinds: list[dict[str, Replacement]] = [
        {},
        {"answer": Replacement.over("mean", SHORT["answer"], 0)},
        {"answer": Replacement.over("mean", LONG["answer"], 0)},
        {"answer": Replacement.over("resample", SHORT["answer"], 0)},
        {"answer": Replacement.over("resample", SHORT["answer"], 1)},
    ]
    for number, replacements in enumerate(kinds):
        Measurer(llama, one, journal, replacements=replacements).measure(masks, "answer")
        # The unmodified model is measured once for all of them.
        assert journal.totals()[0] == 1 + 3 * (number + 1)
    kept = [
        journal.masks(
            llama.fingerprint,
            SHORT["answer"].fingerprint,
            "float32",
            replacements["answer"].label if replacements else "zero",
        )
        for replacements in kinds
    ]
    assert all(len(found) == 4 and "" in found for found in kept)
    assert len({found["L1H1"].log_prob.sum() for found in kept}) == len(kinds)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_a_gradient_is_that_of_gates_that_let_the_replacement_in(
    llama: Model, ablation: Ablation
) -> None:
    items = SHORT["choice"]
    journal = Journal()
    gradient = measurer(llama, ablation, journal).gradient("choice")
    outputs = Replacement.over(ablation, items, 0).outputs(llama)

    def score(head: int, gate: float) -> float:
        values = torch.ones((1, len(llama.geometry)))
        values[0, head] = gate
        with gates(llama.hf, llama.geometry, values, outputs):
            return float(plainly(llama, np.zeros(12, dtype=bool), items, {}).search)

    for head in (0, 11):
        slope = (score(head, 1.01) - score(head, 0.99)) / 0.02
        assert gradient[head] == pytest.approx(slope, abs=2e-2)
    assert not np.allclose(Measurer(llama, SHORT, journal).gradient("choice"), gradient)


def test_an_output_that_is_the_replacement_already_is_an_error(llama: Model) -> None:
    tokens = torch.tensor([[40]])
    mask = np.arange(12)[None] == 6
    seen: list[torch.Tensor] = []
    projection = llama.hf.get_submodule(llama.geometry.layers[1].projection)
    handle = projection.register_forward_pre_hook(lambda _module, args: seen.append(args[0][0, 0]))
    with torch.inference_mode():
        llama.hf(tokens)
    handle.remove()
    for allowed in (True, False):
        expected: Any = (
            nullcontext()
            if allowed
            else pytest.raises(
                KnockoutError, match="L1H2: nothing but the replacement comes from there already"
            )
        )
        with (
            torch.inference_mode(),
            expected,
            knockout(llama.hf, llama.geometry, mask, replacement={1: seen[0]}, allow_mute=allowed),
        ):
            llama.hf(tokens)


def test_another_word_is_no_ablation() -> None:
    with pytest.raises(HeadsieveError, match="no ablation 'median'; use zero, mean or resample"):
        require_ablation("median", "heads")


def test_layers_are_only_zeroed() -> None:
    require_ablation("zero", "mlp-layers")
    require_ablation("mean", "kv-groups")
    with pytest.raises(HeadsieveError, match="MLP layers can only be zeroed"):
        require_ablation("mean", "mlp-layers")
