"""The atlas of a model: all its capabilities under the same knockouts, each the others' control."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy import stats

from headsieve.atlas_folder import Atlas, AtlasConfig
from headsieve.atlas_result import (
    ATLAS_SCHEMA,
    AtlasCapability,
    AtlasHead,
    AtlasResult,
    GeneralHead,
    ModularityResult,
)
from headsieve.config import Config
from headsieve.errors import HeadsieveError
from headsieve.models.knockout import require_unmodified
from headsieve.progress import Progress
from headsieve.provenance import describe_model, total_cost, versions
from headsieve.runs import open_journal, run_folder
from headsieve.scores import LOG_PROB
from headsieve.sensing.choice import best_set
from headsieve.sensing.modularity import (
    PERMUTATIONS,
    beyond_shared,
    cluster,
    leaves,
    modularity,
    shares,
)
from headsieve.sensing.problem import Columns, Ledger, Prior, Problem, to_masks
from headsieve.sensing.recovery import NOTICEABLE, Effects, estimate
from headsieve.sensing.strategies import answered
from headsieve.sensing.survey import survey
from headsieve.tasks import HarnessOptions
from headsieve.tasks.builtin import builtin_names, load_builtin
from headsieve.tasks.selection import by_name, same_subject
from headsieve.verify import claim, verify
from headsieve.workbench import Workbench, split_tasks, task_words

if TYPE_CHECKING:
    from headsieve.models.loading import Model
    from headsieve.tasks import Task
    from headsieve.tasks.task import TaskItems

# Heads in a capability's set, at most.
SET_SIZE = 5
# Smooth accuracy that a capability's heads may cost any other one on search items.
MAX_CONTROL_DROP = 0.1
# Items of a task, held-out and search: a map is wide rather than deep.
LIMIT = 40
_SEARCH_ITEMS = 16
RANDOM_SETS = 10
# General heads that are verified, at most, and how many of the capabilities must need one.
_GENERAL_HEADS = 8
GENERAL_SHARE = 0.5
_SIGNIFICANT = 0.05


def capability_names() -> list[str]:
    """The built-in capabilities: all tasks but plain text, which has no right answers."""
    return [name for name in builtin_names() if load_builtin(name).metric != LOG_PROB]


def atlas(
    model: Model,
    tasks: Sequence[str | os.PathLike[str]] | None = None,
    *,
    budget: int = 100,
    prior: Prior = "gradient",
    seed: int = 0,
    limit: int = LIMIT,
    batch_size: int | Literal["auto"] = "auto",
    harness: HarnessOptions | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Atlas:
    """Measure all capabilities of a model under the same masks: which heads serve which.

    Parameters
    ----------
    model : Model
    tasks : sequence of str or path, optional
        Built-in names, task files, or ``lm-eval:NAME``; by default all built-in capabilities.
        Those that the model has not clearly above chance are left out.
    budget : int
        Masks on search items, each measured on every capability.
    prior : {"gradient", "none"}
        Whether gradients guide the choice of heads to knock out alone, at the price of three masks.
    seed : int
        Of the split of items, the masks and the resampling.
    limit : int
        Held-out items of each task at most; search items are 16 at most.
    batch_size : int or "auto"
        Masks measured in one forward pass.
    harness : HarnessOptions, optional
        How tasks of lm-evaluation-harness are asked.
    out : path, optional
        Run folder. Without it nothing is written.
    resume : bool
        Continue the atlas in `out`.
    progress : Progress, optional

    Returns
    -------
    Atlas

    Raises
    ------
    HeadsieveError
        If anything that was asked for cannot be done, or fewer than two capabilities are left.
    """
    progress = progress or Progress()
    model = model.with_units("heads")
    require_unmodified(model.hf, model.geometry)
    words = task_words(capability_names() if tasks is None else tasks, "tasks")
    harness = harness or HarnessOptions()
    named = by_name(words, {}, harness)
    config = AtlasConfig(
        model=model.name,
        revision=model.revision,
        dtype=model.dtype,
        device=model.device.type,
        fingerprint=model.fingerprint,
        quantize=model.quantize,
        capabilities=tuple(words),
        controls=(),
        budget=budget,
        heads=min(SET_SIZE, len(model.geometry)),
        max_control_drop=MAX_CONTROL_DROP,
        strategy="atlas",
        prior=prior,
        units="heads",
        ablation="zero",
        seed=seed,
        limit=limit,
        batch_size=batch_size,
        force=False,
        items={},
        harness=harness,
    )
    # Each is a control of the others.
    items = split_tasks(model, {}, named, seed=seed, limit=limit, control_items=_SEARCH_ITEMS)
    _refuse(items)
    config = config.with_items(items)
    folder = None if out is None else run_folder(out)
    with open_journal(folder, config, resume=resume) as journal:
        bench = Workbench(model, named, items, journal, batch_size=batch_size, progress=progress)
        left_out = dict(bench.weaknesses())
        kept = {name: task for name, task in named.items() if name not in left_out}
        for name, weakness in left_out.items():
            progress.note(f"{name} is left out: the model's {weakness}.")
        if len(kept) < 2:
            raise HeadsieveError(
                "Fewer than two of these capabilities are clearly above chance in this model, so "
                "there is nothing to map; name others with --tasks."
            )
        done = Atlas(config, _result(bench, config, kept, left_out), folder)
        if folder is not None:
            done.save(folder)
    return done


def _refuse(items: Mapping[str, TaskItems]) -> None:
    for name, own in items.items():
        if own.held_out.metric == LOG_PROB:
            raise HeadsieveError(
                f"{name} is plain text, which has no right answers; an atlas is of capabilities."
            )


def _result(
    bench: Workbench, config: Config, kept: Mapping[str, Task], left_out: dict[str, str]
) -> AtlasResult:
    names = list(kept)
    problems = [_problem(bench, config, name, kept) for name in names]
    bench.progress.stage("Surveying all capabilities", config.budget * len(names))
    ledgers = dict(zip(names, answered(survey(problems), bench.answer), strict=True))
    rng = np.random.default_rng(config.seed)
    effects = {name: estimate(ledger, rng) for name, ledger in ledgers.items()}
    first = ledgers[names[0]]
    alone = sorted(chosen[0] for chosen in first.scores[names[0]] if len(chosen) == 1)
    matrix = np.stack([effects[name].effect for name in names], axis=1)
    needed = np.stack([_needed(effects[name]) for name in names], axis=1)
    needed[np.setdiff1d(np.arange(len(needed)), alone)] = False

    capabilities = _verified(bench, config, ledgers, effects)
    general = _general(bench, config, names, matrix, needed)
    found = modularity(matrix[alone], np.random.default_rng([config.seed, 2]))
    tree = cluster(beyond_shared(shares(matrix[alone])))
    return AtlasResult(
        schema=ATLAS_SCHEMA,
        headsieve=metadata.version("headsieve"),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=config.seed,
        command=config.command,
        model=describe_model(bench.model),
        left_out=left_out,
        capabilities=capabilities,
        general=general,
        heads=[
            AtlasHead(
                head=str(head),
                layer=head.layer,
                index=head.index,
                alone=column in alone,
                effects=dict(zip(names, matrix[column].tolist(), strict=True)),
                needed_by=[
                    name for name, needs in zip(names, needed[column], strict=True) if needs
                ],
            )
            for column, head in enumerate(bench.model.geometry.heads)
        ],
        order=[names[leaf] for leaf in leaves(tree)],
        tree=tree.tolist(),
        modularity=ModularityResult(
            specificity=found.specificity,
            null_mean=found.null_mean,
            null_ci=found.null_interval,
            p_value=found.p_value,
            heads=len(alone),
            permutations=PERMUTATIONS,
        ),
        masks=len(first.scores[names[0]]),
        cost=total_cost(bench.journal),
        versions=versions(),
    )


def _problem(bench: Workbench, config: Config, name: str, kept: Mapping[str, Task]) -> Problem:
    """One capability; those about the same facts could only fall with it and are no controls."""
    return Problem(
        heads=len(bench.model.geometry),
        capability=name,
        controls={
            other: config.max_control_drop
            for other, task in kept.items()
            if other != name and not same_subject(task, kept[name])
        },
        budget=config.budget,
        set_size=config.heads,
        seed=config.seed,
        in_nats=bench.searched_in_nats,
        prior=config.prior,
        chance=bench.items[name].search.chance,
    )


def _needed(effects: Effects) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray((effects.high < 0) & (effects.effect <= -NOTICEABLE))


def _verified(
    bench: Workbench,
    config: Config,
    ledgers: Mapping[str, Ledger],
    effects: Mapping[str, Effects],
) -> dict[str, AtlasCapability]:
    """Choose each capability's set among the measured ones, and verify it on held-out items."""
    heads = bench.model.geometry.heads
    chosen: dict[str, Columns] = {}
    for name, ledger in ledgers.items():
        best = best_set(ledger)
        order = np.argsort(effects[name].effect[list(best)], kind="stable")
        chosen[name] = tuple(best[place] for place in order)
    bench.progress.stage(
        "Verifying each capability's heads", len(chosen) * (len(chosen) + RANDOM_SETS)
    )
    checks = {
        name: verify(
            selected,
            name,
            {task: bench.metrics[task] for task in ledgers[name].scores},
            len(heads),
            bench.held_out,
            # Sets of one size are compared with the same random sets.
            np.random.default_rng([config.seed, 1]),
            random_sets=RANDOM_SETS,
        )
        for name, selected in chosen.items()
    }
    adjusted = stats.false_discovery_control([one.capability.p_value for one in checks.values()])
    return {
        name: AtlasCapability(
            selected=[str(heads[column]) for column in chosen[name]],
            verification=check,
            adjusted_p=float(p),
            confirmed=bool(
                chosen[name]
                and p <= _SIGNIFICANT
                and check.capability.drop > check.random_sets.max_drop
            ),
        )
        for (name, check), p in zip(checks.items(), adjusted, strict=True)
    }


def _general(
    bench: Workbench,
    config: Config,
    names: Sequence[str],
    matrix: np.ndarray[tuple[int, int], np.dtype[np.float64]],
    needed: np.ndarray[tuple[int, int], np.dtype[np.bool_]],
) -> list[GeneralHead]:
    """Heads that most capabilities need, and what held-out items say of them."""
    share = needed.mean(axis=1)
    ranked = np.lexsort((matrix.mean(axis=1), -share))
    columns = [int(one) for one in ranked if share[one] >= GENERAL_SHARE][:_GENERAL_HEADS]
    bench.progress.stage("Verifying general heads", len(columns) * len(names))
    masks = to_masks([(), *((column,) for column in columns)], len(matrix))
    rng = np.random.default_rng([config.seed, 3])
    scores = {name: bench.held_out(masks, name) for name in names}
    found = []
    for number, column in enumerate(columns, start=1):
        claims = {
            name: claim(bench.metrics[name], known[0], known[number], rng)
            for name, known in scores.items()
        }
        needed_by = [name for name, one in claims.items() if one.ci[0] > 0]
        found.append(
            GeneralHead(
                head=str(bench.model.geometry.heads[column]),
                claims=claims,
                needed_by=needed_by,
                confirmed=len(needed_by) >= GENERAL_SHARE * len(names),
            )
        )
    return found
