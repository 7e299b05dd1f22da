"""Run folders: who may write in them, what is refused, and that files are whole or absent."""

from __future__ import annotations

import dataclasses
import errno
import os
import shlex
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from headsieve.cli import build_parser
from headsieve.config import STUDY_FILE, Config
from headsieve.errors import HeadsieveError
from headsieve.measure.journal import Entry, Journal, Key
from headsieve.runs import JOURNAL_FILE, open_run, write_atomically
from headsieve.scores import Score

CONFIG = Config(
    model="tiny",
    revision=None,
    dtype="float32",
    device="cpu",
    fingerprint="0123",
    quantize=None,
    capabilities=("antonym",),
    controls=("copying", "text"),
    budget=100,
    heads=5,
    max_control_drop=0.05,
    strategy="adaptive",
    prior="none",
    units="heads",
    ablation="zero",
    seed=0,
    limit=None,
    batch_size="auto",
    force=False,
    items={"antonym": "89ab", "text": "cdef"},
)


def begin(folder: Path, mask: str = "L0H1") -> None:
    """Begin a study that has measured something."""
    with open_run(folder, CONFIG, resume=False) as path:
        journal = Journal(path)
        score = Score(np.zeros(1), np.zeros(1), np.zeros(1))
        journal.add([Entry(Key("m", "i", "float32", mask), "antonym", score, 1, 0.1)])
        journal.close()


def test_a_new_folder_is_made_and_holds_the_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "new"
    with open_run(folder, CONFIG, resume=False) as journal:
        assert journal == folder / JOURNAL_FILE
        assert Config.from_toml((folder / STUDY_FILE).read_text()) == CONFIG


def test_a_study_is_continued_only_when_asked(tmp_path: Path) -> None:
    begin(tmp_path)
    with (
        pytest.raises(HeadsieveError, match="holds a study already; continue it with --resume"),
        open_run(tmp_path, CONFIG, resume=False),
    ):
        pass
    with open_run(tmp_path, CONFIG, resume=True) as journal:
        assert Journal(journal).totals()[0] == 1


@pytest.mark.parametrize("resume", [False, True])
def test_what_never_measured_anything_is_begun_anew(tmp_path: Path, resume: bool) -> None:
    with open_run(tmp_path, dataclasses.replace(CONFIG, budget=3), resume=False) as path:
        Journal(path).close()
    with open_run(tmp_path, CONFIG, resume=resume):
        assert Config.from_toml((tmp_path / STUDY_FILE).read_text()) == CONFIG


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("budget", 200),
        ("controls", ("copying",)),
        ("limit", 8),
        ("fingerprint", "4567"),
        ("batch_size", 3),
        ("max_control_drop", 0.1),
    ],
)
def test_other_options_are_named_on_resuming(tmp_path: Path, option: str, value: Any) -> None:
    begin(tmp_path)
    changed = dataclasses.replace(CONFIG, **{option: value})
    with (
        pytest.raises(HeadsieveError, match=f"has {option} = .*, not .*; resume it"),
        open_run(tmp_path, changed, resume=True),
    ):
        pass


def test_force_may_differ_on_resuming_and_is_noted(tmp_path: Path) -> None:
    begin(tmp_path)
    forced = dataclasses.replace(CONFIG, force=True)
    with open_run(tmp_path, forced, resume=True):
        assert Config.from_toml((tmp_path / STUDY_FILE).read_text()) == forced


@pytest.mark.parametrize(("resume", "kept"), [(False, 0), (True, 1)])
def test_what_was_refused_at_the_unmodified_model_is_begun_anew(
    tmp_path: Path, resume: bool, kept: int
) -> None:
    begin(tmp_path, mask="")
    forced = dataclasses.replace(CONFIG, force=True)
    with open_run(tmp_path, forced, resume=resume) as journal:
        assert Journal(journal).totals()[0] == kept
        assert Config.from_toml((tmp_path / STUDY_FILE).read_text()) == forced


def test_a_task_whose_items_changed_is_named_on_resuming(tmp_path: Path) -> None:
    begin(tmp_path)
    changed = dataclasses.replace(CONFIG, items=CONFIG.items | {"text": "0000"})
    with (
        pytest.raises(HeadsieveError, match="items of the task text have changed since"),
        open_run(tmp_path, changed, resume=True),
    ):
        pass


def test_a_configuration_that_is_no_text_is_told(tmp_path: Path) -> None:
    begin(tmp_path)
    (tmp_path / STUDY_FILE).write_bytes(b"model = '\xff'")
    with (
        pytest.raises(HeadsieveError, match=r"study\.toml is not UTF-8 text"),
        open_run(tmp_path, CONFIG, resume=True),
    ):
        pass


def test_too_long_a_name_is_told(tmp_path: Path) -> None:
    with (
        pytest.raises(HeadsieveError, match=r"Cannot write in .*File name too long"),
        open_run(tmp_path / ("long" * 75), CONFIG, resume=False),
    ):
        pass


@pytest.mark.parametrize("resume", [False, True])
def test_a_folder_of_other_things_is_left_alone(tmp_path: Path, resume: bool) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    with (
        pytest.raises(HeadsieveError, match=r"holds other files \(thesis\.tex\)"),
        open_run(tmp_path, CONFIG, resume=resume),
    ):
        pass
    assert not (tmp_path / STUDY_FILE).exists()


def test_a_file_is_no_run_folder(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("")
    with (
        pytest.raises(HeadsieveError, match="is a file; name a folder"),
        open_run(path, CONFIG, resume=False),
    ):
        pass


def test_one_process_at_a_time(tmp_path: Path) -> None:
    with (
        filelock.FileLock(tmp_path / ".lock"),
        pytest.raises(HeadsieveError, match="Another process is working in"),
        open_run(tmp_path, CONFIG, resume=False),
    ):
        pass
    with pytest.raises(KeyboardInterrupt), open_run(tmp_path, CONFIG, resume=False):
        raise KeyboardInterrupt
    with open_run(tmp_path, CONFIG, resume=True):  # the lock was given back
        pass


@pytest.mark.parametrize("code", [errno.EACCES, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("place", ["folder", "lock", "configuration"])
def test_what_cannot_be_written_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, code: int
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    target = {
        "folder": "pathlib.Path.mkdir",
        "lock": "filelock.FileLock.acquire",
        "configuration": "tempfile.NamedTemporaryFile",
    }
    monkeypatch.setattr(target[place], refuse)
    with (
        pytest.raises(HeadsieveError, match=f"Cannot write in .*{os.strerror(code)}"),
        open_run(tmp_path / "run", CONFIG, resume=False),
    ):
        pass


@pytest.mark.parametrize("text", ["budget = ", "budget = 3", "colour = 'red'\n" + CONFIG.to_toml()])
def test_another_file_is_no_configuration(text: str) -> None:
    with pytest.raises(HeadsieveError, match="not the configuration of a study"):
        Config.from_toml(text)


_text = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]))
_configs = st.builds(
    Config,
    model=_text,
    revision=st.none() | _text,
    dtype=_text,
    device=_text,
    fingerprint=_text,
    quantize=st.none() | _text,
    capabilities=st.lists(_text).map(tuple),
    controls=st.lists(_text).map(tuple),
    budget=st.integers(1, 10**6),
    heads=st.integers(1, 100),
    max_control_drop=st.floats(0, 1),
    strategy=_text,
    prior=st.just("none"),
    units=st.sampled_from(["heads", "kv-groups"]),
    ablation=st.sampled_from(["zero", "mean", "resample"]),
    seed=st.integers(0, 2**31),
    limit=st.none() | st.integers(5, 100),
    batch_size=st.just("auto") | st.integers(1, 100),
    force=st.booleans(),
    items=st.dictionaries(_text, _text),
)


@settings(max_examples=30, deadline=None)
@given(_configs)
def test_a_configuration_reads_as_it_was_written(config: Config) -> None:
    assert Config.from_toml(config.to_toml()) == config


@settings(max_examples=30, deadline=None)
@given(_configs)
def test_the_command_survives_the_shell(config: Config) -> None:
    assume(config.capabilities)
    program, *words = shlex.split(config.command)
    options = build_parser().parse_args(words)
    assert program == "headsieve"
    assert options.capabilities == list(config.capabilities)
    assert options.model == config.model


def test_names_that_look_like_options_come_last() -> None:
    config = dataclasses.replace(CONFIG, capabilities=("-x.json", "antonym"), controls=("-y.json",))
    options = build_parser().parse_args(shlex.split(config.command)[1:])
    assert options.capabilities == ["-x.json", "antonym"]
    assert options.controls == "-y.json"


def test_the_command_holds_every_option() -> None:
    config = dataclasses.replace(CONFIG, model="my model", revision="main", limit=8)
    assert config.command == (
        "headsieve locate antonym --controls copying,text --budget 100 --heads 5 "
        "--max-control-drop 0.05 --strategy adaptive --prior none --units heads --ablation zero "
        "--model 'my model' --revision main --seed 0 --limit 8 --device cpu --dtype float32 "
        "--batch-size auto"
    )
    assert "--controls none" in dataclasses.replace(CONFIG, controls=()).command


@pytest.mark.parametrize("function", ["os.fsync", "pathlib.Path.replace", "pathlib.Path.chmod"])
def test_a_file_is_whole_or_absent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, "old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(function, full)
    with pytest.raises(HeadsieveError, match="No space left on device"):
        write_atomically(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]  # nothing half-written lies about
    write_atomically(path, "new")
    assert path.read_text() == "new"


def test_results_are_as_readable_as_other_files(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    write_atomically(tmp_path / "result.json", "")
    assert (tmp_path / "result.json").stat().st_mode == plain.stat().st_mode
