"""Figures of several capabilities: every value at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from headsieve.report.figures import save_figures
from headsieve.report.several import accuracies, grouped_bars, radar, task_matrix
from headsieve.results import CapabilityResult
from tests.report.examples import capability, claim


@pytest.fixture
def two() -> dict[str, CapabilityResult]:
    return {
        "antonym": capability(
            controls={"plural": claim(0.9, 0.85), "text": claim(-2.5, -2.56, "log_prob")}
        ),
        "plural": capability(
            controls={"antonym": claim(0.66, 0.6), "capital": claim(0.7, 0.2)},
            baseline=0.9,
            knocked_out=0.1,
            drop=0.8,
        ),
    }


def axes(projection: str = "rectilinear") -> Any:
    return Figure(figsize=(3.4, 2.4)).add_subplot(projection=projection)


def test_accuracies_hold_no_text_and_only_what_was_measured(
    two: dict[str, CapabilityResult],
) -> None:
    assert accuracies(two) == {
        "unmodified": {"antonym": 0.66, "plural": 0.9, "capital": 0.7},
        "without antonym": {"antonym": 0.04, "plural": 0.85},
        "without plural": {"plural": 0.1, "antonym": 0.6, "capital": 0.2},
    }


def test_radar(two: dict[str, CapabilityResult]) -> None:
    ax: Any = radar(two, ax=axes("polar"))
    before, _antonym, plural = (line.get_ydata() for line in ax.get_lines())
    assert [label.get_text() for label in ax.get_xticklabels()] == ["antonym", "plural", "capital"]
    # Closed: the first task stands at the end again.
    assert before.tolist() == [0.66, 0.9, 0.7, 0.66]
    assert plural.tolist() == [0.6, 0.1, 0.2, 0.6]
    with pytest.raises(ValueError, match="polar"):
        radar(two, ax=axes())


def test_grouped_bars(two: dict[str, CapabilityResult]) -> None:
    ax: Any = grouped_bars(two, ax=axes())
    bars = {
        container.get_label(): {
            round(bar.get_x() + bar.get_width() / 2): round(bar.get_height(), 6)
            for bar in container
        }
        for container in ax.containers
    }
    # Antonym, plural, capital; capital was not measured without antonym's heads.
    assert bars == {
        "unmodified": {0: 0.66, 1: 0.9, 2: 0.7},
        "without antonym": {0: 0.04, 1: 0.85},
        "without plural": {0: 0.6, 1: 0.1, 2: 0.2},
    }
    interval = ax.collections[0].get_segments()[1]  # of plural without antonym's heads
    assert interval[:, 1] == pytest.approx([0.9 - 0.05 - 0.04, 0.9 - 0.05 + 0.03])


def test_task_matrix(two: dict[str, CapabilityResult]) -> None:
    ax: Any = task_matrix(two, ax=axes())
    names = [label.get_text() for label in ax.get_xticklabels()]
    assert names == ["antonym", "plural", "text", "capital"]
    (mesh,) = ax.collections
    cells = np.ma.filled(mesh.get_array(), np.nan)
    np.testing.assert_allclose(
        cells, [[0.62, 0.05, np.nan, np.nan], [0.06, 0.8, np.nan, 0.5]], equal_nan=True
    )
    written = {text.get_position(): text.get_text() for text in ax.texts}
    # Nats have a number, too, but no colour.
    assert written[2, 0] == ".06"
    assert written[3, 1] == ".50"
    assert (3, 0) not in written


def test_only_a_leading_nought_is_left_out(two: dict[str, CapabilityResult]) -> None:
    much = {"text": claim(-2.5, -12.55, "log_prob"), "plural": claim(0.5, 0.55)}
    ax = task_matrix({"antonym": capability(controls=much)}, ax=axes())
    assert {text.get_text() for text in ax.texts} == {".62", "10.05", "-.05"}


def test_what_a_column_cannot_show_is_not_drawn(
    two: dict[str, CapabilityResult], tmp_path: Path
) -> None:
    crowd = {f"control {number}": claim(0.9, 0.8) for number in range(20)}
    many = {name: capability(controls=crowd) for name in two}
    assert not [path for path in save_figures(many, {}, tmp_path) if "all-" in path.name]


def test_a_study_of_several_capabilities_saves_them(
    two: dict[str, CapabilityResult], tmp_path: Path
) -> None:
    names = {path.name for path in save_figures(two, {}, tmp_path)}
    assert {"all-matrix.pdf", "all-bars.svg", "all-radar.png"} <= names
    (name, one), _ = two.items()
    assert not [path for path in save_figures({name: one}, {}, tmp_path) if "all" in path.name]
