"""Colours that figures and pages share: the same thing looks the same in both.

Okabe and Ito's, which colour-blind readers can tell apart, darkened where text or thin lines on
white need it.
"""

from __future__ import annotations

# Red, green and blue of the ends of scales: what loses, and what gains.
LOSS = (208, 84, 0)
GAIN = (0, 122, 204)
# The capability first, then controls; the light ones of the pages' style sheet.
SERIES = ("#c44e00", "#0077bb", "#007a58", "#b3478a", "#9a6700", "#2f8fc9", "#6e7781")
