"""How charts look: one configuration for light, dark and print.

Colours are custom properties of the page's style sheet, which gives them for each. Scales that are
interpolated cannot use those: theirs are orange and blue, which colour-blind readers tell apart
and which stand out on any ground; where nothing is to be seen they let the ground through.
"""

from __future__ import annotations

from typing import Any

from headsieve.report.colours import GAIN, LOSS

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
TEXT, LINE, FOCUS = "var(--text)", "var(--line)", "var(--focus)"
SERIES = [f"var(--series-{number})" for number in range(1, 8)]


def _orange(opacity: float) -> str:
    return _rgba(LOSS, opacity)


def _blue(opacity: float) -> str:
    return _rgba(GAIN, opacity)


def _rgba(colour: tuple[int, int, int], opacity: float) -> str:
    return f"rgba({', '.join(map(str, colour))}, {opacity})"


# Evenly graded but for a steeper start: a small effect beside a large one is to be seen.
DIVERGING = [_orange(1), _orange(0.4), "rgba(128, 128, 128, 0.06)", _blue(0.4), _blue(1)]
# Text stands on it, so it stops before it would drown that.
RAMP = [_orange(0.03), _orange(0.8)]

_TEXTS = {"labelColor": TEXT, "titleColor": TEXT, "titleFontWeight": 500}

CONFIG: Spec = {
    "background": "transparent",
    # That of the style sheet: widths of texts are measured with it.
    "font": 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif',
    "view": {"stroke": "transparent"},
    "axis": {
        **_TEXTS,
        "labelFontSize": 11,
        "titleFontSize": 12,
        "gridColor": LINE,
        "domainColor": LINE,
        "tickColor": LINE,
    },
    "legend": {**_TEXTS, "labelFontSize": 12, "titleFontSize": 12},
}
