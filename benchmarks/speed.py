"""Time headsieve against other ways to score a model under masks, and print Markdown tables.

python benchmarks/speed.py
python benchmarks/speed.py --device cuda
python benchmarks/speed.py --works few-shot --peers plain plain-cached-prefix --json

All contenders run in turn, once a round, each in its own process with its own copy of the model; a
ratio is a peer's seconds over headsieve's in the same round, and its spread runs from the lowest
round to the highest. Peers that take one mask after another are timed on three masks a
round, others in each. Set-up is not timed: loading, and for headsieve choosing how to pack the
items and keeping the unmodified model's hidden states. Scores are compared in every round;
`agrees` is about float32.

Utilisation is the share of this machine's matrix peak that the operations needed after all sharing
make up: those of each distinct prefix of the items, in the layers from a mask's lowest head
upward, and of the language-model head where an answer is predicted.

bfloat16 is measured where the machine multiplies matrices faster in it than in float32, or where
`--dtypes` asks for it. Generation is not measured yet. The peers' libraries are the dependency
group `bench`; a peer whose library is missing is left out, and the output says so. Keep the machine
idle meanwhile; with every peer and work this takes an hour or more on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from contest import TOLERANCE, Contest, PeerError, contest, difference_to_cpu, machine
from flops import matrix_peak
from headsieve.provenance import versions
from peers import HEADSIEVE, PEERS
from works import WORKS

DTYPES = ("float32", "bfloat16")


def main() -> int:
    parser = _parser()
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no CUDA device")
    place = machine(options.device)
    peaks = {dtype: matrix_peak(dtype, place["device"]) for dtype in DTYPES}
    dtypes = options.dtypes or ["float32"]
    slower = peaks["bfloat16"] <= peaks["float32"]
    rates = " and ".join(f"{peak / 1e9:.3g} in {dtype}" for dtype, peak in peaks.items())
    note = f"matrix products reach {rates} (GFLOP/s)"
    if slower:
        note += ", so bfloat16 figures of this machine say nothing of others"
    elif not options.dtypes:
        dtypes = list(DTYPES)
    _progress(note)
    report: dict[str, Any] = {
        "model": options.model,
        "machine": {**place, "matrix_peak": peaks, "note": note},
        "versions": versions(),
        "repeats": options.repeats,
        "works": {},
    }
    for work in options.works:
        found: dict[str, Contest] = {}
        # Whether the numbers agree is asked in float32 even if its speed is not.
        for dtype in dict.fromkeys(["float32", *dtypes]):
            rounds = options.repeats if dtype in dtypes else 0
            _progress(f"{work}, {dtype} ...")
            try:
                found[dtype] = contest(
                    work,
                    options.peers,
                    options.model,
                    dtype,
                    rounds=rounds,
                    device=place["device"],
                )
            except PeerError as error:
                print(f"headsieve failed on {work} in {dtype}: {error}", file=sys.stderr)
                return 1
            for peer, reason in found[dtype].left_out.items():
                _progress(f"{work}, {dtype}: {peer} is left out: {reason}")
            for contender in found[dtype].contenders.values():
                report["versions"] |= contender.versions
        report["works"][work] = _summary(found, dtypes)
        if place["device"] != "cpu":
            difference = difference_to_cpu(work, options.model, place["device"])
            report["works"][work]["difference_to_cpu"] = difference
            same = "agree with" if difference <= TOLERANCE else "DIFFER from"
            _progress(f"{work}: scores {same} the CPU's ({difference:.2g} nats at most)")
        if not options.json:
            for dtype in dtypes:
                print(_table(work, dtype, found[dtype], report["works"][work]))
    if options.json:
        print(json.dumps(report, indent=2))
    else:
        print(f"{options.model}; {place['processor']}, {place['threads']} threads; {note}.")
        print(", ".join(f"{package} {version}" for package, version in report["versions"].items()))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=list(PEERS))
    parser.add_argument("--model", default="smollm2", help="default smollm2")
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="cuda also compares scores with the CPU's (default auto)",
    )
    parser.add_argument("--repeats", type=_at_least_one, default=5, help="rounds (default 5)")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, help="default: see above")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def _progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _summary(found: dict[str, Contest], dtypes: Sequence[str]) -> dict[str, Any]:
    """A work's entry in the JSON; a peer's seconds are those of the first dtype it ran in."""
    own = {
        dtype: {
            "seconds_per_mask": _median(found[dtype].contenders[HEADSIEVE].seconds),
            "utilisation": _median(found[dtype].utilisation),
            "peak_memory_bytes": found[dtype].contenders[HEADSIEVE].peak_memory,
            "needed_flops_per_mask": found[dtype].needed,
        }
        for dtype in dtypes
    }
    peers: dict[str, Any] = {}
    left_out: dict[str, str] = {}
    for dtype in dtypes:
        left_out |= found[dtype].left_out
        for name, contender in found[dtype].contenders.items():
            if name == HEADSIEVE:
                continue
            ratios = found[dtype].ratios(name)
            exact = found["float32"].contenders.get(name)
            entry = peers.setdefault(
                name,
                {
                    "seconds_per_mask": _median(contender.seconds),
                    "ratio": {},
                    "spread": {},
                    "agrees": exact is not None and exact.difference <= TOLERANCE,
                    "largest_difference": {},
                },
            )
            entry["ratio"][dtype] = _median(ratios)
            entry["spread"][dtype] = [float(ratios.min()), float(ratios.max())]
            entry["largest_difference"][dtype] = contender.difference
    return {"headsieve": own, "peers": peers, "left_out": left_out}


def _median(values: Sequence[float] | NDArray[np.float64]) -> float:
    return float(np.median(values))


def _table(work: str, dtype: str, result: Contest, summary: dict[str, Any]) -> str:
    own = summary["headsieve"][dtype]
    used = result.utilisation
    lines = [
        f"**{work}, {dtype}**: {own['needed_flops_per_mask'] / 1e9:.0f} GFLOP needed a mask; "
        f"utilisation {own['utilisation']:.0%} ({used.min():.0%} to {used.max():.0%}); "
        f"peak memory {own['peak_memory_bytes'] / 1e9:.2f} GB.",
        "",
        "| | seconds a mask | times headsieve's | spread | same numbers |",
        "| --- | --- | --- | --- | --- |",
        f"| headsieve | {own['seconds_per_mask']:.3f} | 1 | | |",
    ]
    for name, peer in summary["peers"].items():
        if dtype not in peer["ratio"]:
            continue
        low, high = peer["spread"][dtype]
        seconds = _median(result.contenders[name].seconds)
        same = "yes" if peer["agrees"] else f"no ({peer['largest_difference'][dtype]:.2g} nats)"
        lines.append(
            f"| {name} | {seconds:.3f} | {peer['ratio'][dtype]:.1f} | {low:.1f} to {high:.1f} "
            f"| {same} |"
        )
    lines += ["", *(f"{peer} left out: {why}." for peer, why in result.left_out.items()), ""]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
