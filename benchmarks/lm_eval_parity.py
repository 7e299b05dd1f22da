"""Whether headsieve gives what lm-evaluation-harness gives, document by document, and how fast.

For each task the model is measured as it is and with five heads knocked out: by headsieve with
masks, by ``lm_eval.simple_evaluate`` with its own HFLM on the same loaded weights, with the five
heads' columns of the output projections set to zero. A document differs if any of its metrics,
after any filter, or any of its answers does: a generated text, whether greedy decoding says a
continuation, or a log-probability by more than 0.01 nats.

A mask's time is that of headsieve for `--masks` random sets of five heads, divided by their number;
the harness's is the shorter one of its two evaluations, without its description of the machine.

The task files are in ``lm_eval_tasks``, the data in ``../shared/benchmarks`` or in `--data`; tasks
whose data are missing are left out. Nothing that the model writes is run.

    python benchmarks/lm_eval_parity.py --limit 20 --json parity.json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lm_eval.evaluator
import numpy as np
import torch
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager
from numpy.typing import NDArray

from headsieve.measure.items import JoinedItems
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.texts import Responses
from headsieve.models.heads import AnyUnit
from headsieve.models.loading import Model, load_model
from headsieve.tasks import HarnessOptions, load_task
from headsieve.tasks.lm_eval.items import HarnessItems
from headsieve.tasks.lm_eval.loading import harness
from peers.batches import BATCH_SIZE
from peers.plain import columns_by_layer

TASK_FILES = Path(__file__).parent / "lm_eval_tasks"
DATA = Path(__file__).resolve().parents[2] / "shared" / "benchmarks"
# The folder of each task's data.
TASKS = {
    "arithmetic": "gpt3_arithmetic",
    "arc_challenge": "arc_challenge",
    "hellaswag": "hellaswag",
    "boolq": "boolq",
    "mmlu": "mmlu",
    "blimp": "blimp",
    "lambada": "lambada",
    "winogrande": "winogrande",
    "gsm8k": "gsm8k",
    "humaneval": "humaneval",
    "mbpp": "mbpp",
}
# Generating 20 documents takes the harness minutes on a CPU; more of them say nothing new.
MOST_GENERATED = 20
HEADS = 5
SEED = 0
NATS = 0.01
# What the harness's answer is to a request: (log-probability, greedy), or a text.
Answer = Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="smollm2", metavar="M")
    parser.add_argument("--device", default="auto", metavar="D")
    parser.add_argument("--tasks", default=",".join(TASKS), metavar="T,T")
    parser.add_argument("--limit", type=int, metavar="N", help="documents of each (sub)task")
    parser.add_argument("--masks", type=int, default=16, metavar="N", help="to be timed")
    parser.add_argument("--data", type=Path, default=DATA, metavar="DIR")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    os.environ["HEADSIEVE_BENCHMARKS"] = str(options.data)
    # It asks the machine about itself after every evaluation, which takes longer than many tasks.
    lm_eval.evaluator.add_env_info = lambda _results: None
    model = load_model(options.model, device=options.device)
    masks = random_masks(model, options.masks)
    manager = TaskManager(include_path=str(TASK_FILES), include_defaults=False)
    print("| task | documents | differing | metric | unmodified | without 5 heads | ", end="")
    print("s a mask | harness, s | ratio |")
    print("| --- " * 9 + "|", flush=True)
    rows = []
    for name in options.tasks.split(","):
        if not (options.data / TASKS[name]).exists():
            print(f"| {name} | no data in {options.data / TASKS[name]} |" + " |" * 7, flush=True)
            continue
        limit = options.limit
        if name in ("gsm8k", "humaneval", "mbpp"):
            limit = min(limit or MOST_GENERATED, MOST_GENERATED)
        row = compare(model, name, limit, masks, manager)
        rows.append(row)
        print(as_markdown(row), flush=True)
        if options.json is not None:
            options.json.write_text(json.dumps(rows, indent=2) + "\n")


def compare(
    model: Model, name: str, limit: int | None, masks: NDArray[np.bool_], manager: TaskManager
) -> dict[str, Any]:
    """One line of the table."""
    task = load_task(f"lm-eval:local_{name}", HarnessOptions(str(TASK_FILES)))
    items = task.whole(model, SEED, limit)
    parts = [part for part in leaves(items) if isinstance(part, HarnessItems)]
    measurer = Measurer(model, {name: items}, Journal())
    pair = np.zeros((2, len(model.geometry)), dtype=bool)
    pair[1] = masks[0]
    # Plans are made once a study; this makes them.
    responses = measurer.responses(pair, name)
    ours = [items.score(one).metric for one in responses]
    started = time.perf_counter()
    measurer.measure(masks, name)
    seconds = (time.perf_counter() - started) / len(masks)

    theirs, their_seconds, differing = [], [], []
    for heads, response in zip(([], heads_of(model, pair[1])), responses, strict=True):
        with columns_zeroed(model, heads):
            started = time.perf_counter()
            evaluated = evaluate(model, name, limit, manager)
            their_seconds.append(time.perf_counter() - started)
        theirs.append(their_metric(evaluated, f"local_{name}", items.metric, parts))
        differing.append(count_differing(parts, response, evaluated["samples"]))
    return {
        "task": name,
        "documents": len(items),
        "metric": items.metric,
        "differing": differing,
        "headsieve": ours,
        "harness": theirs,
        "seconds_a_mask": seconds,
        "harness_seconds": min(their_seconds),
        "ratio": min(their_seconds) / seconds,
    }


def evaluate(model: Model, name: str, limit: int | None, manager: TaskManager) -> dict[str, Any]:
    """The harness's own evaluation of the loaded model."""
    with harness():
        lm = HFLM(pretrained=model.hf, tokenizer=model.tokenizer, batch_size=BATCH_SIZE)
        evaluated: dict[str, Any] = lm_eval.evaluator.simple_evaluate(
            model=lm,
            tasks=[f"local_{name}"],
            task_manager=manager,
            limit=limit,
            bootstrap_iters=0,
        )
    return evaluated


def their_metric(
    evaluated: dict[str, Any], name: str, metric: str, parts: Sequence[HarnessItems]
) -> float:
    return float(evaluated["results"][name][f"{metric},{parts[0].measure.filter}"])


def count_differing(
    parts: Iterable[HarnessItems], responses: Responses, samples: dict[str, list[dict[str, Any]]]
) -> int:
    """Documents of which an answer or a metric is another one in the harness."""
    differing: set[tuple[str, int]] = set()
    for part, own in zip(parts, split(parts, responses), strict=True):
        results = part.results(own)
        name = part.task.task_name
        for sample in samples[name]:
            number = int(sample["doc_id"])
            mine = results[sample["filter"]][number]
            answers = [one.resps[0] for one in part.requests[number]]
            alike = all(same(mine[metric], sample[metric]) for metric in sample["metrics"])
            if not alike or not all(
                same(answer, other[0])
                for answer, other in zip(answers, sample["resps"], strict=True)
            ):
                differing.add((name, number))
    return len(differing)


def same(one: Answer, other: Answer) -> bool:
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return math.isclose(one, other, rel_tol=0, abs_tol=NATS)
    return bool(one == other)


def split(parts: Iterable[HarnessItems], responses: Responses) -> Iterator[Responses]:
    """Each part's share of the responses."""
    first, first_prompt = 0, 0
    for part in parts:
        own = slice(first, first + len(part.sequences))
        said = slice(first_prompt, first_prompt + len(part.prompts))
        first, first_prompt = own.stop, said.stop
        yield Responses(
            responses.log_prob[own],
            responses.greedy[own],
            responses.margin[own],
            responses.continuations[said],
        )


def leaves(items: Any) -> tuple[Any, ...]:
    return items.parts if isinstance(items, JoinedItems) else (items,)


def random_masks(model: Model, count: int) -> NDArray[np.bool_]:
    rng = np.random.default_rng(SEED)
    masks = np.zeros((count, len(model.geometry)), dtype=bool)
    for mask in masks:
        mask[rng.choice(len(mask), HEADS, replace=False)] = True
    return masks


def heads_of(model: Model, mask: NDArray[np.bool_]) -> list[AnyUnit]:
    return [model.geometry.heads[column] for column in np.flatnonzero(mask)]


@contextmanager
def columns_zeroed(model: Model, heads: Sequence[AnyUnit]) -> Iterator[None]:
    """Set the heads' columns of the output projections to zero, and put them back."""
    projections = {layer.layer: layer.projection for layer in model.geometry.layers}
    kept = []
    try:
        with torch.no_grad():
            for layer, columns in columns_by_layer(model.geometry, heads).items():
                weight = model.hf.get_submodule(projections[layer]).weight
                kept.append((weight, columns, weight[:, columns].clone()))
                weight[:, columns] = 0
        yield
    finally:
        with torch.no_grad():
            for weight, columns, values in kept:
                weight[:, columns] = values


def as_markdown(row: dict[str, Any]) -> str:
    pairs = [
        f"{one:.4f}" if abs(one - other) < 5e-5 else f"{one:.4f}, harness {other:.4f}"
        for one, other in zip(row["headsieve"], row["harness"], strict=True)
    ]
    cells = [
        row["task"],
        str(row["documents"]),
        " and ".join(map(str, row["differing"])),
        row["metric"],
        *pairs,
        f"{row['seconds_a_mask']:.2f}",
        f"{row['harness_seconds']:.1f}",
        f"{row['ratio']:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    main()
