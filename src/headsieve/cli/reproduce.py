"""``headsieve reproduce``: the paper's programme on any model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headsieve.cli.options import add_harness, add_measuring, harness, load
from headsieve.cli.output import show


def add_reproduce(commands: Any) -> None:
    """Add ``headsieve reproduce``."""
    command = commands.add_parser(
        "reproduce",
        help="run the paper's programme on a model, beside its published figures",
        description="Search for the heads of math, code, swearing and rhyming as arXiv 2603.03335 "
        "does, and measure its tables with them: ten tasks without each head set, 0 to 10 math "
        "heads, WMDP. What cannot be had is named and left out.",
    )
    command.add_argument(
        "--strategy",
        default="paper",
        metavar="NAME",
        help="paper, or another of locate's, with the other capabilities as controls (%(default)s)",
    )
    command.add_argument(
        "--budget",
        type=int,
        default=100,
        metavar="N",
        help="evaluations a search (%(default)s)",
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        default=Path("runs/reproduce"),
        help="run folder (%(default)s)",
    )
    command.add_argument("--resume", action="store_true", help="continue in the folder")
    add_measuring(command, "search items of a task at most, and held-out items too")
    add_harness(command)
    command.set_defaults(run=_reproduce)


def _reproduce(options: argparse.Namespace) -> None:
    from headsieve.report.progress import ConsoleProgress
    from headsieve.report.reproduction import summary
    from headsieve.reproduce import reproduce
    from headsieve.runs import run_folder

    options.out = run_folder(options.out)
    with ConsoleProgress() as progress:
        progress.note(f"Loading {options.model} ...")
        done = reproduce(
            load(options),
            strategy=options.strategy,
            budget=options.budget,
            seed=options.seed,
            limit=options.limit,
            batch_size=options.batch_size,
            harness=harness(options),
            out=options.out,
            resume=options.resume,
            progress=progress,
        )
    if options.json:
        print(done.to_json(), end="")
    else:
        show(summary(done))
