"""A comparison of studies as tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.text import Text

from headsieve.report.tables import add_columns, add_row, new_table
from headsieve.report.words import duration, interval, number, other_items, p_value

if TYPE_CHECKING:
    from headsieve.comparison import ComparedCapability, Comparison


def comparison_tables(comparison: Comparison) -> RenderableType:
    """What a person sees of ``headsieve compare``.

    Parameters
    ----------
    comparison : Comparison
    """
    table = new_table(
        "run", "model", "units", "strategy", "ablation", "seed>", "budget>", "evaluations>", "time>"
    )
    for run in comparison.runs:
        counts = (str(run.seed), str(run.budget), f"{run.evaluations:,}", duration(run.seconds))
        add_row(table, [run.run, run.model, run.units, run.strategy, run.ablation, *counts])
    parts: list[RenderableType] = [table]
    if comparison.other_items:
        parts += [Text(""), Text(f"Note: {other_items(comparison.other_items)}", style="yellow")]
    for name, compared in comparison.capabilities.items():
        title = Text(name, style="bold")
        parts += [Text(""), Rule(title, align="left", characters="-", style="dim")]
        parts += _capability(compared)
    return Group(*parts)


def _capability(compared: ComparedCapability) -> list[RenderableType]:
    found = new_table("run", "heads", "before>", "after>", "drop>", "95 % interval>", "")
    for one in compared.findings:
        values = map(number, (one.baseline, one.knocked_out, one.drop))
        heads = ", ".join(one.selected) or "none"
        add_row(found, [one.run, heads, *values, interval(one.ci), p_value(one.p_value)])
    cost = new_table("run", "evaluations>", "of controls>", "controls'\nmean drop>")
    add_columns(cost, "worst control", "its drop>")
    in_nats = any(one.worst_in_nats is not None for one in compared.findings)
    if in_nats:
        add_columns(cost, "worst in nats", "its drop>")
    for one in compared.findings:
        counts = (f"{one.evaluations:,}", f"{one.control_evaluations:,}")
        worst = (one.worst_control or "-", _drop(one.worst_control_drop))
        row = [one.run, *counts, _drop(one.mean_control_drop), *worst]
        if in_nats:
            row += [one.worst_in_nats or "-", _drop(one.worst_in_nats_drop)]
        add_row(cost, row)
    parts: list[RenderableType] = [found, Text(""), cost]
    said = [(one.run, warning) for one in compared.findings for warning in one.warnings]
    if said:
        parts.append(Text(""))
        parts += [Text(f"Warning, {run}: {warning}", style="yellow") for run, warning in said]
    if compared.agreements:
        pairs = new_table("runs", "", "shared heads", "chosen by\neither>", "rank\nagreement>")
        for pair in compared.agreements:
            agreement = "-" if pair.rank_agreement is None else number(pair.rank_agreement)
            shared = ", ".join(pair.shared) or "none"
            add_row(pairs, [*pair.runs, shared, str(pair.either), agreement])
        parts += [Text(""), pairs]
    elif len(compared.findings) > 1:
        parts.append(Text("The models have other heads each, so heads cannot be compared."))
    return parts


def _drop(value: float | None) -> str:
    return "-" if value is None else number(value)
