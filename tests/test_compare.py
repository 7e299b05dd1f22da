"""Comparing studies: what is shared, and what cannot be compared."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console, RenderableType

from headsieve.cli import main
from headsieve.comparison import compare
from headsieve.config import STUDY_FILE
from headsieve.errors import HeadsieveError
from headsieve.report.comparison import comparison_tables
from headsieve.report.page import comparison_page
from headsieve.study import Study
from tests.report import examples
from tests.test_runs import CONFIG


def study(folder: str, seed: int = 0, **capabilities: Any) -> Study:
    return Study(
        replace(CONFIG, seed=seed),
        examples.result(**capabilities),
        {name: [] for name in capabilities},
        {},
        {},
        Path(folder),
    )


ONE = examples.capability()
OTHER = examples.capability(selected=["L3H0", "L0H1"], drop=0.4)


def test_shared_heads_drops_and_cost() -> None:
    comparison = compare([study("a", antonym=ONE, plural=ONE), study("b", seed=1, antonym=OTHER)])
    assert [(run.run, run.seed, run.evaluations) for run in comparison.runs] == [
        ("a", 0, 2000),
        ("b", 1, 2000),
    ]
    antonym, plural = comparison.capabilities["antonym"], comparison.capabilities["plural"]
    assert [finding.drop for finding in antonym.findings] == [0.62, 0.4]
    assert antonym.findings[0].worst_control == "plural"
    assert antonym.findings[0].worst_control_drop == pytest.approx(0.05)
    (pair,) = antonym.agreements
    assert (pair.runs, pair.shared, pair.either) == (("a", "b"), ("L3H0",), 3)
    assert pair.rank_agreement == pytest.approx(1)
    assert (len(plural.findings), plural.agreements) == (1, ())


def test_the_worst_loss_in_nats_is_beside_that_in_accuracy() -> None:
    hurt = examples.capability(controls={"text": examples.claim(-2.0, -2.5, "log_prob")})
    comparison = compare([study("a", antonym=ONE), study("b", antonym=hurt)])
    one, other = comparison.capabilities["antonym"].findings
    assert (one.worst_in_nats, one.worst_in_nats_drop) == (None, None)
    assert (other.worst_control, other.worst_in_nats) == (None, "text")
    assert other.worst_in_nats_drop == pytest.approx(0.5)
    page = comparison_page(comparison)
    assert "<td>text 0.50</td>" in page
    text = shown(comparison_tables(comparison))
    assert re.search(r"b +500 +1,500 +- +- +- +text +0.50", text)
    assert "Warning, b: these heads are not antonym's alone" in text
    assert "<strong>Warning, b:</strong> these heads are not" in page


def test_other_items_under_the_same_name_are_told() -> None:
    def on(folder: str, fingerprint: str = "m", **items: str) -> Study:
        one = study(folder, antonym=ONE)
        return replace(one, config=replace(one.config, fingerprint=fingerprint, items=items))

    first = on("a", antonym="1-2", plural="3-4")
    again = on("b", antonym="9-2", plural="3-5", other="6-7")
    comparison = compare([first, again])
    # Search items may differ: what is compared is claimed on held-out ones.
    assert comparison.other_items == ("plural",)
    sentence = "these studies measured other held-out items of plural"
    assert sentence in comparison_page(comparison)
    assert sentence in shown(comparison_tables(comparison))
    # Another model's tokens differ for the same texts.
    assert compare([first, on("b", "other model", plural="3-5")]).other_items == ()
    assert "other held-out items" not in comparison_page(
        compare([first, replace(first, folder=Path("c"))])
    )


def shown(renderable: RenderableType) -> str:
    console = Console(width=150)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


def test_opposite_rankings_and_equal_effects() -> None:
    opposite = ONE.model_copy(
        update={"heads": [head.model_copy(update={"effect": -head.effect}) for head in ONE.heads]}
    )
    flat = ONE.model_copy(
        update={"heads": [head.model_copy(update={"effect": 0.0}) for head in ONE.heads]}
    )
    pairs = (
        compare([study("a", antonym=ONE), study("b", antonym=opposite), study("c", antonym=flat)])
        .capabilities["antonym"]
        .agreements
    )
    assert [pair.rank_agreement for pair in pairs] == [pytest.approx(-1), None, None]


def test_models_of_other_shapes_do_not_pair() -> None:
    smaller = ONE.model_copy(update={"heads": ONE.heads[:-1]})
    compared = compare([study("a", antonym=ONE), study("b", antonym=smaller)])
    assert compared.capabilities["antonym"].agreements == ()
    assert len(compared.capabilities["antonym"].findings) == 2


def test_what_cannot_be_compared() -> None:
    with pytest.raises(HeadsieveError, match="at least two different run folders"):
        compare([study("a", antonym=ONE)])
    with pytest.raises(HeadsieveError, match="at least two different run folders"):
        compare([study("a", antonym=ONE), study("b/../a", antonym=ONE)])
    with pytest.raises(HeadsieveError, match="no capability in common; they are of antonym, pl"):
        compare([study("a", antonym=ONE), study("b", plural=ONE)])


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, result in (("one", ONE), ("[b]two", OTHER)):
        folder = tmp_path / name
        folder.mkdir()
        drawn = replace(examples.curve(), heads=tuple(result.selected))
        one = replace(study(name, antonym=result), curves={"antonym": drawn})
        (folder / STUDY_FILE).write_text(one.config.to_toml())
        one.save(folder)
    folders = [str(tmp_path / "one"), str(tmp_path / "[b]two")]
    page = tmp_path / "comparison.html"
    assert main(["compare", *folders, "--page", str(page), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["capabilities"]["antonym"]["agreements"][0]["shared"] == ["L3H0"]
    assert "2 studies compared" in page.read_text()
    assert main(["compare", *folders]) == 0
    shown = capsys.readouterr().out
    assert "[b]two" in shown
    assert "1.00" in shown

    before = (tmp_path / "one" / "report.html").read_text()
    (tmp_path / "one" / "report.html").unlink()
    assert main(["report", *folders]) == 0
    assert capsys.readouterr().out.splitlines() == [f"{folder}/report.html" for folder in folders]
    assert (tmp_path / "one" / "report.html").read_text() == before


def test_a_name_on_the_page_is_no_markup() -> None:
    text = comparison_page(compare([study("<i>a", antonym=ONE), study("b", antonym=OTHER)]))
    before_scripts = text.partition("<script")[0]
    assert "<i>a" not in before_scripts
    assert "&lt;i&gt;a" in before_scripts
