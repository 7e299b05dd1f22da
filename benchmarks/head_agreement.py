"""Print how far two runs agree on a capability's heads, as a Markdown row for each pair.

python benchmarks/head_agreement.py runs/four:past-tense runs/files:present-past
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headsieve import Study
from headsieve.comparison import agreement
from headsieve.results import CapabilityResult

TOP = 10


def load(place: str) -> CapabilityResult:
    folder, _, capability = place.rpartition(":")
    return Study.load(Path(folder))[capability]


def row(first: str, second: str) -> str:
    one, other = load(first), load(second)
    pair = agreement((first, second), one, other)
    top = {head.head for head in one.heads[:TOP]} & {head.head for head in other.heads[:TOP]}
    cells = [
        first.rpartition(":")[2],
        second.rpartition(":")[2],
        " ".join(one.selected) or "none",
        " ".join(other.selected) or "none",
        " ".join(pair.shared) or "none",
        f"{len(top)} of {TOP}",
        "-" if pair.rank_agreement is None else f"{pair.rank_agreement:.2f}",
    ]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="+", metavar="RUN:CAPABILITY", help="an even number of them")
    places = parser.parse_args().pairs
    if len(places) % 2:
        parser.error("give pairs: an even number of RUN:CAPABILITY")
    print("| one | other | its heads | its heads | in both | of the ten largest effects | rank |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for first, second in zip(places[::2], places[1::2], strict=True):
        print(row(first, second))


if __name__ == "__main__":
    main()
