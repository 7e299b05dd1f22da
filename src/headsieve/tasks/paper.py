"""The figures that the paper published, to be shown beside one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from headsieve.tasks.data import load_data

Scores = Mapping[str, float]


@dataclass(frozen=True)
class PaperFigures:
    """Published figures of arXiv 2603.03335, as its released code plots them.

    Attributes
    ----------
    source, url, model, notes : str
        Where they are from, and which model `after_knockout` and `math_curve` are of.
    tasks : tuple of str
        In the order of the paper's table.
    after_knockout : mapping of str to mapping of str to float
        Score of each task with no head knocked out (``none``) and with the five heads for
        ``math``, ``code``, ``swear`` or ``rhyme``. Accuracy, but for swearing, which is the count
        of profane words relative to the unmodified model's.
    math_curve : mapping of str to tuple of float
        Accuracy with 0, 1, … 10 math heads knocked out: of ``gsm8k`` and ``arithmetic``, and the
        means of the ``general`` and the ``code`` tasks.
    math_heads : tuple of str
        Those that the authors name.
    wmdp : mapping of str to mapping of str to mapping of str to float
        For each model: accuracy by subject under no knockout (``none``), under knockouts for a
        subject, or of a single head that is named.
    """

    source: str
    url: str
    model: str
    notes: str
    tasks: tuple[str, ...]
    after_knockout: Mapping[str, Scores]
    math_curve: Mapping[str, tuple[float, ...]]
    math_heads: tuple[str, ...]
    wmdp: Mapping[str, Mapping[str, Scores]]


@cache
def paper_figures() -> PaperFigures:
    """The published figures."""
    data = load_data("paper")
    tasks, columns = data["tasks"], data["wmdp_columns"]
    return PaperFigures(
        source=data["source"],
        url=data["url"],
        model=data["model"],
        notes=data["notes"],
        tasks=tuple(tasks),
        after_knockout={
            heads: dict(zip(tasks, scores, strict=True))
            for heads, scores in data["after_knockout_of_five_heads"].items()
        },
        math_curve={
            task: tuple(scores) for task, scores in data["after_knockout_of_math_heads"].items()
        },
        math_heads=tuple(data["math_heads"]),
        wmdp={
            model: {
                heads: dict(zip(columns, scores, strict=True)) for heads, scores in rows.items()
            }
            for model, rows in data["wmdp"].items()
        },
    )
