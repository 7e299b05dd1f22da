"""The figure of an atlas: heads by capabilities, and what each capability's heads do to all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from scipy.cluster import hierarchy

from headsieve.report.atlas_words import shown_heads
from headsieve.report.drawing import LOSSES, SCALE, STYLE, draw_matrix, save_figure
from headsieve.report.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from headsieve.atlas_result import AtlasResult

WIDTH = 7.1
"""Inches of a page of two columns."""

# Cells with less of a drop are left without their figure.
_WORTH_WRITING = 0.1


def atlas_heads(result: AtlasResult, *, ax: Axes) -> Axes:
    """Draw effects of heads (columns) on capabilities (rows), similar ones side by side.

    Selected heads have a dot; names of confirmed general heads are bold.

    Parameters
    ----------
    result : AtlasResult
    ax : Axes

    Returns
    -------
    Axes
        The same axes.
    """
    heads = shown_heads(result)
    effects = np.array([[head.effects[name] for head in heads] for name in result.order])
    limit = (float(np.quantile(np.abs(effects), 0.97)) if effects.size else 0.0) or 1.0
    mesh = draw_matrix(ax, effects.reshape(len(result.order), len(heads)), SCALE, -limit, limit)
    for row, name in enumerate(result.order):
        chosen = result.capabilities[name].selected
        columns = [column for column, head in enumerate(heads) if head.head in chosen]
        ax.plot(columns, [row] * len(columns), "k.", markersize=2.5)
    general = {one.head for one in result.general if one.confirmed}
    ax.set_xticks(range(len(heads)), [head.head for head in heads], rotation=90, fontsize=5)
    for label in ax.get_xticklabels():
        label.set_fontweight("bold" if label.get_text() in general else "normal")
    ax.set_xlabel("head knocked out")
    bar = ax.figure.colorbar(mesh, ax=ax, location="top", fraction=0.03, pad=0.01, extend="both")
    bar.set_label("effect (nats); dot: selected for the capability")
    return ax


def atlas_drops(result: AtlasResult, *, ax: Axes) -> Axes:
    """Draw what every capability (columns) loses without the heads of each (rows), held out.

    Parameters
    ----------
    result : AtlasResult
    ax : Axes

    Returns
    -------
    Axes
        The same axes.
    """
    drops = drop_matrix(result)
    mesh = draw_matrix(ax, drops, LOSSES, 0.0, 1.0)
    for row, column in zip(*np.nonzero(drops >= _WORTH_WRITING), strict=True):
        text = number(float(drops[row, column])).lstrip("0")
        ax.text(column, row, text, ha="center", va="center", fontsize=3.5)
    ax.set_xticks(range(len(result.order)), result.order, rotation=90)
    ax.set_xlabel("capability that loses")
    bar = ax.figure.colorbar(mesh, ax=ax, location="top", fraction=0.03, pad=0.01)
    bar.set_label("accuracy lost without the row's heads")
    return ax


def drop_matrix(result: AtlasResult) -> NDArray[np.float64]:
    """Held-out drops, rows without the heads of a capability, both in the order of the map."""
    drops = np.zeros((len(result.order), len(result.order)))
    for row, name in enumerate(result.order):
        checks = result.capabilities[name].verification
        for column, other in enumerate(result.order):
            claim = checks.capability if other == name else checks.controls[other]
            drops[row, column] = claim.drop
    return drops


def save_atlas_figures(result: AtlasResult, folder: Path) -> list[Path]:
    """Write the figure of an atlas as PNG (200 dpi), SVG and PDF.

    Parameters
    ----------
    result : AtlasResult
    folder : Path
        Made if need be.

    Returns
    -------
    list of Path
        The files written, ``atlas`` with their endings.
    """
    folder.mkdir(parents=True, exist_ok=True)
    count = len(result.order)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, max(2.4, 1.5 + 0.135 * count)), layout="constrained")
        heads = max(4, len(shown_heads(result)))
        tree, left, right = figure.subplots(
            1, 3, width_ratios=[0.08 * (heads + count), heads, max(count, 4)], sharey=False
        )
        atlas_heads(result, ax=left)
        atlas_drops(result, ax=right)
        left.set_yticks(range(count), result.order)
        right.set_yticks([])
        _tree(result, tree)
        return save_figure(figure, folder / "atlas")


def _tree(result: AtlasResult, ax: Axes) -> None:
    """Draw the clustering of the capabilities, its leaves beside the rows."""
    hierarchy.dendrogram(
        np.array(result.tree),
        orientation="left",
        ax=ax,
        no_labels=True,
        color_threshold=0,
        above_threshold_color="0.4",
    )
    for lines in ax.collections:
        lines.set_linewidth(0.6)
    # scipy puts leaves ten apart, the first at five.
    ax.set_ylim(10 * len(result.order), 0)
    ax.axis("off")
