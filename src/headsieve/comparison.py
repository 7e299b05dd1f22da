"""Several studies side by side: models, strategies or seeds."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from scipy import stats

from headsieve.errors import HeadsieveError
from headsieve.report.words import warnings
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from headsieve.results import CapabilityResult, Interval
    from headsieve.study import Study


@dataclass(frozen=True)
class ComparedRun:
    """One of the studies.

    Attributes
    ----------
    run : str
        Its folder.
    model, fingerprint, units, strategy, ablation : str
    seed, budget : int
    evaluations, tokens : int
        Of the whole study.
    seconds : float
    """

    run: str
    model: str
    fingerprint: str
    units: str
    strategy: str
    ablation: str
    seed: int
    budget: int
    evaluations: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Finding:
    """What one study found of a capability, on held-out items.

    Attributes
    ----------
    run : str
    selected : tuple of str
    metric : str
    baseline, knocked_out, drop : float
    ci : tuple of float
        95 % interval of the drop.
    p_value : float
        Of the drop, as that of `CapabilityClaim`.
    mean_control_drop : float or None
        Over the controls whose metric is a share (accuracy).
    worst_control : str or None
        The control of the largest drop, among the same.
    worst_control_drop : float or None
    worst_in_nats, worst_in_nats_drop
        Likewise among controls whose metric is a log-probability (plain text), in nats a token.
    evaluations, control_evaluations : int
    warnings : tuple of str
        What speaks against the claim, as the study's own report says it.
    """

    run: str
    selected: tuple[str, ...]
    metric: str
    baseline: float
    knocked_out: float
    drop: float
    ci: Interval
    p_value: float
    mean_control_drop: float | None
    worst_control: str | None
    worst_control_drop: float | None
    worst_in_nats: str | None
    worst_in_nats_drop: float | None
    evaluations: int
    control_evaluations: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Agreement:
    """How far two studies agree on a capability.

    Attributes
    ----------
    runs : tuple of str
    shared : tuple of str
        Heads that both selected.
    either : int
        Heads that at least one of them selected.
    rank_agreement : float or None
        Spearman's rank correlation of the effects of all heads; None where one study has the same
        effect for all of them.
    """

    runs: tuple[str, str]
    shared: tuple[str, ...]
    either: int
    rank_agreement: float | None


@dataclass(frozen=True)
class ComparedCapability:
    """One capability in all studies that have it; studies of models of other shapes do not pair."""

    findings: tuple[Finding, ...]
    agreements: tuple[Agreement, ...]


@dataclass(frozen=True)
class Comparison:
    """Several studies side by side.

    Attributes
    ----------
    runs : tuple of ComparedRun
    capabilities : dict of str to ComparedCapability
    other_items : tuple of str
        Tasks of which studies of the same model measured other held-out items under the same name,
        as other seeds, limits or files give.
    """

    runs: tuple[ComparedRun, ...]
    capabilities: dict[str, ComparedCapability]
    other_items: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain lists and dictionaries, for JSON."""
        return asdict(self)


def compare(studies: Sequence[Study]) -> Comparison:
    """Compare finished studies.

    Parameters
    ----------
    studies : sequence of Study
        At least two, read from different run folders.

    Raises
    ------
    HeadsieveError
        If there are fewer than two, one is there twice, or no two share a capability.
    """
    by_run = {str(study.folder): study for study in studies}
    folders = {None if study.folder is None else study.folder.resolve() for study in studies}
    if len(studies) < 2 or len(folders) < len(studies):
        raise HeadsieveError("Name at least two different run folders to compare.")
    names = dict.fromkeys(name for study in studies for name in study.result.capabilities)
    compared = {}
    for name in names:
        found = {
            run: study[name] for run, study in by_run.items() if name in study.result.capabilities
        }
        compared[name] = ComparedCapability(
            tuple(_finding(run, name, result) for run, result in found.items()),
            tuple(
                agreement(pair, found[pair[0]], found[pair[1]])
                for pair in itertools.combinations(found, 2)
                if _heads(found[pair[0]]) == _heads(found[pair[1]])
            ),
        )
    if all(len(one.findings) < 2 for one in compared.values()):
        raise HeadsieveError(
            f"These studies have no capability in common; they are of {', '.join(names)}."
        )
    return Comparison(
        tuple(_run(run, study) for run, study in by_run.items()), compared, _other_items(studies)
    )


def _run(run: str, study: Study) -> ComparedRun:
    config, cost = study.config, study.result.cost
    return ComparedRun(
        run=run,
        model=study.result.model.name,
        fingerprint=study.result.model.fingerprint,
        units=config.units,
        strategy=config.strategy,
        ablation=config.ablation,
        seed=config.seed,
        budget=config.budget,
        evaluations=cost.evaluations,
        tokens=cost.tokens,
        seconds=cost.seconds,
    )


def _finding(run: str, name: str, result: CapabilityResult) -> Finding:
    claim = result.verification.capability
    drops, drops_in_nats = _control_drops(result)
    worst, drop = _largest(drops)
    in_nats, nats = _largest(drops_in_nats)
    return Finding(
        run=run,
        selected=tuple(result.selected),
        metric=claim.metric,
        baseline=claim.baseline,
        knocked_out=claim.knocked_out,
        drop=claim.drop,
        ci=claim.ci,
        p_value=claim.p_value,
        mean_control_drop=statistics.fmean(drops.values()) if drops else None,
        worst_control=worst,
        worst_control_drop=drop,
        worst_in_nats=in_nats,
        worst_in_nats_drop=nats,
        evaluations=result.evaluations.capability,
        control_evaluations=result.evaluations.controls,
        warnings=tuple(warnings(name, result)),
    )


def _control_drops(result: CapabilityResult) -> tuple[dict[str, float], dict[str, float]]:
    """What controls lose: those whose metric is a share, and those in nats."""
    controls = result.verification.controls.items()
    return (
        {name: one.drop for name, one in controls if one.metric != LOG_PROB},
        {name: one.drop for name, one in controls if one.metric == LOG_PROB},
    )


def _largest(drops: Mapping[str, float]) -> tuple[str, float] | tuple[None, None]:
    return max(drops.items(), key=lambda pair: pair[1], default=(None, None))


def _other_items(studies: Sequence[Study]) -> tuple[str, ...]:
    """Tasks of which studies of one model measured other held-out items under one name."""
    found: dict[tuple[str, str], set[str]] = {}
    for study in studies:
        for task, items in study.config.items.items():
            # Fingerprints are of tokens, which differ between models.
            key = (study.config.fingerprint, task)
            found.setdefault(key, set()).add(items.rpartition("-")[2])
    return tuple(dict.fromkeys(task for (_, task), kinds in found.items() if len(kinds) > 1))


def _heads(result: CapabilityResult) -> set[str]:
    return {head.head for head in result.heads}


def agreement(runs: tuple[str, str], one: CapabilityResult, other: CapabilityResult) -> Agreement:
    """How far two results agree that are of models with the same heads."""
    effects = {head.head: head.effect for head in other.heads}
    mine = [head.effect for head in one.heads]
    theirs = [effects[head.head] for head in one.heads]
    constant = len(set(mine)) < 2 or len(set(theirs)) < 2
    return Agreement(
        runs=runs,
        shared=tuple(head for head in one.selected if head in other.selected),
        either=len({*one.selected, *other.selected}),
        rank_agreement=None if constant else float(stats.spearmanr(mine, theirs).statistic),
    )
