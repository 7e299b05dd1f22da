"""A whole atlas of a tiny model, its folder, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headsieve.atlas_folder import Atlas
from headsieve.atlas_result import AtlasResult
from headsieve.cartography import atlas, capability_names
from headsieve.cli import main
from headsieve.errors import HeadsieveError
from headsieve.models.loading import Model
from headsieve.study import Study
from headsieve.workbench import Workbench
from tests.report.atlas_example import atlas as example
from tests.studies import Counting
from tests.taskfiles import write_task

MARKS = {"one": "", "two": "?", "three": "!", "four": ";"}
TASKS = [f"{name}.json" for name in MARKS]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with task files; a tiny model has none of them, which is let pass."""
    monkeypatch.chdir(tmp_path)
    for name, mark in MARKS.items():
        write_task(Path(f"{name}.json"), mark)
    monkeypatch.setattr(Workbench, "weaknesses", lambda _self: {"four": "accuracy is 0.50"})


def chart(model: Model, **options: Any) -> Atlas:
    given: dict[str, Any] = {"budget": 24, "prior": "none", "limit": 6, "out": "run"}
    return atlas(model, TASKS, **given | options)


def lasting(result: AtlasResult) -> dict[str, Any]:
    record = result.to_dict()
    del record["created"], record["cost"]["seconds"], record["cost"]["peak_memory_bytes"]
    return record


def test_an_atlas_and_its_run_folder(llama: Model) -> None:
    done = chart(llama)
    result = done.result
    assert set(result.capabilities) == {"one", "two", "three"} == set(result.order)
    assert set(result.left_out) == {"four"}
    assert len(result.heads) == len(llama.geometry)
    assert result.masks <= 24
    assert result.modularity.heads == sum(head.alone for head in result.heads)
    for name, one in result.capabilities.items():
        assert set(one.verification.controls) == set(result.capabilities) - {name}
        assert not (one.confirmed and not one.selected)
    for head in result.heads:
        assert head.alone or not head.needed_by
        assert all(head.effects[name] <= -0.1 for name in head.needed_by)
    files = {str(path.relative_to("run")) for path in Path("run").rglob("*") if path.is_file()}
    assert files - {".lock"} == {
        *("study.toml", "measurements.sqlite", "atlas.json", "atlas.html"),
        *(f"figures/atlas.{ending}" for ending in ("png", "svg", "pdf")),
    }
    assert Atlas.load("run") == done
    assert AtlasResult.from_json(Path("run/atlas.json").read_text()) == result


def test_an_interrupted_atlas_resumes_to_the_same(llama: Model) -> None:
    whole = chart(llama, out="whole")
    with pytest.raises(KeyboardInterrupt):
        chart(llama, progress=Counting(20))
    counting = Counting()
    resumed = chart(llama, resume=True, progress=counting)
    assert lasting(resumed.result) == lasting(whole.result)
    assert 0 < counting.made < whole.result.cost.evaluations


def test_report_makes_the_page_again(llama: Model, capsys: pytest.CaptureFixture[str]) -> None:
    chart(llama)
    page = Path("run/atlas.html").read_text()
    Path("run/atlas.html").unlink()
    assert main(["report", "run"]) == 0
    assert capsys.readouterr().out == "run/atlas.html\n"
    assert Path("run/atlas.html").read_text() == page
    with pytest.raises(HeadsieveError, match="holds no finished study"):
        Study.load("run")


def test_what_is_no_atlas_is_refused(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match="text is plain text"):
        atlas(llama, ["text", "one.json"])
    with pytest.raises(HeadsieveError, match="named twice"):
        atlas(llama, ["one.json", "one.json"])
    with pytest.raises(HeadsieveError, match="Fewer than two"):
        atlas(llama, ["one.json", "four.json"], budget=24, prior="none", limit=6)
    with pytest.raises(HeadsieveError, match="holds no finished atlas"):
        Atlas.load("elsewhere")
    Path("run").mkdir()
    chart(llama)
    record = json.loads(Path("run/atlas.json").read_text())
    record["general"] = [{"head": "L9H9", "claims": {}, "needed_by": [], "confirmed": False}]
    Path("run/atlas.json").write_text(json.dumps(record))
    with pytest.raises(HeadsieveError, match="not among the heads"):
        Atlas.load("run")


def test_the_built_in_capabilities_are_all_tasks_but_text() -> None:
    names = capability_names()
    assert "text" not in names
    assert {"antonym", "multiplication"} <= set(names)


def test_an_example_is_what_it_says() -> None:
    result = example()
    assert AtlasResult.from_json(result.to_json()) == result
