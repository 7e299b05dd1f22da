"""Processes that can reach nothing: bubblewrap's namespaces, and limits set inside them."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headsieve.errors import HeadsieveError, first_line

SandboxKind = Literal["bwrap", "none"]

_INSIDE = Path(__file__).parent / "inside"
_INSIDE_SEEN = "/headsieve"
_FOLDER = "/work"
_FULL_USER_MAP = ["0", "0", str(2**32 - 1)]
_FIRST_USER = 2**30
_USERS = 2**6
_SANDBOXES = itertools.count()


@dataclass(frozen=True)
class Limits:
    """What a program may use.

    Attributes
    ----------
    seconds : float
        From the start of its process to the end of its tests, by the clock on the wall.
    memory : int
        Bytes of address space, each process.
    processes : int
        Processes and threads at a time.
    file_bytes : int
        Bytes in one file, and in all files together.
    open_files : int
    """

    seconds: float = 10.0
    memory: int = 1 << 30
    processes: int = 8
    file_bytes: int = 16 << 20
    open_files: int = 64


class _Guard:
    """Kills a process once this one is gone, however it ended.

    bwrap's own ``--die-with-parent`` no longer holds when those inside have changed to a user whom
    bwrap, without capabilities, may not signal.
    """

    def __init__(self, process: int) -> None:
        read, self._held = os.pipe()
        self._shell = subprocess.Popen(
            # Nobody else holds the other end of what is read: it ends when this process does.
            ["/bin/sh", "-c", 'cat; kill -KILL "$0"', str(process)],
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            start_new_session=True,
        )
        os.close(read)

    def dismiss(self) -> None:
        """End without killing."""
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait()
        os.close(self._held)


class Confined:
    """A running process in a sandbox of its own."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        first: int | None,
        folder: Path | None,
        guard: _Guard | None = None,
    ) -> None:
        self._process = process
        self._guard = guard
        # The first process of the sandbox's process namespace, as a file descriptor: its end is
        # the end of all others, and no later process can be mistaken for it.
        self._first = first
        self._folder = folder

    def wait(self, seconds: float) -> int | None:
        """Exit status (128 + signal where one ended it), or None if still running by then."""
        try:
            status = self._process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def end(self) -> None:
        """Kill everything in the sandbox; returns once all of it is gone."""
        if self._guard is not None:
            # First, while the process that it would kill is there: its number may be another's.
            self._guard.dismiss()
        with contextlib.suppress(ProcessLookupError):
            if self._first is not None:
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            elif self._folder is not None:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        # bwrap collects the namespace's first process, which the kernel lets go last of all.
        self._process.wait()
        if self._first is not None:
            os.close(self._first)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def start(
    role: str,
    limits: Limits,
    sandbox: SandboxKind,
    source: int,
    target: int,
    files: tuple[int, ...] = (),
) -> Confined:
    """Start a module of `inside` in a sandbox of its own.

    Parameters
    ----------
    role : str
        The module; its function `main` runs.
    limits : Limits
    sandbox : {"bwrap", "none"}
    source, target : int
        File descriptors that become its standard input and output.
    files : tuple of int
        File descriptors that it inherits; their numbers follow the settings in its arguments.
    """
    confined = sandbox == "bwrap"
    settings = {
        # A backstop for the case that the process that watches the clock is killed.
        "cpu_seconds": int(limits.seconds) + 2,
        "memory": limits.memory,
        "file_bytes": limits.file_bytes,
        "open_files": limits.open_files,
        "processes": limits.processes if confined else None,
        "user": _unused_user() if confined and _can_change_user() else None,
    }
    parent = _INSIDE_SEEN if confined else str(_INSIDE.parent)
    python = [
        *(_interpreter(), "-I", "-S", "-B", "-X", "utf8", "-c"),
        f"import sys; sys.path.insert(0, {parent!r}); from inside.{role} import main; main()",
        json.dumps(settings),
        *map(str, files),
    ]
    if not confined:
        folder = Path(tempfile.mkdtemp(prefix="headsieve-"))
        process = subprocess.Popen(
            python,
            stdin=source,
            stdout=target,
            stderr=subprocess.DEVNULL,
            pass_fds=files,
            cwd=folder,
            env={"HOME": str(folder), "TMPDIR": str(folder)},
            start_new_session=True,
        )
        return Confined(process, None, folder)
    info_read, info_write = os.pipe()
    with open(info_read, "rb") as info:
        try:
            process = subprocess.Popen(
                [*_bwrap(limits), "--info-fd", str(info_write), "--", *python],
                stdin=source,
                stdout=target,
                stderr=subprocess.DEVNULL,
                pass_fds=(*files, info_write),
                env={},
            )
        finally:
            os.close(info_write)
        number = _first_process(info.readline(), info.read())
        try:
            first = None if number is None else os.pidfd_open(number)
        except ProcessLookupError:  # it has ended already
            first = None
        guard = None if number is None or first is None else _Guard(number)
        return Confined(process, first, None, guard)


@functools.cache
def check_sandbox(sandbox: SandboxKind) -> None:
    """Check that sandboxes can be made here.

    Raises
    ------
    HeadsieveError
        If not; the message says how they can.
    """
    if sandbox == "none":
        return
    if shutil.which("bwrap") is None:
        raise HeadsieveError(
            "Model-written code runs only in a sandbox, which needs bubblewrap: install it with "
            "`apt-get install bubblewrap` (Debian, Ubuntu) or `dnf install bubblewrap` (Fedora), "
            "or run such code unprotected with `--sandbox none`."
        )
    trial = subprocess.run(
        [*_bwrap(Limits()), "--", _interpreter(), "-I", "-S", "-c", "import ctypes, json"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={},
        text=True,
    )
    if trial.returncode:
        said = first_line(RuntimeError(trial.stderr))
        raise HeadsieveError(
            f"bubblewrap cannot make a sandbox here ({said}); it needs user namespaces, or root "
            "outside of a container. Allow them, or run model-written code unprotected with "
            "`--sandbox none`."
        )


def _bwrap(limits: Limits) -> list[str]:
    """The command that makes a sandbox: an empty folder, the Python standard library, no more."""
    command = [
        shutil.which("bwrap") or "bwrap",
        *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--unshare-cgroup-try", "--new-session", "--die-with-parent", "--clearenv"),
        # Otherwise bwrap ends before its child does, and leaves it for someone else to collect.
        "--as-pid-1",
    ]
    if _can_change_user():
        # Root's processes escape the limit on processes, so those inside change to a user of
        # their own (see confine.py) and can then do nothing as root.
        command += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        command += ["--unshare-user", "--cap-drop", "ALL"]
    made: set[Path] = set()
    for path in _needed_paths():
        # bwrap makes parents that only root can enter.
        for parent in reversed(path.parents[:-1]):
            if parent not in made:
                command += ["--perms", "0755", "--dir", str(parent)]
                made.add(parent)
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        else:
            command += ["--ro-bind", str(path), str(path)]
        made.add(path)
    command += ["--perms", "0755", "--dir", _INSIDE_SEEN]
    command += ["--ro-bind", str(_INSIDE), f"{_INSIDE_SEEN}/inside"]
    command += ["--perms", "0755", "--dir", "/dev", "--dev-bind", "/dev/null", "/dev/null"]
    command += ["--perms", "1777", "--size", str(limits.file_bytes), "--tmpfs", _FOLDER]
    command += ["--remount-ro", "/", "--chdir", _FOLDER]
    for name in ("HOME", "TMPDIR"):
        command += ["--setenv", name, _FOLDER]
    return command


@functools.cache
def _needed_paths() -> tuple[Path, ...]:
    """What the interpreter reads, outermost first: itself, its libraries, the loader's cache."""
    interpreter = Path(_interpreter())
    candidates = {
        Path("/lib"),
        Path("/lib64"),
        Path("/usr/lib"),
        Path("/usr/lib64"),
        Path("/etc/ld.so.cache"),
        Path(sysconfig.get_path("stdlib")),
        Path(sys.base_prefix) / "lib",
        Path(sys.base_exec_prefix) / "lib",
        interpreter,
    }
    found = sorted((path for path in candidates if path.exists()), key=lambda path: path.parts)
    return tuple(
        path
        for path in found
        if not any(other in path.parents for other in found if not other.is_symlink())
    )


def _interpreter() -> str:
    """The Python that runs this, without its virtual environment."""
    return os.path.realpath(sys.executable)


@functools.cache
def _can_change_user() -> bool:
    """Whether this is root, and not only in a user namespace."""
    if os.geteuid() != 0:
        return False
    return Path("/proc/self/uid_map").read_text().split() == _FULL_USER_MAP


def own_users(process: int) -> range:
    """User ids of the sandboxes that a root's process makes, far from people's and services'."""
    first = _FIRST_USER + process % 2**22 * _USERS
    return range(first, first + _USERS)


def _unused_user() -> int:
    """A user id of its own for each sandbox; there are never so many at a time."""
    return own_users(os.getpid())[next(_SANDBOXES) % _USERS]


def _first_process(*said: bytes) -> int | None:
    """The process that bwrap names; None if it made none."""
    try:
        return int(json.loads(b"".join(said))["child-pid"])
    except ValueError:
        return None
