"""From a study to the text of ``report.html``."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata, resources
from typing import TYPE_CHECKING, Any

import jinja2

from headsieve.errors import HeadsieveError
from headsieve.models.heads import Units, kind_of
from headsieve.report import atlas_words, words
from headsieve.report.drawing import file_names
from headsieve.report.heads_file import heads_json
from headsieve.report.page import atlas_charts, charts, side_by_side
from headsieve.report.page.style import CONFIG, Spec
from headsieve.report.several import tasks_of
from headsieve.report.tables import heads_csv
from headsieve.runs import searched_masks
from headsieve.scores import LOG_PROB
from headsieve.sensing.linearity import Linearity, linearity

if TYPE_CHECKING:
    from pathlib import Path

    from headsieve.atlas_result import AtlasResult
    from headsieve.comparison import Comparison
    from headsieve.examples import Examples
    from headsieve.measure.ablation import Ablation
    from headsieve.report.curve import Curve
    from headsieve.results import CapabilityResult, HeadResult, Result
    from headsieve.study import Study

_VEGA_LITE = "6.1"
# Heads listed beyond those selected; the downloads have all.
_LISTED = 10


_MEANINGS: dict[Units, str] = {
    "heads": "one query head, written L13H4: layer 13, head 4, both counted from 0",
    "kv-groups": "a KV group, written L13G1: all query heads that share key-value head 1 of layer "
    "13, both counted from 0",
    "attention-layers": "the whole output of a layer's attention, written L13A, counted from 0",
    "mlp-layers": "the whole output of a layer's feed-forward part, written L13M, counted from 0",
}


@dataclass(frozen=True)
class _Section:
    """What the template needs of one capability."""

    name: str
    anchor: str
    result: CapabilityResult
    curve: Curve | None
    general: Sequence[str]
    linearity: Linearity | None
    examples: Examples | None

    @property
    def verdict(self) -> str:
        return words.verdict(self.name, self.result)

    @property
    def warnings(self) -> list[str]:
        return words.warnings(self.name, self.result)

    @property
    def idle(self) -> Sequence[str]:
        """Selected heads that add nothing on held-out items."""
        return self.curve.idle if self.curve is not None else ()

    @property
    def listed(self) -> list[HeadResult]:
        """Selected heads in their order, then the others of the largest effects."""
        by_name = {head.head: head for head in self.result.heads}
        chosen = [by_name[name] for name in self.result.selected]
        return chosen + [head for head in self.result.heads if head not in chosen][:_LISTED]

    @property
    def metrics(self) -> list[str]:
        """Metrics of the curve's tasks, the capability's first."""
        assert self.curve is not None
        return list(dict.fromkeys([self.curve.metric[self.name], *self.curve.metric.values()]))

    @property
    def columns(self) -> int:
        """Heads of the widest layer."""
        return 1 + max(head.index for head in self.result.heads)


def study_page(study: Study, folder: Path) -> str:
    """The text of a study's ``report.html``.

    Parameters
    ----------
    study : Study
    folder : Path
        Its run folder, which holds the measurements.
    """
    heads = sorted(
        next(iter(study.result.capabilities.values())).heads,
        key=lambda head: (head.layer, head.index),
    )
    column = {head.head: number for number, head in enumerate(heads)}
    linearities = {}
    kept = searched_masks(folder, study.config)
    for name in study.result.capabilities:
        try:
            scores = {
                tuple(column[head] for head in mask.split(",") if head): score.search
                for mask, score in kept.get(name, {}).items()
            }
        except KeyError as error:
            raise HeadsieveError(f"{folder} is damaged: {error} is no head of the model.") from None
        found = linearity(scores, len(heads), study.config.seed)
        if found is not None:
            linearities[name] = found
    return render_page(
        study.result,
        configuration=study.config.to_toml(),
        ablation=study.config.ablation,
        general=study.general,
        curves=study.curves,
        linearities=linearities,
        examples=study.examples,
    )


def render_page(
    result: Result,
    *,
    configuration: str,
    ablation: Ablation = "zero",
    general: Mapping[str, Sequence[str]],
    curves: Mapping[str, Curve],
    linearities: Mapping[str, Linearity],
    examples: Mapping[str, Examples],
) -> str:
    """The text of ``report.html``.

    Parameters
    ----------
    result : Result
    configuration : str
        The text of ``study.toml``.
    ablation : {"zero", "mean", "resample"}
    general : mapping of str to sequence of str
        For each capability the heads that everything needs.
    curves : mapping of str to Curve
    linearities : mapping of str to Linearity
        A capability may lack its own, where measurements are few or no longer there.
    examples : mapping of str to Examples
        A capability without selected heads has none.
    """
    anchors = file_names(result.capabilities)
    sections = [
        _Section(
            name,
            f"c-{number}",
            found,
            curves.get(name),
            general.get(name, ()),
            linearities.get(name),
            examples.get(name),
        )
        for number, (name, found) in enumerate(result.capabilities.items())
    ]
    several = len(sections) > 1
    specs = {"layers": side_by_side.layer_shares(result.capabilities)}
    if several:
        specs |= {
            "matrix": side_by_side.matrix(result.capabilities),
        }
    if several and tasks_of(result.capabilities):
        specs["radar"] = side_by_side.radar(result.capabilities)
    for section in sections:
        specs |= _section_charts(section)
    stem = "-".join(anchors.values())[:60]
    return _render(
        "study.html.j2",
        specs,
        result.headsieve,
        result=result,
        sections=sections,
        several=several,
        has_radar="radar" in specs,
        overlap=_overlap(sections),
        tasks=_tasks(sections),
        configuration=configuration,
        units=_units(sections[0].result),
        replacement=words.REPLACEMENTS[ablation],
        measures=charts.MEASURES,
        downloads={
            f"{stem}-heads.csv": _data_uri("text/csv", heads_csv(result.capabilities, general)),
            f"{stem}-heads.json": _data_uri("application/json", heads_json(result, general)),
        },
    )


def _units(result: CapabilityResult) -> dict[str, str]:
    """What the page calls the units that were searched."""
    kind = kind_of(result.heads[0].head)
    one, plural = words.nouns(result)
    many = "attention heads" if kind == "heads" else plural
    return {
        "kind": kind,
        "one": one,
        "plural": plural,
        "many": many[0].upper() + many[1:],
        "meaning": _MEANINGS[kind],
    }


def comparison_page(comparison: Comparison) -> str:
    """The text of the page of a comparison.

    Parameters
    ----------
    comparison : Comparison
    """
    anchors = {name: f"c-{number}" for number, name in enumerate(comparison.capabilities)}
    findings = {name: comparison.capabilities[name].findings for name in anchors}
    specs = {
        f"{anchor}-drops": side_by_side.drops(
            findings[name],
            # What is in one unit stands on one scale.
            side_by_side.drop_domain(
                one
                for others in findings.values()
                for one in others
                if (one.metric == LOG_PROB) == (findings[name][0].metric == LOG_PROB)
            ),
        )
        for name, anchor in anchors.items()
    }
    return _render(
        "comparison.html.j2",
        specs,
        metadata.version("headsieve"),
        comparison=comparison,
        anchors=anchors,
        json_uri=_data_uri("application/json", json.dumps(comparison.to_dict(), indent=2)),
    )


def atlas_page(result: AtlasResult, *, configuration: str) -> str:
    """The text of ``atlas.html``.

    Parameters
    ----------
    result : AtlasResult
    configuration : str
        The text of ``study.toml``.
    """
    return _render(
        "atlas.html.j2",
        {
            "effects-map": atlas_charts.effects(result),
            "drops-map": atlas_charts.drops(result),
            "needs-map": atlas_charts.needs(result),
        },
        result.headsieve,
        result=result,
        configuration=configuration,
        general=atlas_words.general_sentence(result),
        modularity=atlas_words.modularity_sentence(result),
        sentences=[
            atlas_words.capability_sentence(name, result.capabilities[name])
            for name in result.confirmed
        ],
        groups=atlas_words.groups(result),
        atlas_words=atlas_words,
        columns=1 + max(head.index for head in result.heads),
        json_uri=_data_uri("application/json", result.to_json()),
    )


def _section_charts(section: _Section) -> dict[str, Spec]:
    anchor = section.anchor
    specs = {
        f"{anchor}-map": charts.effect_map(section.result, section.general, f"#{anchor}-measure")
    }
    if section.curve is not None and section.result.selected:
        specs |= {
            f"{anchor}-bars-{metric}": charts.knockout_bars(
                section.curve, metric, f"#{anchor}-count"
            )
            for metric in section.metrics
        }
    if section.linearity is not None:
        specs[f"{anchor}-fit"] = charts.fit(section.linearity)
    return specs


def _overlap(sections: Sequence[_Section]) -> list[tuple[str, list[str]]]:
    """For each head that any capability selected, what it is to each capability."""
    heads = dict.fromkeys(head for section in sections for head in section.result.selected)

    def role(section: _Section, head: str) -> str:
        if head in section.result.selected:
            return "selected"
        return "general" if head in section.general else ""

    rows = [(head, [role(section, head) for section in sections]) for head in heads]
    return sorted(rows, key=lambda row: -sum(role == "selected" for role in row[1]))


def _tasks(sections: Sequence[_Section]) -> list[str]:
    return list(
        dict.fromkeys(
            task
            for section in sections
            for task in (section.name, *section.result.verification.controls)
        )
    )


def plain_page(template: str, version: str, **content: Any) -> str:
    """A page without charts that move, by the name of its template."""
    return _render(template, {}, version, **content)


def _render(template: str, specs: Mapping[str, Spec], version: str, **content: Any) -> str:
    """A page with its charts, by the name of its template."""
    return (
        _templates()
        .get_template(template)
        .render(
            version=version,
            style=_file("page.css"),
            script=_file("page.js"),
            library=_vega(),
            # Nothing in it may end the script element that holds it.
            charts=json.dumps({"config": CONFIG, "specs": specs}).replace("<", "\\u003c"),
            words=words,
            **content,
        )
    )


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("headsieve.report.page", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["number"] = words.number
    environment.filters["interval"] = words.interval
    return environment


def _file(name: str) -> str:
    return resources.files("headsieve.report.page").joinpath(name).read_text(encoding="utf-8")


@cache
def _vega() -> str:
    """Vega, Vega-Lite and vega-embed as one script."""
    import vl_convert

    bundle = vl_convert.javascript_bundle(  # type: ignore[call-arg]  # the stub lacks a default
        vl_version=_VEGA_LITE
    )
    return bundle.replace("</script", "<\\/script")


def _data_uri(kind: str, text: str) -> str:
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
