"""The command line: reads options, calls the library, shows what comes back."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from headsieve.cli_results import add_compare, add_export, add_report
from headsieve.errors import HeadsieveError

if TYPE_CHECKING:
    from headsieve.models.loading import Model

_USAGE_ERROR = 2
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, without the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(_USAGE_ERROR, f"{self.prog}: {message}. See {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status: 0, or 2 for what cannot be done."""
    for stream in (sys.stdout, sys.stderr):
        # A character that the terminal's encoding lacks is no reason to stop.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    options = argparse.Namespace()
    try:
        try:
            _parser().parse_args(arguments, options)
            options.run(options)
        finally:
            # When the interpreter ends it is too late to say that output cannot be written.
            if sys.stdout is not None:
                sys.stdout.flush()
    except HeadsieveError as error:
        print(f"headsieve: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except KeyboardInterrupt:
        print(f"\nheadsieve: interrupted.{_how_to_resume(options)}", file=sys.stderr)
        return _INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has closed it (`headsieve tasks | head`); nothing is wrong.
        _discard_output()
    except OSError as error:
        _discard_output()
        what = "the output" if error.filename is None else error.filename
        print(f"headsieve: Cannot read or write {what}: {error.strerror}.", file=sys.stderr)
        return _USAGE_ERROR
    return 0


def _discard_output() -> None:
    """Let what could not be written go, or the interpreter would try again when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _how_to_resume(options: argparse.Namespace) -> str:
    folder = getattr(options, "out", None)
    if folder is None or not os.path.exists(folder / "measurements.sqlite"):
        return ""
    return (
        f" Every finished measurement is kept in {folder}; give the same command with --resume to "
        "continue."
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="headsieve",
        description="Find the few attention heads that a capability of a language model needs.",
    )
    parser.add_argument(
        "--version", action="version", version=f"headsieve {metadata.version('headsieve')}"
    )
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=_Parser
    )
    _add_locate(commands)
    _add_score(commands)
    add_report(commands)
    add_compare(commands)
    add_export(commands)
    _add_heads(commands)
    _add_tasks(commands)
    _add_cache(commands)
    return parser


def _add_locate(commands: Any) -> None:
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
    _add_measuring(command, "search items of a task at most, and held-out items too")
    command.set_defaults(run=_locate)


def _add_score(commands: Any) -> None:
    command = commands.add_parser(
        "score",
        help="measure tasks, with or without heads knocked out",
        description="Measure each TASK (a built-in task or a task file), unmodified and, with "
        "--knockout, without some heads.",
    )
    command.add_argument("tasks", nargs="+", metavar="TASK")
    command.add_argument("--knockout", metavar="L13H4,L20H8", help="heads to knock out")
    _add_measuring(command, "items of a task at most")
    command.set_defaults(run=_score)


def _add_heads(commands: Any) -> None:
    command = commands.add_parser(
        "heads",
        help="list a model's attention heads",
        description="Show which attention heads a model has, and which layers are not covered.",
    )
    _add_model(command)
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_heads)


def _add_tasks(commands: Any) -> None:
    command = commands.add_parser(
        "tasks",
        help="list the built-in tasks",
        description="List the built-in tasks with the default model's accuracy on each.",
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_tasks)


def _add_cache(commands: Any) -> None:
    command = commands.add_parser(
        "cache",
        help="list or clear converted models",
        description="List the GGUF models that were converted to load faster, or delete them.",
    )
    command.add_argument("--clear", action="store_true", help="delete them")
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=_cache)


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--model",
        default="smollm2",
        metavar="M",
        help="hub id, folder, .gguf file, or smollm2 (%(default)s)",
    )
    command.add_argument("--revision", metavar="R", help="branch, tag or commit on the hub")
    command.add_argument(
        "--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:1, mps (%(default)s)"
    )
    command.add_argument(
        "--dtype",
        default="auto",
        metavar="T",
        help="auto, float32, bfloat16 or float16 (%(default)s)",
    )


def _add_measuring(command: argparse.ArgumentParser, limit: str) -> None:
    _add_model(command)
    command.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of everything random (%(default)s)"
    )
    command.add_argument("--limit", type=int, metavar="N", help=limit)
    command.add_argument(
        "--batch-size",
        type=_batch_size,
        default="auto",
        metavar="N",
        help="masks in one forward pass, or auto (%(default)s)",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def _batch_size(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number") from None


def _load(options: argparse.Namespace) -> Model:
    from headsieve.models.loading import load_model

    return load_model(
        options.model, device=options.device, dtype=options.dtype, revision=options.revision
    )


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
            _load(options),
            options.capabilities,
            controls=controls,
            budget=options.budget,
            heads=options.heads,
            max_control_drop=options.max_control_drop,
            strategy=options.strategy,
            prior=options.prior,
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


def words(text: str) -> list[str]:
    """The words of a list that is separated by commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _score(options: argparse.Namespace) -> None:
    from headsieve.report import tables
    from headsieve.report.progress import ConsoleProgress
    from headsieve.scoring import score
    from headsieve.tasks.selection import by_name

    by_name(options.tasks, {})  # as for locate, before the model is loaded
    with ConsoleProgress() as progress:
        progress.note(f"Loading {options.model} ...")
        results = score(
            _load(options),
            options.tasks,
            knockout=None if options.knockout is None else words(options.knockout),
            seed=options.seed,
            limit=options.limit,
            batch_size=options.batch_size,
            progress=progress,
        )
    if options.json:
        record = {name: one.model_dump(mode="json") for name, one in results.items()}
        print(json.dumps(record, indent=2))
    else:
        show(tables.scores(results))


def _heads(options: argparse.Namespace) -> None:
    from headsieve.report import tables

    model = _load(options)
    if options.json:
        print(json.dumps({"model": model.name, **model.geometry.to_dict()}, indent=2))
    else:
        show(tables.heads_table(model.geometry))


def _tasks(options: argparse.Namespace) -> None:
    from headsieve.report import tables
    from headsieve.tasks.builtin import describe_builtins

    rows = describe_builtins()
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(tables.tasks_table(rows))


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


def show(renderable: Any) -> None:
    """Print what rich can render, as wide as the terminal or, in a file, as it needs."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        # A pipe has no width of its own, and a file should not be cut at 80 columns.
        console = Console(width=120)
    # Printed as one text: of a closed pipe rich would make an end with status 1.
    with console.capture() as capture:
        console.print(renderable, crop=False)
    print(capture.get(), end="")


if __name__ == "__main__":
    sys.exit(main())
