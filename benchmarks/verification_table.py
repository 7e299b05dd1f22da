"""Print what runs found, as Markdown: one row a capability.

python benchmarks/verification_table.py runs/four runs/four-paper
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from headsieve import Study
from headsieve.results import CapabilityResult, FormCheck

HEADER = (
    "| capability | strategy, seed | heads | before → after | lost | controls' mean loss "
    "| largest | `text`, nats | random sets | form | evaluations |"
)


def row(name: str, result: CapabilityResult, strategy: str, seed: int) -> str:
    checks = result.verification
    own, controls = checks.capability, checks.controls
    losses = {task: one.drop for task, one in controls.items() if one.metric == "accuracy"}
    worst = max(losses, key=losses.__getitem__)
    text = [one.drop for one in controls.values() if one.metric == "log_prob"]
    cells = [
        name,
        f"{strategy}, {seed}",
        " ".join(result.selected) or "none",
        f"{own.baseline:.2f} → {own.knocked_out:.2f}",
        f"{own.drop / own.baseline:.0%}",
        f"{np.mean(list(losses.values())):.3f}",
        f"{losses[worst]:.2f} ({worst})",
        " ".join(f"{drop:.3f}" for drop in text) or "-",
        f"{checks.random_sets.mean_drop:.2f}",
        _form(checks.form),
        f"{result.evaluations.capability} + {result.evaluations.controls}",
    ]
    return f"| {' | '.join(cells)} |"


def _form(form: FormCheck | None) -> str:
    """Whether the form of the answers explains the drop."""
    if form is None or form.explains is None:
        return "-"
    return "explains it" if form.explains else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    print(HEADER)
    print("|" + " --- |" * (HEADER.count("|") - 1))
    for folder in parser.parse_args().runs:
        study = Study.load(folder)
        for name, result in study.result.capabilities.items():
            print(row(name, result, study.config.strategy, study.config.seed))


if __name__ == "__main__":
    main()
