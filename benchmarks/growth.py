"""Time headsieve against the number of masks, items, prompt tokens and layers.

python benchmarks/growth.py
python benchmarks/growth.py --axes masks items --repeats 5 --json

Along each axis one number grows by a factor of 32 and the others stay; the model is a Llama of
random weights (4 layers, 4 heads of 32, 1000 tokens, unless layers grow) and the items are random
tokens that share no prefix, so that no cost is hidden by sharing. A fitted exponent is the slope of
a line through the logarithms of sizes and median seconds: 1 is linear. Sizes are measured in turn,
once a round, after an untimed round. Set-up, once a study, is not timed. Peak memory is the
process's so far; masks are measured first, in rising order, so it shows whether they pile up.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from headsieve.measure.items import ContinuationItems
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.packing import TokenSequence
from headsieve.models.loading import Model
from headsieve.provenance import peak_memory, versions
from headsieve.sensing.problem import to_masks

SEED = 0
VOCABULARY = 1000
ANSWER_TOKENS = 2
HEADS_A_MASK = 3


@dataclass(frozen=True)
class Size:
    """What is measured: so many masks of so many items, in a model of so many layers."""

    masks: int = 8
    items: int = 8
    prompt: int = 16
    layers: int = 4


AXES = {
    "masks": (8, 16, 32, 64, 128, 256),
    "items": (8, 16, 32, 64, 128, 256),
    "prompt": (16, 32, 64, 128, 256, 512),
    "layers": (2, 4, 8, 16, 32, 64),
}


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error("--repeats must be at least 1")
    report: dict[str, Any] = {
        "model": f"Llama, random weights, hidden size 128, 4 heads a layer, {VOCABULARY} tokens",
        "base": asdict(Size()),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "axes": {},
    }
    for axis in options.axes:
        print(f"{axis} ...", file=sys.stderr, flush=True)
        report["axes"][axis] = _measured(axis, options.repeats)
    if options.json:
        print(json.dumps(report, indent=2))
        return
    print(f"{report['model']}; {report['threads']} threads.\n")
    print("| axis | from | to | seconds from | to | exponent | peak memory from, GB | to |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for axis, found in report["axes"].items():
        cells = [
            *(f"{size}" for size in (found["sizes"][0], found["sizes"][-1])),
            *(f"{seconds:.3f}" for seconds in (found["seconds"][0], found["seconds"][-1])),
            f"{found['exponent']:.2f}",
            *(f"{found['peak_memory_bytes'][place] / 1e9:.2f}" for place in (0, -1)),
        ]
        print(f"| {' | '.join([axis, *cells])} |")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--repeats", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _measured(axis: str, repeats: int) -> dict[str, Any]:
    sizes = AXES[axis]
    studies = [_Study(replace(Size(), **{axis: size})) for size in sizes]
    memory = []
    for study in studies:
        study.seconds()
        memory.append(peak_memory())
    rounds = [[study.seconds() for study in studies] for _ in range(repeats)]
    seconds = np.median(rounds, axis=0)
    exponent = np.polyfit(np.log(sizes), np.log(seconds), 1)[0]
    return {
        "sizes": list(sizes),
        "seconds": seconds.tolist(),
        "exponent": float(exponent),
        "peak_memory_bytes": memory,
    }


class _Study:
    """Random items and masks of a given size, ready to be measured."""

    def __init__(self, size: Size) -> None:
        rng = np.random.default_rng(SEED)
        model = random_llama(size.layers, size.prompt + ANSWER_TOKENS)
        tokens = rng.integers(VOCABULARY, size=(size.items, size.prompt + ANSWER_TOKENS))
        sequences = tuple(TokenSequence(tuple(row), size.prompt) for row in tokens.tolist())
        items = ContinuationItems("answer", sequences, (1,) * size.items, ((0,),) * size.items)
        self.measurer = Measurer(model, {"items": items}, Journal())
        # All different, because the journal would answer for a mask that comes again.
        drawn: set[tuple[int, ...]] = set()
        while len(drawn) < size.masks:
            chosen = rng.choice(len(model.geometry), HEADS_A_MASK, replace=False)
            drawn.add(tuple(sorted(chosen.tolist())))
        self.masks = to_masks(sorted(drawn), len(model.geometry))

    def seconds(self) -> float:
        self.measurer.journal = Journal()
        started = time.perf_counter()
        self.measurer.measure(self.masks, "items")
        return time.perf_counter() - started


def random_llama(layers: int, length: int) -> Model:
    """A small Llama of random weights that takes sequences of `length` tokens."""
    words = {str(number): number for number in range(VOCABULARY)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="0"))
    )
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=length,
        dtype=torch.float32,
    )
    torch.manual_seed(SEED)
    return Model(transformers.AutoModelForCausalLM.from_config(config), tokenizer, "random-llama")


if __name__ == "__main__":
    main()
