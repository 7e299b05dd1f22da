"""Run folders: one study each, one process at a time, resumable."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import filelock
import tomli_w

from headsieve.errors import HeadsieveError
from headsieve.measure.journal import Journal

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
    capabilities, controls : tuple of str
    budget : int
        Evaluations a capability.
    heads : int
        Heads in a set, at most.
    max_control_drop : float
    strategy : str
    seed : int
    limit : int or None
    batch_size : int or "auto"
    force : bool
    """

    model: str
    revision: str | None
    dtype: str
    device: str
    fingerprint: str
    capabilities: tuple[str, ...]
    controls: tuple[str, ...]
    budget: int
    heads: int
    max_control_drop: float
    strategy: str
    seed: int
    limit: int | None
    batch_size: int | str
    force: bool

    def __post_init__(self) -> None:
        """Refuse what no study can have."""
        for holds, sentence in (
            (self.budget >= 1, f"The budget must be at least 1, not {self.budget}."),
            (self.heads >= 1, f"The number of heads must be at least 1, not {self.heads}."),
            (
                0 <= self.max_control_drop <= 1,
                f"The largest control drop must be from 0 to 1, not {self.max_control_drop}.",
            ),
            (self.seed >= 0, f"The seed must be 0 or more, not {self.seed}."),
            (
                self.limit is None or self.limit >= SMALLEST_LIMIT,
                f"The limit must be at least {SMALLEST_LIMIT} items, not {self.limit}.",
            ),
        ):
            if not holds:
                raise HeadsieveError(sentence)

    def to_toml(self) -> str:
        """The text of ``study.toml``; options that were not given are left out."""
        return tomli_w.dumps(
            {name: value for name, value in asdict(self).items() if value is not None}
        )

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read ``study.toml``.

        Raises
        ------
        HeadsieveError
            If it is not the configuration of a study.
        """
        try:
            values: dict[str, Any] = {"revision": None, "limit": None} | tomllib.loads(text)
            for name in ("capabilities", "controls"):
                values[name] = tuple(values[name])
            return cls(**values)
        except (tomllib.TOMLDecodeError, TypeError, KeyError) as error:
            raise HeadsieveError(
                f"{STUDY_FILE} is not the configuration of a study: {error}."
            ) from None

    @property
    def command(self) -> str:
        """The command that makes this study."""
        words = ["headsieve", "locate", *self.capabilities, "--model", self.model]
        if self.revision is not None:
            words += ["--revision", self.revision]
        words += ["--controls", ",".join(self.controls) or "none"]
        words += ["--budget", str(self.budget), "--heads", str(self.heads)]
        words += ["--max-control-drop", str(self.max_control_drop)]
        words += ["--strategy", self.strategy, "--seed", str(self.seed)]
        if self.limit is not None:
            words += ["--limit", str(self.limit)]
        words += ["--device", self.device, "--dtype", self.dtype]
        words += ["--batch-size", str(self.batch_size)]
        return shlex.join([*words, *(["--force"] if self.force else [])])


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


@contextlib.contextmanager
def open_run(folder: Path, config: Config, *, resume: bool) -> Iterator[Path]:
    """Hold a run folder for a study; yields the path of its journal.

    A folder whose study has measured nothing yet is begun anew, with `resume` or without: the
    study may have been refused, or killed before it could measure anything.

    Raises
    ------
    HeadsieveError
        If the folder cannot be written, is in use by another process, holds another study, or
        holds this one and `resume` was not asked for.
    """
    if folder.exists() and not folder.is_dir():
        raise HeadsieveError(f"The run folder {folder} is a file; name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / _LOCK_FILE, timeout=0)
        lock.acquire()
    except filelock.Timeout:
        raise HeadsieveError(
            f"Another process is working in {folder}; wait for it or use another folder."
        ) from None
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
    if not _measured(folder):
        # Nothing would be lost: what was begun here was refused, or killed at once.
        write_atomically(study, config.to_toml())
        return
    if not resume:
        raise HeadsieveError(
            f"The folder {folder} holds a study already; continue it with --resume or name another "
            "folder with --out."
        )
    before = asdict(Config.from_toml(study.read_text(encoding="utf-8")))
    for name, value in asdict(config).items():
        if before[name] != value:
            raise HeadsieveError(
                f"The study in {folder} has {name} = {before[name]!r}, not {value!r}; resume it "
                "with the options it was started with."
            )


def _measured(folder: Path) -> bool:
    path = folder / JOURNAL_FILE
    if not path.is_file():
        return False
    journal = Journal(path)
    try:
        return journal.totals()[0] > 0
    finally:
        journal.close()


def write_atomically(path: Path, text: str) -> None:
    """Write a file so that it is whole or absent.

    Raises
    ------
    HeadsieveError
        If it cannot be written.
    """
    unfinished: Path | None = None
    try:
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}-", delete=False
        ) as file:
            unfinished = Path(file.name)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        # Temporary files are private; results are as readable as any other file.
        mask = os.umask(0)
        os.umask(mask)
        unfinished.chmod(0o666 & ~mask)
        unfinished.replace(path)
    except OSError as error:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
        raise _cannot_write(path.parent, error) from None


def _cannot_write(folder: Path, error: OSError) -> HeadsieveError:
    return HeadsieveError(f"Cannot write in the run folder {folder}: {error.strerror}.")
