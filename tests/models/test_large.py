"""Large models: weights kept elsewhere between calls, and memory that is asked for before."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import accelerate
import numpy as np
import psutil
import pytest
import torch

from headsieve.errors import HeadsieveError
from headsieve.measure import in_process
from headsieve.measure.costs import logit_bytes, mask_bytes
from headsieve.measure.items import tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.packing import pack
from headsieve.models.footprint import weight_bytes
from headsieve.models.loading import Model, load_model
from headsieve.tasks import Item
from tests.tiny import MakeModel, Masks, byte_tokenizer

ITEMS = {
    "answer": tokenize(
        [Item("ab ->", (" cd\n",)), Item("abc ->", (" d\n",))],
        "q -> r\n",
        "answer",
        byte_tokenizer(),
    )
}


@pytest.fixture(params=["cpu", "disk"])
def offloaded(request: pytest.FixtureRequest, llama: Model, tmp_path: Path) -> Model:
    """Give the Llama model with its weights in accelerate's keeping."""
    hf = copy.deepcopy(llama.hf)
    if request.param == "cpu":
        accelerate.cpu_offload(hf, execution_device=torch.device("cpu"))
    else:
        accelerate.disk_offload(hf, tmp_path, execution_device=torch.device("cpu"))
    assert all(weight.is_meta for weight in hf.model.layers.parameters())
    return Model(hf, llama.tokenizer, "offloaded")


def test_an_offloaded_model_is_the_same_model(offloaded: Model, llama: Model) -> None:
    assert offloaded.fingerprint == llama.fingerprint
    assert offloaded.device == torch.device("cpu")
    tokens = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        assert torch.equal(offloaded.hf(tokens).logits, llama.hf(tokens).logits)


def test_a_knockout_holds_in_an_offloaded_model(offloaded: Model, llama: Model) -> None:
    tokens = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode(), llama.knockout(["L0H1", "L2H3"]):
        expected = llama.hf(tokens).logits
    with torch.inference_mode(), offloaded.knockout(["L0H1", "L2H3"]):
        found = offloaded.hf(tokens).logits
    assert torch.equal(found, expected)
    with torch.inference_mode():
        assert not torch.equal(offloaded.hf(tokens).logits, expected)


def test_an_offloaded_model_is_measured_alike(offloaded: Model, llama: Model, masks: Masks) -> None:
    found = Measurer(offloaded, ITEMS, Journal()).measure(masks, "answer")
    expected = Measurer(llama, ITEMS, Journal()).measure(masks, "answer")
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one.log_prob, other.log_prob, rtol=0, atol=1e-4)
        np.testing.assert_array_equal(one.value, other.value)


def test_weights_are_counted_before_they_are_read(make_model: MakeModel, tmp_path: Path) -> None:
    for family in ("llama", "gemma3", "mixtral", "gpt2"):
        hf = make_model(family).hf
        folder = tmp_path / family
        # Only the configuration is there.
        hf.config.save_pretrained(folder)
        kept = sum(weight.numel() * weight.itemsize for weight in hf.parameters())
        assert weight_bytes(folder, torch.float32) == kept
        assert weight_bytes(folder, torch.bfloat16) == kept / 2
        assert weight_bytes(folder, torch.bfloat16, "4bit") < kept / 2


def test_a_model_that_does_not_fit_is_one_sentence(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama.hf.save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 1000}))
    with pytest.raises(HeadsieveError, match=r"need 0\.0 GB, and this machine has 0\.0 GB free"):
        load_model(tmp_path, device="cpu")


def test_a_device_map_gives_the_same_model(llama: Model, tmp_path: Path) -> None:
    llama.hf.save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    plain = load_model(tmp_path, device="cpu")
    spread = load_model(tmp_path, device="cpu", device_map="auto")
    assert spread.fingerprint == plain.fingerprint
    with pytest.raises(HeadsieveError, match="Unknown device map 'sideways'"):
        load_model(tmp_path, device_map="sideways")


def test_quantising_needs_bitsandbytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HeadsieveError, match="Unknown quantisation '3bit'; use 4bit or 8bit"):
        load_model(tmp_path, quantize="3bit")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(HeadsieveError, match="pip install bitsandbytes"):
        load_model(tmp_path, quantize="4bit")


def test_the_type_of_a_checkpoint_is_asked_for_its_size(llama: Model, tmp_path: Path) -> None:
    half = copy.deepcopy(llama.hf).to(torch.bfloat16)
    half.save_pretrained(tmp_path)
    assert weight_bytes(tmp_path, "auto") == weight_bytes(tmp_path, torch.bfloat16)
    assert weight_bytes(tmp_path, "auto") == weight_bytes(tmp_path, torch.float32) // 2


def test_a_batch_is_bounded_by_tokens_by_logits_and_by_memory(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pack(ITEMS["answer"].sequences, attention_cost=0.0)
    tokens = max(len(row.tokens) for row in rows)
    logits = max(logit_bytes(llama, row) for row in rows)

    def size(memory: int = 1 << 40) -> int:
        return in_process.masks_per_batch(llama, rows, [], "auto", memory)

    monkeypatch.setattr(in_process, "_TOKENS_PER_BATCH", {"cpu": 7 * tokens})
    assert size() == 7
    monkeypatch.setattr(in_process, "_LOGIT_BYTES_PER_BATCH", {"cpu": 5 * logits})
    assert size() == 5
    assert size(memory=3 * max(mask_bytes(llama, row) for row in rows)) == 3
    assert size(memory=1) == 1
