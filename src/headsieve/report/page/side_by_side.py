"""Charts of several capabilities side by side, as Vega-Lite specifications."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.report.page.style import LINE, RAMP, SCHEMA, SERIES, TEXT, Spec
from headsieve.report.several import UNMODIFIED, accuracies, claims_of, tasks_of
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from headsieve.comparison import Finding
    from headsieve.results import CapabilityResult

_RADAR_SIZE = 330


def matrix(capabilities: Mapping[str, CapabilityResult]) -> Spec:
    """Drop of every task (columns) without the heads of every capability (rows)."""
    rows = [
        {
            "heads of": name,
            "task": task,
            "drop": claim.drop,
            "before": claim.baseline,
            "after": claim.knocked_out,
            "share": claim.drop if claim.metric != LOG_PROB else None,
        }
        for name, result in capabilities.items()
        for task, claim in claims_of(name, result).items()
    ]
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    place = {
        "x": {
            "field": "task",
            "type": "nominal",
            "sort": tasks,
            "title": "task",
            "axis": {"labelAngle": -40, "orient": "top", "labelLimit": 110},
        },
        "y": {
            "field": "heads of",
            "type": "nominal",
            "sort": list(capabilities),
            "title": "without the heads of",
            "axis": {"labelLimit": 110},
        },
    }
    numbers = {"type": "quantitative", "format": ".2f"}
    return {
        "$schema": SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": 34 * len(capabilities),
        "layer": [
            {
                "mark": "rect",
                "encoding": {
                    **place,
                    "color": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"range": RAMP, "domain": [0, 1], "clamp": True},
                        "legend": None,
                    },
                    "tooltip": [
                        {"field": "heads of"},
                        {"field": "task"},
                        *({"field": field, **numbers} for field in ("before", "after", "drop")),
                    ],
                },
            },
            {
                "mark": {"type": "text", "color": TEXT},
                "encoding": {
                    **place,
                    "text": {"field": "drop", **numbers},
                },
            },
        ],
    }


def radar(capabilities: Mapping[str, CapabilityResult]) -> Spec:
    """Accuracy of all tasks, unmodified and without the heads of each capability.

    As in Figure 1 of arXiv 2603.03335. Plain text, which has no accuracy, is not on it.
    """
    tasks, outlines = tasks_of(capabilities), accuracies(capabilities)

    def point(task: str, radius: float) -> dict[str, Any]:
        angle = 2 * math.pi * tasks.index(task) / len(tasks)
        return {"task": task, "x": radius * math.sin(angle), "y": radius * math.cos(angle)}

    lines = [
        {**point(task, values[task]), "heads": name, "accuracy": values[task], "order": order}
        for name, values in outlines.items()
        for order, task in enumerate([*tasks, tasks[0]])
        if task in values
    ]
    rings = [
        {**point(task, radius), "ring": radius, "order": order}
        for radius in (0.25, 0.5, 0.75, 1.0)
        for order, task in enumerate([*tasks, tasks[0]])
    ]
    names = [point(task, 1.2) for task in tasks]
    scale = {"domain": [-1.45, 1.45]}
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": scale}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-1.25, 1.25]}}
    order = {"field": "order", "type": "quantitative"}
    return {
        "$schema": SCHEMA,
        "width": _RADAR_SIZE,
        "height": _RADAR_SIZE * 2.5 / 2.9,
        "view": {"stroke": None},
        "layer": [
            {
                "data": {"values": rings},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 1},
                "encoding": {"x": x, "y": y, "order": order, "detail": {"field": "ring"}},
            },
            {
                "data": {"values": names},
                "mark": {"type": "text", "color": TEXT, "fontSize": 12},
                "encoding": {"x": x, "y": y, "text": {"field": "task"}},
            },
            {
                "data": {"values": lines},
                "mark": {"type": "line", "point": {"size": 30}},
                "encoding": {
                    "x": x,
                    "y": y,
                    "order": order,
                    "color": _by("heads", list(outlines), [TEXT, *SERIES]),
                    "strokeDash": {
                        "condition": {"test": f"datum.heads == '{UNMODIFIED}'", "value": [5, 3]},
                        "value": [1, 0],
                    },
                    "tooltip": [
                        {"field": "heads"},
                        {"field": "task"},
                        {"field": "accuracy", "type": "quantitative", "format": ".2f"},
                    ],
                },
            },
        ],
    }


def layer_shares(capabilities: Mapping[str, CapabilityResult]) -> Spec:
    """Share of each layer in the effects of all heads that a capability needs."""
    rows = []
    for name, result in capabilities.items():
        layers = np.zeros(1 + max(head.layer for head in result.heads))
        for head in result.heads:
            layers[head.layer] += max(-head.effect, 0.0)
        total = layers.sum() or 1.0
        rows += [
            {"capability": name, "layer": layer, "share": float(share / total)}
            for layer, share in enumerate(layers)
        ]
    return {
        "$schema": SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": 180,
        "mark": {"type": "line", "point": True},
        "encoding": {
            "x": {"field": "layer", "type": "quantitative", "axis": {"tickMinStep": 1}},
            "y": {
                "field": "share",
                "type": "quantitative",
                "axis": {"format": "%"},
                "title": "share of effects",
            },
            "color": _by("capability", list(capabilities), SERIES),
            "tooltip": [
                {"field": "capability"},
                {"field": "layer"},
                {"field": "share", "type": "quantitative", "format": ".0%"},
            ],
        },
    }


def drops(findings: Sequence[Finding], domain: tuple[float, float]) -> Spec:
    """What each study's heads cost the capability, with the interval, and its worst control.

    Parameters
    ----------
    findings : sequence of Finding
    domain : tuple of float
        Ends of the axis, as `drop_domain` of all findings that are compared by eye.
    """
    runs = [one.run for one in findings]
    rows = [
        row
        for one in findings
        for row in (
            {
                "run": one.run,
                "drop": one.drop,
                "low": one.ci[0],
                "high": one.ci[1],
                "of": "capability",
            },
            {"run": one.run, "drop": one.worst_control_drop, "of": "worst control"},
        )
        if row["drop"] is not None
    ]
    y = {
        "field": "run",
        "type": "nominal",
        "sort": runs,
        "title": None,
        "axis": {"labelLimit": 130},
    }
    offset = {"field": "of", "sort": ["capability", "worst control"]}
    return {
        "$schema": SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": 44 * len(runs),
        "layer": [
            {
                "mark": {"type": "bar"},
                "encoding": {
                    "y": y,
                    "yOffset": offset,
                    "x": {
                        "field": "drop",
                        "type": "quantitative",
                        "title": "drop",
                        "axis": {"tickCount": 6},
                        "scale": {"domain": domain, "nice": True},
                    },
                    "color": {
                        "field": "of",
                        "type": "nominal",
                        "scale": {"domain": ["capability", "worst control"], "range": SERIES[:2]},
                        "legend": None,
                    },
                    "tooltip": [
                        {"field": "run"},
                        {"field": "of"},
                        {"field": "drop", "type": "quantitative", "format": ".3f"},
                    ],
                },
            },
            {
                "mark": {"type": "rule", "color": TEXT, "strokeWidth": 1.5},
                "transform": [{"filter": "isValid(datum.low)"}],
                "encoding": {
                    "y": y,
                    "yOffset": offset,
                    "x": {"field": "low", "type": "quantitative"},
                    "x2": {"field": "high"},
                },
            },
        ],
    }


def drop_domain(findings: Iterable[Finding]) -> tuple[float, float]:
    """The range of all drops and intervals, and of zero."""
    ends = [0.0]
    for one in findings:
        ends += [*one.ci, one.drop, one.worst_control_drop or 0.0]
    return min(ends), max(ends)


def _by(field: str, names: Sequence[str], colours: Sequence[str]) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": list(colours)},
        "legend": {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 140},
    }
