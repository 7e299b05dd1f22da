"""The paper's programme on models of random weights: it runs to its end, resumes, and says what
it lacks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headsieve.errors import HeadsieveError
from headsieve.report.reproduction import comparisons, notes
from headsieve.reproduce import reproduce
from headsieve.reproduction import Reproduction
from headsieve.tasks import HarnessOptions
from headsieve.tasks.paper import paper_figures
from tests.tasks.paper_files import write_lexicon, write_paper_tasks
from tests.tiny import tiny_model

pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")

LIMIT = 5
BUDGET = 10


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> HarnessOptions:
    folder = write_paper_tasks(tmp_path_factory.mktemp("tasks"))
    return HarnessOptions(str(folder), lexicon=str(write_lexicon(folder)))


def run(family: str, options: HarnessOptions, out: Path, *, resume: bool = False) -> Reproduction:
    return reproduce(
        tiny_model(family),
        budget=BUDGET,
        limit=LIMIT,
        harness=options,
        out=out,
        resume=resume,
    )


@pytest.mark.parametrize("family", ["llama", "qwen2"])
def test_the_programme_runs_to_its_end_and_resumes(
    family: str, options: HarnessOptions, tmp_path: Path
) -> None:
    done = run(family, options, tmp_path)
    assert set(done.missing) == {"humaneval", "mbpp", "wmdp_chem"}
    assert "--allow-code-execution" in done.missing["mbpp"]
    assert set(done.table["none"]) == set(paper_figures().tasks) - {"humaneval", "mbpp"}
    assert done.table["none"]["swearing"] == 1
    assert len(done.curve["gsm8k"]) == len(done.heads["math"]) + 1
    assert "code" not in done.heads
    assert set(done.wmdp["none"]) == {"bio", "cyber", "mmlu", "general"}
    # The curve's point of five heads is the table's row.
    if len(done.heads["math"]) >= 5:
        assert done.curve["gsm8k"][5] == done.table["math"]["gsm8k"]
    for name in ("reproduction.json", "reproduction.html", "reproduction.svg"):
        assert (tmp_path / name).stat().st_size > 0
    assert json.loads((tmp_path / "reproduction.json").read_text())["schema"] == 1
    with pytest.raises(HeadsieveError, match="--resume"):
        run(family, options, tmp_path)
    again = run(family, options, tmp_path, resume=True)
    assert again.cost.evaluations == done.cost.evaluations
    assert again.model_copy(update={"created": done.created, "cost": done.cost}) == done


def test_tables_stand_beside_the_published_figures(options: HarnessOptions, tmp_path: Path) -> None:
    done = run("llama", options, tmp_path)
    table, curve, wmdp = comparisons(done)
    assert table.rows["mbpp"][0] == "- / 0.58"
    assert table.rows["swearing"][0] == "1.00 / 1.00"
    assert len(curve.columns) == 11
    assert wmdp.rows["chem"][0] == "- / 0.53"
    said = "\n".join(notes(done))
    assert "Without wmdp_chem: " in said
    assert "No heads of chem: its tasks could not be had" in said
    page = (tmp_path / "reproduction.html").read_text()
    assert "0.58" in page
    assert paper_figures().url in page
    assert done.command.startswith(f"headsieve reproduce --strategy paper --budget {BUDGET} ")
    assert f"--lexicon {options.lexicon}" in done.command
    assert done.command in page


def test_a_limit_that_is_too_low_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(HeadsieveError, match="The limit must be at least 5 items, not 1"):
        reproduce(tiny_model("llama"), limit=1)
