"""The page's charts as Vega-Lite specifications, which are plain data.

Colours of text, lines and scales are not here: the page gives them for light and dark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.report.figures import colour_limit
from headsieve.report.words import interval, number

if TYPE_CHECKING:
    from headsieve.report.curve import Curve
    from headsieve.results import CapabilityResult
    from headsieve.sensing.linearity import Linearity

Spec = dict[str, Any]

_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_LARGEST_STEP = 15
_TALLEST_MAP = 640
_RADAR_SIZE = 300
MEASURES = {
    "effect": "effect on the capability",
    "control": "worst effect on a control",
    "selectivity": "selectivity: the first less the second",
}


def head_rows(result: CapabilityResult, general: Sequence[str]) -> list[dict[str, Any]]:
    """What the map shows of each head, with a sentence on it."""
    rows = []
    for head in result.heads:
        control = head.control_effect
        role = (
            "selected" if head.head in result.selected
            else "general: most controls need it too" if head.head in general
            else ""
        )  # fmt: skip
        words = [
            f"{head.head}: effect {number(head.effect)} nats, 95 % interval {interval(head.ci)}",
            f"selection probability {number(head.selection)}",
            "no control measured" if control is None else f"worst on a control {number(control)}",
            *([role] if role else []),
        ]
        rows.append(
            {
                "head": head.head,
                "layer": head.layer,
                "index": head.index,
                "effect": head.effect,
                "low": head.ci[0],
                "high": head.ci[1],
                "selection": head.selection,
                "control": control,
                "selectivity": head.effect - min(control or 0.0, 0.0),
                "selected": head.head in result.selected,
                "words": "; ".join(words) + ".",
            }
        )
    return rows


def effect_map(result: CapabilityResult, general: Sequence[str], control: str) -> Spec:
    """Layers by heads, coloured by what `control` (a selector of the page's select) says.

    Its parameter ``cursor`` is the head that the keyboard is on.
    """
    rows = head_rows(result, general)
    layers = 1 + max(row["layer"] for row in rows)
    step = max(5, min(_LARGEST_STEP, _TALLEST_MAP // layers))
    limit = colour_limit(result)
    place = {
        "x": {
            "field": "index",
            "type": "ordinal",
            "title": "head",
            "axis": {"labelAngle": 0, "labelOverlap": True},
        },
        "y": {
            "field": "layer",
            "type": "ordinal",
            "sort": "descending",
            "title": "layer",
            "axis": {"labelOverlap": True},
        },
    }
    tooltip = [
        {"field": "head", "title": "head"},
        *(
            {"field": field, "title": title, "type": "quantitative", "format": ".2f"}
            for field, title in (
                ("effect", "effect (nats)"),
                ("low", "95 % from"),
                ("high", "to"),
                ("selection", "selection probability"),
                ("control", "worst on a control"),
                ("selectivity", "selectivity"),
            )
        ),
    ]
    colour = {
        "field": "shown",
        "type": "quantitative",
        "scale": {"range": "diverging", "domain": [-limit, 0, limit], "clamp": True},
        "legend": {
            "title": "nats",
            "orient": "right",
            "gradientLength": {"expr": "min(200, height)"},
            "format": ".1f",
        },
    }
    outline = {"mark": {"type": "rect", "filled": False, "style": "outline"}, "encoding": place}
    return {
        "$schema": _SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": {"step": step},
        "params": [
            {"name": "measure", "value": "effect", "bind": {"element": control}},
            {"name": "cursor", "value": ""},
        ],
        "transform": [{"calculate": "datum[measure]", "as": "shown"}],
        "layer": [
            {
                "mark": {"type": "rect"},
                "encoding": {**place, "color": colour, "tooltip": tooltip},
            },
            {**outline, "transform": [{"filter": "datum.selected"}]},
            {
                "mark": {"type": "rect", "filled": False, "style": "cursor"},
                "encoding": place,
                "transform": [{"filter": "datum.head == cursor"}],
            },
        ],
    }


def knockout_bars(curve: Curve, metric: str, slider: str) -> Spec:
    """Tasks of one metric with the slider's number of heads knocked out, beside nothing removed.

    Every bar is a measurement: the slider has a stop for each count that was measured.
    """
    tasks = [task for task, its in curve.metric.items() if its == metric]
    rows = []
    for task in tasks:
        own = task == curve.capability
        for count, value in enumerate(curve.values[task]):
            low, high = curve.ci[count] if own else (None, None)
            rows.append(
                {
                    "task": task,
                    "count": count,
                    "value": value,
                    "before": curve.values[task][0],
                    "low": low,
                    "high": high,
                    "kind": "capability" if own else "control",
                }
            )
    title, domain = "accuracy", [0, 1]
    if metric != "accuracy":
        title = "log-probability (nats a token)"
        domain = [math.floor(min(min(curve.values[task]) for task in tasks)), 0]
    y = {
        "field": "task",
        "type": "nominal",
        "sort": tasks,
        "title": None,
        "axis": {"labelLimit": 110},
    }
    x = {"field": "value", "type": "quantitative", "title": title, "scale": {"domain": domain}}
    tooltip = [
        {"field": "task"},
        {"field": "count", "title": "heads knocked out"},
        {"field": "value", "type": "quantitative", "format": ".3f", "title": title},
        {"field": "before", "type": "quantitative", "format": ".3f", "title": "unmodified"},
    ]
    return {
        "$schema": _SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": {"step": 24},
        "params": [{"name": "count", "value": len(curve.heads), "bind": {"element": slider}}],
        "transform": [{"filter": "datum.count == toNumber(count)"}],
        "layer": [
            {
                "mark": {"type": "bar", "cornerRadiusEnd": 2},
                "encoding": {
                    "y": y,
                    "x": x,
                    "tooltip": tooltip,
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": {"domain": ["capability", "control"], "range": "category"},
                        "legend": {"title": None, "orient": "top"},
                    },
                },
            },
            {
                "mark": {"type": "rule", "style": "whisker"},
                "transform": [{"filter": "isValid(datum.low)"}],
                "encoding": {
                    "y": y,
                    "x": {"field": "low", "type": "quantitative"},
                    "x2": {"field": "high"},
                },
            },
            {
                "mark": {"type": "tick", "style": "before", "thickness": 2, "bandSize": 22},
                "encoding": {"y": y, "x": {"field": "before", "type": "quantitative"}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "style": "label"},
                "encoding": {
                    "y": y,
                    "x": {"datum": domain[1]},
                    "text": {"field": "value", "type": "quantitative", "format": ".2f"},
                },
            },
        ],
    }


def matrix(capabilities: Mapping[str, CapabilityResult]) -> Spec:
    """Drop of every task (columns) without the heads of every capability (rows)."""
    rows = [
        {
            "heads of": name,
            "task": task,
            "drop": claim.drop,
            "before": claim.baseline,
            "after": claim.knocked_out,
            "share": claim.drop if claim.metric == "accuracy" else None,
        }
        for name, result in capabilities.items()
        for task, claim in _claims(name, result).items()
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
        "$schema": _SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": {"step": 34},
        "layer": [
            {
                "mark": "rect",
                "encoding": {
                    **place,
                    "color": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"range": "ramp", "domain": [0, 1], "clamp": True},
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
                "mark": {"type": "text", "style": "label"},
                "encoding": {
                    **place,
                    "text": {"field": "drop", **numbers},
                    "color": {
                        "condition": {"test": "datum.share > 0.5", "value": "white"},
                    },
                },
            },
        ],
    }


def radar(capabilities: Mapping[str, CapabilityResult]) -> Spec:
    """Accuracy of all tasks, unmodified and without the heads of each capability.

    As in Figure 1 of arXiv 2603.03335. Plain text, which has no accuracy, is not on it.
    """
    claims = {name: _claims(name, result) for name, result in capabilities.items()}
    tasks = list(
        dict.fromkeys(
            task for own in claims.values() for task, one in own.items() if one.metric == "accuracy"
        )
    )
    outlines: dict[str, dict[str, float]] = {"unmodified": {}}
    for name, own in claims.items():
        shown = {task: claim for task, claim in own.items() if task in tasks}
        outlines["unmodified"] |= {task: claim.baseline for task, claim in shown.items()}
        outlines[f"without {name}"] = {task: claim.knocked_out for task, claim in shown.items()}

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
    names = [point(task, 1.13) for task in tasks]
    scale = {"domain": [-1.45, 1.45]}
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": scale}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-1.25, 1.25]}}
    order = {"field": "order", "type": "quantitative"}
    return {
        "$schema": _SCHEMA,
        "width": _RADAR_SIZE,
        "height": _RADAR_SIZE * 2.5 / 2.9,
        "view": {"stroke": None},
        "layer": [
            {
                "data": {"values": rings},
                "mark": {"type": "line", "style": "ring"},
                "encoding": {"x": x, "y": y, "order": order, "detail": {"field": "ring"}},
            },
            {
                "data": {"values": names},
                "mark": {"type": "text", "style": "label"},
                "encoding": {"x": x, "y": y, "text": {"field": "task"}},
            },
            {
                "data": {"values": lines},
                "mark": {"type": "line", "point": {"size": 30}},
                "encoding": {
                    "x": x,
                    "y": y,
                    "order": order,
                    "color": _by("heads", list(outlines)),
                    "strokeDash": {
                        "condition": {"test": "datum.heads == 'unmodified'", "value": [5, 3]},
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
        "$schema": _SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": 180,
        "mark": {"type": "line", "point": True, "interpolate": "monotone"},
        "encoding": {
            "x": {"field": "layer", "type": "quantitative", "axis": {"tickMinStep": 1}},
            "y": {
                "field": "share",
                "type": "quantitative",
                "axis": {"format": "%"},
                "title": "share of effects",
            },
            "color": _by("capability", list(capabilities)),
            "tooltip": [
                {"field": "capability"},
                {"field": "layer"},
                {"field": "share", "type": "quantitative", "format": ".0%"},
            ],
        },
    }


def fit(linearity: Linearity) -> Spec:
    """Search scores of masks as measured, against what effects from the other masks predict."""
    rows = [
        {"predicted": predicted, "measured": measured, "heads": heads}
        for predicted, measured, heads in zip(
            linearity.predicted, linearity.measured, linearity.sizes, strict=True
        )
    ]
    values = [*linearity.predicted, *linearity.measured]
    ends = [min(values), max(values)]
    scale = {"domain": ends, "nice": True, "zero": False}
    return {
        "$schema": _SCHEMA,
        "width": "container",
        "height": 260,
        "layer": [
            {
                "data": {"values": [{"p": end, "m": end} for end in ends]},
                "mark": {"type": "line", "style": "ring"},
                "encoding": {
                    "x": {"field": "p", "type": "quantitative", "scale": scale},
                    "y": {"field": "m", "type": "quantitative", "scale": scale},
                },
            },
            {
                "data": {"values": rows},
                "mark": {"type": "circle", "opacity": 0.75, "size": 45},
                "encoding": {
                    "x": {
                        "field": "predicted",
                        "type": "quantitative",
                        "title": "predicted (nats)",
                        "scale": scale,
                    },
                    "y": {
                        "field": "measured",
                        "type": "quantitative",
                        "title": "measured (nats)",
                        "scale": scale,
                    },
                    "tooltip": [
                        {"field": "heads", "title": "heads knocked out"},
                        {"field": "measured", "type": "quantitative", "format": ".2f"},
                        {"field": "predicted", "type": "quantitative", "format": ".2f"},
                    ],
                },
            },
        ],
    }


def _by(field: str, names: Sequence[str]) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": list(names), "range": "category"},
        "legend": {"title": None, "orient": "bottom", "columns": 2, "labelLimit": 150},
    }


def _claims(name: str, result: CapabilityResult) -> dict[str, Any]:
    """All tasks' claims without the heads of one capability, itself first."""
    return {name: result.verification.capability, **result.verification.controls}
