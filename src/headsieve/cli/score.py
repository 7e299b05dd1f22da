"""``headsieve score``: tasks with and without heads."""

from __future__ import annotations

import argparse
import json
from typing import Any

from headsieve.cli.options import add_ablation, add_harness, add_measuring, harness, load
from headsieve.cli.output import show
from headsieve.names import split_names


def add_score(commands: Any) -> None:
    """Add ``headsieve score``."""
    command = commands.add_parser(
        "score",
        help="measure tasks, with or without heads knocked out",
        description="Measure each TASK (a built-in task, one of the paper's, a task file, or "
        "lm-eval:NAME), unmodified and, with --knockout, without some heads.",
    )
    command.add_argument("tasks", nargs="+", metavar="TASK")
    command.add_argument(
        "--knockout",
        metavar="L13H4,L20H8",
        help="heads to knock out, or KV groups (L13G1), attention layers (L13A) or MLP "
        "layers (L13M)",
    )
    add_ablation(command)
    add_measuring(command, "items of a task at most")
    add_harness(command)
    command.set_defaults(run=_score)


def _score(options: argparse.Namespace) -> None:
    from headsieve.report import tables
    from headsieve.report.progress import ConsoleProgress
    from headsieve.scoring import score
    from headsieve.tasks.selection import by_name

    by_name(options.tasks, {}, harness(options))  # as for locate, before the model is loaded
    with ConsoleProgress() as progress:
        progress.note(f"Loading {options.model} ...")
        results = score(
            load(options),
            options.tasks,
            knockout=None if options.knockout is None else split_names(options.knockout),
            ablation=options.ablation,
            seed=options.seed,
            limit=options.limit,
            batch_size=options.batch_size,
            harness=harness(options),
            progress=progress,
        )
    if options.json:
        record = {name: one.model_dump(mode="json") for name, one in results.items()}
        print(json.dumps(record, indent=2))
    else:
        show(tables.scores(results))
