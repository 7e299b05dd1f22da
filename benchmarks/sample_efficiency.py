"""Quality against evaluations: how much of the truth each method finds, and how soon.

python benchmarks/sample_efficiency.py --cases standard --methods adaptive paper --seeds 10

Prints a Markdown table for each case, or with --json everything as JSON; draws --figure. Cases are
simulated, where the truth is known exactly, or real: capabilities of SmolLM2, from a bank of
measured masks (--measure-bank makes it), and live where the bank has no answer. The methods of
shapiq need that package and lightgbm.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from efficiency import bank, methods, simulation, tables
from efficiency.compare import MakeSubject, compare, pooled
from efficiency.figure import draw
from headsieve.errors import HeadsieveError

BUDGETS = (30, 45, 60, 80, 100, 150, 200)


def words(given: list[str]) -> list[str]:
    """Words that were separated by spaces or commas."""
    return [word for one in given for word in one.split(",") if word]


def numbers(given: list[str], what: str) -> list[int]:
    try:
        found = [int(word) for word in words(given)]
    except ValueError:
        raise HeadsieveError(f"{what} must be whole numbers, not {' '.join(given)}.") from None
    if not found or min(found) < 0:
        raise HeadsieveError(f"{what} must be one or more numbers from 0 up.")
    return found


def chosen(given: list[str] | None, known: list[str], what: str) -> list[str]:
    if given is None:
        return known
    for word in words(given):
        if word not in known:
            raise HeadsieveError(f"There is no {what} {word!r}; use {', '.join(known)}.")
    return words(given)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="which cases; all by default")
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="all by default")
    parser.add_argument("--budgets", nargs="+", default=[str(one) for one in BUDGETS], metavar="N")
    parser.add_argument(
        "--seeds",
        nargs="+",
        default=["10"],
        metavar="N",
        help="how many, from 0 up, if it is one number; else which ones",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--figure", type=Path, metavar="FILE", help="draw it there (.png or .svg)")
    parser.add_argument("--bank", type=Path, default=bank.PATH, metavar="FILE")
    parser.add_argument(
        "--measure-bank",
        action="store_true",
        help="measure the truth of the real cases, and what the methods ask with these budgets "
        "and seeds, into the bank",
    )
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> None:
    known, left_out = methods.available()
    names = chosen(options.methods, list(known), "method")
    seeds = numbers(options.seeds, "Seeds")
    if len(seeds) == 1:
        seeds = list(range(seeds[0]))
    budgets = sorted(set(numbers(options.budgets, "Budgets")))
    picked = {name: known[name] for name in names}
    if options.measure_bank:
        capabilities = chosen(options.cases, list(bank.CAPABILITIES), "real case")
        bank.measure(options.bank, capabilities, picked, budgets, seeds)
        return
    real = bank.cases(options.bank)
    if not real:
        left_out.append(f"There is no bank in {options.bank}: the real cases are left out.")
    cases: dict[str, MakeSubject] = {**simulation.cases(), **real}
    for line in left_out:
        print(line, file=sys.stderr)
    results = {
        name: compare(name, cases[name], picked, budgets, seeds)
        for name in chosen(options.cases, list(cases), "case")
    }
    if options.json:
        print(json.dumps(tables.to_json(results, set(real)), indent=1))
    alone = {name: one for name, one in results.items() if name.endswith(bank.ALONE)}
    selective = {name: results[name] for name in real if name in results and name not in alone}
    for kind, measured in (("without controls", alone), ("with controls", selective)):
        if len(measured) > 1:
            together = f"{len(measured)} real capabilities {kind}"
            results = {together: pooled(list(measured.values())), **results}
    if options.figure is not None:
        draw(results, options.figure)
    if not options.json:
        print(tables.to_markdown(results))


def main(arguments: list[str] | None = None) -> int:
    try:
        run(parse(arguments))
    except HeadsieveError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
