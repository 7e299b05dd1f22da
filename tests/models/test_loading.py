from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from headsieve.errors import HeadsieveError
from headsieve.models.loading import Model, load_model


def test_a_folder_gives_the_same_model(model: Model, tmp_path: Path) -> None:
    original = model
    for folder in (tmp_path / "one", tmp_path / "other"):
        original.hf.save_pretrained(folder)
        original.tokenizer.save_pretrained(folder)
        original = load_model(folder, device="cpu")
    one, other = (load_model(tmp_path / name, device="cpu") for name in ("one", "other"))
    tokens = torch.arange(30, 50)[None]
    with torch.inference_mode():
        assert torch.equal(one.hf(tokens).logits, model.hf(tokens).logits)
    assert one.fingerprint == other.fingerprint
    assert one.geometry.heads == model.geometry.heads
    assert (one.dtype, one.device.type) == ("float32", "cpu")


def test_one_changed_weight_changes_the_fingerprint(llama: Model) -> None:
    hf = copy.deepcopy(llama.hf)
    hf.model.layers[1].self_attn.o_proj.weight.data[0, 0] += 1
    assert Model(hf, llama.tokenizer, llama.name).fingerprint != llama.fingerprint


def test_a_folder_without_a_model_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(HeadsieveError, match=r"has no config\.json"):
        load_model(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(HeadsieveError, match="has no weights"):
        load_model(tmp_path)


def test_a_file_that_is_not_gguf_is_told_so(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    with pytest.raises(HeadsieveError, match="No model at"):
        load_model(path)
    path.write_bytes(b"not a model")
    with pytest.raises(HeadsieveError, match="not a GGUF file"):
        load_model(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "/no/such/folder"}, "No model at /no/such/folder"),
        ({"name": ".", "dtype": "float7"}, "Unknown dtype 'float7'; use auto, float32"),
        ({"name": ".", "device": "abacus"}, "Cannot use device 'abacus'"),
        ({"name": ".", "device": "meta"}, "Cannot use device 'meta'"),
        ({"name": ".", "memory": 0}, "must be at least one byte, not 0"),
        ({"name": "~nobody-of-this-name/model"}, "No model at ~nobody-of-this-name/model"),
    ],
)
def test_wrong_options_are_told(options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadsieveError, match=message):
        load_model(**options)


def test_a_path_may_begin_at_home(
    llama: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llama.hf.save_pretrained(tmp_path / "mine")
    llama.tokenizer.save_pretrained(tmp_path / "mine")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_model("~/mine", device="cpu").geometry.heads == llama.geometry.heads


def test_weights_that_the_architecture_has_no_place_for_are_told(
    llama: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    llama.hf.save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["num_hidden_layers"] -= 1
    config.pop("layer_types", None)
    (tmp_path / "config.json").write_text(json.dumps(config))
    load_model(tmp_path, device="cpu")
    assert "weights for which LlamaForCausalLM has no place (model.layers." in caplog.text


def test_a_folder_has_no_revision(llama: Model, tmp_path: Path) -> None:
    llama.hf.save_pretrained(tmp_path)
    with pytest.raises(HeadsieveError, match="A revision is one on the hub"):
        load_model(tmp_path, revision="main")


def test_weights_of_another_shape_are_told(llama: Model, tmp_path: Path) -> None:
    llama.hf.save_pretrained(tmp_path)
    llama.tokenizer.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    record = json.loads(config.read_text())
    config.write_text(json.dumps(record | {"hidden_size": 2 * record["hidden_size"]}))
    with pytest.raises(HeadsieveError, match=r"other shapes than its config\.json says"):
        load_model(tmp_path)
