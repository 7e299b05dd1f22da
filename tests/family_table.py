"""Make the table of docs/families.md: what was tested of which family, with which versions.

Run as ``python -m tests.family_table``, which takes a few minutes; it fails where anything does
not hold.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
import transformers

from headsieve.check import check_model
from tests.families import FAMILIES, Family
from tests.tiny import main_attention, tiny_model

DOCUMENT = Path(__file__).parents[1] / "docs" / "families.md"
_BEGIN, _END = "<!-- table: python -m tests.family_table -->\n", "<!-- end of table -->\n"
_HEADER = (
    "| family | configuration | attention | kernels | layers not covered "
    "| largest difference of a logit | shared prefixes |\n|---|---|---|---|---|---|---|\n"
)


def described(family: Family) -> str:
    """The cells of a family that say what is tested, as a row begins."""
    kernels = ", ".join(one.removesuffix("_attention") for one in family.attentions)
    uncovered = ", ".join(map(str, family.uncovered)) or "none"
    cells = (family.title, f"`{family.config}`", family.about, kernels, uncovered)
    return "| " + " | ".join(cells) + " |"


def table() -> str:
    """The whole table, every family checked."""
    torch.compiler.set_stance("force_eager")  # compiling flex attention takes minutes
    rows = []
    for name, family in FAMILIES.items():
        worst, shared = 0.0, ""
        for attention in family.attentions:
            model = tiny_model(name, attention)
            whole = attention == main_attention(name)
            checks = check_model(model, None if whole else ["unmodified", "zeroed weights"])
            for check in checks:
                if not check.holds:
                    raise SystemExit(f"{family.title}, {attention}: {check}")
                if check.name == "zeroed weights":
                    assert check.difference is not None
                    worst = max(worst, check.difference)
                if check.name == "rows":
                    shared = "yes" if check.note == "rows share prefixes" else "no"
        rows.append(f"{described(family)} {worst:.1g} | {shared} |\n")
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}, CPU, float32"
    return f"{len(rows)} families, {versions}:\n\n{_HEADER}{''.join(rows)}"


def main() -> None:
    """Put a new table into the document."""
    text = DOCUMENT.read_text(encoding="utf-8")
    pattern = re.compile(f"(?<={re.escape(_BEGIN)}).*?(?={re.escape(_END)})", re.DOTALL)
    new, count = pattern.subn(lambda _: f"\n{table()}\n", text)
    assert count == 1, f"{DOCUMENT} has no place for the table"
    DOCUMENT.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
