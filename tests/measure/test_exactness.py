"""Shared rows are taken only where they give what each sequence alone gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

from headsieve.measure.engine import Engine
from headsieve.measure.items import tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.packing import single
from headsieve.models.loading import Model
from headsieve.tasks import Item
from tests.taskfiles import WORDS
from tests.tiny import byte_tokenizer


def test_attention_by_place_in_the_row_is_noticed_across_a_gap() -> None:
    """MPT's bias goes by place in the row; the longest text and the last one lie in one piece."""
    tokenizer = byte_tokenizer()
    config = transformers.MptConfig(
        d_model=32,
        n_heads=4,
        n_layers=3,
        max_seq_len=512,
        vocab_size=len(tokenizer),
        initializer_range=0.25,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Model(transformers.MptForCausalLM(config).eval(), tokenizer, "mpt")
    words = [Item(f"{word}:", (f" {word[::-1]}{word}", f" {word[:2]} or")) for word in WORDS]
    ends = [Item("zz is:", ("a", "b")), Item("and this is a much longer question:", ("a", "b"))]
    items = tokenize([*words, *ends], "", "choice", tokenizer)
    measurer = Measurer(model, {"words": items}, Journal())
    nothing = np.zeros((1, len(model.geometry)), dtype=bool)
    (found,) = measurer.measure(nothing, "words")
    plain = Engine(model, reentry=False)
    alone = np.array(
        [plain.score(row, nothing).log_prob.sum() for row in single(items.sequences)]
    ).reshape(-1, 2)
    expected = alone[:, 0] - np.logaddexp(alone[:, 0], alone[:, 1])
    assert found.log_prob == pytest.approx(expected, abs=1e-4)
    assert not measurer.packed
