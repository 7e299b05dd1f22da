"""Handing a finding over: an edited checkpoint with a model card, whole or not at all."""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsieve.errors import HeadsieveError, first_line
from headsieve.models.export import Edit, save_edited
from headsieve.models.knockout import require_unmodified
from headsieve.models.loading import DEFAULT_MODEL, DEFAULT_MODEL_HUB_ID, DTYPES
from headsieve.progress import Progress
from headsieve.provenance import describe_model
from headsieve.report.card import model_card
from headsieve.report.figures import save_figures
from headsieve.runs import make_readable, run_folder
from headsieve.tasks import ItemTask
from headsieve.tasks.builtin import load_builtin
from headsieve.tasks.selection import by_name

if TYPE_CHECKING:
    from headsieve.models.heads import AnyUnit
    from headsieve.models.loading import Model
    from headsieve.study import Study

_CARD = "README.md"
_FIGURES = "figures"
# Texts over which mean outputs are taken where no study says which.
_MEAN_TASK = "text"


@dataclass(frozen=True)
class Export:
    """An edited checkpoint that was written and verified.

    Attributes
    ----------
    folder : Path
    model : str
        What was edited.
    edit : Edit
        What was done to its heads.
    dtype : str
        Of the weights.
    difference : float
        Largest difference of a logit between the folder, loaded again, and the hooked model.
    pushed : str or None
        Address on the hub.
    """

    folder: Path
    model: str
    edit: Edit
    dtype: str
    difference: float
    pushed: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain lists and values, for JSON."""
        return {
            "folder": str(self.folder),
            "model": self.model,
            "heads": list(self.edit.heads),
            "scale": self.edit.scale,
            "mean": self.edit.mean,
            "dtype": self.dtype,
            "difference": self.difference,
            "pushed": self.pushed,
        }


def export(
    model: Model,
    to: Path | str,
    *,
    heads: Sequence[AnyUnit | str] | None = None,
    study: Study | None = None,
    capability: str | None = None,
    scale: float = 0.0,
    mean: bool = False,
    dtype: str = "auto",
    push: str | None = None,
    progress: Progress | None = None,
) -> Export:
    """Write a checkpoint without some heads, which plain transformers loads.

    The folder appears under its name only when it is whole and was verified: it is loaded again
    and must give the hooked model's logits.

    Parameters
    ----------
    model : Model
    to : path
        A folder that does not exist yet.
    heads : sequence of Head, Unit or str, optional
        The heads, or other units of one kind, to change.
    study : Study, optional
        In place of `heads`: take those that it selected, and tell of them in the model card.
    capability : str, optional
        Of the study; needed if it has several.
    scale : float
        Factor of the heads' outputs: 0 knocks them out, others weaken or amplify.
    mean : bool
        Scale about the heads' mean outputs, so that a scale of 0 leaves these. They are taken over
        the capability's search items or, without a study, over the built-in task ``text``.
    dtype : {"auto", "float32", "bfloat16", "float16"}
        Of the weights; ``auto``: that of the checkpoint that the model came from.
    push : str, optional
        Also create this repository on the hub, private, and put the folder there.
    progress : Progress, optional

    Returns
    -------
    Export

    Raises
    ------
    HeadsieveError
        If anything that was asked for cannot be done; then there is no folder.
    """
    progress = progress or Progress()
    folder = run_folder(to)
    _require_absent(folder)
    require_unmodified(model.hf, model.geometry)
    if (heads is None) == (study is None):
        raise HeadsieveError("Give either heads or a study to export.")
    if dtype not in ("auto", *DTYPES):
        raise HeadsieveError(f"Unknown dtype {dtype!r}; use auto, {', '.join(DTYPES)}.")
    if dtype == "auto":
        dtype = model.stored_dtype or model.dtype
    if study is not None:
        capability = exported_capability(study, capability)
        if study.config.fingerprint != model.fingerprint:
            raise HeadsieveError(
                f"This is not the model of the study: {model.name} has the fingerprint "
                f"{model.fingerprint}, the study's has {study.config.fingerprint}."
            )
        heads = study[capability].selected
    elif capability is not None:
        raise HeadsieveError("A capability can be named only with a study.")
    assert heads is not None
    texts = _mean_texts(study, capability) if mean else None
    edit = Edit.of(model, heads, scale=scale, mean_over=texts)

    progress.note(f"Writing and verifying {folder} ...")
    commands = [] if study is None else [_searching(study)]
    commands.append(_command(model, edit, folder, dtype, study, capability))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name[:40]}-", ignore_cleanup_errors=True
        ) as place:
            unfinished = Path(place) / "model"
            difference = save_edited(model, edit, unfinished, dtype)
            figures = _figures(study, capability, unfinished)
            card = model_card(
                edit,
                describe_model(model),
                base_model=_hub_id(model),
                # On the hub the default model has its hub id as its name.
                from_gguf=model.name == DEFAULT_MODEL or model.name.endswith(".gguf"),
                dtype=dtype,
                difference=difference,
                commands=commands,
                study=None if study is None or capability is None else (capability, study.result),
                ablation="zero" if study is None else study.config.ablation,
                figures=figures,
            )
            (unfinished / _CARD).write_text(card, encoding="utf-8")
            for path in unfinished.rglob("*.safetensors"):
                make_readable(path)
            _require_absent(folder)
            unfinished.rename(folder)
    except OSError as error:
        raise HeadsieveError(f"Cannot write {folder}: {error.strerror or error}.") from error
    address = None if push is None else _push(folder, push, progress)
    return Export(folder, model.name, edit, dtype, difference, address)


def _require_absent(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise HeadsieveError(f"{folder} exists already; name a new folder.")


def exported_capability(study: Study, name: str | None) -> str:
    """The capability of a study whose heads are meant.

    Raises
    ------
    HeadsieveError
        If it has several and none is named, or the named one has no selected heads.
    """
    names = list(study.result.capabilities)
    if name is None and len(names) == 1:
        name = names[0]
    if name is None:
        raise HeadsieveError(
            f"The study has several capabilities; name one with --capability: {', '.join(names)}."
        )
    if name not in names:
        raise HeadsieveError(f"The study has no capability {name!r}; it has {', '.join(names)}.")
    if not study[name].selected:
        raise HeadsieveError(
            f"The study selected no heads for {name}, so there are none to export."
        )
    return name


def _mean_texts(study: Study | None, capability: str | None) -> list[str]:
    """Texts over which mean outputs are taken: the capability's prompts with their right answers.

    Plain text where there is no capability, or one that is not made of prompts and answers.
    """
    seed, limit = 0, None
    task = load_builtin(_MEAN_TASK)
    if study is not None and capability is not None:
        config = study.config
        studied = by_name(config.capabilities, {}, config.harness)[capability]
        if isinstance(studied, ItemTask):
            task, seed, limit = studied, config.seed, config.limit
    split = task.split(seed, limit)
    return [split.prefix + item.prompt + item.continuations[item.correct] for item in split.search]


def _figures(study: Study | None, capability: str | None, folder: Path) -> list[str]:
    if study is None or capability is None:
        return []
    written = save_figures(
        {capability: study[capability]},
        {name: curve for name, curve in study.curves.items() if name == capability},
        folder / _FIGURES,
    )
    return [str(path.relative_to(folder)) for path in written if path.suffix == ".png"]


def _hub_id(model: Model) -> str | None:
    if model.name == DEFAULT_MODEL:
        return DEFAULT_MODEL_HUB_ID
    is_id = re.fullmatch(r"[\w.-]+(/[\w.-]+)?", model.name) and not os.path.exists(model.name)
    return model.name if is_id else None


def _searching(study: Study) -> str:
    """The command that makes the study, in the run folder from which it is exported."""
    folder = [] if study.folder is None else ["--out", str(study.folder)]
    return f"{study.result.command} {shlex.join(folder)}".rstrip()


def _command(
    model: Model,
    edit: Edit,
    folder: Path,
    dtype: str,
    study: Study | None,
    capability: str | None,
) -> str:
    words = ["headsieve", "export"]
    if study is not None and study.folder is not None and capability is not None:
        words += [str(study.folder), "--capability", capability]
        words += [] if model.name == study.config.model else ["--model", model.name]
    else:
        words += ["--model", model.name, "--knockout", ",".join(edit.heads)]
        words += [] if model.revision is None else ["--revision", model.revision]
    words += [] if edit.scale == 0 else ["--scale", repr(edit.scale)]
    words += ["--mean"] if edit.mean else []
    return shlex.join([*words, "--dtype", dtype, "--to", str(folder)])


def _push(folder: Path, repository: str, progress: Progress) -> str:
    """Put a folder into a new private repository; returns its address."""
    import huggingface_hub

    progress.note(f"Uploading to {repository} ...")
    try:
        api = huggingface_hub.HfApi()
        address = api.create_repo(repository, private=True, exist_ok=False)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder)
    except Exception as error:  # the hub's client raises whatever its transport raises
        raise HeadsieveError(
            f"{folder} was written, but not uploaded to {repository}: {first_line(error)}"
        ) from error
    return str(address)
