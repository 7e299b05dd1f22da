"""Interrupted, killed, changed and damaged studies, and run folders."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from headsieve.errors import HeadsieveError
from headsieve.models.loading import Model, load_model
from headsieve.study import Study
from tests.studies import Counting, find, rows
from tests.taskfiles import lasting, save_model, write_task

pytestmark = pytest.mark.usefixtures("two_tasks")


@pytest.mark.parametrize("last", [1, 2, 3, 17, 30, 38])
def test_an_interrupted_study_goes_on(llama: Model, last: int) -> None:
    undisturbed = Counting()
    options: dict[str, Any] = {"batch_size": 2, "heads": 2}
    reference = find(llama, progress=undisturbed, **options)
    assert undisturbed.made > 38
    first, second = Counting(last), Counting()
    with pytest.raises(KeyboardInterrupt):
        find(llama, out="run", progress=first, **options)
    assert rows(Path("run/measurements.sqlite")) == first.made
    with pytest.raises(HeadsieveError, match="no finished study"):
        Study.load("run")
    resumed = find(llama, out="run", resume=True, progress=second, **options)
    assert lasting(resumed.result) == lasting(reference.result)
    assert first.made + second.made == undisturbed.made
    assert rows(Path("run/measurements.sqlite")) == undisturbed.made


def test_a_finished_study_is_resumed_without_measuring(llama: Model) -> None:
    finished = find(llama, out="run")
    counting = Counting()
    again = find(llama, out="run", resume=True, progress=counting)
    assert counting.made == 0
    assert lasting(again.result) == lasting(finished.result)


def test_a_killed_study_goes_on(llama: Model) -> None:
    save_model(llama, Path("model"))
    arguments = [
        *("locate", "skill.json", "--model", "model", "--device", "cpu"),
        *("--controls", "other.json", "--budget", "24", "--heads", "3", "--limit", "6"),
        *("--max-control-drop", "1", "--batch-size", "1", "--force", "--out"),
    ]

    def start(folder: str, *more: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "headsieve", *arguments, folder, *more]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    journal = Path("run/measurements.sqlite")
    doomed = start("run")
    try:
        kept = 0
        while kept < 8 and doomed.poll() is None:
            time.sleep(0.002)
            if journal.exists():
                try:
                    kept = rows(journal)
                except sqlite3.OperationalError:  # locked, or the table is not there yet
                    continue
    finally:
        doomed.kill()
        doomed.wait()
    assert doomed.returncode == -signal.SIGKILL
    kept = rows(journal)
    assert not Path("run/result.json").exists()

    counting = Counting()
    options: dict[str, Any] = {"batch_size": 1, "resume": True, "progress": counting}
    model = load_model("model", device="cpu")
    resumed = find(model, out="run", **options)
    undisturbed = find(model, batch_size=1)
    assert lasting(resumed.result) == lasting(undisturbed.result)
    total = undisturbed.result.cost.evaluations
    assert rows(journal) == total
    assert counting.made == total - kept


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("result.json", '"selected": [', '"selected": ["L9H9", '),
        ("result.json", '"effect": -', '"effect": NaN, "x": -'),
        # A chart of so many layers would take all memory.
        ("result.json", '"layer": 1,', '"layer": 1000000000,'),
        ("result.json", '"head": "L1H', '"head": "L1000000H'),
        ("result.json", '"head": "L1H', '"head": "banana'),
        ("result.json", '"head": "L0H1"', '"head": "L0H0"'),
        ("heads.csv", "role", "rule"),
        ("heads.csv", "skill,L0H1", "skill,L0H2"),
        ("study.toml", "[items]", "[items]\nskill-2 = 3"),
        ("study.toml", "budget = ", 'budget = "much" # '),
        ("study.toml", "seed", "future = 1\nseed"),
        ("study.toml", "budget", "buudget"),
        ("figures/skill-curve.csv", "value", "valour"),
        ("figures/skill-curve.csv", ",0.", ",nan"),
        ("figures/skill-curve.csv", "skill", "other"),
    ],
)
def test_a_damaged_run_folder_is_named(llama: Model, file: str, old: str, new: str) -> None:
    find(llama, out="run")
    path = Path("run") / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(HeadsieveError, match="run"):
        Study.load("run")


def test_edited_items_are_told_on_resuming(llama: Model) -> None:
    find(llama, out="run")
    write_task(Path("skill.json"), "!")
    with pytest.raises(HeadsieveError, match="items of the task skill have changed"):
        find(llama, out="run", resume=True)


def test_a_refused_study_is_forced_without_resuming(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="or use --force"):
        find(llama, force=False, out="run")
    forced = find(llama, out="run")
    assert forced.config.force
    assert forced.result.cost.evaluations == find(llama).result.cost.evaluations


def test_a_run_folder_in_the_home_folder(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(Path.cwd() / "home"))
    study = find(llama, out="~/run")
    assert study.folder == Path.cwd() / "home" / "run"
    assert Study.load("~/run") == study


def test_resuming_may_add_interactions_and_not_drop_them(llama: Model) -> None:
    pytest.importorskip("shapiq", reason="the extra interactions is not installed")
    find(llama, out="run")
    added = find(llama, out="run", resume=True, interactions=True)
    assert added["skill"].verification.interactions is not None
    with pytest.raises(HeadsieveError, match="has interactions = True, not False"):
        find(llama, out="run", resume=True)


def test_resuming_needs_a_folder(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="name its run folder"):
        find(llama, resume=True)
