"""An atlas as tables for the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from headsieve.report.atlas_words import (
    general_sentence,
    modularity_sentence,
    verdict,
    worst_other,
)
from headsieve.report.tables import add_row, new_table
from headsieve.report.words import duration, interval, memory, number

if TYPE_CHECKING:
    from headsieve.atlas_result import AtlasResult


def atlas_summary(result: AtlasResult, *, folder: Path | None) -> RenderableType:
    """What a person sees at the end of ``headsieve atlas``.

    Parameters
    ----------
    result : AtlasResult
    folder : Path or None
        Where it was saved.
    """
    model, cost = result.model, result.cost
    table = new_table(
        *("capability", "heads", "before>", "after>", "drop>", "95 % interval>"),
        *("most among\nthe others", "its drop>", ""),
    )
    for name in result.order:
        one = result.capabilities[name]
        own = one.verification.capability
        worst, drop = worst_other(one)
        values = (own.baseline, own.knocked_out, own.drop)
        row = [name, " ".join(one.selected) or "none", *map(number, values), interval(own.ci)]
        add_row(table, [*row, worst, number(drop), verdict(one)])
    parts: list[RenderableType] = [
        Text(f"{model.name} ({model.architecture}, {model.dtype}, {model.device})"),
        Text(general_sentence(result), style="bold"),
        Text(modularity_sentence(result), style="bold"),
        Text(""),
        table,
        Text(""),
        *(Text(f"Left out: {name}, {why}.") for name, why in result.left_out.items()),
        Text(
            f"{result.masks} masks on every capability, {cost.evaluations:,} evaluations, "
            f"{cost.tokens:,} tokens, {duration(cost.seconds)}, peak memory "
            f"{memory(cost.peak_memory_bytes)}."
        ),
    ]
    if folder is not None:
        parts.append(Text("Page, figure and atlas.json are in"))
        parts.append(Text(str(folder), style="bold", overflow="fold"))
    return Group(*parts)
