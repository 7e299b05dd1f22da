"""Heads in others' tools: the same knocked-out accuracy from the code of docs/handing-over.md.

Items are the held-out ones of a built-in task whose answers are said (``antonym``). Needs the extra
``bench``; what is not installed is left out and said. Exits with an error where a figure differs.
"""

from __future__ import annotations

import argparse
import copy
import importlib.util
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from headsieve.handover import export
from headsieve.measure.items import ItemSet, tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.models.loading import Model, load_model
from headsieve.sensing.problem import to_masks
from headsieve.study import Study
from headsieve.tasks.builtin import load_builtin

PAGE = Path(__file__).parents[1] / "docs" / "handing-over.md"
HeadsByLayer = dict[int, list[int]]


def snippets(folder: Path) -> dict[str, ModuleType]:
    """The page's Python blocks as modules, by the last function that each defines.

    They are written to files, for nnsight reads the source of its traces. A block whose library is
    not installed is left out.
    """
    found = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S):
        name = re.findall(r"^def (\w+)", code, re.M)[-1]
        path = folder / f"{name}.py"
        path.write_text(code, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            print(f"Left out: {name} ({error}).", file=sys.stderr)
        else:
            found[name] = module
    return found


@torch.inference_mode()
def accuracy(items: ItemSet, run: Callable[[list[torch.Tensor]], Sequence[Any]]) -> float:
    """Share of items of which greedy decoding says every scored token."""
    tokens = [torch.tensor([sequence.tokens[:-1]]) for sequence in items.sequences]
    right = 0
    for sequence, logits in zip(items.sequences, run(tokens), strict=True):
        said = logits[0, sequence.start - 1 :].argmax(-1).tolist()
        right += said == list(sequence.tokens[sequence.start :])
    return right / len(items)


def own_accuracy(model: Model, items: ItemSet, heads: Sequence[str]) -> tuple[float, float]:
    """The measurer's accuracy before and after."""
    masks = to_masks([(), tuple(model.geometry.columns(heads))], len(model.geometry))
    before, after = Measurer(model, {"task": items}, Journal()).measure(masks, "task")
    return before.metric, after.metric


def plain_accuracy(module: ModuleType, model: Model, items: ItemSet, heads: HeadsByLayer) -> float:
    """With the page's hooks on the transformers model."""
    handles = module.knock_out(model.hf, heads)
    try:
        return accuracy(items, lambda tokens: [model.hf(one).logits for one in tokens])
    finally:
        for handle in handles:
            handle.remove()


def lm_eval_accuracy(folder: Path, prefix: str, items: Sequence[Any]) -> float:
    """What lm-eval says of the exported folder on the same items."""
    import datasets
    import lm_eval
    from lm_eval.api.task import ConfigurableTask

    rows = [{"prompt": prefix + one.prompt, "answer": one.continuations[0]} for one in items]
    task = ConfigurableTask(
        config={
            "task": "held_out",
            "custom_dataset": lambda **_options: {"test": datasets.Dataset.from_list(rows)},
            "test_split": "test",
            "output_type": "loglikelihood",
            "doc_to_text": lambda row: row["prompt"],
            "doc_to_target": lambda row: row["answer"],
            "target_delimiter": "",
            "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
        }
    )
    results = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(folder), "dtype": "float32", "device": "cpu"},
        tasks=[task],
        batch_size=8,
        bootstrap_iters=0,
    )
    return float(results["results"]["held_out"]["acc,none"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("run_folder", nargs="?", type=Path, metavar="RUN", help="a run folder")
    parser.add_argument("--heads", help="heads in place of a run folder, as in L9H3,L22H8")
    parser.add_argument("--task", default="antonym", help="whose held-out items (%(default)s)")
    parser.add_argument("--limit", type=int, help="held-out items at most")
    options = parser.parse_args()
    if (options.heads is None) == (options.run_folder is None):
        parser.error("give either a run folder or --heads")

    model = load_model("smollm2", device="cpu", dtype="float32")
    # Only a run folder's own split is held out from its search.
    seed, limit = 0, options.limit
    if options.run_folder is not None:
        config = Study.load(options.run_folder).config
        seed, limit = config.seed, config.limit
    split = load_builtin(options.task).split(seed, limit)
    items = tokenize(split.held_out, split.prefix, "answer", model.tokenizer)
    with tempfile.TemporaryDirectory() as place:
        pages = snippets(Path(place))
        if options.run_folder is not None:
            path = options.run_folder / "heads.json"
            heads = pages["selected_heads"].selected_heads(path, options.task)
            names = [f"L{layer}H{index}" for layer in heads for index in heads[layer]]
        else:
            names, heads = options.heads.split(","), {}
            for column in model.geometry.columns(names):
                head = model.geometry.heads[column]
                heads.setdefault(head.layer, []).append(head.index)

        before, expected = own_accuracy(model, items, names)
        print(f"{options.task} without {', '.join(names)}: {len(items)} held-out items")
        print(f"  {'unmodified':20} {before:.4f}")
        print(f"  {'headsieve':20} {expected:.4f}")
        ways: dict[str, Callable[[], float]] = {
            "plain PyTorch": lambda: plain_accuracy(pages["knock_out"], model, items, heads)
        }
        if "nnsight_logits" in pages:
            run = pages["nnsight_logits"].nnsight_logits
            ways["nnsight"] = lambda: accuracy(items, lambda tokens: run(model.hf, heads, tokens))
        if importlib.util.find_spec("lm_eval"):
            folder = Path(place) / "edited"

            def exported() -> float:
                export(model, folder, heads=names, dtype="float32")
                return lm_eval_accuracy(folder, split.prefix, split.held_out)

            ways["export, lm-eval"] = exported
        if "transformer_lens_logits" in pages:
            # Last, for it changes the model and the tokenizer that it is given.
            lens = pages["transformer_lens_logits"].transformer_lens_logits
            tokenizer = copy.deepcopy(model.tokenizer)
            ways["TransformerLens"] = lambda: accuracy(
                items,
                lambda tokens: lens(model.hf, model.hf.name_or_path, tokenizer, heads, tokens),
            )
        differ = []
        for name, measure in ways.items():
            found = measure()
            print(f"  {name:20} {found:.4f}", flush=True)
            if found != expected:
                differ.append(name)
    if differ:
        sys.exit(f"Other accuracies than headsieve's: {', '.join(differ)}.")


if __name__ == "__main__":
    main()
