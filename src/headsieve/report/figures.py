"""Figures for a paper's column: where the needed heads are, and what knocking them out does.

Font sizes are relative to the caller's; `save_figures` sets those of a printed column.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Patch, Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from headsieve.models.heads import NOUNS, kind_of
from headsieve.report.colours import SERIES
from headsieve.report.drawing import (
    SCALE,
    STYLE,
    draw_matrix,
    file_names,
    save_figure,
    short,
    titled_figure,
)
from headsieve.report.several import grouped_bars, radar, task_matrix, tasks_of
from headsieve.report.words import nouns, number
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from headsieve.report.curve import Curve
    from headsieve.results import CapabilityResult

__all__ = [
    "effect_map",
    "grouped_bars",
    "head_count_curve",
    "radar",
    "save_figures",
    "task_matrix",
]

_CAPABILITY_COLOUR, *_CONTROL_COLOURS = SERIES
_CONTROL_MARKERS = "s^Dvp<>"  # one more than colours, so that pairs repeat late

# More names than these would not fit beside their lines, under their ticks or above the map.
_CONTROLS_NAMED = 13
_HEADS_NAMED = 5
_SELECTED_NAMED = 12
_OTHERS_NAMED = 3
# Colours and lines of more than these capabilities, and names of more than these tasks, could not
# be told apart in a column.
_CAPABILITIES_SHOWN = 7
_TASKS_SHOWN = 14


def effect_map(result: CapabilityResult, *, ax: Axes) -> Axes:
    """Draw the effect of every head as a heatmap, layers upwards, selected heads outlined.

    Orange (negative) heads are those the capability needs. Places where a layer has no head are
    hatched.

    Parameters
    ----------
    result : CapabilityResult
    ax : Axes
        Where to draw; the colour bar stands to the right of it.

    Returns
    -------
    Axes
        The same axes.
    """
    layers = 1 + max(head.layer for head in result.heads)
    width = 1 + max(head.index for head in result.heads)
    effects = np.full((layers, width), np.nan)
    for head in result.heads:
        effects[head.layer, head.index] = head.effect
    limit = colour_limit(result)
    mesh = draw_matrix(ax, effects, SCALE, -limit, limit)
    low, high = np.nanmin(effects) < -limit, np.nanmax(effects) > limit
    extend = "both" if low and high else "min" if low else "max" if high else "neither"
    bar = ax.figure.colorbar(
        mesh, cax=ax.inset_axes((1.04, 0, 0.05, 1)), extend=extend, extendfrac=0.03
    )
    bar.set_label("effect (nats)")

    # In a large model a cell is a few points wide: an outline on its border would hide it.
    margins = [max(0.0, size / 40 - 1) / 2 for size in (width, layers)]
    for head in result.heads:
        if head.head in result.selected:
            ax.add_patch(_outline(head.index, head.layer, *margins))

    one, many = nouns(result)
    label = _selected_label(result.selected, many)
    handles = [Patch(facecolor="none", edgecolor="black", label=label)]
    if np.isnan(effects).any():
        ax.patch.set(hatch="//////", edgecolor="0.8", linewidth=0)
        handles.append(Patch(facecolor="none", edgecolor="0.6", hatch="//////", label=f"no {one}"))
    _legend_above(ax, handles if result.selected else handles[1:])
    ax.set_xlabel(one)
    ax.set_ylabel("layer")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1))
    if kind_of(result.heads[0].head) in ("attention-layers", "mlp-layers"):
        ax.set_xticks([])  # one column: its number says nothing
    ax.set_xlim(-0.5, width - 0.5)
    ax.set_ylim(-0.5, layers - 0.5)
    return ax


def head_count_curve(curve: Curve, *, ax: Axes) -> Axes:
    """Draw the claim metric of the capability and its controls against the heads knocked out.

    The axis is that of the capability's metric. Tasks in another unit (plain text, in nats) are
    not on it: a note above the axes gives their first and last value.

    Parameters
    ----------
    curve : Curve
    ax : Axes

    Returns
    -------
    Axes
        The same axes.
    """
    counts = np.arange(len(curve.heads) + 1)
    own = curve.metric[curve.capability]
    alike = [task for task, its in curve.metric.items() if (its == LOG_PROB) == (own == LOG_PROB)]
    shown = {task: row for task, row in curve.values.items() if task in alike}
    low, high = np.array(curve.ci).T
    ax.fill_between(counts, low, high, color=_CAPABILITY_COLOUR, alpha=0.18, linewidth=0)
    ax.plot(
        counts,
        shown.pop(curve.capability),
        "o-",
        color=_CAPABILITY_COLOUR,
        linewidth=1.8,
        markersize=4,
        label=curve.capability,
        zorder=4,
    )
    crowded = len(shown) > _CONTROLS_NAMED
    styles = zip(cycle(_CONTROL_COLOURS), cycle(_CONTROL_MARKERS), strict=False)
    for (task, row), (colour, marker) in zip(shown.items(), styles, strict=False):
        (line,) = ax.plot(counts, row, color="0.6", linewidth=0.6, label=task, zorder=3)
        if not crowded:
            line.set(color=colour, linewidth=0.9, marker=marker, markersize=3)

    if own != LOG_PROB:
        ax.set_ylabel(
            ", ".join(dict.fromkeys(curve.metric[task] for task in (curve.capability, *alike)))
        )
        ax.set_ylim(-0.03, 1.03)
    else:
        ax.set_ylabel("log-probability (nats a token)")
    margin = 0.04 * max(counts[-1], 1)
    ax.set_xlim(-margin, counts[-1] + margin)
    kind = kind_of(curve.heads[0]) if curve.heads else "heads"
    ax.set_xlabel(f"{NOUNS[kind][1]} knocked out")
    _count_ticks(ax, curve.heads)
    ax.spines[["top", "right"]].set_visible(False)
    if crowded:
        own_line, *control_lines = ax.get_lines()
        legend = ax.legend(
            [own_line, control_lines[0]],
            [short(curve.capability, 30), f"{len(shown)} controls"],
            fontsize="small",
            frameon=False,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    else:
        _label_ends(ax)

    others = [
        f"{task} {number(row[0])} to {number(row[-1])}"
        + (" nats" if curve.metric[task] == LOG_PROB else "")
        for task, row in curve.values.items()
        if task not in alike
    ]
    if others:
        if len(others) > _OTHERS_NAMED:
            others[_OTHERS_NAMED:] = [f"and {len(others) - _OTHERS_NAMED} more"]
        note = textwrap.fill("not on this axis: " + ", ".join(others), 60)
        ax.text(
            0,
            1.03,
            note,
            transform=ax.transAxes,
            va="bottom",
            fontsize="x-small",
            color="0.3",
            parse_math=False,
        )
    return ax


def save_figures(
    capabilities: Mapping[str, CapabilityResult], curves: Mapping[str, Curve], folder: Path
) -> list[Path]:
    """Write the figures of every capability, and of several together, as PNG (200 dpi), SVG, PDF.

    Parameters
    ----------
    capabilities : mapping of str to CapabilityResult
    curves : mapping of str to Curve
        A capability may lack its curve, as one does for which no heads were selected.
    folder : Path
        Made if need be.

    Returns
    -------
    list of Path
        The files written: ``NAME-effects`` and ``NAME-curve``, with `file_names` for NAME; of
        several capabilities also ``all-matrix``, ``all-bars`` and, with three tasks or more,
        ``all-radar``, unless there are more than a column can show.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = file_names(capabilities)
    written = []
    with mpl.rc_context(STYLE):
        for name, result in capabilities.items():
            layers = 1 + max(head.layer for head in result.heads)
            figure = titled_figure(name, height=min(6.5, max(2.0, 1.0 + 0.1 * layers)))
            effect_map(result, ax=figure.add_subplot())
            written += save_figure(figure, folder / f"{names[name]}-effects")
            if name in curves:
                figure = titled_figure(name, height=2.4)
                head_count_curve(curves[name], ax=figure.add_subplot())
                written += save_figure(figure, folder / f"{names[name]}-curve")
        tasks = tasks_of(capabilities, text=True)
        if 1 < len(capabilities) <= _CAPABILITIES_SHOWN and len(tasks) <= _TASKS_SHOWN:
            written += _save_together(capabilities, folder)
    return written


def _save_together(capabilities: Mapping[str, CapabilityResult], folder: Path) -> list[Path]:
    figure = titled_figure(
        "Drop without each capability's heads", height=1.2 + 0.2 * len(capabilities)
    )
    task_matrix(capabilities, ax=figure.add_subplot())
    written = save_figure(figure, folder / "all-matrix")
    tasks = tasks_of(capabilities)
    if tasks:
        figure = titled_figure("Accuracy without each capability's heads", height=2.6)
        grouped_bars(capabilities, ax=figure.add_subplot())
        written += save_figure(figure, folder / "all-bars")
    if len(tasks) > 2:
        figure = titled_figure("Accuracy without each capability's heads", height=3.6)
        radar(capabilities, ax=figure.add_subplot(projection="polar"))
        written += save_figure(figure, folder / "all-radar")
    return written


def colour_limit(result: CapabilityResult) -> float:
    """The effect at the ends of the colour map.

    One head that everything needs can have many times the effect of all others and would leave
    them white; the scale then ends before it, though never before a selected head.
    """
    sizes = np.abs([head.effect for head in result.heads])
    chosen = [abs(head.effect) for head in result.heads if head.head in result.selected]
    limit = max([float(np.quantile(sizes, 0.99)), *chosen])
    largest = float(sizes.max())
    return (largest if largest <= 2 * limit else limit) or 1.0


def _outline(x: int, y: int, x_margin: float, y_margin: float) -> Rectangle:
    large = x_margin or y_margin
    return Rectangle(
        (x - 0.5 - x_margin, y - 0.5 - y_margin),
        1 + 2 * x_margin,
        1 + 2 * y_margin,
        fill=False,
        edgecolor="black",
        linewidth=0.7 if large else 1.0,
        # Black alone would be lost on a dark cell; where it stands off the cell, white would only
        # hide a neighbour that is selected too.
        path_effects=[] if large else [withStroke(linewidth=2.2, foreground="white")],
        clip_on=False,
        zorder=5,
    )


def _selected_label(selected: Sequence[str], units: str) -> str:
    if len(selected) > _SELECTED_NAMED:
        return f"selected ({len(selected)} {units})"
    return textwrap.fill("selected: " + ", ".join(selected), 44)


def _legend_above(ax: Axes, handles: Sequence[Patch]) -> None:
    if handles:
        ax.legend(
            handles=handles,
            loc="lower left",
            bbox_to_anchor=(0, 1),
            fontsize="x-small",
            frameon=False,
            borderaxespad=0.2,
            borderpad=0.2,
            handlelength=1,
            handleheight=1,
        )


def _count_ticks(ax: Axes, heads: Sequence[str]) -> None:
    if len(heads) > _HEADS_NAMED:
        ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
        return
    # Few enough to say which head each step adds.
    labels = ["0"] + [f"{count}\n{head}" for count, head in enumerate(heads, start=1)]
    ax.set_xticks(range(len(labels)), labels, fontsize="x-small")


def _label_ends(ax: Axes) -> None:
    """Write each line's name beside its last point; the first line is the capability's."""
    size = FontProperties(size="small").get_size_in_points()
    bottom, top = ax.get_ylim()
    points = ax.get_window_extent().height * 72 / ax.figure.dpi
    lines = ax.get_lines()
    gap = min(1.2 * size / points, 1 / len(lines)) * (top - bottom)
    ends = np.array([np.asarray(line.get_ydata(), dtype=float)[-1] for line in lines])
    last = float(np.asarray(lines[0].get_xdata(), dtype=float)[-1])
    places = _spread(ends, gap, bottom + gap / 2, top - gap / 2)
    for line, end, place in zip(lines, ends, places, strict=True):
        ax.annotate(
            short(str(line.get_label()), 18),
            xy=(last, end),
            xytext=(1.06, place),
            textcoords=("axes fraction", "data"),
            va="center",
            fontsize="small",
            fontweight="bold" if line is lines[0] else "normal",
            arrowprops={
                "arrowstyle": "-",
                "linewidth": 0.6,
                "color": line.get_color(),
                "relpos": (0, 0.5),
                "shrinkA": 1,
                "shrinkB": 3,
            },
            annotation_clip=False,
            parse_math=False,
        )


def _spread(
    values: NDArray[np.float64], gap: float, low: float, high: float
) -> NDArray[np.float64]:
    """Places nearest to the values that are in their order, `gap` apart and within the limits.

    Less its share of the gaps each place need only be no lower than the one before, which makes
    this an isotonic regression: neighbours that clash are pooled at their mean.
    """
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(values))
    pools: list[list[float]] = []
    for value in values[order] - steps:
        pools.append([value])
        while len(pools) > 1 and np.mean(pools[-2]) > np.mean(pools[-1]):
            pools[-2:] = [pools[-2] + pools[-1]]
    level = np.concatenate([np.full(len(pool), np.mean(pool)) for pool in pools])
    places = np.empty_like(values)
    places[order] = np.clip(level, low, high - steps[-1]) + steps
    return places
