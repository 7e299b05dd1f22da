"""Run the solutions that HumanEval and MBPP come with against their tests, in the sandbox.

python benchmarks/code_check.py [--humaneval FILE] [--mbpp FILE] [--limit N]

Every one that does not pass is a problem that no model can be given credit for; each is listed with
the reason. Needs bubblewrap, and the data sets as their authors publish them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

from headsieve.tasks.code import Program, check_programs, humaneval_program, mbpp_program

DATA = Path(__file__).parents[2] / "shared" / "benchmarks"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--humaneval", type=Path, default=DATA / "humaneval/HumanEval.jsonl.gz")
    parser.add_argument("--mbpp", type=Path, default=DATA / "mbpp/mbpp.jsonl")
    parser.add_argument("--limit", type=int, help="at most so many problems of each")
    options = parser.parse_args()
    for name, path, read in (
        ("HumanEval", options.humaneval, humaneval_solutions),
        ("MBPP", options.mbpp, mbpp_solutions),
    ):
        if not path.exists():
            print(f"{name}: no file {path}; name one with --{name.lower()}")
            continue
        solutions = dict(list(read(path))[: options.limit])
        started = time.perf_counter()
        verdicts = check_programs(list(solutions.values()))
        seconds = time.perf_counter() - started
        passed = sum(verdict.passed for verdict in verdicts)
        print(f"{name}: {passed} of {len(solutions)} solutions pass ({seconds:.0f} s)")
        for problem, verdict in zip(solutions, verdicts, strict=True):
            if not verdict.passed:
                print(f"  {problem}: {verdict.outcome}, {verdict.reason}")


def humaneval_solutions(path: Path) -> Iterator[tuple[str, Program]]:
    """Name and solution of each problem."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            yield (
                row["task_id"],
                humaneval_program(
                    row["prompt"], row["canonical_solution"], row["test"], row["entry_point"]
                ),
            )


def mbpp_solutions(path: Path) -> Iterator[tuple[str, Program]]:
    """Name and solution of each problem."""
    with path.open(encoding="utf-8") as file:
        for row in map(json.loads, file):
            yield (
                f"MBPP/{row['task_id']}",
                mbpp_program(
                    row["code"], row["test_list"], row["test_setup_code"], reference=row["code"]
                ),
            )


if __name__ == "__main__":
    main()
