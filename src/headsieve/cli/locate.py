"""``headsieve locate``: the whole job."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from headsieve.cli.options import add_measuring, load, words
from headsieve.cli.output import show


def add_locate(commands: Any) -> None:
    """Add ``headsieve locate``."""
    command = commands.add_parser(
        "locate",
        help="find the heads of capabilities and confirm them on held-out items",
        description="Find the heads that each CAPABILITY depends on, and confirm them on held-out "
        "items against controls and random sets. A CAPABILITY is a built-in task or a task file.",
    )
    command.add_argument("capabilities", nargs="+", metavar="CAPABILITY")
    command.add_argument(
        "--controls",
        metavar="C,C",
        help="tasks that should survive, or none (default: the other capabilities, filled up to "
        "five from a fixed set of built-in tasks, and plain text)",
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
        default="none",
        metavar="P",
        help="gradient lets gradients guide the adaptive search, for three evaluations "
        "(%(default)s)",
    )
    command.add_argument(
        "--out", type=Path, metavar="DIR", help="run folder (default: runs/CAPABILITY)"
    )
    command.add_argument("--resume", action="store_true", help="continue the study in the folder")
    command.add_argument(
        "--force", action="store_true", help="search even for what the model hardly can"
    )
    add_measuring(command, "search items of a task at most, and held-out items too")
    command.set_defaults(run=_locate)


def _locate(options: argparse.Namespace) -> None:
    from headsieve.report import tables
    from headsieve.report.figures import file_names
    from headsieve.report.progress import ConsoleProgress
    from headsieve.runs import run_folder
    from headsieve.study import locate
    from headsieve.tasks.selection import select_tasks

    controls = _controls(options.controls)
    # What is wrong with the tasks can be said before the model is loaded.
    capabilities, _ = select_tasks(options.capabilities, controls)
    if options.out is None:
        options.out = Path("runs") / "-".join(file_names(capabilities).values())
    options.out = run_folder(options.out)
    with ConsoleProgress() as progress:
        progress.note(f"Loading {options.model} ...")
        study = locate(
            load(options),
            options.capabilities,
            controls=controls,
            budget=options.budget,
            heads=options.heads,
            max_control_drop=options.max_control_drop,
            strategy=options.strategy,
            prior=options.prior,
            ablation=options.ablation,
            seed=options.seed,
            limit=options.limit,
            batch_size=options.batch_size,
            out=options.out,
            resume=options.resume,
            force=options.force,
            progress=progress,
        )
    if options.json:
        print(study.result.to_json(), end="")
    else:
        show(tables.summary(study.result, general=study.general, folder=study.folder))


def _controls(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "none" else words(text)
