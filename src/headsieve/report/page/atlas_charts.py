"""Charts of an atlas, as Vega-Lite specifications.

All are grids that page.js lets the keyboard walk: a row of data has ``layer`` (counted upwards) and
``index`` for its place, ``head`` for its name and ``words`` for what is said of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.report.atlas_words import shown_heads
from headsieve.report.page.style import DIVERGING, FOCUS, RAMP, SCHEMA, TEXT, Spec
from headsieve.report.words import interval, number

if TYPE_CHECKING:
    from headsieve.atlas_result import AtlasHead, AtlasResult

_ROW = 17


def effects(result: AtlasResult) -> Spec:
    """Effects of heads (columns) on capabilities (rows), similar ones side by side."""
    heads = shown_heads(result)
    rows: list[dict[str, Any]] = []
    for layer, name in enumerate(reversed(result.order)):
        chosen = result.capabilities[name].selected
        for index, head in enumerate(heads):
            effect = head.effects[name]
            role = "; selected" if head.head in chosen else ""
            role += "; needed" if name in head.needed_by else ""
            rows.append(
                {
                    "head": f"{head.head} {name}",
                    "layer": layer,
                    "index": index,
                    "column": head.head,
                    "row": name,
                    "shown": effect,
                    "selected": head.head in chosen,
                    "words": f"{head.head} on {name}: effect {number(effect)} nats{role}.",
                }
            )
    sizes = [abs(row["shown"]) for row in rows] or [1.0]
    limit = float(np.quantile(sizes, 0.97)) or 1.0
    scale = {
        "range": DIVERGING,
        "domain": [-limit, -limit / 4, 0, limit / 4, limit],
        "clamp": True,
    }
    return _grid(rows, "head knocked out", "capability", _ROW * len(result.order), scale, "nats")


def drops(result: AtlasResult) -> Spec:
    """What every capability (columns) loses without the heads of each (rows), held out."""
    rows = []
    for layer, name in enumerate(reversed(result.order)):
        checks = result.capabilities[name].verification
        for index, other in enumerate(result.order):
            own = other == name
            claim = checks.capability if own else checks.controls[other]
            rows.append(
                {
                    "head": f"{name} {other}",
                    "layer": layer,
                    "index": index,
                    "column": other,
                    "row": name,
                    "shown": claim.drop,
                    "selected": own,
                    "words": f"Without the heads of {name}: {other} {number(claim.baseline)} to "
                    f"{number(claim.knocked_out)}, 95 % interval of the drop "
                    f"{interval(claim.ci)}.",
                }
            )
    scale = {"range": RAMP, "domain": [0, 1], "clamp": True}
    height = _ROW * len(result.order)
    return _grid(rows, "capability that loses", "without the heads of", height, scale, "drop")


def needs(result: AtlasResult) -> Spec:
    """By layer and head, how many capabilities need it, of the heads knocked out alone."""
    selected = {name for one in result.capabilities.values() for name in one.selected}
    layers = 1 + max(head.layer for head in result.heads)
    rows = [
        {
            "head": head.head,
            "layer": head.layer,
            "index": head.index,
            "column": head.index,
            "row": head.layer,
            "shown": len(head.needed_by) if head.alone else None,
            "selected": head.head in selected,
            "words": _needs(head, result),
        }
        for head in result.heads
    ]
    scale = {"range": RAMP, "domain": [0, len(result.order)]}
    height = max(5, min(15, 640 // layers)) * layers
    return _grid(rows, "head", "layer", height, scale, "capabilities")


def _needs(head: AtlasHead, result: AtlasResult) -> str:
    if not head.alone:
        return f"{head.head}: not knocked out alone, as nothing called for it."
    chosen = [name for name in result.order if head.head in result.capabilities[name].selected]
    said = f"{head.head}: needed by {', '.join(head.needed_by) or 'none'}"
    return f"{said}; selected for {', '.join(chosen)}." if chosen else f"{said}."


def _grid(
    rows: list[dict[str, Any]], x: str, y: str, height: int, scale: Spec, legend: str
) -> Spec:
    columns = list(dict.fromkeys(row["column"] for row in rows))
    upwards = list(dict.fromkeys(row["row"] for row in rows))
    place = {
        "x": {
            "field": "column",
            "type": "ordinal",
            "sort": columns if isinstance(columns[0], str) else sorted(columns),
            "title": x,
            "axis": {
                "labelAngle": -90 if isinstance(columns[0], str) else 0,
                "labelOverlap": True,
                "labelLimit": 90,
                "labelFontSize": 10,
            },
        },
        "y": {
            "field": "row",
            "type": "ordinal",
            "sort": upwards[::-1] if isinstance(upwards[0], str) else "descending",
            "title": y,
            "axis": {"labelOverlap": True, "labelLimit": 90},
        },
    }
    frame = {"type": "rect", "filled": False}
    return {
        "$schema": SCHEMA,
        "data": {"values": rows},
        "width": "container",
        "height": height,
        "params": [{"name": "cursor", "value": ""}],
        "layer": [
            {
                "mark": "rect",
                "encoding": {
                    **place,
                    "color": {
                        "field": "shown",
                        "type": "quantitative",
                        "scale": scale,
                        "legend": {"title": legend, "orient": "top", "gradientLength": 120},
                    },
                    "tooltip": {"field": "words", "type": "nominal"},
                },
            },
            {
                "mark": {**frame, "stroke": TEXT, "strokeWidth": 1.5},
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
