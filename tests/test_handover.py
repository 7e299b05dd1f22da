"""Exports as a user gets them: whole or not at all, with a card that tells what they are."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from headsieve.cli import main
from headsieve.errors import HeadsieveError
from headsieve.handover import export
from headsieve.localization import locate
from headsieve.models.loading import Model, load_model
from headsieve.study import Study
from tests.taskfiles import save_model, write_task

TOKENS = torch.arange(30, 70)[None]


@pytest.fixture(scope="module")
def place(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a model, two tasks, and a study of both that selects heads."""
    place = tmp_path_factory.mktemp("place")
    save_model(llama, place / "model")
    write_task(place / "skill.json")
    write_task(place / "other.json", "?")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        study = locate(
            load_model("model", device="cpu"),
            ["skill.json", "other.json"],
            controls=[],
            budget=20,
            heads=2,
            max_control_drop=1.0,
            limit=6,
            force=True,
            out="run",
        )
    assert study["skill"].selected
    return place


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work beside them."""
    monkeypatch.chdir(place)


@pytest.fixture
def new(tmp_path: Path) -> Path:
    """Name a folder that does not exist yet, nor the one that it will be in."""
    return tmp_path / "exports" / "new"


@torch.inference_mode()
def logits(hf: Any) -> torch.Tensor:
    return torch.as_tensor(hf(input_ids=TOKENS).logits).float()


def test_a_study_is_exported_with_its_finding(
    new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", "run", "--capability", "skill", "--to", str(new), "--json"]
    assert main([*arguments, "--device", "cpu"]) == 0
    record = json.loads(capsys.readouterr().out)
    study = Study.load("run")
    assert record == {
        "folder": str(new),
        "model": "model",
        "heads": study["skill"].selected,
        "scale": 0.0,
        "mean": False,
        "dtype": "float32",
        "difference": record["difference"],
        "pushed": None,
    }
    assert record["difference"] < 1e-4
    model = load_model("model", device="cpu")
    with model.knockout(study["skill"].selected):
        expected = logits(model.hf)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(new)
    torch.testing.assert_close(logits(loaded), expected, rtol=0, atol=1e-4)

    # Whoever may read the card may read the weights.
    assert (new / "model.safetensors").stat().st_mode == (new / "README.md").stat().st_mode
    card = (new / "README.md").read_text()
    for head in study["skill"].selected:
        assert head in card
    assert f"{study.result.command} --out {study.folder}" in card
    assert "headsieve export run --capability skill --dtype float32 --to" in card
    assert f"{study['skill'].verification.capability.items} held-out items" in card
    assert "| other |" in card
    figures = list((new / "figures").glob("*.png"))
    assert figures
    assert all(f"](figures/{path.name})" in card for path in figures)
    assert {path.name for path in new.parent.iterdir()} == {"new"}


def test_heads_are_exported_without_a_study(new: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "export --model model --knockout L1H2,l0h0 --scale 0.5 --dtype bfloat16 --device cpu"
    assert main([*words.split(), "--to", str(new)]) == 0
    outcome = capsys.readouterr()
    assert outcome.out.splitlines()[-1] == str(new)
    assert "model with L1H2, L0H0 scaled by 0.5" in outcome.out
    assert "Writing model shards" not in outcome.err
    card = (new / "README.md").read_text()
    assert "L1H2, L0H0" in card
    assert "multiplied by 0.5" in card
    assert "Finding" not in card
    assert json.loads((new / "config.json").read_text())["dtype"] == "bfloat16"


def test_a_mean_is_taken_over_the_search_items_of_the_capability(new: Path) -> None:
    study, model = Study.load("run"), load_model("model", device="cpu")
    done = export(model, new, study=study, capability="other", mean=True)
    assert done.edit.mean
    assert "which nothing was measured" in (new / "README.md").read_text()
    alone = export(model, new.parent / "text", heads=done.edit.heads, mean=True)
    one, other = (
        transformers.AutoModelForCausalLM.from_pretrained(each.folder) for each in (done, alone)
    )
    assert (logits(one) - logits(other)).abs().max() > 1e-3


@pytest.mark.parametrize(("name", "said"), [("tiny.gguf", True), ("tiny-llama", False)])
def test_the_card_says_that_weights_were_quantized(
    new: Path, llama: Model, name: str, said: bool
) -> None:
    export(replace(llama, name=name), new, heads=["L0H1"])
    assert ("GGUF file, most likely quantized" in (new / "README.md").read_text()) == said


def test_nothing_is_overwritten(new: Path, llama: Model) -> None:
    new.mkdir(parents=True)
    with pytest.raises(HeadsieveError, match="exists already; name a new folder"):
        export(llama, new, heads=["L0H0"])
    assert not list(new.iterdir())


def test_a_study_whose_model_was_moved_is_exported(
    new: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["export", "run", "--capability", "skill", "--to", str(new), "--device", "cpu"]
    moved = Path("model").rename("moved")
    try:
        assert main(arguments) == 2
        assert main([*arguments, "--model", "moved", "--scale", "0.123456789"]) == 0
    finally:
        moved.rename("model")
    assert "scaled by 0.123456789" in capsys.readouterr().out
    assert "--model moved --scale 0.123456789" in (new / "README.md").read_text()


def test_what_fails_leaves_nothing(
    new: Path, llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ(*_: object) -> None: ...

    monkeypatch.setattr("headsieve.models.export._apply", differ)
    with pytest.raises(HeadsieveError, match="not the hooked model"):
        export(llama, new, heads=["L0H0"])
    assert list(new.parent.iterdir()) == []


def test_a_killed_export_leaves_no_folder_under_the_name(new: Path) -> None:
    program = (
        "import os, signal\n"
        "import headsieve.models.export as under\n"
        "from headsieve.handover import export\n"
        "from headsieve.models.loading import load_model\n"
        # The weights are written by then, and not verified.
        "under.load_model = lambda *a, **b: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"export(load_model('model', device='cpu'), {str(new)!r}, heads=['L0H0'])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == -9
    assert not new.exists()
    left = list(new.parent.rglob("*.safetensors"))
    assert len(left) == 1
    assert left[0].relative_to(new.parent).parts[0].startswith(".new-")
    export(load_model("model", device="cpu"), new, heads=["L0H0"])
    assert (new / "README.md").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--to", "x"], "Give either the run folder of a study or --knockout"),
        (["run", "--knockout", "L0H0", "--to", "x"], "Give either the run folder"),
        (
            ["run", "--capability", "skill", "--revision", "main", "--to", "x"],
            "A revision is one on the hub",
        ),
        (["run", "--to", "x"], "name one with --capability: skill, other"),
        (["run", "--capability", "rhyme", "--to", "x"], "no capability 'rhyme'; it has skill"),
        (["nothing", "--to", "x"], "nothing holds no finished study"),
        (["--knockout", "L0H9", "--model", "model", "--to", "x"], "no head L0H9"),
        (["--knockout", ",", "--model", "model", "--to", "x"], "No heads to change"),
        (["--knockout", "L0H0", "--model", "model", "--scale", "1", "--to", "x"], "no other model"),
        (["--knockout", "L0H0", "--model", "model", "--dtype", "int4", "--to", "x"], "'int4'"),
        (["--knockout", "L0H0", "--model", "model", "--to", "model"], "model exists already"),
        (["--knockout", "L0H0", "--model", "model", "--to", "skill.json/x"], "Cannot write"),
        (["run"], "--to"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        status = main(["export", *arguments])
    except SystemExit as stop:
        status = int(stop.code or 0)
    outcome = capsys.readouterr()
    assert (status, outcome.out) == (2, "")
    assert sentence in outcome.err
    assert not Path("x").exists()


def test_another_model_than_the_study_s_is_refused(new: Path, make_model: Any) -> None:
    with pytest.raises(HeadsieveError, match="not the model of the study"):
        export(make_model("qwen2"), new, study=Study.load("run"), capability="skill")


class Hub:
    """A hub that remembers what it is told."""

    calls: list[tuple[str, dict[str, Any]]]

    def create_repo(self, name: str, **options: Any) -> Any:
        self.calls.append((name, options))
        if name == "me/taken":
            raise ValueError("409 Conflict\nmore")
        return type("Url", (str,), {"repo_id": name})(f"https://hub.example/{name}")

    def upload_folder(self, **options: Any) -> None:
        self.calls.append(("upload", options))


def test_it_is_pushed_only_when_asked_and_to_a_new_private_place(
    new: Path, llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hub.calls = []
    monkeypatch.setattr("huggingface_hub.HfApi", Hub)
    assert export(llama, new, heads=["L0H0"]).pushed is None
    assert Hub.calls == []
    done = export(llama, new.parent / "two", heads=["L0H0"], push="me/two")
    assert done.pushed == "https://hub.example/me/two"
    assert Hub.calls == [
        ("me/two", {"private": True, "exist_ok": False}),
        ("upload", {"repo_id": "me/two", "folder_path": done.folder}),
    ]
    with pytest.raises(HeadsieveError, match="was written, but not uploaded to me/taken: 409"):
        export(llama, new.parent / "three", heads=["L0H0"], push="me/taken")
    assert (new.parent / "three" / "config.json").exists()
