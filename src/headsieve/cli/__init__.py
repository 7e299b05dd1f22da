"""The command line: reads options, calls the library, shows what comes back."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any, NoReturn

from headsieve.cli.atlas import add_atlas
from headsieve.cli.export import add_export
from headsieve.cli.inspect import add_cache, add_heads, add_tasks
from headsieve.cli.locate import add_locate
from headsieve.cli.reproduce import add_reproduce
from headsieve.cli.results import add_compare, add_report
from headsieve.cli.score import add_score
from headsieve.errors import HeadsieveError

_USAGE_ERROR = 2
_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one sentence, and whose help is never lost unnoticed."""

    def _print_message(self, message: str, file: Any = None) -> None:
        # argparse lets errors of writing pass; there is no public way to say otherwise.
        print(message, end="", file=file or sys.stderr)

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
            build_parser().parse_args(arguments, options)
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


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command and option."""
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
    add_locate(commands)
    add_atlas(commands)
    add_reproduce(commands)
    add_score(commands)
    add_report(commands)
    add_compare(commands)
    add_export(commands)
    add_heads(commands)
    add_tasks(commands)
    add_cache(commands)
    return parser
