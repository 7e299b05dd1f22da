"""Options that several commands have, and how they are read."""

from __future__ import annotations

import argparse
import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headsieve.models.loading import Model, Source
    from headsieve.tasks import HarnessOptions


def add_model(command: argparse.ArgumentParser) -> None:
    """Add the options that say which model, where and in what type."""
    command.add_argument(
        "--model",
        default="smollm2",
        metavar="M",
        help="hub id, folder, .gguf file, or smollm2 (%(default)s)",
    )
    command.add_argument("--revision", metavar="R", help="branch, tag or commit on the hub")
    command.add_argument(
        "--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:1, mps (%(default)s)"
    )
    command.add_argument(
        "--dtype",
        default="auto",
        metavar="T",
        help="auto, float32, bfloat16 or float16 (%(default)s)",
    )
    command.add_argument(
        "--device-map",
        metavar="M",
        help="auto spreads the layers over all GPUs and main memory",
    )
    command.add_argument(
        "--quantize",
        metavar="Q",
        help="4bit or 8bit quantises the weights as they are loaded (needs bitsandbytes)",
    )
    command.add_argument(
        "--memory",
        type=_bytes,
        metavar="SIZE",
        help="what measuring may take besides the weights, as in 4GB (half of what is free)",
    )


def add_measuring(command: argparse.ArgumentParser, limit: str) -> None:
    """Add the options of every command that measures; `limit` says what --limit limits."""
    add_model(command)
    command.add_argument(
        "--seed", type=int, default=0, metavar="S", help="of everything random (%(default)s)"
    )
    command.add_argument("--limit", type=int, metavar="N", help=limit)
    command.add_argument(
        "--batch-size",
        type=_batch_size,
        default="auto",
        metavar="N",
        help="masks in one forward pass, or auto (%(default)s)",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def add_ablation(command: argparse.ArgumentParser) -> None:
    """Add the option that says what a knocked-out head gives."""
    command.add_argument(
        "--ablation",
        default="zero",
        metavar="A",
        help="what a knocked-out head gives: zero, mean (its mean output over the task's search "
        "items) or resample (its output at one place of one of them) (%(default)s)",
    )


def add_harness(command: argparse.ArgumentParser) -> None:
    """Add the options of tasks that come from outside; those of the harness mean what there."""
    group = command.add_argument_group("tasks of lm-evaluation-harness (lm-eval:NAME)")
    group.add_argument("--include-path", metavar="DIR", help="a folder with more task files (YAML)")
    group.add_argument(
        "--num-fewshot", type=int, metavar="N", help="few-shot examples before each document"
    )
    group.add_argument(
        "--apply-chat-template",
        action="store_true",
        help="prompts go through the model's chat template",
    )
    group.add_argument("--system-instruction", metavar="TEXT", help="stands before each prompt")
    group = command.add_argument_group("the paper's capabilities")
    group.add_argument(
        "--lexicon", metavar="FILE", help="the words that swearing counts (.csv, or one a line)"
    )
    group.add_argument(
        "--allow-code-execution",
        action="store_true",
        help="let humaneval and mbpp run the programs that the model writes",
    )
    group.add_argument(
        "--sandbox",
        default="bwrap",
        metavar="S",
        help="what confines such programs: bwrap, or none (%(default)s)",
    )
    group.add_argument(
        "--rhyme-rule",
        default="stressed",
        metavar="R",
        help="words rhyme that sound alike from their last stressed vowel on, or, with final, from "
        "their last vowel on (%(default)s)",
    )


def harness(options: argparse.Namespace) -> HarnessOptions:
    """How tasks that come from outside are asked and judged."""
    from headsieve.tasks import HarnessOptions

    return HarnessOptions(
        include_path=options.include_path,
        num_fewshot=options.num_fewshot,
        apply_chat_template=options.apply_chat_template,
        system_instruction=options.system_instruction,
        lexicon=options.lexicon,
        allow_code_execution=options.allow_code_execution,
        sandbox=options.sandbox,
        rhyme_rule=options.rhyme_rule,
    )


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) *(?:([KMGT])(I?))?B?", text.strip(), re.I)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 4GB or 500MB")
    step = 1024 if found[3] else 1000
    return int(float(found[1]) * step ** " KMGT".index((found[2] or " ").upper()))


def _batch_size(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither auto nor a number") from None


def source(options: argparse.Namespace) -> Source:
    """Where the model that the options name comes from, whatever the current folder."""
    from headsieve.models.loading import Source

    path = os.path.expanduser(options.model)
    name = os.path.abspath(path) if os.path.exists(path) else options.model
    return Source(
        name,
        options.device,
        options.dtype,
        options.revision,
        options.device_map,
        options.quantize,
        options.memory,
    )


def load(options: argparse.Namespace) -> Model:
    """Load the model that the options name."""
    from headsieve.models.loading import load_model

    return load_model(
        options.model,
        device=options.device,
        dtype=options.dtype,
        revision=options.revision,
        device_map=options.device_map,
        quantize=options.quantize,
        memory=options.memory,
    )
