"""The whole job: find the heads of capabilities, confirm them, keep everything."""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from headsieve.config import Config
from headsieve.errors import HeadsieveError
from headsieve.examples import Examples, collect_examples
from headsieve.form import check_form
from headsieve.interactions import measure_interactions, require_interactions
from headsieve.intervals import value_interval
from headsieve.measure.ablation import Ablation
from headsieve.measure.workers import Workers
from headsieve.models.heads import NOUNS, Units
from headsieve.models.knockout import require_unmodified
from headsieve.progress import Progress
from headsieve.provenance import describe_model, total_cost, versions
from headsieve.report.curve import Curve
from headsieve.results import (
    CapabilityResult,
    Evaluations,
    FrontierPoint,
    Result,
    ranked_heads,
)
from headsieve.runs import open_journal, run_folder
from headsieve.sensing.problem import Columns, Masks, Prior, Problem, to_masks
from headsieve.sensing.strategies import Strategy, find_strategy, search
from headsieve.study import Study
from headsieve.tasks import HarnessOptions, Task
from headsieve.tasks.selection import select_tasks
from headsieve.verify import RANDOM_SETS, verify
from headsieve.workbench import Workbench, replacements, split_tasks, task_words

if TYPE_CHECKING:
    from headsieve.models.loading import Model


def locate(
    model: Model,
    capabilities: Sequence[str | os.PathLike[str]],
    *,
    controls: Sequence[str | os.PathLike[str]] | None = None,
    budget: int = 100,
    heads: int = 5,
    max_control_drop: float = 0.05,
    strategy: str = "adaptive",
    prior: Prior | None = None,
    units: Units = "heads",
    ablation: Ablation = "zero",
    interactions: bool = False,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | Literal["auto"] = "auto",
    harness: HarnessOptions | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    force: bool = False,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> Study:
    """Find the heads that each capability depends on, and confirm them on held-out items.

    Parameters
    ----------
    model : Model
    capabilities : sequence of str or path
        Built-in names, task files, or ``lm-eval:NAME``. Each is also a control for the others.
    controls : sequence of str or path, optional
        Tasks that should survive. By default the other capabilities, filled up to five from a
        fixed set of built-in tasks, and plain text.
    budget : int
        Evaluations on each capability; those on controls come on top and are counted apart.
    heads : int
        Heads in a set, at most.
    max_control_drop : float
        How much smooth accuracy a chosen set may cost any control on search items, beyond one
        standard error (plain text: as many nats a token); see docs/method.md.
    strategy : {"adaptive", "attribution", "exhaustive", "greedy", "halving", "paper", "thompson"}
    prior : {"gradient", "none"}, optional
        Whether gradients may guide the adaptive search, at the price of three evaluations: by
        default they do, where tasks have any.
    units : {"heads", "kv-groups", "attention-layers", "mlp-layers"}
        What is searched for in place of heads; see docs/families.md.
    ablation : {"zero", "mean", "resample"}
        What a knocked-out head gives, in search and verification: nothing, its mean output over
        the task's search items, or its output at one place of one of them; see docs/ablation.md.
    interactions : bool
        Also measure all subsets of the selected heads (at most five) on held-out items, for
        Shapley values and interactions of pairs; needs shapiq.
    seed : int
        Of the split of items, the masks and the resampling.
    limit : int, optional
        Search items of each task at most, and held-out items too.
    batch_size : int or "auto"
        Masks measured in one forward pass.
    harness : HarnessOptions, optional
        How tasks of lm-evaluation-harness are asked.
    out : path, optional
        Run folder. Without it nothing is written, and an interrupted study cannot be resumed.
    resume : bool
        Continue the study in `out`.
    force : bool
        Search even for a capability that the model hardly has.
    progress : Progress, optional
    workers : Workers, optional
        What runs the model, as `RayWorkers` does; by default this process.

    Returns
    -------
    Study

    Raises
    ------
    HeadsieveError
        If anything that was asked for cannot be done.
    """
    progress = progress or Progress()
    searcher = find_strategy(strategy)
    model = model.with_units(units)
    if heads > len(model.geometry):
        raise HeadsieveError(
            f"The model has {len(model.geometry)} {NOUNS[units][1]}; no set has {heads} of them."
        )
    if interactions:
        require_interactions(heads)
    require_unmodified(model.hf, model.geometry)
    capability_words = task_words(capabilities, "capabilities")
    control_words = None if controls is None else task_words(controls, "controls")
    harness = harness or HarnessOptions()
    named, others = select_tasks(capability_words, control_words, harness)
    config = Config(
        model=model.name,
        revision=model.revision,
        dtype=model.dtype,
        device=model.device.type if workers is None else workers.device,
        fingerprint=model.fingerprint,
        quantize=model.quantize,
        capabilities=tuple(capability_words),
        controls=tuple(others if control_words is None else control_words),
        budget=budget,
        heads=heads,
        max_control_drop=max_control_drop,
        strategy=strategy,
        prior=prior or ("gradient" if strategy == "adaptive" else "none"),
        units=units,
        ablation=ablation,
        seed=seed,
        limit=limit,
        batch_size=batch_size,
        force=force,
        items={},
        interactions=interactions,
        harness=harness,
    )
    items = split_tasks(model, named, others, seed=seed, limit=limit)
    config = config.with_items(items)
    folder = None if out is None else run_folder(out)
    with open_journal(folder, config, resume=resume) as journal:
        bench = Workbench(
            model,
            named,
            items,
            journal,
            replacements=replacements(items, ablation, seed),
            batch_size=batch_size,
            progress=progress,
            workers=workers,
        )
        for name in named:
            # A strategy refuses what it cannot do at its first question, before anything is run.
            next(searcher(_problem(bench, config, name)))
        bench.check_baselines(force=force)
        located = {
            name: _locate(bench, config, name, task, searcher) for name, task in named.items()
        }
        study = _study(bench, config, located, folder)
        if folder is not None:
            study.save(folder)
    return study


@dataclass(frozen=True)
class _Located:
    """What is found of one capability."""

    result: CapabilityResult
    general: list[str]
    curve: Curve
    examples: Examples | None


def _locate(
    bench: Workbench, config: Config, capability: str, task: Task, strategy: Strategy
) -> _Located:
    """Search for one capability's heads, verify them, and measure them one after the other."""
    problem = _problem(bench, config, capability)
    bench.progress.stage(f"Searching {capability}", config.budget * len(problem.tasks))
    found = search(strategy, problem, bench.answer)

    sets = [found.selected[:count] for count in range(len(found.selected) + 1)]
    masks = to_masks(sets, problem.heads)
    beside = 2 * len(bench.items[capability].companions)
    count = RANDOM_SETS + len(sets) * len(problem.tasks) + beside
    bench.progress.stage(f"Verifying {capability}", count)
    # All at once, so that many workers have work; what follows finds most of what it needs.
    bench.measure_held_out(masks, problem.tasks)
    rng = np.random.default_rng([config.seed, 1])
    metrics = {task: bench.metrics[task] for task in problem.tasks}
    verification = verify(found.selected, capability, metrics, problem.heads, bench.held_out, rng)
    form = check_form(bench, capability, found.selected, verification.capability, rng)
    curve = _curve(bench, capability, found.selected, masks, metrics, rng)
    together = None
    if config.interactions and found.selected:
        bench.progress.stage(f"Subsets of {capability}'s heads", 2 ** len(found.selected))
        together = measure_interactions(bench, capability, found.selected, rng)
    verification = verification.model_copy(update={"form": form, "interactions": together})

    names = [str(head) for head in bench.model.geometry.heads]
    result = CapabilityResult(
        heads=ranked_heads(found.effects, bench.model.geometry.heads),
        selected=[names[column] for column in found.selected],
        frontier=[
            FrontierPoint(
                heads=[names[column] for column in point.heads],
                drop=point.drop,
                worst_control_drop=point.worst_control_drop,
            )
            for point in found.frontier
        ],
        evaluations=Evaluations(capability=found.evaluations, controls=found.control_evaluations),
        verification=verification,
    )
    examples = collect_examples(
        bench,
        task,
        capability,
        found.selected,
        seed=config.seed,
        limit=config.limit,
    )
    general = [names[column] for column in found.effects.general]
    return _Located(result, general, curve, examples)


def _problem(bench: Workbench, config: Config, capability: str) -> Problem:
    return Problem(
        heads=len(bench.model.geometry),
        capability=capability,
        controls={name: config.max_control_drop for name in bench.tasks if name != capability},
        budget=config.budget,
        set_size=config.heads,
        seed=config.seed,
        in_nats=bench.searched_in_nats,
        prior=config.prior,
        chance=bench.items[capability].search.chance,
    )


def _curve(
    bench: Workbench,
    capability: str,
    selected: Columns,
    masks: Masks,
    metrics: Mapping[str, str],
    rng: np.random.Generator,
) -> Curve:
    """Held-out metrics with 0 to all of the selected heads knocked out, best first."""
    heads = bench.model.geometry.heads
    scores = {name: bench.held_out(masks, name) for name in metrics}
    return Curve(
        heads=tuple(str(heads[column]) for column in selected),
        metric=dict(metrics),
        values={name: tuple(score.metric for score in found) for name, found in scores.items()},
        capability=capability,
        ci=tuple(
            value_interval(metrics[capability], score.value, rng) for score in scores[capability]
        ),
    )


def _study(
    bench: Workbench, config: Config, located: Mapping[str, _Located], folder: Path | None
) -> Study:
    result = Result(
        schema=1,
        headsieve=metadata.version("headsieve"),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        seed=config.seed,
        command=config.command,
        model=describe_model(bench.model).model_copy(update={"device": config.device}),
        capabilities={name: one.result for name, one in located.items()},
        cost=total_cost(bench.journal),
        versions=versions(),
    )
    return Study(
        config,
        result,
        {name: one.general for name, one in located.items()},
        {name: one.curve for name, one in located.items()},
        {name: one.examples for name, one in located.items() if one.examples is not None},
        folder,
    )
