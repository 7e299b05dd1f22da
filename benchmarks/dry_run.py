"""Compare what --dry-run foretells with what the study then takes.

python benchmarks/dry_run.py
python benchmarks/dry_run.py --model google/gemma-3-270m-it --tasks antonym plural --json

Dry run and study run one after the other, each in a process of its own; time and memory are those
of the study's process (wall clock from the loaded model on, largest resident set). The load of the
machine is printed with them: a machine that is busy in only one of the two says little. Exit status
0 if all times and memories are within 30 %, else 1.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

WITHIN = 0.3
_STUDY = """
import json, sys, time
from headsieve import load_model, locate
from headsieve.provenance import peak_memory
model = load_model(sys.argv[1])
options = json.loads(sys.argv[2])
started = time.perf_counter()
study = locate(model, **options)
seconds = time.perf_counter() - started
print(json.dumps({**study.result.to_dict()["cost"], "seconds": seconds,
                  "peak_memory_bytes": peak_memory()}))
"""
_FORECAST = """
import json, sys
from headsieve import load_model
from headsieve.forecast import forecast
options = json.loads(sys.argv[2])
del options["out"]
print(json.dumps(forecast(load_model(sys.argv[1]), **options).to_dict()))
"""


def ask(program: str, model: str, options: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", program, model, json.dumps(options)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--tasks", nargs="+", default=["antonym", "plural", "capital"])
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--limit", type=int, help="items of a task at most")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for task in options.tasks:
        with tempfile.TemporaryDirectory() as place:
            study = {
                "capabilities": [task],
                "budget": options.budget,
                "limit": options.limit,
                "out": str(Path(place) / "run"),
            }
            started = time.perf_counter()
            foretold = ask(_FORECAST, options.model, study)
            dry, load = time.perf_counter() - started, os.getloadavg()[0]
            made = ask(_STUDY, options.model, study)
        row = {"task": task, "dry_run_seconds": dry, "loads": [load, os.getloadavg()[0]]}
        for what in ("evaluations", "tokens", "seconds", "peak_memory_bytes"):
            row[what] = {"foretold": foretold[what], "measured": made[what]}
            row[what]["ratio"] = foretold[what] / made[what]
        rows.append(row)
        print(f"{task}: done", file=sys.stderr)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print("| task | evaluations | tokens | seconds | peak memory, GB | load | dry run, s |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for row in rows:
            cells = [
                f"{row[what]['foretold'] / unit:,.{digits}f} / "
                f"{row[what]['measured'] / unit:,.{digits}f} = {row[what]['ratio']:.2f}"
                for what, unit, digits in (
                    ("evaluations", 1, 0),
                    ("tokens", 1, 0),
                    ("seconds", 1, 1),
                    ("peak_memory_bytes", 1e9, 2),
                )
            ]
            loads = " and ".join(f"{load:.1f}" for load in row["loads"])
            cells += [loads, f"{row['dry_run_seconds']:.0f}"]
            print(f"| {' | '.join([row['task'], *cells])} |")
    good = all(
        abs(row[what]["ratio"] - 1) <= WITHIN
        for row in rows
        for what in ("seconds", "peak_memory_bytes")
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
