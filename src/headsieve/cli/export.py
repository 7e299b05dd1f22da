"""``headsieve export``: an edited checkpoint."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from headsieve.errors import HeadsieveError
from headsieve.names import split_names


def add_export(commands: Any) -> None:
    """Add ``headsieve export``."""
    command = commands.add_parser(
        "export",
        help="write an edited checkpoint that plain transformers loads",
        description="Write a checkpoint without the heads that a study in the folder RUN selected, "
        "or without those of --knockout, and verify it: loaded again, it must give the logits of "
        "the model with its heads knocked out.",
    )
    command.add_argument("run_folder", nargs="?", type=Path, metavar="RUN")
    command.add_argument("--to", type=Path, required=True, metavar="DIR", help="a new folder")
    command.add_argument(
        "--capability", metavar="NAME", help="of the study; needed if it has several"
    )
    command.add_argument(
        "--model",
        metavar="M",
        help="hub id, folder, .gguf file, or smollm2; with RUN, where the study's model is now",
    )
    command.add_argument("--revision", metavar="R", help="branch, tag or commit on the hub")
    command.add_argument(
        "--knockout",
        metavar="L13H4,L20H8",
        help="heads to knock out, or KV groups (L13G1), attention layers (L13A) or MLP layers "
        "(L13M)",
    )
    command.add_argument(
        "--scale",
        type=float,
        default=0.0,
        metavar="F",
        help="factor of the heads' outputs: 0 knocks out, others weaken or amplify (%(default)g)",
    )
    command.add_argument(
        "--mean", action="store_true", help="scale about the heads' mean outputs, not about zero"
    )
    command.add_argument(
        "--dtype",
        default="auto",
        metavar="T",
        help="of the weights: auto (the checkpoint's own; of a .gguf file float16), float32, "
        "bfloat16 or float16 (%(default)s)",
    )
    command.add_argument(
        "--device", default="auto", metavar="D", help="auto, cpu, cuda, cuda:1, mps (%(default)s)"
    )
    command.add_argument(
        "--push", metavar="REPO", help="also put it into this new, private repository on the hub"
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> None:
    from headsieve.handover import export, exported_capability
    from headsieve.models.loading import DEFAULT_MODEL, load_model
    from headsieve.report.progress import ConsoleProgress
    from headsieve.study import Study

    study, heads = None, None
    if (options.run_folder is None) == (options.knockout is None):
        raise HeadsieveError("Give either the run folder of a study or --knockout with heads.")
    if options.run_folder is None:
        heads = split_names(options.knockout)
        name, revision, dtype = options.model or DEFAULT_MODEL, options.revision, "auto"
    else:
        study = Study.load(options.run_folder)
        exported_capability(study, options.capability)  # before the model is loaded
        # The fingerprint is that of the weights in the study's type.
        dtype = study.config.dtype
        name, revision = study.config.model, study.config.revision
        if (options.model, options.revision) != (None, None):
            name, revision = options.model or name, options.revision
    with ConsoleProgress() as progress:
        progress.note(f"Loading {name} ...")
        done = export(
            load_model(name, device=options.device, dtype=dtype, revision=revision),
            options.to,
            heads=heads,
            study=study,
            capability=options.capability,
            scale=options.scale,
            mean=options.mean,
            dtype=options.dtype,
            push=options.push,
            progress=progress,
        )
    if options.json:
        print(json.dumps(done.to_dict(), indent=2))
        return
    print(f"{done.model} with {', '.join(done.edit.heads)} {done.edit.describe()}, {done.dtype}.")
    print(f"Loaded again; logits differ by at most {done.difference:.2g} from the hooked model's.")
    if done.pushed is not None:
        print(done.pushed)
    print(done.folder)
