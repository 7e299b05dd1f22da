"""Figures of several capabilities side by side: what the heads of each do to all tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.report.colours import SERIES
from headsieve.report.drawing import LOSSES, draw_matrix, short
from headsieve.report.words import number
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from headsieve.results import CapabilityResult, Claim

UNMODIFIED = "unmodified"
_UNMODIFIED_COLOUR = "0.35"
# Characters of a task's name, and of a legend's entry, at most.
_NAME = 16
_LABEL = 24


def claims_of(name: str, result: CapabilityResult) -> dict[str, Claim]:
    """All tasks' claims without the heads of one capability, itself first."""
    return {name: result.verification.capability, **result.verification.controls}


def tasks_of(capabilities: Mapping[str, CapabilityResult], *, text: bool = False) -> list[str]:
    """All tasks that were measured; plain text, which has no accuracy, only if asked for."""
    return list(
        dict.fromkeys(
            task
            for name, result in capabilities.items()
            for task, claim in claims_of(name, result).items()
            if text or claim.metric != LOG_PROB
        )
    )


def accuracies(capabilities: Mapping[str, CapabilityResult]) -> dict[str, dict[str, float]]:
    """Accuracy of every task, unmodified and without the heads of each capability."""
    tasks = tasks_of(capabilities)
    found: dict[str, dict[str, float]] = {UNMODIFIED: {}}
    for name, result in capabilities.items():
        shown = {task: one for task, one in claims_of(name, result).items() if task in tasks}
        found[UNMODIFIED] |= {task: one.baseline for task, one in shown.items()}
        found[f"without {name}"] = {task: one.knocked_out for task, one in shown.items()}
    return found


def _top(capabilities: Mapping[str, CapabilityResult]) -> float:
    """Where accuracies end; some metrics go beyond 1."""
    shown = accuracies(capabilities).values()
    return max(1.0, *(value for values in shown for value in values.values()))


def radar(capabilities: Mapping[str, CapabilityResult], *, ax: Axes) -> Axes:
    """Draw the accuracy of all tasks, unmodified and without the heads of each capability.

    As in Figure 1 of arXiv 2603.03335. Plain text, which has no accuracy, is not on it.

    Parameters
    ----------
    capabilities : mapping of str to CapabilityResult
        As in a study's `result.capabilities`.
    ax : Axes
        With polar coordinates: ``figure.add_subplot(projection="polar")``.

    Returns
    -------
    Axes
        The same axes.

    Raises
    ------
    ValueError
        If the coordinates are not polar.
    """
    if ax.name != "polar":
        raise ValueError('A radar chart needs polar axes: add_subplot(projection="polar").')
    tasks = tasks_of(capabilities)
    angles = np.linspace(0, 2 * np.pi, len(tasks), endpoint=False)
    for (name, values), style in zip(accuracies(capabilities).items(), _styles(), strict=False):
        shown = [values.get(task, np.nan) for task in tasks]
        ax.plot([*angles, *angles[:1]], [*shown, *shown[:1]], label=short(name, _LABEL), **style)
    # The first task is on top, the others follow clockwise.
    ax.set(theta_zero_location="N", theta_direction=-1, ylim=(0, _top(capabilities)))
    ax.set_yticks([0.25, 0.5, 0.75, 1], ["", ".5", "", "1"], fontsize="x-small", color="0.4")
    ax.set_xticks(angles, [short(task, _NAME) for task in tasks], parse_math=False)
    for label, angle in zip(ax.get_xticklabels(), angles, strict=True):
        side = np.sin(angle)
        label.set_horizontalalignment(
            "center" if abs(side) < 0.1 else "left" if side > 0 else "right"
        )
    ax.tick_params(axis="x", pad=-2)
    ax.grid(linewidth=0.5, color="0.85")
    ax.spines["polar"].set_color("0.85")
    _legend(ax, top=-0.1)
    return ax


def grouped_bars(capabilities: Mapping[str, CapabilityResult], *, ax: Axes) -> Axes:
    """Draw the accuracy of all tasks as bars, unmodified and without the heads of each capability.

    A line on a bar is the 95 % interval of the drop: where the bar could end, measured from the
    accuracy before.

    Parameters
    ----------
    capabilities : mapping of str to CapabilityResult
        As in a study's `result.capabilities`.
    ax : Axes

    Returns
    -------
    Axes
        The same axes.
    """
    tasks = tasks_of(capabilities)
    before = accuracies(capabilities)[UNMODIFIED]
    width = 0.85 / (1 + len(capabilities))
    places = np.arange(len(tasks)) - 0.425 + width / 2
    ax.bar(
        places,
        [before[task] for task in tasks],
        width,
        color=_UNMODIFIED_COLOUR,
        label=UNMODIFIED,
    )
    for number_, ((name, result), colour) in enumerate(
        zip(capabilities.items(), cycle(SERIES), strict=False), start=1
    ):
        shown = {task: one for task, one in claims_of(name, result).items() if task in tasks}
        at = [places[tasks.index(task)] + number_ * width for task in shown]
        ax.bar(
            at,
            [one.knocked_out for one in shown.values()],
            width,
            color=colour,
            label=short(f"without {name}", _LABEL),
        )
        low = [one.baseline - one.ci[1] for one in shown.values()]
        high = [one.baseline - one.ci[0] for one in shown.values()]
        label = "95 % interval of the drop" if number_ == 1 else "_nolegend_"
        ax.vlines(at, low, high, color="black", linewidth=0.6, label=label)
    _name_tasks(ax, tasks, align="right")
    ax.tick_params(axis="x", length=0)
    ax.set(ylim=(0, _top(capabilities)), ylabel="accuracy")
    ax.spines[["top", "right"]].set_visible(False)
    _legend(ax, bottom=1.02)
    return ax


def task_matrix(capabilities: Mapping[str, CapabilityResult], *, ax: Axes) -> Axes:
    """Draw what every task (columns) loses without the heads of each capability (rows).

    Plain text loses nats, and its cells stay white.

    Parameters
    ----------
    capabilities : mapping of str to CapabilityResult
        As in a study's `result.capabilities`.
    ax : Axes

    Returns
    -------
    Axes
        The same axes.
    """
    tasks = tasks_of(capabilities, text=True)
    losses = np.full((len(capabilities), len(tasks)), np.nan)
    for row, (name, result) in enumerate(capabilities.items()):
        for task, claim in claims_of(name, result).items():
            column = tasks.index(task)
            if claim.metric != LOG_PROB:
                losses[row, column] = claim.drop
            ax.text(
                column,
                row,
                re.sub(r"^(-?)0\.", r"\1.", number(claim.drop)),
                ha="center",
                va="center",
                fontsize="x-small",
            )
    mesh = draw_matrix(ax, losses, LOSSES, 0.0, 1.0)
    bar = ax.figure.colorbar(mesh, cax=ax.inset_axes((1.02, 0, 0.025, 1)), ticks=[0, 0.5, 1])
    bar.set_label("drop", fontsize="small")
    bar.ax.tick_params(labelsize="x-small")
    _name_tasks(ax, tasks, align="left")
    ax.xaxis.tick_top()
    ax.xaxis.set_label_position("top")
    ax.set_xlabel("task")
    ax.set_yticks(
        range(len(capabilities)), [short(name, _NAME) for name in capabilities], parse_math=False
    )
    ax.tick_params(length=0)
    ax.set_ylabel("without\nthe heads of")
    return ax


def _styles() -> Iterator[dict[str, Any]]:
    """Of the unmodified model's line, then of the others."""
    yield {"color": _UNMODIFIED_COLOUR, "linestyle": "--", "linewidth": 1}
    for colour in cycle(SERIES):
        yield {"color": colour, "linewidth": 1, "marker": "o", "markersize": 2}


def _name_tasks(ax: Axes, tasks: Sequence[str], *, align: str) -> None:
    """Write the tasks' names aslant at their places."""
    ax.set_xticks(
        range(len(tasks)),
        [short(task, _NAME) for task in tasks],
        rotation=40,
        ha=align,
        rotation_mode="anchor",
        parse_math=False,
    )


def _legend(ax: Axes, **place: float) -> None:
    """Entries in two columns, their upper or lower edge at a height of the axes."""
    ((edge, height),) = place.items()
    legend = ax.legend(
        loc="upper center" if edge == "top" else "lower center",
        bbox_to_anchor=(0.5, height),
        ncols=2,
        fontsize="x-small",
        frameon=False,
        borderaxespad=0.2,
        columnspacing=1,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
