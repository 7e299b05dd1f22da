"""``headsieve atlas``: a map of a model's capabilities and heads."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headsieve.cli.options import add_harness, add_measuring, harness, load
from headsieve.cli.output import show
from headsieve.names import split_names


def add_atlas(commands: Any) -> None:
    """Add ``headsieve atlas``."""
    command = commands.add_parser(
        "atlas",
        help="map all capabilities of a model at once",
        description="Measure all capabilities of a model under the same knockouts, each the "
        "others' control: which heads serve which capability, which are general, and how far "
        "capabilities share their heads.",
    )
    command.add_argument(
        "--tasks",
        metavar="T,T",
        help="built-in tasks, task files or lm-eval:NAME (default: all built-in capabilities)",
    )
    command.add_argument(
        "--budget",
        type=int,
        default=100,
        metavar="N",
        help="knockouts on search items, each measured on every capability (%(default)s)",
    )
    command.add_argument(
        "--prior",
        default="gradient",
        metavar="P",
        help="gradient lets gradients guide the search, for three knockouts; or none (%(default)s)",
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("runs/atlas"),
        help="run folder (%(default)s)",
    )
    command.add_argument("--resume", action="store_true", help="continue the atlas in the folder")
    add_measuring(command, "held-out items of a task at most (default: 40)")
    add_harness(command)
    command.set_defaults(run=_atlas)


def _atlas(options: argparse.Namespace) -> None:
    from headsieve.cartography import LIMIT, atlas
    from headsieve.report.atlas_table import atlas_summary
    from headsieve.report.progress import ConsoleProgress
    from headsieve.runs import run_folder
    from headsieve.tasks.selection import by_name

    tasks = None if options.tasks is None else split_names(options.tasks)
    if tasks is not None:
        by_name(tasks, {}, harness(options))  # as for locate, before the model is loaded
    options.out = run_folder(options.out)
    with ConsoleProgress() as progress:
        progress.note(f"Loading {options.model} ...")
        done = atlas(
            load(options),
            tasks,
            budget=options.budget,
            prior=options.prior,
            seed=options.seed,
            limit=LIMIT if options.limit is None else options.limit,
            batch_size=options.batch_size,
            harness=harness(options),
            out=options.out,
            resume=options.resume,
            progress=progress,
        )
    if options.json:
        print(done.result.to_json(), end="")
    else:
        show(atlas_summary(done.result, folder=done.folder))
