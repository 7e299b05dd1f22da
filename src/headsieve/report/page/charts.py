"""Charts of one capability, as Vega-Lite specifications, which are plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headsieve.report.figures import colour_limit
from headsieve.report.page.style import DIVERGING, FOCUS, LINE, SCHEMA, SERIES, TEXT, Spec
from headsieve.report.words import interval, nouns, number
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from headsieve.report.curve import Curve
    from headsieve.results import CapabilityResult
    from headsieve.sensing.linearity import Linearity

_LARGEST_STEP = 15
# Nats a token; a loss of a hundredth is not to fill the chart.
_SMALLEST_SCALE = 0.5
_TALLEST_MAP = 640
# More than can be seen; the page of a model with thousands of heads must stay small.
_DECIMALS = 4
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
                "effect": round(head.effect, _DECIMALS),
                "low": round(head.ci[0], _DECIMALS),
                "high": round(head.ci[1], _DECIMALS),
                "selection": round(head.selection, _DECIMALS),
                "control": None if control is None else round(control, _DECIMALS),
                "selectivity": round(head.effect - min(control or 0.0, 0.0), _DECIMALS),
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
            "title": nouns(result)[0],
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
        "scale": {
            "range": DIVERGING,
            "domain": [-limit, -limit / 4, 0, limit / 4, limit],
            "clamp": True,
        },
        "legend": {
            "title": "nats",
            "orient": "right",
            "gradientLength": {"expr": "min(200, height)"},
            "format": ".1f",
        },
    }
    frame = {"type": "rect", "filled": False}
    return {
        "$schema": SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": step * layers,
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
            {
                "mark": {**frame, "stroke": TEXT, "strokeWidth": 2},
                "encoding": place,
                "transform": [{"filter": "datum.selected"}],
            },
            {
                "mark": {**frame, "stroke": FOCUS, "strokeWidth": 3},
                "encoding": place,
                "transform": [{"filter": "datum.head == cursor"}],
            },
        ],
    }


def knockout_bars(curve: Curve, metric: str, slider: str) -> Spec:
    """Tasks of one metric with the slider's number of heads knocked out, beside nothing removed.

    Every bar is a measurement: the slider has a stop for each count that was measured. Of shares
    it shows what is left; of log-probabilities, which have no natural zero, what is lost.
    """
    tasks = [task for task, its in curve.metric.items() if its == metric]
    rows: list[dict[str, Any]] = []
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
    title, domain = metric, [0.0, 1.0]
    if metric == LOG_PROB:
        title = "lost (nats a token); longer is worse"
        rows = [_loss(row) for row in rows]
        losses = [row["value"] for row in rows]
        domain = [min(0.0, *losses), max(_SMALLEST_SCALE, *losses)]
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
        "$schema": SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": 24 * len(tasks),
        "params": [{"name": "count", "value": len(curve.heads), "bind": {"element": slider}}],
        "transform": [{"filter": "datum.count == toNumber(count)"}],
        "layer": [
            {
                "mark": {"type": "bar"},
                "encoding": {
                    "y": y,
                    "x": x,
                    "tooltip": tooltip,
                    "color": {
                        "field": "kind",
                        "type": "nominal",
                        "scale": {"domain": ["capability", "control"], "range": SERIES[:2]},
                        "legend": None,
                    },
                },
            },
            {
                "mark": {"type": "rule", "color": TEXT, "strokeWidth": 1.5},
                "transform": [{"filter": "isValid(datum.low)"}],
                "encoding": {
                    "y": y,
                    "x": {"field": "low", "type": "quantitative"},
                    "x2": {"field": "high"},
                },
            },
            {
                "mark": {"type": "tick", "color": TEXT, "thickness": 2, "bandSize": 22},
                "encoding": {"y": y, "x": {"field": "before", "type": "quantitative"}},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 4, "color": TEXT},
                "encoding": {
                    "y": y,
                    "x": {"datum": domain[1]},
                    "text": {"field": "value", "type": "quantitative", "format": ".2f"},
                },
            },
        ],
    }


def _loss(row: dict[str, Any]) -> dict[str, Any]:
    """A row of bars as what it lost against the unmodified model."""
    before = row["before"]
    low, high = (None if end is None else before - end for end in (row["high"], row["low"]))
    return row | {"value": before - row["value"], "before": 0.0, "low": low, "high": high}


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
        "$schema": SCHEMA,
        "width": "container",
        "height": 260,
        "layer": [
            {
                "data": {"values": [{"p": end, "m": end} for end in ends]},
                "mark": {"type": "line", "color": LINE, "strokeWidth": 1.5},
                "encoding": {
                    "x": {"field": "p", "type": "quantitative", "scale": scale},
                    "y": {"field": "m", "type": "quantitative", "scale": scale},
                },
            },
            {
                "data": {"values": rows},
                "mark": {"type": "circle", "color": SERIES[1], "opacity": 0.7, "size": 45},
                "encoding": {
                    "x": {
                        "field": "predicted",
                        "type": "quantitative",
                        "title": "predicted (nats)",
                        "scale": scale,
                        "axis": {"tickCount": 6, "labelOverlap": True},
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
