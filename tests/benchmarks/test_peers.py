"""The plain peers of the speed benchmark say what headsieve says, on a tiny model."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from contest import TOLERANCE
from flops import needed_flops
from headsieve.measure.items import ContinuationItems
from headsieve.models.loading import Model
from peers import NotApplicableError, load_peer
from works import WORKS

SCORED = [name for name in WORKS if name != "generation"]


@pytest.mark.parametrize("work_name", SCORED)
@pytest.mark.parametrize("name", ["plain", "plain-answers-only", "no-mask-sharing"])
def test_a_peer_gives_the_same_numbers(llama: Model, name: str, work_name: str) -> None:
    work = WORKS[work_name](llama)
    masks = work.masks[:2]
    own = load_peer("headsieve")(llama, work).score(masks)
    other = load_peer(name)(llama, work).score(masks)
    assert own.shape == (2, len(work.items))
    np.testing.assert_allclose(other, own, rtol=0, atol=TOLERANCE)


def test_plain_generation_says_the_same(llama: Model) -> None:
    work = replace(WORKS["generation"](llama), new_tokens=5)
    own = load_peer("headsieve")(llama, work).score(work.masks[:2])
    assert own.shape == (2, 8 * 5)
    np.testing.assert_array_equal(
        load_peer("plain-generate")(llama, work).score(work.masks[:2]), own
    )


def test_each_peer_takes_the_works_that_are_its_own(llama: Model) -> None:
    with pytest.raises(NotApplicableError, match="generates no text"):
        load_peer("plain")(llama, WORKS["generation"](llama))
    with pytest.raises(NotApplicableError, match="only generates text"):
        load_peer("plain-generate")(llama, WORKS["few-shot"](llama))


def test_each_new_token_needs_every_layer(llama: Model) -> None:
    work = WORKS["generation"](llama)
    few, more, most = (needed_flops(llama, replace(work, new_tokens=n)) for n in (1, 2, 3))
    assert 0 < more - few < most - more


def test_a_cached_prefix_gives_the_same_numbers(llama: Model) -> None:
    work = WORKS["few-shot"](llama)
    own = load_peer("headsieve")(llama, work).score(work.masks[:2])
    other = load_peer("plain-cached-prefix")(llama, work).score(work.masks[:2])
    np.testing.assert_allclose(other, own, rtol=0, atol=TOLERANCE)


def test_no_prefix_no_cache(llama: Model) -> None:
    with pytest.raises(NotApplicableError, match="no prefix"):
        load_peer("plain-cached-prefix")(llama, WORKS["no-prefix"](llama))


def test_needed_operations_are_those_of_a_plain_pass(llama: Model) -> None:
    work = WORKS["no-prefix"](llama)
    sequence = work.item_set.sequences[0]
    one = ContinuationItems("answer", (sequence,), (1,), ((0,),))
    everything = np.ones((1, len(llama.geometry)), dtype=bool)
    length = len(sequence.tokens) - 1
    with FlopCounterMode(display=False) as counter, torch.inference_mode():
        llama.hf(
            input_ids=torch.tensor([sequence.tokens[:-1]]),
            logits_to_keep=len(sequence.tokens) - sequence.start,
        )
    products = counter.get_flop_counts()["Global"][torch.ops.aten.mm]
    # Three layers of four heads of 12; a token attends to itself and those before it.
    attention = 3 * 4 * 4 * 12 * length * (length + 1) // 2
    needed = needed_flops(llama, replace(work, item_set=one, masks=everything))
    assert needed == products + attention


def test_what_needs_no_second_time_is_not_counted_twice(llama: Model) -> None:
    work = WORKS["no-prefix"](llama)
    again = ContinuationItems("answer", work.item_set.sequences * 2, (1,) * 48, ((0,),) * 48)
    assert needed_flops(llama, replace(work, item_set=again)) == needed_flops(llama, work)


def test_layers_below_the_lowest_head_need_nothing(llama: Model) -> None:
    work = WORKS["few-shot"](llama)
    lowest = [np.zeros((1, len(llama.geometry)), dtype=bool) for _ in range(3)]
    for layer, mask in enumerate(lowest):
        mask[0, 4 * layer] = True
    whole, two, one = (needed_flops(llama, replace(work, masks=mask)) for mask in lowest)
    assert whole > two > one > 0
    # The three layers are alike.
    assert whole - two == pytest.approx(two - one)
