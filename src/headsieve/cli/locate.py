"""``headsieve locate``: the whole job."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsieve.cli.options import add_ablation, add_harness, add_measuring, harness, load, source
from headsieve.cli.output import show
from headsieve.errors import HeadsieveError
from headsieve.names import split_names

if TYPE_CHECKING:
    from headsieve.measure.ray_workers import RayWorkers
    from headsieve.models.loading import Model
    from headsieve.progress import Progress


def add_locate(commands: Any) -> None:
    """Add ``headsieve locate``."""
    command = commands.add_parser(
        "locate",
        help="find the heads of capabilities and confirm them on held-out items",
        description="Find the heads that each CAPABILITY depends on, and confirm them on held-out "
        "items against controls and random sets. A CAPABILITY is a built-in task, one of the "
        "paper's (gsm8k, mmlu, ...), a task file, or lm-eval:NAME.",
    )
    command.add_argument("capabilities", nargs="+", metavar="CAPABILITY")
    command.add_argument(
        "--controls",
        metavar="C,C",
        help="tasks that should survive, a name with a comma in double quotes, or none (default: "
        "the other capabilities, filled up to five from a fixed set of built-in tasks, and plain "
        "text)",
    )
    command.add_argument(
        "--budget",
        type=int,
        default=100,
        metavar="N",
        help="evaluations a capability (%(default)s)",
    )
    command.add_argument(
        "--heads", type=int, default=5, metavar="K", help="heads in a set, at most (%(default)s)"
    )
    command.add_argument(
        "--max-control-drop",
        type=float,
        default=0.05,
        metavar="F",
        help="smooth accuracy that a set may cost any control on search items, beyond one standard "
        "error; plain text: as many nats a token (%(default)s)",
    )
    command.add_argument(
        "--strategy",
        default="adaptive",
        metavar="NAME",
        help="adaptive, or to compare: paper, exhaustive, attribution, greedy, halving, thompson "
        "(%(default)s)",
    )
    command.add_argument(
        "--prior",
        metavar="P",
        help="gradient lets gradients guide the search, for three evaluations; or none (default of "
        "the adaptive strategy: gradient)",
    )
    command.add_argument(
        "--units",
        default="heads",
        metavar="U",
        help="what to search for: heads, kv-groups, attention-layers or mlp-layers (%(default)s)",
    )
    command.add_argument(
        "--interactions",
        action="store_true",
        help="also measure all subsets of the selected heads, for Shapley values and interactions "
        "(needs shapiq)",
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="run folder (default: runs/CAPABILITY)"
    )
    command.add_argument("--resume", action="store_true", help="continue the study in the folder")
    command.add_argument(
        "--force", action="store_true", help="search even for what the model hardly can"
    )
    command.add_argument(
        "--dry-run",
        action="store_true",
        help="only tell what it would take: evaluations, tokens, operations, time and memory",
    )
    command.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="measure in N processes, each with a replica of the model (needs ray)",
    )
    command.add_argument(
        "--ray",
        metavar="ADDRESS",
        help="have the workers on this Ray cluster, or auto for the one this machine is part of "
        "(default N: one for each GPU, or for each machine)",
    )
    add_ablation(command)
    add_measuring(command, "search items of a task at most, and held-out items too")
    add_harness(command)
    command.set_defaults(run=_locate)


def _locate(options: argparse.Namespace) -> None:
    from headsieve.interactions import require_interactions
    from headsieve.localization import locate
    from headsieve.models.heads import require_units
    from headsieve.report import tables
    from headsieve.report.drawing import file_names
    from headsieve.report.progress import ConsoleProgress
    from headsieve.runs import run_folder
    from headsieve.sensing.strategies import find_strategy
    from headsieve.tasks.selection import select_tasks

    controls = _controls(options.controls)
    # What is wrong with the tasks can be said before the model is loaded.
    capabilities, _ = select_tasks(options.capabilities, controls, harness(options))
    if options.dry_run and options.resume:
        raise HeadsieveError("A dry run foretells a whole study: leave out --resume.")
    if options.quantize is not None and (options.workers, options.ray) != (None, None):
        raise HeadsieveError("Quantised models are measured in one process: leave out --workers.")
    find_strategy(options.strategy)
    require_units(options.units)
    if options.interactions:
        require_interactions(options.heads)
    if options.out is None:
        options.out = Path("runs") / "-".join(file_names(capabilities).values())
    options.out = run_folder(options.out)
    settings: dict[str, Any] = {
        "controls": controls,
        "budget": options.budget,
        "heads": options.heads,
        "max_control_drop": options.max_control_drop,
        "strategy": options.strategy,
        "prior": options.prior,
        "units": options.units,
        "ablation": options.ablation,
        "interactions": options.interactions,
        "seed": options.seed,
        "limit": options.limit,
        "batch_size": options.batch_size,
        "harness": harness(options),
    }
    with ConsoleProgress() as progress, contextlib.ExitStack() as stack:
        progress.note(f"Loading {options.model} ...")
        if options.dry_run:
            model = load(options)
            progress.note("Timing a few batches and rehearsing the study ...")
            _dry_run(model, options, settings)
            return
        workers = _workers(options, progress, stack)
        model = load(options) if workers is None else _idle_model(options, workers)
        study = locate(
            model,
            options.capabilities,
            **settings,
            out=options.out,
            resume=options.resume,
            force=options.force,
            progress=progress,
            workers=workers,
        )
    if options.json:
        print(study.result.to_json(), end="")
    else:
        show(
            tables.summary(
                study.result, general=study.general, curves=study.curves, folder=study.folder
            )
        )


def _dry_run(model: Model, options: argparse.Namespace, settings: dict[str, Any]) -> None:
    from headsieve.forecast import forecast
    from headsieve.report.tables import forecast_table

    if options.ray is not None and options.workers is None:
        raise HeadsieveError("For a dry run say with --workers how many there will be.")
    workers = 1 if options.workers is None else options.workers
    found = forecast(model, options.capabilities, workers=workers, **settings)
    if options.json:
        print(json.dumps(found.to_dict(), indent=2))
    else:
        show(forecast_table(found))


def _workers(
    options: argparse.Namespace, progress: Progress, stack: contextlib.ExitStack
) -> RayWorkers | None:
    if options.workers is None and options.ray is None:
        return None
    from headsieve.measure.ray_workers import RayWorkers

    # Ray tells of processes that died on standard output, which is for the result.
    stack.enter_context(contextlib.redirect_stdout(sys.stderr))
    workers = RayWorkers(source(options), options.workers, address=options.ray, note=progress.note)
    return stack.enter_context(workers)


def _idle_model(options: argparse.Namespace, workers: RayWorkers) -> Model:
    """The model in this process's main memory, where it says what is measured but is not run."""
    from headsieve.models.loading import load_model

    return load_model(options.model, device="cpu", dtype=workers.dtype, revision=options.revision)


def _controls(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "none" else split_names(text)
