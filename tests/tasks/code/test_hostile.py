"""Nothing a program does makes it pass, and nothing of it is left."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from headsieve.tasks.code import Limits, Outcome, Program, Verdict, check_programs
from headsieve.tasks.code.sandbox import own_users
from tests.tasks.code import hostile

pytestmark = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap"
)

TESTS = """
def check(candidate):
    assert candidate(2, 3) == 5
    assert not candidate(2, 3) != 5
    assert abs(candidate(20, 30) - 50) < 1e-6
    assert candidate("a", "b") == "ab"
    assert candidate([1], [2]) == [1, 2]
    assert len(candidate([1], [2])) == 2
check(add)
"""
# Passes if any one of these holds, each of which some trick might get by.
WEAK_TESTS = """
held = []
for test in (
    "add(2, 3) == 5",
    "not add(2, 3) != 5",
    "abs(add(2, 3) - 5) <= 1e-6",
    "add(2, 3) and not add(0, 0)",
    "add([1], [2]) == [1, 2]",
    "len(add([1], [2])) == 2 and 2 in add([1], [2])",
    "add('a', 'b') in ('ab',)",
    "isinstance(add('a', 'b'), str) and add('a', 'b').upper() == 'AB'",
):
    try:
        held.append(eval(test))
    except Exception:
        held.append(False)
assert any(held)
"""
LIMITS = Limits(seconds=20)
SHORT = Limits(seconds=1)


def verdict(source: str, limits: Limits = LIMITS, tests: str = TESTS) -> Verdict:
    return check_programs([Program(source, tests, ("add",))], limits)[0]


def sandboxed_processes(users: Iterable[int]) -> set[str]:
    """Running processes in another process namespace than this one, under one of the users."""
    own = os.readlink("/proc/self/ns/pid")
    if os.geteuid() != 0:
        users = [os.getuid()]
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            user = re.search(r"Uid:\s+(\d+)", (folder / "status").read_text())
            if user and int(user[1]) in users and os.readlink(folder / "ns/pid") != own:
                found.add(folder.name)
        except OSError:  # ended meanwhile, or another user's
            continue
    return found


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check that no process and no file is left behind."""
    monkeypatch.chdir(tmp_path)
    files = set(Path("/tmp").iterdir())
    descriptors = set(os.listdir("/proc/self/fd"))
    yield
    assert not sandboxed_processes(own_users(os.getpid()))
    assert not {path for path in set(Path("/tmp").iterdir()) - files if "headsieve" in path.name}
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)
    assert not [path for path in tmp_path.rglob("*") if path.name != "secret"]


def test_a_right_program_passes() -> None:
    source = "def add(a, b):\n    return a + b\n"
    assert verdict(source, tests=WEAK_TESTS) == Verdict(Outcome.PASSED)
    assert (
        check_programs([Program(source, TESTS, ("add",))] * 3, LIMITS, workers=3)
        == [Verdict(Outcome.PASSED)] * 3
    )


def test_a_running_sandbox_is_seen() -> None:
    sleeper = Program(hostile.ENDLESS["sleeps"], TESTS, ("add",))
    with ThreadPoolExecutor(1) as pool:
        checked = pool.submit(check_programs, [sleeper], Limits(seconds=3))
        while not sandboxed_processes(own_users(os.getpid())):
            assert not checked.done()
    assert checked.result()[0].outcome is Outcome.TIMED_OUT


@pytest.mark.parametrize("running", [1, 2])
def test_nothing_outlives_a_killed_host(running: int) -> None:
    check = (
        "from headsieve.tasks.code import Limits, Program, check_programs;"
        f"check_programs([Program({hostile.ENDLESS['sleeps']!r}, 'add(1, 2)', ('add',))],"
        "Limits(seconds=60))"
    )
    host = subprocess.Popen([sys.executable, "-c", check])
    users = own_users(host.pid)
    while len(sandboxed_processes(users)) < running:
        assert host.poll() is None
        time.sleep(0.01)
    host.kill()
    host.wait()
    deadline = time.monotonic() + 10
    while sandboxed_processes(users) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not sandboxed_processes(users)


@pytest.mark.parametrize("name", hostile.TRICKY_VALUES)
def test_no_value_passes_for_another(name: str) -> None:
    assert not verdict(hostile.TRICKY_VALUES[name], tests=WEAK_TESTS).passed


@pytest.mark.parametrize("name", hostile.TAMPERING)
def test_the_checker_is_out_of_reach(name: str) -> None:
    assert not verdict(hostile.TAMPERING[name], tests=WEAK_TESTS).passed


@pytest.mark.parametrize("name", hostile.ENDING)
def test_an_end_is_no_pass(name: str) -> None:
    assert verdict(hostile.ENDING[name]).outcome in (Outcome.ERROR, Outcome.ENDED, Outcome.FAILED)


@pytest.mark.parametrize("name", hostile.ENDLESS)
def test_what_never_ends_is_ended(name: str) -> None:
    assert not verdict(hostile.ENDLESS[name], SHORT).passed


@pytest.mark.parametrize("name", hostile.ESCAPES)
def test_the_world_is_out_of_reach(name: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("here")
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = hostile.ESCAPES[name].format(
            port=server.getsockname()[1], file=str(secret), folder=str(tmp_path)
        )
        assert not verdict(source, tests="assert add(2, 3) == 5").passed
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_there_are_enough_of_them() -> None:
    groups = (
        hostile.TRICKY_VALUES,
        hostile.TAMPERING,
        hostile.ENDING,
        hostile.ENDLESS,
        hostile.ESCAPES,
    )
    assert sum(map(len, groups)) >= 40
