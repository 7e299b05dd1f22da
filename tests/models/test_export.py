"""Edited checkpoints: DESIGN section 5, point 9, and what cannot be exported."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from headsieve.errors import HeadsieveError
from headsieve.models.export import Edit, save_edited
from headsieve.models.loading import Model
from tests.tiny import CONFIGS, MakeModel, count_hooks

TOKENS = torch.arange(30, 70)[None]
HEADS = ["L0H1", "L2H3", "L2H0"]
TEXTS = ["hot is to cold as big is to small", "def add(a, b): return a + b"]
FAMILIES = ["llama", "qwen2", "gemma3", "gpt2", "mixtral"]


def weights(hf: Any) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in hf.state_dict().items()}


def generated(hf: Any) -> list[int]:
    return list(hf.generate(TOKENS, max_new_tokens=12, do_sample=False)[0].tolist())


@torch.inference_mode()
def logits(hf: Any) -> torch.Tensor:
    return torch.as_tensor(hf(input_ids=TOKENS).logits).float()


@pytest.mark.parametrize("scale", [0.0, -0.5, 2.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_plain_transformers_loads_the_hooked_model(
    make_model: MakeModel, family: str, scale: float, tmp_path: Path
) -> None:
    model = make_model(family)
    before = weights(model.hf)
    edit = Edit.of(model, HEADS, scale=scale)
    difference = save_edited(model, edit, tmp_path, "float32")
    assert 0 <= difference < 1e-4
    with edit.hooked(model):
        expected, text = logits(model.hf), generated(model.hf)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.dtype == torch.float32
    torch.testing.assert_close(logits(loaded), expected, rtol=0, atol=1e-4)
    assert generated(loaded) == text
    assert (logits(model.hf) - expected).abs().max() > 1e-2
    assert text != generated(model.hf) or scale != 0
    # The model itself is as it was.
    assert all(torch.equal(tensor, before[name]) for name, tensor in weights(model.hf).items())
    assert count_hooks(model.hf) == 0


@pytest.mark.parametrize("scale", [0.0, 0.5])
@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma3", "gpt2"])
def test_a_mean_output_goes_into_the_bias(
    make_model: MakeModel, family: str, scale: float, tmp_path: Path
) -> None:
    model = make_model(family)
    edit = Edit.of(model, HEADS, scale=scale, mean_over=TEXTS)
    save_edited(model, edit, tmp_path, "float32")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    with edit.hooked(model):
        torch.testing.assert_close(logits(loaded), logits(model.hf), rtol=0, atol=1e-4)
    with Edit.of(model, HEADS, scale=scale).hooked(model):
        assert (logits(loaded) - logits(model.hf)).abs().max() > 1e-2


def test_mean_outputs_are_those_of_the_texts(llama: Model) -> None:
    seen: list[torch.Tensor] = []
    projection = llama.hf.get_submodule(llama.geometry.layers[2].projection)
    handle = projection.register_forward_pre_hook(lambda _module, args: seen.append(args[0][0]))
    try:
        with torch.inference_mode():
            for text in TEXTS:
                llama.hf(llama.tokenizer(text, return_tensors="pt")["input_ids"])
    finally:
        handle.remove()
    (scaling,) = Edit.of(llama, ["L2H1"], mean_over=TEXTS).scalings
    assert scaling.shift is not None
    mean = torch.cat(seen).mean(0)
    torch.testing.assert_close(scaling.shift[12:24], mean[12:24])
    assert not scaling.shift[:12].any()
    assert not scaling.shift[24:].any()


@pytest.mark.parametrize("family", ["qwen2", "mistral"])
def test_without_a_bias_a_mean_is_refused(
    make_model: MakeModel, family: str, tmp_path: Path
) -> None:
    model = make_model(family)
    edit = Edit.of(model, HEADS, mean_over=TEXTS)
    with pytest.raises(HeadsieveError, match=r"no bias in its attention output.*without --mean"):
        save_edited(model, edit, tmp_path / "new", "float32")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_tied_weights_are_written_once_and_stay_tied(
    make_model: MakeModel, family: str, tmp_path: Path
) -> None:
    hf = copy.deepcopy(make_model(family).hf)
    hf.config.tie_word_embeddings = True
    hf.tie_weights()
    model = Model(hf, make_model(family).tokenizer, "tied")
    save_edited(model, Edit.of(model, HEADS), tmp_path, "float32")
    from safetensors import safe_open

    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert "lm_head.weight" not in file.keys()  # noqa: SIM118  # no mapping
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert loaded.get_output_embeddings().weight is loaded.get_input_embeddings().weight


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_and_without_a_stale_quantization_entry(
    llama: Model, dtype: str, tmp_path: Path
) -> None:
    hf = copy.deepcopy(llama.hf)
    hf.config.quantization_config = transformers.GgufConfig(gguf_file="x.gguf", dequantize=True)
    hf.generation_config.max_new_tokens = 7
    tokenizer = copy.deepcopy(llama.tokenizer)
    tokenizer.chat_template = "{{ messages }}"
    model = Model(hf, tokenizer, "from-gguf")
    assert save_edited(model, Edit.of(model, HEADS), tmp_path, dtype) < 1e-4
    assert model.dtype == "float32"
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dtype"] == dtype
    assert "quantization_config" not in config
    assert hasattr(hf.config, "quantization_config")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    assert str(loaded.dtype) == f"torch.{dtype}"
    assert loaded.generation_config.max_new_tokens == 7
    assert transformers.AutoTokenizer.from_pretrained(tmp_path).chat_template == "{{ messages }}"


def test_large_models_are_written_in_shards(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headsieve.models.export._SHARD_SIZE", "50KB")
    save_edited(llama, Edit.of(llama, HEADS), tmp_path, "float32")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert (tmp_path / "model.safetensors.index.json").exists()


def test_a_checkpoint_that_is_not_the_hooked_model_is_no_success(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headsieve.models.export._apply", lambda hf, scalings: None)
    with pytest.raises(HeadsieveError, match="not the hooked model: their logits differ by"):
        save_edited(llama, Edit.of(llama, HEADS), tmp_path, "float32")


def test_quantized_weights_are_refused(llama: Model, tmp_path: Path) -> None:
    hf = copy.deepcopy(llama.hf)
    projection = hf.model.layers[0].mlp.up_proj
    projection.weight = torch.nn.Parameter(projection.weight.to(torch.uint8), requires_grad=False)
    model = Model(hf, llama.tokenizer, "quantized")
    with pytest.raises(HeadsieveError, match=r"up_proj\.weight is uint8"):
        save_edited(model, Edit.of(model, HEADS), tmp_path, "float32")


def test_a_change_that_rounding_undoes_is_refused(llama: Model, tmp_path: Path) -> None:
    edit = Edit.of(llama, HEADS, scale=1.0001)
    with pytest.raises(HeadsieveError, match=r"In bfloat16, heads scaled by 1\.0001"):
        save_edited(llama, edit, tmp_path / "edited", "bfloat16")


@pytest.mark.parametrize("scale", [1.0, float("nan"), float("inf")])
def test_a_scale_that_makes_no_model_is_refused(llama: Model, scale: float) -> None:
    with pytest.raises(HeadsieveError, match="makes no other model"):
        Edit.of(llama, HEADS, scale=scale)


def test_all_families_of_the_tests_can_be_exported(model: Model, tmp_path: Path) -> None:
    assert save_edited(model, Edit.of(model, HEADS), tmp_path, "float32") < 1e-4
    assert set(FAMILIES) - set(CONFIGS) == set()
