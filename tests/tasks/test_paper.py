"""The published figures as data."""

from __future__ import annotations

from headsieve.tasks.paper import paper_figures


def test_the_table_has_every_task_under_every_knockout() -> None:
    figures = paper_figures()
    assert list(figures.after_knockout) == ["none", "math", "code", "swear", "rhyme"]
    for scores in figures.after_knockout.values():
        assert tuple(scores) == figures.tasks
        assert all(0 <= score <= 1 for score in scores.values())
    assert figures.after_knockout["none"]["swearing"] == 1.0
    assert figures.after_knockout["math"]["gsm8k"] == 0.3010
    assert "2603.03335" in figures.source


def test_the_curve_begins_and_passes_where_the_table_does() -> None:
    figures = paper_figures()
    for task in ("gsm8k", "arithmetic"):
        curve = figures.math_curve[task]
        assert len(curve) == 11
        assert curve[0] == figures.after_knockout["none"][task]
        assert curve[5] == figures.after_knockout["math"][task]


def test_wmdp_has_each_models_baseline() -> None:
    for rows in paper_figures().wmdp.values():
        assert next(iter(rows)) == "none"
        for scores in rows.values():
            assert list(scores) == ["bio", "chem", "cyber", "mmlu", "general"]
