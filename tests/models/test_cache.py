"""The cache of converted models."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headsieve.cli import main
from headsieve.models import cache

CONTENT = b"GGUF the weights"


@pytest.fixture
def readings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """An empty cache, and the GGUF files that were read so far."""
    read: list[Path] = []

    def reader(gguf: Path, folder: Path) -> None:
        read.append(gguf)
        folder.mkdir()
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())

    monkeypatch.setenv("HEADSIEVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_read_gguf", reader)
    return read


def gguf(folder: Path, name: str = "model.gguf", content: bytes = CONTENT) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_file_is_converted_once_whatever_its_folder(tmp_path: Path, readings: list[Path]) -> None:
    path = gguf(tmp_path)
    folder = cache.converted(path)
    assert (folder / "model.safetensors").read_bytes() == CONTENT
    (tmp_path / "elsewhere").mkdir()
    assert cache.converted(gguf(tmp_path / "elsewhere")) == folder
    assert readings == [path]


def test_another_content_is_another_model(tmp_path: Path, readings: list[Path]) -> None:
    one = cache.converted(gguf(tmp_path))
    other = cache.converted(gguf(tmp_path, content=CONTENT + b"!"))
    assert one != other
    assert len(readings) == 2
    assert [model.folder for model in cache.converted_models()] == sorted([one, other])


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_conversion_is_made_anew(
    tmp_path: Path, readings: list[Path], damage: str
) -> None:
    path = gguf(tmp_path)
    weights = cache.converted(path) / "model.safetensors"
    if damage == "changed":
        weights.write_bytes(b"GGUF the w3ights")
    else:
        weights.unlink()
    assert cache.converted(path) == weights.parent
    assert weights.read_bytes() == CONTENT
    assert len(readings) == 2


def test_a_cache_that_is_a_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADSIEVE_CACHE", str(gguf(tmp_path)))
    assert main(["cache"]) == 2
    assert "is no folder; set HEADSIEVE_CACHE" in capsys.readouterr().err


def test_the_command_lists_and_clears(
    tmp_path: Path, readings: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = cache.converted(gguf(tmp_path))
    assert main(["cache", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [model["name"] for model in listed["models"]] == [folder.name]
    assert listed["models"][0]["bytes"] > len(CONTENT)
    assert main(["cache", "--clear"]) == 0
    assert "models deleted from" in capsys.readouterr().out
    assert not folder.exists()
    assert cache.converted_models() == []
