"""A comparison of studies as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from headsieve.report.tables import add_columns, add_row, new_table
from headsieve.report.words import duration, interval, number, other_items

if TYPE_CHECKING:
    from headsieve.comparison import ComparedCapability, Comparison


def comparison_tables(comparison: Comparison) -> RenderableType:
    """What a person sees of ``headsieve compare``.

    Parameters
    ----------
    comparison : Comparison
    """
    table = new_table("run", "model", "strategy", "seed>", "budget>", "evaluations>", "time>")
    for run in comparison.runs:
        counts = (str(run.seed), str(run.budget), f"{run.evaluations:,}", duration(run.seconds))
        add_row(table, [run.run, run.model, run.strategy, *counts])
    parts: list[RenderableType] = [table]
    if comparison.other_items:
        parts += [Text(""), Text(f"Note: {other_items(comparison.other_items)}", style="yellow")]
    for name, compared in comparison.capabilities.items():
        title = Text(name, style="bold")
        parts += [Text(""), Rule(title, align="left", characters="-", style="dim")]
        parts += _capability(compared)
    return Group(*parts)


def _capability(compared: ComparedCapability) -> list[RenderableType]:
    found = new_table("run", "heads", "before>", "after>", "drop>", "95 % interval>")
    for one in compared.findings:
        values = map(number, (one.baseline, one.knocked_out, one.drop))
        add_row(found, [one.run, ", ".join(one.selected) or "none", *values, interval(one.ci)])
    cost = new_table("run", "evaluations>", "of controls>", "worst control", "its drop>")
    in_nats = any(one.worst_in_nats is not None for one in compared.findings)
    if in_nats:
        add_columns(cost, "worst in nats", "its drop>")
    for one in compared.findings:
        drop = "-" if one.worst_control_drop is None else number(one.worst_control_drop)
        counts = (f"{one.evaluations:,}", f"{one.control_evaluations:,}")
        row = [one.run, *counts, one.worst_control or "-", drop]
        if in_nats:
            nats = "-" if one.worst_in_nats_drop is None else number(one.worst_in_nats_drop)
            row += [one.worst_in_nats or "-", nats]
        add_row(cost, row)
    parts: list[RenderableType] = [found, Text(""), cost]
    if compared.agreements:
        pairs = new_table("runs", "", "shared heads", "of>", "rank\nagreement>")
        for pair in compared.agreements:
            agreement = "-" if pair.rank_agreement is None else number(pair.rank_agreement)
            shared = ", ".join(pair.shared) or "none"
            add_row(pairs, [*pair.runs, shared, str(pair.either), agreement])
        parts += [Text(""), pairs]
    elif len(compared.findings) > 1:
        parts.append(Text("The models have other heads each, so heads cannot be compared."))
    return parts
