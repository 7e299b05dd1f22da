"""Run a study with two Ray workers, kill workers and driver, and compare with one process.

python benchmarks/workers.py
python benchmarks/workers.py --budget 20 --limit 8 --workers 3

Four studies with the same options: in this process alone; with workers undisturbed; with workers of
which one is killed (SIGKILL) three times; with workers and the driver killed once and resumed. Exit
status 0 if all results are equal but for dates, times and memory, all item scores are equal to the
last bit, and no measurement was made twice; else 1.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from kill_and_resume import measurements, result

READY = re.compile(r"(worker \d+) is ready: process (\d+) on")
WORKER_KILLS = (0.25, 0.5, 0.75)
DRIVER_KILL = 0.4
# Seconds between looks at the journal.
_LOOK_EVERY = 0.2


class Run:
    """One study in a process of its own, whose notes are read as they come."""

    def __init__(self, options: argparse.Namespace, folder: Path, *more: str) -> None:
        study = ["locate", options.capability, "--controls", options.controls]
        study += ["--budget", str(options.budget), "--limit", str(options.limit), "--seed", "0"]
        self.folder = folder
        self.workers: dict[str, int] = {}
        self.notes: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headsieve", *study, "--out", str(folder), *more],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self.notes.append(line.rstrip())
            if ready := READY.search(line):
                self.workers[ready[1]] = int(ready[2])

    def wait_for(self, count: float) -> None:
        """Wait until the journal holds so many measurements."""
        while self._process.poll() is None and measurements(self.folder) < count:
            time.sleep(_LOOK_EVERY)

    def kill_worker(self) -> str:
        """Kill the worker that has lived longest."""
        while not self.workers:
            time.sleep(_LOOK_EVERY)
        name = next(iter(self.workers))
        os.kill(self.workers.pop(name), signal.SIGKILL)
        return name

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def finish(self) -> None:
        if self._process.wait() != 0:
            print("\n".join(self.notes), file=sys.stderr)
            raise SystemExit(f"the study in {self.folder.name} failed")


def scores(folder: Path) -> list[tuple[bytes, ...]]:
    """Everything measured, by what was measured."""
    with sqlite3.connect(folder / "measurements.sqlite") as journal:
        return journal.execute(
            "SELECT items, mask, log_prob, value, margin FROM measurements ORDER BY items, mask"
        ).fetchall()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--capability", default="antonym")
    parser.add_argument("--controls", default="capital,text")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--limit", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    many = ("--workers", str(options.workers))
    with tempfile.TemporaryDirectory() as place:
        folders = {name: Path(place) / name for name in ("alone", "many", "killed", "resumed")}
        seconds: dict[str, float] = {}
        for name, folder in folders.items():
            started = time.perf_counter()
            run = Run(options, folder, *(() if name == "alone" else many))
            if name == "killed":
                for share in WORKER_KILLS:
                    run.wait_for(share * len(scores(folders["alone"])))
                    print(f"killed {run.kill_worker()} at {measurements(folder)} measurements")
            if name == "resumed":
                run.wait_for(DRIVER_KILL * len(scores(folders["alone"])))
                run.kill()
                print(f"killed the driver at {measurements(folder)} measurements")
                run = Run(options, folder, *many, "--resume")
            run.finish()
            seconds[name] = time.perf_counter() - started
            if name == "killed":
                print("\n".join(note for note in run.notes if "worker" in note.lower()))
        expected = folders["alone"]
        good = True
        for name, folder in folders.items():
            same = result(folder) == result(expected)
            exact = scores(folder) == scores(expected)
            good = good and same and exact
            print(
                f"{name}: {seconds[name]:.1f} s, {measurements(folder)} measurements, "
                f"{'same' if same else 'DIFFERENT'} result.json, "
                f"{'same' if exact else 'DIFFERENT'} scores"
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
