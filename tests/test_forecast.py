"""The forecast: it counts what a study will do, and does none of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headsieve.cli import main
from headsieve.errors import HeadsieveError
from headsieve.forecast import forecast
from headsieve.localization import locate
from headsieve.models.loading import Model
from tests.taskfiles import save_model, write_task

OPTIONS: dict[str, Any] = {"controls": ["other.json"], "limit": 6, "heads": 3}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with two task files."""
    monkeypatch.chdir(tmp_path)
    write_task(Path("skill.json"))
    write_task(Path("other.json"), "?")


def test_a_fixed_search_is_counted_exactly(llama: Model) -> None:
    options = OPTIONS | {"strategy": "exhaustive", "budget": 13}
    found = forecast(llama, ["skill.json"], **options)
    made = locate(llama, ["skill.json"], force=True, **options).result.cost
    # How many heads are selected, and so verified, is not known before.
    assert abs(found.evaluations - made.evaluations) <= 2 * OPTIONS["heads"]
    assert found.tokens / found.evaluations == pytest.approx(
        made.tokens / made.evaluations, rel=0.2
    )
    assert found.seconds > 0
    assert found.flops > 0
    assert found.flops_per_second > 0
    assert found.peak_memory_bytes > 0
    assert found.device_memory_bytes is None


def test_nothing_is_written(llama: Model, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    forecast(llama, ["skill.json"], budget=24, **OPTIONS)
    assert sorted(tmp_path.iterdir()) == before


def test_workers_do_not_change_what_there_is_to_do(llama: Model) -> None:
    one = forecast(llama, ["skill.json"], budget=24, **OPTIONS)
    four = forecast(llama, ["skill.json"], budget=24, workers=4, **OPTIONS)
    same = ("evaluations", "tokens", "flops")
    assert [getattr(one, name) for name in same] == [getattr(four, name) for name in same]
    assert replace(one, workers=4).workers == four.workers


def test_what_a_study_refuses_a_forecast_refuses(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="budget of 5 is too small"):
        forecast(llama, ["skill.json"], budget=5, **OPTIONS)


def test_the_command_prints_json(
    llama: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(save_model(llama, tmp_path / "model"))
    command = ["locate", "skill.json", "--controls", "other.json", "--limit", "6"]
    command += ["--budget", "24", "--model", folder, "--device", "cpu", "--dry-run", "--json"]
    assert main(command) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["evaluations"] > 24
    assert not Path("runs").exists()


def test_there_is_at_least_one_worker(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="workers must be at least 1, not 0"):
        forecast(llama, ["skill.json"], budget=24, workers=0, **OPTIONS)


def test_batches_of_any_size_are_foretold(llama: Model) -> None:
    assert forecast(llama, ["skill.json"], budget=24, batch_size=10**21, **OPTIONS).seconds > 0


def test_a_dry_run_of_half_a_study_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["locate", "skill.json", "--controls", "other.json", "--dry-run", "--resume"]) == 2
    assert "leave out --resume" in capsys.readouterr().err
