"""Kill a study at random moments, resume it each time, and compare it with an undisturbed one.

python benchmarks/kill_and_resume.py

Exit status 0 if the results are equal but for dates, times and memory, and no measurement was made
twice; else 1.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STUDY = ("locate", "antonym", "--controls", "capital,text", "--budget", "24", "--limit", "12")


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "headsieve", *STUDY, "--seed", "0", "--out", str(folder)]


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    del found["created"], found["cost"]["seconds"], found["cost"]["peak_memory_bytes"]
    return found


def measurements(folder: Path) -> int:
    """Number of measurements kept; the journal's primary key admits none twice."""
    if not (folder / "measurements.sqlite").exists():
        return 0
    with sqlite3.connect(folder / "measurements.sqlite") as journal:
        (rows,) = journal.execute("SELECT count(*) FROM measurements").fetchone()
    return int(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    moments = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as place:
        whole, killed = Path(place) / "whole", Path(place) / "killed"
        start = time.perf_counter()
        subprocess.run(command(whole), check=True, stderr=subprocess.DEVNULL, stdout=sys.stderr)
        length = time.perf_counter() - start
        for number in range(options.kills):
            # Long enough to begin, short enough that ten of them do not finish the study.
            wait = moments.uniform(0.05, 0.4) * length
            study = subprocess.Popen(
                command(killed) + (["--resume"] if (killed / "study.toml").exists() else []),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            time.sleep(wait)
            ended = study.poll()
            study.send_signal(signal.SIGKILL)
            study.wait()
            early = "" if ended is None else f" (it had ended with status {ended})"
            kept = measurements(killed)
            print(f"kill {number + 1} after {wait:.1f} s: {kept} measurements kept{early}")
        subprocess.run(
            [*command(killed), "--resume"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        same = result(whole) == result(killed)
        expected, made = measurements(whole), measurements(killed)
        print(f"undisturbed: {length:.1f} s, {expected} measurements; killed: {made}")
        print("same result.json" if same else "DIFFERENT result.json")
    return 0 if same and made == expected else 1


if __name__ == "__main__":
    sys.exit(main())
