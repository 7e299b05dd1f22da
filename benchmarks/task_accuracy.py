"""Measure the default model on every built-in task and store it for ``headsieve tasks``.

python benchmarks/task_accuracy.py
"""

from __future__ import annotations

import json
from pathlib import Path

import headsieve as hs
from headsieve.scoring import score
from headsieve.tasks import builtin_names

STORED = Path(hs.__file__).parent / "tasks" / "builtin" / "_accuracy.json"


def main() -> None:
    model = hs.load_model()
    results = score(model, builtin_names())
    record = {
        "command": "python benchmarks/task_accuracy.py",
        "model": model.name,
        "fingerprint": model.fingerprint,
        "accuracy": {
            name: round(one.baseline, 3)
            for name, one in results.items()
            if one.metric == "accuracy"
        },
    }
    STORED.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    print(f"{STORED}: {len(record['accuracy'])} tasks")


if __name__ == "__main__":
    main()
