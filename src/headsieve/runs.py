"""Run folders: one study each, one process at a time, resumable."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import filelock

from headsieve.config import STUDY_FILE, Config
from headsieve.errors import HeadsieveError
from headsieve.measure.ablation import ablation_label
from headsieve.measure.journal import Journal
from headsieve.scores import Score

JOURNAL_FILE = "measurements.sqlite"
RESULT_FILE = "result.json"
_LOCK_FILE = ".lock"


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
