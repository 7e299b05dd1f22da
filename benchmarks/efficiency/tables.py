"""Comparisons as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from efficiency.compare import Comparison
from efficiency.measures import Run, mean_and_error

GROWTH = "growth-"
ENOUGH = 0.95


def to_json(
    results: Mapping[str, Comparison], real: set[str]
) -> dict[str, dict[str, dict[str, object]]]:
    """Everything that was measured, by kind of case, case and method."""
    found: dict[str, dict[str, dict[str, object]]] = {"real": {}, "simulated": {}}
    calibration: dict[str, dict[str, object]] = {}
    for case, comparison in results.items():
        kind = "real" if case in real else "simulated"
        found[kind][case] = {name: _curve(runs) for name, runs in comparison.runs.items()}
        coverage, false_share = calibrated(comparison)
        if coverage is not None:
            calibration[case] = {"coverage": coverage, "false_share": false_share}
    return {**found, "calibration": calibration}


def _curve(runs: Mapping[int, list[Run]]) -> dict[str, list[float]]:
    kept = [mean_and_error([run.kept for run in runs[budget]]) for budget in sorted(runs)]
    return {
        "evaluations": [mean(runs[budget], lambda run: run.evaluations) for budget in sorted(runs)],
        "kept": [value for value, _error in kept],
        "standard_error": [error for _value, error in kept],
        "recall": [mean(runs[budget], lambda run: run.recall) for budget in sorted(runs)],
    }


def mean(runs: list[Run], what: Callable[[Run], float]) -> float:
    return mean_and_error([what(run) for run in runs])[0]


def calibrated(comparison: Comparison) -> tuple[float | None, float | None]:
    """Share of intervals that hold the truth, and of certain heads that are false."""
    intervals = sum(one.intervals for one in comparison.calibration)
    certain = sum(one.certain for one in comparison.calibration)
    if not intervals:
        return None, None
    covered = sum(one.covered for one in comparison.calibration) / intervals
    false = sum(one.false for one in comparison.calibration)
    return covered, false / certain if certain else 0.0


def needed(runs: Mapping[int, list[Run]]) -> float | None:
    """Evaluations from which on the mean share kept is enough, interpolated; None if never."""
    evaluations = [mean(runs[budget], lambda run: run.evaluations) for budget in sorted(runs)]
    kept = [mean(runs[budget], lambda run: run.kept) for budget in sorted(runs)]
    below = [number for number, value in enumerate(kept) if value < ENOUGH]
    if not below:
        return evaluations[0]
    last = below[-1]
    if last + 1 == len(kept):
        return None
    return float(np.interp(ENOUGH, kept[last : last + 2], evaluations[last : last + 2]))


def growth(results: Mapping[str, Comparison]) -> dict[str, tuple[list[int], list[float]]]:
    """For each method, numbers of heads and the evaluations needed there, in the growth cases."""
    found: dict[str, tuple[list[int], list[float]]] = {}
    for case, comparison in results.items():
        if not case.startswith(GROWTH):
            continue
        for name, runs in comparison.runs.items():
            count = needed(runs)
            if count is not None:
                heads, counts = found.setdefault(name, ([], []))
                heads.append(comparison.heads)
                counts.append(count)
    return found


def slope(heads: Sequence[int], counts: Sequence[float]) -> tuple[float, float] | None:
    """Evaluations more for each doubling of the heads, and at a single head; None from one case."""
    if len(set(heads)) < 2:
        return None
    more, start = np.polyfit(np.log2(heads), counts, 1)
    return float(more), float(start)


def to_markdown(results: Mapping[str, Comparison]) -> str:
    """A table for each case, one of calibration, and one of growth."""
    parts = [_case(case, comparison) for case, comparison in results.items()]
    return "\n\n".join(part for part in (*parts, _calibration(results), _growth(results)) if part)


def _calibration(results: Mapping[str, Comparison]) -> str:
    rows = []
    for case, comparison in results.items():
        coverage, false_share = calibrated(comparison)
        if coverage is not None:
            rows.append([case, f"{coverage:.3f}", f"{false_share:.3f}"])
    return _table(["case", "95 % intervals that hold the truth", "certain heads false"], rows)


def _growth(results: Mapping[str, Comparison]) -> str:
    rows = []
    for name, (heads, counts) in growth(results).items():
        fitted = slope(heads, counts)
        told = [", ".join(str(one) for one in heads), ", ".join(f"{one:.0f}" for one in counts)]
        rows.append([name, *told, "-" if fitted is None else f"{fitted[0]:.1f}"])
    return _table(["method", "heads", f"evaluations for {ENOUGH} kept", "more a doubling"], rows)


def _case(case: str, comparison: Comparison) -> str:
    rows = []
    for name, runs in comparison.runs.items():
        for budget in sorted(runs):
            kept, error = mean_and_error([run.kept for run in runs[budget]])
            rows.append(
                [
                    name,
                    f"{mean(runs[budget], lambda run: run.evaluations):.0f}",
                    f"{kept:.3f} ± {error:.3f}",
                    f"{mean(runs[budget], lambda run: run.recall):.2f}",
                    _known(mean(runs[budget], lambda run: run.drop)),
                    _known(mean(runs[budget], lambda run: run.control_drop)),
                ]
            )
    head = [
        "method",
        "evaluations",
        "effect kept",
        "of the top 5",
        "drop held out",
        "worst control",
    ]
    return f"**{case}** ({comparison.heads} heads)\n\n{_table(head, rows)}"


def _known(value: float) -> str:
    return "-" if np.isnan(value) else f"{value:.2f}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; nothing without rows."""
    if not rows:
        return ""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
