"""How charts look: one configuration for light, dark and print.

Colours are custom properties of the page's style sheet, which gives them for each. Scales that are
interpolated cannot use those; their ends stand out on any ground and their middle lets it through.
"""

from __future__ import annotations

from typing import Any

_TEXT = {"labelColor": "var(--text)", "titleColor": "var(--text)", "titleFontWeight": 500}

CONFIG: dict[str, Any] = {
    "background": "transparent",
    "font": "inherit",
    # Each chart is an image with a label of its own, and what it shows is told beside it.
    "aria": False,
    "view": {"stroke": "transparent"},
    "axis": {
        **_TEXT,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "gridColor": "var(--line)",
        "domainColor": "var(--line)",
        "tickColor": "var(--line)",
    },
    "legend": {**_TEXT, "labelFontSize": 12, "titleFontSize": 12},
    "range": {
        "category": [f"var(--series-{number})" for number in range(1, 8)],
        # Orange and blue, which colour-blind readers tell apart.
        "diverging": ["#c44e00", "rgba(140, 140, 140, 0.10)", "#0077bb"],
        "ramp": ["rgba(140, 140, 140, 0.08)", "#c44e00"],
    },
    "text": {"color": "var(--text)", "fontSize": 11},
    "style": {
        "label": {"fill": "var(--text)", "fontSize": 12},
        "outline": {"stroke": "var(--text)", "strokeWidth": 2},
        "cursor": {"stroke": "var(--focus)", "strokeWidth": 3},
        "whisker": {"stroke": "var(--text)", "strokeWidth": 1.5},
        "before": {"fill": "var(--text)", "opacity": 1},
        "ring": {"stroke": "var(--line)", "strokeWidth": 1},
    },
}
