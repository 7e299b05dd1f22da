"""Print the frontier of each capability of runs, as Markdown: loss allowed against drop.

python benchmarks/frontier_table.py runs/four

For each largest control loss allowed, the largest drop among the measured sets (both in smooth
accuracy on search items).
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headsieve import Study
from headsieve.results import FrontierPoint

ALLOWED = (0.01, 0.02, 0.05, 0.10, 0.15, 0.25, 0.50)


def best(frontier: list[FrontierPoint], allowed: float) -> str:
    within = [point for point in frontier if point.worst_control_drop <= allowed]
    if not within:
        return "-"
    point = max(within, key=lambda one: one.drop)
    return f"{point.drop:.2f} ({len(point.heads)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    cells = ["capability", "seed", *(f"{allowed:.2f}" for allowed in ALLOWED)]
    print(f"| {' | '.join(cells)} |")
    print("| --- " * len(cells) + "|")
    for folder in parser.parse_args().runs:
        study = Study.load(folder)
        for name, result in study.result.capabilities.items():
            row = [best(result.frontier, allowed) for allowed in ALLOWED]
            print(f"| {' | '.join([name, str(study.config.seed), *row])} |")


if __name__ == "__main__":
    main()
