"""What one head, knocked out alone, does to every task of finished runs; on search items.

Prints, for each run that measured it, the search score before and after (mean log-probability of
the right answer, in nats) and accuracy.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from headsieve.config import STUDY_FILE, Config
from headsieve.runs import read_text, searched_masks


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("head", metavar="HEAD", help="as in L8H1")
    parser.add_argument("run_folders", nargs="+", type=Path, metavar="RUN")
    options = parser.parse_args()
    print("| task | seed | items | nats | accuracy |")
    print("| --- | --- | --- | --- | --- |")
    lines = []
    for folder in options.run_folders:
        config = Config.from_toml(read_text(folder / STUDY_FILE))
        for task, scores in searched_masks(folder, config).items():
            if task == "text" or options.head not in scores or "" not in scores:
                continue
            before, after = scores[""], scores[options.head]
            lines.append(
                f"| {task} | {config.seed} | {len(before.value)} "
                f"| {before.search:.2f} → {after.search:.2f} "
                f"| {before.metric:.2f} → {after.metric:.2f} |"
            )
    print("\n".join(sorted(lines)))


if __name__ == "__main__":
    main()
