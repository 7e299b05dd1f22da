"""What the paper's programme costs on clusters, by simulation; nothing here runs on a GPU.

python benchmarks/scale.py
python benchmarks/scale.py --utilisation 0.4 --tokens 200 --json
python benchmarks/scale.py --check

The programme, for one model: a search with 100 masks on 100 items for each of five capabilities,
each found set and the unmodified model on all ten tasks, and a curve of 0 to 10 heads on four. An
evaluation computes `--tokens` tokens an item, two operations a weight and token; attention's own
products (a few per cent at such lengths) are left out. A GPU reaches the share `--utilisation` of
its peak: an assumption, as long as nobody has run `speed.py --device cuda`.

The simulation hands batches out with the code that hands them out to real workers
(`headsieve.measure.dispatch`). Batches vary (lognormal), a few are five times as slow, workers die
at random and take the time to load the weights to come back. All of it is drawn from a fixed seed.

`--check` compares the simulation's one-machine case with a measured one: the paper's search with
SmolLM2 on this machine, its operations a second taken from a dry run's calibration.
"""

from __future__ import annotations

import argparse
import heapq
import json
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from headsieve.measure.dispatch import Dispatch

CAPABILITIES, TASKS, MASKS, ITEMS = 5, 10, 100, 100
CURVES, CURVE_POINTS = 4, 11
MASKS_A_BATCH = 4
GPUS = (1, 8, 64)


@dataclass(frozen=True)
class Size:
    """A model: its weights, and how many GPUs of 80 GB a replica in bfloat16 needs."""

    name: str
    weights: float
    gpus: int


SIZES = (
    Size("1B", 1.24e9, 1),
    Size("8B", 8.03e9, 1),
    Size("14B", 14.8e9, 1),
    Size("70B", 70.6e9, 2),
)


@dataclass(frozen=True)
class Trouble:
    """What goes wrong in a cluster.

    Attributes
    ----------
    spread : float
        Standard deviation of the logarithm of a batch's time.
    straggling, straggler : float
        Share of batches that are slow, and how many times as slow.
    hours : float
        Mean time between failures of one worker.
    """

    spread: float = 0.1
    straggling: float = 0.01
    straggler: float = 5.0
    hours: float = 100.0


CALM = Trouble(0.0, 0.0, 1.0, np.inf)


@dataclass
class Outcome:
    """Seconds that a call took, and what happened in it."""

    seconds: float = 0.0
    deaths: int = 0
    again: int = 0


def simulate(
    batches: list[float],
    workers: int,
    restart: float,
    trouble: Trouble,
    rng: np.random.Generator,
    pace: list[float],
) -> Outcome:
    """One call: batches that would take so many seconds each, on so many workers."""
    dispatch = Dispatch(batches, pace)
    outcome = Outcome()
    idle = list(range(workers))
    # What comes next: when, of which worker, and whether it dies (1), is done (0) or is back (2).
    events: list[tuple[float, int, int]] = []
    now = 0.0
    while not dispatch.finished:
        for worker in list(idle):
            taken = dispatch.take(worker, now)
            if taken is None:
                continue
            idle.remove(worker)
            number, again = taken
            outcome.again += again
            seconds = batches[number] * float(np.exp(rng.normal(0, trouble.spread)))
            if rng.random() < trouble.straggling:
                seconds *= trouble.straggler
            life = (
                float(rng.exponential(trouble.hours * 3600)) if trouble.hours < np.inf else np.inf
            )
            heapq.heappush(events, (now + min(seconds, life), worker, int(life < seconds)))
        # An idle worker looks again whether another one has become slow.
        look = now + 1.0 if idle else np.inf
        if not events or events[0][0] > look:
            now = look
            continue
        now, worker, kind = heapq.heappop(events)
        if kind == 1:
            outcome.deaths += 1
            dispatch.give_back(worker)
            heapq.heappush(events, (now + restart, worker, 2))
            continue
        if kind == 0:
            dispatch.finish(worker, now)
        idle.append(worker)
    outcome.seconds = now
    return outcome


def programme(seconds_a_mask: float) -> list[list[float]]:
    """The calls of the programme, each a list of batches in seconds."""

    def batches(masks: int) -> list[float]:
        whole, rest = divmod(masks, MASKS_A_BATCH)
        return [MASKS_A_BATCH * seconds_a_mask] * whole + [rest * seconds_a_mask] * (rest > 0)

    searches = [batches(MASKS) for _ in range(CAPABILITIES)]
    # All tasks at once: each found set, and the unmodified model.
    verification = [batch for _ in range(TASKS) for batch in batches(CAPABILITIES + 1)]
    curves = [batch for _ in range(CURVES) for batch in batches(CURVE_POINTS)]
    return [*searches, verification, curves]


def run(
    calls: list[list[float]], workers: int, restart: float, trouble: Trouble, seed: int
) -> Outcome:
    """All calls, one after the other, with the first load of the weights before them."""
    rng, pace = np.random.default_rng(seed), list[float]()
    total = Outcome(restart)
    for batches in calls:
        one = simulate(batches, workers, restart, trouble, rng, pace)
        total.seconds += one.seconds
        total.deaths += one.deaths
        total.again += one.again
    return total


def table(options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for size in SIZES:
        flops = 2 * size.weights * options.tokens * ITEMS
        # A replica on several GPUs computes one layer after the other: only one of them works.
        seconds = flops / (options.peak * 1e12 * options.utilisation)
        restart = 2 * size.weights / (options.loading * 1e9)
        calls = programme(seconds)
        for gpus in GPUS:
            workers = gpus // size.gpus
            row: dict[str, Any] = {"model": size.name, "gpus": gpus, "workers": workers}
            row["flops"] = sum(map(sum, calls)) * options.peak * 1e12 * options.utilisation
            if workers:
                calm = run(calls, workers, restart, CALM, options.seed)
                found = run(calls, workers, restart, Trouble(hours=options.hours), options.seed)
                row |= {
                    "hours": found.seconds / 3600,
                    "gpu_hours": found.seconds / 3600 * gpus,
                    "hours_without_trouble": calm.seconds / 3600,
                    "deaths": found.deaths,
                    "measured_again": found.again,
                }
            rows.append(row)
    return rows


def check(options: argparse.Namespace) -> dict[str, float]:
    """Simulated and measured seconds of a search on this machine."""
    from headsieve import load_model, locate
    from headsieve.forecast import forecast

    model = load_model("smollm2", device="cpu")
    study: dict[str, Any] = {"strategy": "paper", "budget": options.budget}
    study |= {"controls": [], "limit": options.limit}
    expected = forecast(model, ["antonym"], **study)
    evaluation = expected.flops / expected.evaluations / expected.flops_per_second
    batches = [evaluation] * expected.evaluations
    simulated = simulate(batches, 1, 0, CALM, np.random.default_rng(0), []).seconds
    measured = locate(model, ["antonym"], force=True, **study).result.cost.seconds
    return {"simulated": simulated, "measured": measured, "ratio": simulated / measured}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=float, default=400, help="an item (default 400)")
    parser.add_argument("--peak", type=float, default=989, help="TFLOP/s of a GPU (default 989)")
    parser.add_argument("--utilisation", type=float, default=0.3, help="of it (default 0.3)")
    parser.add_argument("--loading", type=float, default=1, help="weights, GB/s (default 1)")
    parser.add_argument("--hours", type=float, default=100, help="between a worker's failures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--check", action="store_true", help="against a measured run")
    parser.add_argument("--budget", type=int, default=40, help="masks of the check")
    parser.add_argument("--limit", type=int, default=24, help="items of the check")
    options = parser.parse_args()
    if options.check:
        found = check(options)
        print(json.dumps(found, indent=2))
        return 0 if abs(found["ratio"] - 1) <= 0.3 else 1
    rows = table(options)
    if options.json:
        print(json.dumps(rows, indent=2))
        return 0
    print(
        "| model | GPUs | replicas | PFLOP | hours | without trouble | GPU hours | deaths | again |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for row in rows:
        cells = [row["model"], f"{row['gpus']}", f"{row['workers']}", f"{row['flops'] / 1e15:,.0f}"]
        if row["workers"]:
            cells += [f"{row['hours']:.2f}", f"{row['hours_without_trouble']:.2f}"]
            cells += [f"{row['gpu_hours']:.1f}", f"{row['deaths']}", f"{row['measured_again']}"]
        else:
            cells += ["does not fit", "", "", "", ""]
        print(f"| {' | '.join(cells)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
