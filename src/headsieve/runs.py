"""Run folders: one study each, one process at a time, resumable."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_args

import filelock
import tomli_w
from pydantic import TypeAdapter, ValidationError

from headsieve.errors import HeadsieveError
from headsieve.measure.ablation import Ablation, ablation_label, require_ablation
from headsieve.measure.journal import Journal
from headsieve.models.heads import Units
from headsieve.names import join_names, option
from headsieve.scores import Score
from headsieve.sensing.problem import Prior
from headsieve.tasks.lm_eval.options import HarnessOptions

if TYPE_CHECKING:
    from headsieve.tasks.task import TaskItems

STUDY_FILE = "study.toml"
JOURNAL_FILE = "measurements.sqlite"
RESULT_FILE = "result.json"
SMALLEST_LIMIT = 5
_LOCK_FILE = ".lock"


@dataclass(frozen=True)
class Config:
    """The resolved configuration of a study: enough to repeat it.

    Attributes
    ----------
    model : str
    revision : str or None
    dtype, device : str
    fingerprint : str
        Of the model.
    quantize : {"4bit", "8bit"} or None
        Of the model's weights.
    capabilities, controls : tuple of str
    budget : int
        Evaluations a capability.
    heads : int
        Heads in a set, at most.
    max_control_drop : float
    strategy : str
    prior : {"none", "gradient"}
    units : {"heads", "kv-groups", "attention-layers", "mlp-layers"}
        What is searched for.
    ablation : {"zero", "mean", "resample"}
    seed : int
    limit : int or None
    batch_size : int or "auto"
    force : bool
        Changes what is refused, not what is measured, so it may differ on resuming.
    items : dict of str to str
        Fingerprint of each task's search and held-out items.
    interactions : bool
        Whether all subsets of the selected heads are measured; resuming may add them.
    harness : HarnessOptions
        How tasks of lm-evaluation-harness are asked.
    documents : dict
        For each task of lm-evaluation-harness, under ``search`` and ``held-out``, the numbers of
        the documents of each of its data sets.
    """

    model: str
    revision: str | None
    dtype: str
    device: str
    fingerprint: str
    quantize: str | None
    capabilities: tuple[str, ...]
    controls: tuple[str, ...]
    budget: int
    heads: int
    max_control_drop: float
    strategy: str
    prior: Prior
    units: Units
    ablation: Ablation
    seed: int
    limit: int | None
    batch_size: int | str
    force: bool
    items: dict[str, str]
    interactions: bool = False
    harness: HarnessOptions = field(default_factory=HarnessOptions)
    documents: dict[str, dict[str, dict[str, list[int]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what no study can have."""
        require_ablation(self.ablation, self.units)
        for holds, sentence in (
            (self.budget >= 1, f"The budget must be at least 1, not {self.budget}."),
            (self.heads >= 1, f"The number of heads must be at least 1, not {self.heads}."),
            (
                0 <= self.max_control_drop <= 1,
                f"The largest control drop must be from 0 to 1, not {self.max_control_drop}.",
            ),
            (
                self.prior in get_args(Prior),
                f"There is no prior {self.prior!r}; use {' or '.join(get_args(Prior))}.",
            ),
            (
                self.prior == "none" or self.strategy in ("adaptive", "atlas"),
                f"The strategy {self.strategy} takes no prior; only adaptive does.",
            ),
            (self.seed >= 0, f"The seed must be 0 or more, not {self.seed}."),
            (
                self.limit is None or self.limit >= SMALLEST_LIMIT,
                f"The limit must be at least {SMALLEST_LIMIT} items, not {self.limit}.",
            ),
        ):
            if not holds:
                raise HeadsieveError(sentence)

    def with_items(self, items: Mapping[str, TaskItems]) -> Self:
        """The same with what identifies each task's items."""
        return replace(
            self,
            items={
                name: f"{own.search.fingerprint}-{own.held_out.fingerprint}"
                for name, own in items.items()
            },
            documents={
                name: {
                    part: {dataset: list(numbers) for dataset, numbers in datasets.items()}
                    for part, datasets in own.documents.items()
                }
                for name, own in items.items()
                if own.documents
            },
        )

    def to_toml(self) -> str:
        """The text of ``study.toml``; options that were not given are left out."""
        values = asdict(self)
        values["harness"] = _given(values["harness"])
        return tomli_w.dumps(_given(values))

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read ``study.toml``.

        Raises
        ------
        HeadsieveError
            If it is not the configuration of a study.
        """
        try:
            values: dict[str, Any] = {"revision": None, "quantize": None, "limit": None}
            values |= {"prior": "none", "units": "heads", "ablation": "zero"}
            values |= tomllib.loads(text)
            if unknown := values.keys() - {one.name for one in fields(cls)}:
                raise ValueError(f"it has no entry {min(unknown)!r}")
            return TypeAdapter(cls).validate_python(values)
        except ValidationError as error:
            first = error.errors()[0]
            what = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        except ValueError as error:  # no TOML, too
            what = str(error)
        raise HeadsieveError(f"{STUDY_FILE} is not the configuration of a study: {what}.")

    @property
    def command(self) -> str:
        """The command that makes this study."""
        words = ["headsieve", *self._asked, *option("--model", self.model)]
        words += [] if self.revision is None else option("--revision", self.revision)
        words += option("--seed", self.seed)
        words += [] if self.limit is None else option("--limit", self.limit)
        words += [*option("--device", self.device), *option("--dtype", self.dtype)]
        words += option("--batch-size", self.batch_size)
        words += [] if self.quantize is None else option("--quantize", self.quantize)
        return shlex.join([*words, *self.harness.words, *self._last])

    @property
    def _last(self) -> list[str]:
        """Words at the command's end: capabilities, if one would be taken for an option."""
        odd = any(name.startswith("-") for name in self.capabilities)
        return ["--", *self.capabilities] if odd else []

    @property
    def _asked(self) -> list[str]:
        """The words of its own in the command: what is asked of the model."""
        words = ["locate", *([] if self._last else self.capabilities)]
        words += option("--controls", join_names(self.controls) if self.controls else "none")
        words += [*option("--budget", self.budget), *option("--heads", self.heads)]
        words += option("--max-control-drop", self.max_control_drop)
        words += [*option("--strategy", self.strategy), *option("--prior", self.prior)]
        words += [*option("--units", self.units), *option("--ablation", self.ablation)]
        words += ["--interactions"] if self.interactions else []
        return words + (["--force"] if self.force else [])


def _given(values: dict[str, Any]) -> dict[str, Any]:
    """Those values that are not None, for which TOML has no word."""
    return {name: value for name, value in values.items() if value is not None}


@contextlib.contextmanager
def open_journal(folder: Path | None, config: Config, *, resume: bool) -> Iterator[Journal]:
    """Hold a study's journal: that of its run folder or, without a folder, one in memory.

    Raises
    ------
    HeadsieveError
        As `open_run`, or if there is no folder to resume.
    """
    if folder is None and resume:
        raise HeadsieveError("To resume a study, name its run folder.")
    run = contextlib.nullcontext() if folder is None else open_run(folder, config, resume=resume)
    with run as path, contextlib.closing(Journal(path)) as journal:
        yield journal


def searched_masks(folder: Path, config: Config) -> dict[str, dict[str, Score]]:
    """What a study's folder keeps of its search: each task's score under every mask.

    Returns
    -------
    dict of str to dict of str to Score
        By the heads knocked out, separated by commas. Empty where the measurements are no longer
        there.
    """
    path = folder / JOURNAL_FILE
    if not path.is_file():
        return {}
    found = {}
    with contextlib.closing(Journal(path)) as journal:
        for name, fingerprints in config.items.items():
            items = fingerprints.partition("-")[0]
            label = ablation_label(config.ablation, items, config.seed)
            found[name] = journal.masks(config.fingerprint, items, config.dtype, label)
    return found


@contextlib.contextmanager
def open_run(folder: Path, config: Config, *, resume: bool) -> Iterator[Path]:
    """Hold a run folder for a study; yields the path of its journal.

    A folder whose study has measured nothing yet is begun anew, with `resume` or without: the
    study may have been refused, or killed before it could measure anything. One that has measured
    nothing but the unmodified model, as a study has that was refused then, is begun anew without
    `resume`.

    Raises
    ------
    HeadsieveError
        If the folder cannot be written, is in use by another process, holds another study, or
        holds this one and `resume` was not asked for.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / _LOCK_FILE, timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise HeadsieveError(
            f"Another process is working in {folder}; wait for it or use another folder."
        ) from None
    except FileExistsError:
        raise HeadsieveError(f"The run folder {folder} is a file; name a folder.") from None
    except OSError as error:
        raise _cannot_write(folder, error) from None
    try:
        _claim(folder, config, resume=resume)
        yield folder / JOURNAL_FILE
    finally:
        lock.release()


def _claim(folder: Path, config: Config, *, resume: bool) -> None:
    study = folder / STUDY_FILE
    if not study.is_file():
        others = sorted(path.name for path in folder.iterdir() if path.name[0] != ".")
        if others:
            raise HeadsieveError(
                f"The folder {folder} holds other files ({others[0]}); name an empty or new folder."
            )
    measured, searched = _measured(folder)
    if measured and resume:
        _refuse_changes(folder, Config.from_toml(read_text(study)), config)
    elif searched:
        raise HeadsieveError(
            f"The folder {folder} holds a study already; continue it with --resume or name another "
            "folder with --out."
        )
    else:
        # Little would be lost: what was begun here was refused, or killed at once.
        try:
            (folder / JOURNAL_FILE).unlink(missing_ok=True)
        except OSError as error:
            raise _cannot_write(folder, error) from None
    write_atomically(study, config.to_toml())


def _refuse_changes(folder: Path, before: Config, config: Config) -> None:
    """Refuse to resume a study that would go on to measure something else."""
    old, new = asdict(before), asdict(config)
    for name, value in new.items():
        may_differ = ("force", "items", "documents", *(["interactions"] if value else []))
        if name not in may_differ and old[name] != value:
            raise HeadsieveError(
                f"The study in {folder} has {name} = {old[name]!r}, not {value!r}; resume it "
                "with the options it was started with."
            )
    for task, fingerprint in config.items.items():
        if before.items.get(task) != fingerprint:
            raise HeadsieveError(
                f"The items of the task {task} have changed since the study in {folder} was "
                "started; name another folder with --out."
            )


def _measured(folder: Path) -> tuple[bool, bool]:
    """Whether anything was measured in a folder, and whether with heads knocked out."""
    path = folder / JOURNAL_FILE
    if not path.is_file():
        return False, False
    with contextlib.closing(Journal(path)) as journal:
        measured = journal.totals()[0] > 0
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            searched = connection.execute(
                "SELECT 1 FROM measurements WHERE mask != '' UNION ALL SELECT 1 FROM gradients"
            )
            return measured, searched.fetchone() is not None
    except sqlite3.Error as error:
        raise HeadsieveError(f"Cannot keep measurements in {path}: {error}.") from None


def run_folder(path: Path | str) -> Path:
    """A run folder as it was named, a leading ``~`` expanded."""
    return Path(os.path.expanduser(path))


def read_text(path: Path) -> str:
    """The text of a file of a run folder.

    Raises
    ------
    HeadsieveError
        If it is no UTF-8.
    """
    try:
        # Line ends as they are: a table's cells may hold any.
        return path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        raise HeadsieveError(f"{path} is not UTF-8 text.") from None


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is whole or absent.

    Raises
    ------
    HeadsieveError
        If it cannot be written.
    """
    unfinished: Path | None = None
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise HeadsieveError(
            f"{path} cannot hold {text[error.start : error.end]!r}, which is no text; rename the "
            "file that a task comes from."
        ) from None
    try:
        with tempfile.NamedTemporaryFile(
            "wb", dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as file:
            unfinished = Path(file.name)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        make_readable(unfinished)
        unfinished.replace(path)
    except OSError as error:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
        raise _cannot_write(path.parent, error) from None


def make_readable(path: Path) -> None:
    """Give a file the permissions of any other new one; temporary files are private."""
    mask = os.umask(0)
    os.umask(mask)
    path.chmod(0o666 & ~mask)


def _cannot_write(folder: Path, error: OSError) -> HeadsieveError:
    return HeadsieveError(f"Cannot write in the folder {folder}: {error.strerror}.")
