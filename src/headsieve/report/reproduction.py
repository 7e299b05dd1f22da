"""One's own figures beside the published ones: tables, a figure and a page."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headsieve.report.colours import SERIES
from headsieve.report.drawing import STYLE
from headsieve.report.page.render import plain_page
from headsieve.report.tables import add_row, new_table
from headsieve.report.words import number
from headsieve.tasks.paper import paper_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from headsieve.reproduction import Reproduction

_WIDTH = 7.1
_PAPER_WMDP = "Llama-3.1-8B"
_NONE = "-"
_SETS = {"none": "unmodified", "math": "math", "code": "code", "swear": "swear", "rhyme": "rhyme"}
_SUBJECTS = {"none": "unmodified", "bio": "bio", "chem": "chem", "cyber": "cyber"}


@dataclass(frozen=True)
class Comparison:
    """A table of cells ``own / published``.

    Attributes
    ----------
    title : str
    columns : tuple of str
        Without the first, which names the rows.
    rows : mapping of str to tuple of str
    """

    title: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[str, ...]]


def comparisons(done: Reproduction) -> list[Comparison]:
    """The paper's three tables, each cell one's own figure and the published one."""
    paper = paper_figures()
    table = Comparison(
        "Score without five heads: this model / the paper's",
        tuple(_SETS.values()),
        {
            task: tuple(
                _cell(done.table.get(row, {}).get(task), paper.after_knockout[row].get(task))
                for row in _SETS
            )
            for task in paper.tasks
        },
    )
    counts = len(next(iter(paper.math_curve.values())))
    curve = Comparison(
        "Score by number of math heads knocked out: this model / the paper's",
        tuple(map(str, range(counts))),
        {
            line: tuple(
                _cell(dict(enumerate(done.curve.get(line, []))).get(count), published[count])
                for count in range(counts)
            )
            for line, published in paper.math_curve.items()
        },
    )
    wmdp = Comparison(
        f"WMDP: this model / {_PAPER_WMDP} in the paper",
        tuple(_SUBJECTS.values()),
        {
            task: tuple(
                _cell(done.wmdp.get(row, {}).get(task), paper.wmdp[_PAPER_WMDP][row][task])
                for row in _SUBJECTS
            )
            for task in paper.wmdp[_PAPER_WMDP]["none"]
        },
    )
    return [table, curve, wmdp]


def notes(done: Reproduction) -> list[str]:
    """What a reader of the tables must know."""
    found = [f"Heads of {name}: {', '.join(heads)}." for name, heads in done.heads.items()]
    found += [
        f"No heads of {name}: its tasks could not be had, or the search found none."
        for name in (*_SETS, *_SUBJECTS)
        if name not in ("none", *done.heads)
    ]
    found += [
        f"The form of the answers explains what {task} loses: {form.reason}."
        for task, form in done.form.items()
        if form.explains
    ]
    return found + [f"Without {task}: {reason}" for task, reason in done.missing.items()]


def summary(done: Reproduction) -> RenderableType:
    """What a person sees at the end of ``headsieve reproduce``."""
    parts: list[RenderableType] = []
    for one in comparisons(done):
        table = new_table("task", *(f"{column}>" for column in one.columns))
        for name, cells in one.rows.items():
            add_row(table, [name, *cells])
        parts += [Text(""), Text(one.title, style="bold"), table]
    return Group(*parts, Text(""), *(Text(note) for note in notes(done)))


def figure_svg(done: Reproduction) -> str:
    """The table and the curve as a figure: one's own, and lighter the published ones."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH, 4.6), layout="constrained")
        upper, lower = figure.subplots(2, 1)
        _draw_table(done, upper)
        _draw_curve(done, lower)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def reproduction_page(done: Reproduction) -> str:
    """The text of ``reproduction.html``."""
    return plain_page(
        "reproduction.html.j2",
        metadata.version("headsieve"),
        done=done,
        paper=paper_figures(),
        comparisons=comparisons(done),
        notes=notes(done),
        figure=figure_svg(done).partition("<svg")[1] + figure_svg(done).partition("<svg")[2],
    )


def _cell(own: float | None, published: float | None) -> str:
    return " / ".join(_NONE if one is None else number(one) for one in (own, published))


def _draw_table(done: Reproduction, ax: Axes) -> None:
    paper = paper_figures()
    width = 0.8 / len(_SETS)
    for place, (row, label) in enumerate(_SETS.items()):
        at = [
            number_ + (place - len(_SETS) / 2 + 0.5) * width for number_ in range(len(paper.tasks))
        ]
        own = [done.table.get(row, {}).get(task, 0.0) for task in paper.tasks]
        ax.bar(at, own, width, color=SERIES[place], label=label)
        published = [paper.after_knockout[row][task] for task in paper.tasks]
        ax.plot(at, published, "_", color="black", markersize=5, markeredgewidth=0.8)
    ax.plot([], [], "_", color="black", label="published")
    ax.set_xticks(
        range(len(paper.tasks)), paper.tasks, rotation=30, ha="right", rotation_mode="anchor"
    )
    ax.set_ylabel("score")
    ax.legend(ncols=len(_SETS) + 1, loc="lower center", bbox_to_anchor=(0.5, 1), frameon=False)


def _draw_curve(done: Reproduction, ax: Axes) -> None:
    for place, (line, published) in enumerate(paper_figures().math_curve.items()):
        colour = SERIES[place]
        _line(ax, published, color=colour, linestyle=":", label=f"{line}, published")
        if line in done.curve:
            _line(ax, done.curve[line], color=colour, marker="o", markersize=3, label=line)
    ax.set_xlabel("math heads knocked out")
    ax.set_ylabel("score")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)


def _line(ax: Axes, values: Sequence[float], **look: Any) -> None:
    ax.plot(range(len(values)), values, **look)
