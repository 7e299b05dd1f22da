"""What all figures share: their style, colours, matrices, and how they are written to files.

Nothing here touches pyplot, so that figures can be drawn in any thread and leave no state behind.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from headsieve.report.colours import GAIN, LOSS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Colormap
    from numpy.typing import NDArray

WIDTH = 3.4
"""Inches of a paper's column."""

STYLE = {
    "font.size": 8,
    # Text that can be searched and edited, not outlines.
    "pdf.fonttype": 42,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    # Text stays text in SVG, and the same result gives the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "headsieve",
}
# From what is needed to what does harm, as on the page.
_LOSS, _WHITE, _GAIN = (
    tuple(part / 255 for part in colour) for colour in (LOSS, (255, 255, 255), GAIN)
)
# Steeper in the middle, as on the page: a small effect beside a large one is to be seen.
_WEAK_LOSS, _WEAK_GAIN = (
    tuple(1 - 0.4 * (1 - part) for part in colour) for colour in (_LOSS, _GAIN)
)
SCALE = LinearSegmentedColormap.from_list(
    "headsieve",
    [(0.0, _LOSS), (0.375, _WEAK_LOSS), (0.5, _WHITE), (0.625, _WEAK_GAIN), (1.0, _GAIN)],
)
LOSSES = LinearSegmentedColormap.from_list("headsieve losses", [_WHITE, _LOSS])


def file_names(names: Iterable[str]) -> dict[str, str]:
    """A name that is safe in every file system for each capability, no two alike.

    Parameters
    ----------
    names : iterable of str
        Names of capabilities; they may be paths, or hold colons.
    """
    safe: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[-80:] or "capability"
        candidate, copy = stem, 2
        # Some file systems do not tell small letters from capitals.
        while candidate.casefold() in taken:
            candidate, copy = f"{stem}-{copy}", copy + 1
        taken.add(candidate.casefold())
        safe[name] = candidate
    return safe


def titled_figure(title: str, *, height: float) -> Figure:
    """An empty figure of a column's width."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    figure.suptitle(short(title, 40), fontsize="medium", fontweight="bold", parse_math=False)
    return figure


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """Write a figure as PNG (200 dpi), SVG and PDF, the same bytes for the same figure."""
    # Not with_suffix, which would take what follows a dot in the name for one.
    png, svg, pdf = (Path(f"{stem}.{ending}") for ending in ("png", "svg", "pdf"))
    with warnings.catch_warnings():
        # Names may be of a script that the font lacks; the SVG has them all the same.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(png, dpi=200)
        figure.savefig(svg, metadata={"Date": None})
        figure.savefig(pdf, metadata={"CreationDate": None})
    return [png, svg, pdf]


def draw_matrix(
    ax: Axes, values: NDArray[np.float64], colours: Colormap, low: float, high: float
) -> ScalarMappable:
    """Draw a cell for each value, the first row on top.

    Parameters
    ----------
    ax : Axes
    values : ndarray of float, shape (rows, columns)
    colours : Colormap
    low, high : float
        Values at the ends of the colours.
    """
    rows, columns = values.shape
    mesh = ax.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        values,
        cmap=colours,
        vmin=low,
        vmax=high,
        # Edges of the cell's own colour hide the seams that viewers of SVG draw between cells.
        edgecolors="face",
        linewidth=0.1,
    )
    ax.set_ylim(rows - 0.5, -0.5)
    return mesh


def short(name: str, length: int) -> str:
    """A long name without its middle; a path's end says the most."""
    if len(name) <= length:
        return name
    head = length // 3
    return f"{name[:head]}…{name[head + 1 - length :]}"
