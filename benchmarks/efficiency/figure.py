"""The figure: share of the effect kept against evaluations, and how evaluations grow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, ScalarFormatter

from efficiency.compare import Comparison
from efficiency.measures import mean_and_error
from efficiency.tables import ENOUGH, growth, mean, slope

_COLUMNS = 3


def draw(results: Mapping[str, Comparison], path: Path) -> None:
    """A panel for each case, and one of growth where there are growth cases."""
    grown = growth(results)
    names = list(dict.fromkeys(name for one in results.values() for name in one.runs))
    colours = {name: f"C{number % 10}" for number, name in enumerate(names)}
    styles = {name: "-" if number < 10 else "--" for number, name in enumerate(names)}
    panels = len(results) + bool(grown)
    columns = min(_COLUMNS, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(4.5 * columns, 3.5 * rows), layout="constrained")
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for axis, (case, comparison) in zip(axes, results.items(), strict=False):
        for name, runs in comparison.runs.items():
            budgets = sorted(runs)
            kept = [mean_and_error([run.kept for run in runs[budget]]) for budget in budgets]
            axis.errorbar(
                [mean(runs[budget], lambda run: run.evaluations) for budget in budgets],
                [value for value, _error in kept],
                yerr=[error for _value, error in kept],
                label=name,
                color=colours[name],
                linestyle=styles[name],
                marker=".",
            )
        axis.axhline(ENOUGH, color="grey", linewidth=0.5)
        axis.set(title=f"{case} ({comparison.heads} heads)", xscale="log", ylim=(-0.02, 1.05))
        axis.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.xaxis.set_major_formatter(ScalarFormatter())
        axis.xaxis.set_minor_locator(NullLocator())
        axis.set(xlabel="evaluations", ylabel="effect of the top 5 kept")
    if grown:
        axis = axes[len(results)]
        for name, (heads, counts) in grown.items():
            axis.plot(heads, counts, "o", color=colours[name])
            fitted = slope(heads, counts)
            if fitted is not None:
                more, start = fitted
                axis.plot(
                    heads,
                    start + more * np.log2(heads),
                    color=colours[name],
                    label=f"{name}: {more:.1f} a doubling",
                )
        axis.set(title=f"evaluations for {ENOUGH} kept", xscale="log", xlabel="heads")
        if axis.get_legend_handles_labels()[0]:
            axis.legend(fontsize=7)
    for axis in axes[panels:]:
        axis.set_axis_off()
    axes[0].legend(fontsize=7)
    figure.savefig(path, dpi=150)
