"""Tables for the terminal, and the table of heads as CSV.

Tables that are wider than a terminal must be printed uncropped: it breaks their lines then.

Names of tasks come from the user and may hold square brackets, so that every cell is a `Text`,
in which rich looks for no markup.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from headsieve.errors import HeadsieveError
from headsieve.models.heads import NOUNS, kind_of
from headsieve.report.words import (
    duration,
    general_heads,
    idle,
    interacting,
    interval,
    memory,
    nouns,
    number,
    p_value,
    ranges,
    verdict,
    warnings,
)
from headsieve.results import (
    CapabilityResult,
    Claim,
    HeadResult,
    Interactions,
    Result,
    TaskScore,
)
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from headsieve.check import Check
    from headsieve.forecast import Forecast
    from headsieve.models.heads import Geometry, LayerHeads
    from headsieve.report.curve import Curve

# Words may be broken into parts of this width where a terminal is narrow; numbers may not.
_NARROWEST = 12

# Shown of the ranking when no set of heads was chosen.
_RUNNERS_UP = 5

_HEADS_COLUMNS = (
    *("capability", "head", "layer", "index"),
    *("effect", "ci_low", "ci_high", "selection", "control_effect"),
    "role",
)


def summary(
    result: Result,
    *,
    general: Mapping[str, Sequence[str]],
    curves: Mapping[str, Curve],
    folder: Path | None,
) -> RenderableType:
    """What a person sees at the end of ``headsieve locate``.

    Parameters
    ----------
    result : Result
    general : mapping of str to sequence of str
        For each capability the heads that everything needs, best known first.
    curves : mapping of str to Curve
        A capability may lack its own.
    folder : Path or None
        Where the study was saved.
    """
    model, cost = result.model, result.cost
    parts: list[RenderableType] = [
        Text(f"{model.name} ({model.architecture}, {model.dtype}, {model.device})")
    ]
    for name, capability in result.capabilities.items():
        parts += [Text(""), *_capability(name, capability, general.get(name, ()))]
        if name in curves and curves[name].idle:
            parts.append(Text(idle(curves[name].idle)))
    parts += [
        Text(""),
        Rule(characters="-", style="dim"),
        Text(
            f"{cost.evaluations:,} evaluations, {cost.tokens:,} tokens, "
            f"{duration(cost.seconds)}, peak memory {memory(cost.peak_memory_bytes)}."
        ),
    ]
    if folder is not None:
        parts.append(Text("Report, figures, heads.csv and result.json are in"))
        # Alone on its line, so that it can be copied whole.
        parts.append(Text(str(folder), style="bold", overflow="fold"))
    return Group(*parts)


def scores(results: Mapping[str, TaskScore]) -> RenderableType:
    """Scores of tasks, with what a knockout does to them where there was one.

    Parameters
    ----------
    results : mapping of str to TaskScore
    """
    knockout = any(one.knocked_out is not None for one in results.values())
    table = new_table("task", "metric", "items>", "baseline>")
    if knockout:
        add_columns(table, "knocked out>", "drop>")
    add_columns(table, "95 % interval>")
    for task, one in results.items():
        cells = [task, one.metric, str(one.items), number(one.baseline)]
        if one.knocked_out is not None and one.drop is not None:
            cells += [number(one.knocked_out), number(one.drop)]
        add_row(table, [*cells, interval(one.ci)])
    return table


def forecast_table(found: Forecast) -> RenderableType:
    """What a study is expected to take."""
    table = Table(box=None, show_header=False)
    rows = [
        ("evaluations", f"{found.evaluations:,}"),
        ("tokens", f"{found.tokens:,}"),
        ("floating-point operations", f"{found.flops:.2g}"),
        ("operations a second", f"{found.flops_per_second:.2g}"),
        ("time", duration(found.seconds)),
        (
            "peak memory" if found.workers == 1 else "peak memory of a worker",
            memory(found.peak_memory_bytes),
        ),
    ]
    if found.device_memory_bytes is not None:
        rows.append(("memory of the GPU", memory(found.device_memory_bytes)))
    if found.workers > 1:
        rows.append(("workers", f"{found.workers}"))
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def tasks_table(records: Iterable[Mapping[str, Any]]) -> RenderableType:
    """The tasks that exist.

    Parameters
    ----------
    records : iterable of mapping
        With name, kind, metric, items (or None), accuracy (of the default model, or None),
        description, needs.
    """
    table = new_table("task", "kind", "metric", "items>", "accuracy of\nsmollm2>", "description")
    for one in records:
        accuracy = "" if one["accuracy"] is None else number(one["accuracy"])
        items = "" if one["items"] is None else str(one["items"])
        cells = [one["name"], one["kind"], one["metric"], items, accuracy]
        needs = f" (needs {one['needs']})" if one["needs"] else ""
        add_row(table, [*cells, one["description"] + needs])
    return table


def heads_table(geometry: Geometry) -> RenderableType:
    """The heads of a model, a line for each group of equal layers.

    Parameters
    ----------
    geometry : Geometry
    """
    groups: dict[tuple[int, int, int, str], list[int]] = {}
    for layer in geometry.layers:
        key = (layer.heads, layer.kv_heads, layer.head_dim, _any_layer(layer))
        groups.setdefault(key, []).append(layer.layer)
    table = new_table("layers", "query\nheads>", "KV\nheads>", "head\nsize>", "output projection")
    table.columns[-1].no_wrap = True  # a long list of layers gives way instead
    for (heads, kv_heads, size, projection), layers in groups.items():
        add_row(table, [ranges(layers), str(heads), str(kv_heads), str(size), projection])
    lines = [f"{_count(len(geometry), 'head')} in {_count(len(geometry.layers), 'layer')}."]
    if geometry.uncovered:
        lines.append(
            f"Not covered, for they have no such heads: layers {ranges(geometry.uncovered)}."
        )
    return Group(table, *(Text(line) for line in lines))


def checks_table(checks: Iterable[Check]) -> RenderableType:
    """What was checked of knockouts in a model.

    Parameters
    ----------
    checks : iterable of Check
    """
    table = new_table("check", "holds", "largest\ndifference>", "what should hold", "note")
    words = {True: "yes", False: "NO", None: "not checked"}
    for one in checks:
        difference = "" if one.difference is None else f"{one.difference:.1e}"
        add_row(table, [one.name, words[one.holds], difference, one.what, one.note])
    return table


def heads_csv(
    capabilities: Mapping[str, CapabilityResult], general: Mapping[str, Sequence[str]]
) -> str:
    """All heads of all capabilities as CSV, best first, numbers unrounded.

    Parameters
    ----------
    capabilities : mapping of str to CapabilityResult
    general : mapping of str to sequence of str
        For each capability the heads that everything needs.

    Returns
    -------
    str
        The text of ``heads.csv``; its last column, ``role``, is ``selected``, ``general`` or empty.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADS_COLUMNS)
    for name, result in capabilities.items():
        roles = dict.fromkeys(general.get(name, ()), "general")
        roles |= dict.fromkeys(result.selected, "selected")
        for head in result.heads:
            place = (name, head.head, head.layer, head.index)
            effect = (head.effect, *head.ci, head.selection, head.control_effect)
            writer.writerow((*place, *effect, roles.get(head.head, "")))
    return text.getvalue()


def read_general(text: str, capabilities: Mapping[str, CapabilityResult]) -> dict[str, list[str]]:
    """The general heads of each capability, read from ``heads.csv``.

    Parameters
    ----------
    text : str
    capabilities : mapping of str to CapabilityResult
        Whose heads the table should list.

    Raises
    ------
    HeadsieveError
        If it is no such table, or lacks a head.
    """
    rows = csv.DictReader(io.StringIO(text))
    if tuple(rows.fieldnames or ()) != _HEADS_COLUMNS:
        raise HeadsieveError(f"heads.csv has the columns {', '.join(_HEADS_COLUMNS)}.")
    roles = {name: dict[str, str]() for name in capabilities}
    for row in rows:
        roles.setdefault(row["capability"], {})[row["head"]] = row["role"]
    for name, result in capabilities.items():
        if roles[name].keys() != {head.head for head in result.heads}:
            raise HeadsieveError(f"heads.csv does not list the heads of {name}.")
    return {
        name: [head for head, role in own.items() if role == "general"]
        for name, own in roles.items()
    }


def _capability(
    name: str, result: CapabilityResult, general: Sequence[str]
) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Rule(Text(name, style="bold"), align="left", characters="-", style="dim"),
        Text(verdict(name, result), style="bold"),
        *(Text(f"Warning: {warning}", style="yellow") for warning in warnings(name, result)),
        Text(""),
    ]
    by_name = {head.head: head for head in result.heads}
    if chosen := [by_name[head] for head in result.selected]:
        parts += [_heads(chosen), Text(""), _held_out(name, result), Text("")]
        parts += _random_sets(result)
        if (found := result.verification.interactions) is not None:
            parts += [Text(""), *_interactions(found), Text("")]
    else:
        parts += [
            Text(f"The {nouns(result)[1]} of the largest effects, none of them selected:"),
            _heads(result.heads[:_RUNNERS_UP]),
            Text(""),
        ]
    if general:
        parts.append(Text(general_heads(name, result, general)))
    spent = result.evaluations
    parts.append(
        Text(f"{spent.capability:,} evaluations of {name}, {spent.controls:,} of its controls.")
    )
    return parts


def _heads(heads: Sequence[HeadResult]) -> RenderableType:
    table = new_table(NOUNS[kind_of(heads[0].head)][0], "effect\n(nats)>", "95 % interval>")
    add_columns(table, "selection\nprobability>", "worst control\neffect>")
    for head in heads:
        cells = [number(head.effect), interval(head.ci), number(head.selection)]
        control_effect = "-" if head.control_effect is None else number(head.control_effect)
        add_row(table, [head.head, *cells, control_effect])
    return table


def _held_out(name: str, result: CapabilityResult) -> RenderableType:
    checks = result.verification
    table = new_table("held out", "items>", "before>", "after>", "drop>", "95 % interval>", "")
    add_row(table, [*_claim(name, checks.capability), p_value(checks.capability.p_value)])
    for control, claim in checks.controls.items():
        remark = "control" if claim.metric != LOG_PROB else "control, nats"
        add_row(table, [*_claim(control, claim), remark])
    return table


def _claim(name: str, claim: Claim) -> list[str]:
    values = (claim.baseline, claim.knocked_out, claim.drop)
    return [name, str(claim.items), *map(number, values), interval(claim.ci)]


def _interactions(found: Interactions) -> list[RenderableType]:
    table = new_table("share in the drop", "Shapley\nvalue>", "95 % interval>")
    for one in found.shapley:
        add_row(table, [one.head, number(one.value), interval(one.ci)])
    return [table, *(Text(sentence) for sentence in interacting(found))]


def _random_sets(result: CapabilityResult) -> list[RenderableType]:
    random = result.verification.random_sets
    if not random.count:
        return []
    sets = _count(random.count, "random set")
    return [
        Text(
            f"{sets} of as many {nouns(result)[1]}: mean drop {number(random.mean_drop)}, "
            f"at most {number(random.max_drop)}."
        )
    ]


def _count(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _any_layer(layer: LayerHeads) -> str:
    """The projection's name with a star for the layer's number."""
    before, _, after = layer.projection.rpartition(f".{layer.layer}.")
    return f"{before}.*.{after}" if before else layer.projection


def new_table(*headers: str) -> Table:
    """A table whose numbers are never cut; a header that ends in ``>`` is one of numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    add_columns(table, *headers)
    return table


def add_columns(table: Table, *headers: str) -> None:
    """Add columns; a header that ends in ``>`` makes one of numbers, which are never broken."""
    for header in headers:
        numeric = header.endswith(">")
        table.add_column(
            Text(header.removesuffix(">")),
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
        _widen(table.columns[-1], header.removesuffix(">"))


def add_row(table: Table, cells: Iterable[str]) -> None:
    """Add a row of texts, in which no markup is looked for."""
    texts = list(cells)
    for column, text in zip(table.columns, texts, strict=True):
        _widen(column, text)
    table.add_row(*map(Text, texts))


def _widen(column: Column, text: str) -> None:
    """Keep a column wide enough for a cell, however narrow the terminal: no number is cut."""
    width = max(map(cell_len, text.split("\n")))
    if not column.no_wrap:
        width = min(width, _NARROWEST)
    column.min_width = max(column.min_width or 0, width)
