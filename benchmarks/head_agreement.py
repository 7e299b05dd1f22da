"""Print how far two runs agree on a capability's heads, as a Markdown row for each pair.

python benchmarks/head_agreement.py runs/four:past-tense runs/files:present-past
"""

from __future__ import annotations

import argparse
from pathlib import Path

from scipy import stats

from headsieve import Study
from headsieve.results import CapabilityResult

TOP = 10


def load(place: str) -> CapabilityResult:
    folder, _, capability = place.rpartition(":")
    return Study.load(Path(folder))[capability]


def row(first: str, second: str) -> str:
    one, other = load(first), load(second)
    selected = [head for head in one.selected if head in other.selected]
    top = {head.head for head in one.heads[:TOP]} & {head.head for head in other.heads[:TOP]}
    effects = {head.head: head.effect for head in other.heads}
    mine = [head.effect for head in one.heads]
    theirs = [effects[head.head] for head in one.heads]
    rank = stats.spearmanr(mine, theirs).statistic
    cells = [
        first.rpartition(":")[2],
        second.rpartition(":")[2],
        " ".join(one.selected) or "none",
        " ".join(other.selected) or "none",
        " ".join(selected) or "none",
        f"{len(top)} of {TOP}",
        f"{rank:.2f}",
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
