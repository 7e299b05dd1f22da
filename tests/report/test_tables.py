from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from headsieve.models.heads import Geometry, LayerHeads
from headsieve.report.tables import (
    heads_csv,
    heads_table,
    scores,
    summary,
    tasks_table,
)
from headsieve.results import CapabilityResult, TaskScore
from tests.report.examples import EFFECTS, GENERAL, capability, claim, curve, result


def shown(renderable: RenderableType, width: int = 80) -> str:
    """What a terminal without colours shows, lines that it breaks in one piece."""
    console = Console(width=width, file=io.StringIO(), color_system=None)
    with console.capture() as capture:
        console.print(renderable, crop=False)
    text = capture.get()
    assert max(map(len, text.splitlines())) <= max(width, 80)
    return text


def cells(text: str, start: str) -> list[str]:
    """Cells of the one line that starts so and has numbers; three blanks divide cells."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"{start}  "))
    return [cell.strip() for cell in line.split("   ") if cell.strip()]


def test_summary_has_every_figure() -> None:
    text = shown(
        summary(
            result(antonym=capability()),
            general={"antonym": GENERAL},
            curves={},
            folder=Path("runs/1"),
        )
    )
    assert cells(text, "L1H2") == ["L1H2", "-1.23", "-1.43 to -1.13", "0.87", "-0.04"]
    assert cells(text, "antonym") == [
        *("antonym", "75", "0.66", "0.04", "0.62"),
        *("0.50 to 0.73", "p < 0.0001"),
    ]
    assert cells(text, "plural") == [
        *("plural", "60", "0.90", "0.85", "0.05"),
        *("0.02 to 0.09", "control"),
    ]
    flat = " ".join(text.split())
    assert "Without these 2 heads antonym falls from 0.66 to 0.04 on 75 held-out items" in flat
    assert "20 random sets of as many heads: mean drop 0.02, at most 0.09." in flat
    assert "General heads, which antonym and at least half of its controls need: L0H0." in flat
    assert "500 evaluations of antonym, 1,500 of its controls." in flat
    assert "2,000 evaluations, 1,234,567 tokens, 13 min 32 s, peak memory 1.5 GiB." in flat
    assert text.splitlines()[-1].strip() == "runs/1"
    assert "Warning" not in text
    assert "L2H0" not in text


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_number_is_cut_however_narrow_the_terminal(width: int) -> None:
    long = "a-control-with-quite-a-long-name"
    study = result(antonym=capability(controls={long: claim(0.90, 0.85)}))
    text = shown(summary(study, general={}, curves={}, folder=None), width)
    for one in ("-1.23", "-1.43 to -1.13", "0.87", "-0.04", "0.50 to 0.73", "0.02 to 0.09"):
        assert one in text
    rows = [_record("antonym", "answer", "accuracy", 150, 0.664, "English word to its opposite")]
    listed = shown(tasks_table(rows), width)
    assert "150" in listed
    assert "0.66" in listed
    assert "0.50 to 0.70" in shown(scores({long: _score(0.664)}), width)


def test_what_was_not_measured_of_controls_is_not_shown_as_nothing() -> None:
    one = capability()
    heads = [head.model_copy(update={"control_effect": None}) for head in one.heads]
    one = one.model_copy(update={"heads": heads})
    text = shown(summary(result(antonym=one), general={}, curves={}, folder=None))
    assert cells(text, "L1H2")[-1] == "-"
    (first, *_) = csv.DictReader(io.StringIO(heads_csv({"antonym": one}, {})))
    assert first["control_effect"] == ""


@pytest.mark.parametrize(
    "weak",
    [
        capability(ci=(-0.02, 0.7)),
        capability(controls={"plural": claim(0.90, 0.80)}),
        capability(random_max=0.7),
        capability(selected=[]),
    ],
)
def test_weak_results_are_warned_of(weak: CapabilityResult) -> None:
    assert (
        shown(summary(result(antonym=weak), general={}, curves={}, folder=None)).count("Warning: ")
        == 1
    )


def test_without_a_set_the_best_heads_are_shown_and_no_claim() -> None:
    weak = capability(selected=[])
    text = shown(summary(result(antonym=weak), general={}, curves={}, folder=None))
    assert "none of them selected" in text
    assert cells(text, "L1H2")[1] == "-1.23"
    assert "random set" not in text
    assert "p < 0.0001" not in text


def test_each_capability_has_its_own_part() -> None:
    both = result(antonym=capability(), rhyme=capability(selected=[]))
    text = shown(summary(both, general={}, curves={}, folder=None))
    assert text.index("antonym ---") < text.index("rhyme ---")


def test_a_head_that_adds_nothing_is_named() -> None:
    one = result(antonym=capability())
    idle = replace(curve(), values=curve().values | {"antonym": (0.66, 0.3, 0.3)})
    said = "L3H0 adds nothing on held-out items"
    for found, count in ((idle, 1), (curve(), 0)):
        text = shown(summary(one, general={}, curves={"antonym": found}, folder=None))
        assert text.count(said) == count


def test_names_are_not_markup() -> None:
    name = "[red]data[/red]/x.json"
    text = shown(summary(result(**{name: capability()}), general={}, curves={}, folder=None))
    assert name in text


def test_an_ascii_terminal_can_show_it() -> None:
    raw = io.BytesIO()
    console = Console(width=80, file=io.TextIOWrapper(raw, encoding="ascii"))
    console.print(summary(result(antonym=capability()), general={}, curves={}, folder=None))
    console.file.flush()
    assert b"0.62" in raw.getvalue()


def test_scores() -> None:
    plain = shown(scores({"antonym": _score(0.664)}))
    assert cells(plain, "antonym") == ["antonym", "accuracy", "100", "0.66", "0.50 to 0.70"]
    assert "drop" not in plain
    knocked = shown(scores({"antonym": _score(0.66, 0.04, (0.5, 0.7))}))
    assert cells(knocked, "antonym")[3:] == ["0.66", "0.04", "0.62", "0.50 to 0.70"]


def test_tasks() -> None:
    rows = [
        _record("antonym", "answer", "accuracy", 150, 0.664, "English word to its opposite"),
        _record("text", "text", "log_prob", 48, None, "Plain text"),
    ]
    paper = _record("swearing", "paper", "words", None, None, "Words")
    rows.append({**paper, "needs": "--lexicon"})
    text = shown(tasks_table(rows))
    assert cells(text, "antonym")[:5] == ["antonym", "answer", "accuracy", "150", "0.66"]
    assert "Plain text" in text
    assert cells(text, "swearing")[-1] == "Words (needs --lexicon)"


def test_heads_of_equal_layers_share_a_line() -> None:
    layers = [
        LayerHeads(number, 16 if number % 2 else 8, 64, 2, f"model.layers.{number}.attn.o_proj")
        for number in (0, 1, 2, 3, 4, 6)
    ]
    text = shown(heads_table(Geometry(layers, uncovered=[5])))
    assert cells(text, "0, 2, 4, 6") == ["0, 2, 4, 6", "8", "2", "64", "model.layers.*.attn.o_proj"]
    assert cells(text, "1, 3")[1] == "16"
    assert "64 heads in 6 layers." in text
    assert "layers 5." in text
    assert "1 head in 1 layer." in shown(heads_table(Geometry([LayerHeads(0, 1, 8, 1, "o")])))


def test_heads_csv_is_unrounded_and_says_roles() -> None:
    rows = list(
        csv.DictReader(
            io.StringIO(heads_csv({"antonym": capability()}, {"antonym": [*GENERAL, "L3H0"]}))
        )
    )
    assert len(rows) == 11
    first = rows[0]
    assert (first["head"], first["layer"], first["index"]) == ("L1H2", "1", "2")
    assert float(first["effect"]) == EFFECTS["L1H2"]
    assert float(first["ci_low"]) == EFFECTS["L1H2"] - 0.2
    assert float(first["control_effect"]) == -0.043
    assert {row["head"]: row["role"] for row in rows if row["role"]} == {
        "L1H2": "selected",
        "L3H0": "selected",
        "L0H0": "general",
    }


def _score(
    baseline: float, knocked_out: float | None = None, ci: tuple[float, float] = (0.5, 0.7)
) -> TaskScore:
    drop = None if knocked_out is None else baseline - knocked_out
    return TaskScore(
        metric="accuracy", items=100, baseline=baseline, knocked_out=knocked_out, drop=drop, ci=ci
    )


def _record(*values: object) -> dict[str, object]:
    fields = ("name", "kind", "metric", "items", "accuracy", "description")
    return {**dict(zip(fields, values, strict=True)), "needs": ""}
