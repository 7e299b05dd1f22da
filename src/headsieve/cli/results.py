"""``headsieve report`` and ``compare``: finished studies."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headsieve.cli.output import show
from headsieve.errors import HeadsieveError


def add_report(commands: Any) -> None:
    """Add ``headsieve report``."""
    command = commands.add_parser(
        "report",
        help="make the page of finished studies or atlases again",
        description="Write report.html into the folder RUN of each finished study, or atlas.html "
        "into that of an atlas: one page that opens in a browser and needs no network.",
    )
    command.add_argument("run_folders", nargs="+", type=Path, metavar="RUN")
    command.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> None:
    from headsieve.atlas_folder import ATLAS_FILE, Atlas
    from headsieve.runs import run_folder
    from headsieve.study import Study

    for folder in map(run_folder, options.run_folders):
        kind = Atlas if (folder / ATLAS_FILE).is_file() else Study
        print(kind.load(folder).write_page(folder))


def add_compare(commands: Any) -> None:
    """Add ``headsieve compare``."""
    command = commands.add_parser(
        "compare",
        help="compare finished studies: models, strategies or seeds",
        description="Show the studies in the folders RUN side by side: shared heads, agreement of "
        "rankings, drops and cost.",
    )
    command.add_argument("run_folders", nargs="+", type=Path, metavar="RUN")
    command.add_argument("--page", type=Path, metavar="FILE", help="also write a page, as report")
    command.add_argument("--json", action="store_true", help="print the comparison as JSON")
    command.set_defaults(run=_compare)


def _compare(options: argparse.Namespace) -> None:
    from headsieve.comparison import compare
    from headsieve.report.comparison import comparison_tables
    from headsieve.report.page import comparison_page
    from headsieve.runs import write_atomically
    from headsieve.study import Study

    page = options.page
    if page is not None:
        page = page.expanduser()
        if page.is_dir() or not page.parent.is_dir():
            raise HeadsieveError(f"--page must name a file in an existing folder, not {page}.")
    comparison = compare([Study.load(folder) for folder in options.run_folders])
    if page is not None:
        write_atomically(page, comparison_page(comparison))
    if options.json:
        print(json.dumps(comparison.to_dict(), indent=2))
    else:
        show(comparison_tables(comparison))
