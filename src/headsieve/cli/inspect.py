"""``headsieve heads``, ``tasks`` and ``cache``: what there is to work with."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headsieve.cli.options import add_model, load
from headsieve.cli.output import show
from headsieve.errors import HeadsieveError

if TYPE_CHECKING:
    from headsieve.check import Check
    from headsieve.models.loading import Model


def add_heads(commands: Any) -> None:
    """Add ``headsieve heads``."""
    command = commands.add_parser(
        "heads",
        help="list a model's attention heads",
        description="Show which attention heads a model has, and which layers are not covered. "
        "With --check, also try on the model what must hold of knockouts.",
    )
    add_model(command)
    command.add_argument(
        "--check",
        action="store_true",
        help="check that knockouts do what they should; status 2 if anything does not hold",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_heads)


def _heads(options: argparse.Namespace) -> None:
    from headsieve.report import tables

    model = load(options)
    checks = _checked(model) if options.check else []
    if options.json:
        record = {"model": model.name, **model.geometry.to_dict()}
        if options.check:
            record["checks"] = [asdict(check) for check in checks]
        print(json.dumps(record, indent=2))
    else:
        show(tables.heads_table(model.geometry))
        if options.check:
            show(tables.checks_table(checks))
    failed = [check for check in checks if check.holds is False]
    if failed:
        raise HeadsieveError(
            f"{len(failed)} of {len(checks)} checks do not hold for {model.name} "
            f"({', '.join(check.name for check in failed)}); do not trust knockouts in it."
        )


def _checked(model: Model) -> list[Check]:
    from headsieve.check import check_model
    from headsieve.report.progress import ConsoleProgress

    with ConsoleProgress() as progress:
        return check_model(model, progress=progress)


def add_tasks(commands: Any) -> None:
    """Add ``headsieve tasks``."""
    command = commands.add_parser(
        "tasks",
        help="list the tasks that have a name",
        description="List the built-in tasks with the default model's accuracy on each, and the "
        "paper's capabilities, whose items come from elsewhere.",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_tasks)


def _tasks(options: argparse.Namespace) -> None:
    from headsieve.report import tables
    from headsieve.tasks.builtin import describe_builtins
    from headsieve.tasks.paper_tasks import describe_paper_tasks

    rows = [*describe_builtins(), *describe_paper_tasks()]
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(tables.tasks_table(rows))


def add_cache(commands: Any) -> None:
    """Add ``headsieve cache``."""
    command = commands.add_parser(
        "cache",
        help="list or clear converted models",
        description="List the GGUF models that were converted to load faster, or delete them.",
    )
    command.add_argument("--clear", action="store_true", help="delete them")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_cache)


def _cache(options: argparse.Namespace) -> None:
    from headsieve.models.cache import cache_folder, clear_cache, converted_models

    models = clear_cache() if options.clear else converted_models()
    record = {
        "folder": str(cache_folder()),
        "deleted": options.clear,
        "models": [{"name": model.folder.name, "bytes": model.bytes} for model in models],
    }
    if options.json:
        print(json.dumps(record, indent=2))
        return
    done = "deleted from" if options.clear else "in"
    print(f"Converted models {done} {cache_folder()}: {len(models)}")
    for model in models:
        print(f"  {model.folder.name}  {model.bytes / 1e6:.0f} MB")
