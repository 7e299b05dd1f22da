"""Verdicts on programs that mean well, in the sandbox and without."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from headsieve.errors import HeadsieveError
from headsieve.tasks.code import (
    Limits,
    Outcome,
    Program,
    SandboxKind,
    Verdict,
    check_programs,
    check_sandbox,
    humaneval_program,
    mbpp_program,
)

needs_bwrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="needs bubblewrap: apt-get install bubblewrap"
)
LIMITS = Limits(seconds=20)

PROMPT = '''
def double(x):
    """Twice x."""
    return 2 * x


def half(x):
    """Undo `double`."""
'''
HALF_TEST = (
    "def check(candidate):\n    for x in range(9):\n        assert candidate(double(x)) == x\n"
)
NODE = """
class Node:
    def __init__(self, value):
        self.value, self.left, self.right = value, None, None

def total(node):
    return node.value + total(node.left) + total(node.right) if node else 0
"""
NODE_SETUP = "root = Node(1)\r\nroot.left = Node(2)\r\nroot.left.right = Node(3)"


def verdicts(*programs: Program, sandbox: SandboxKind = "bwrap") -> list[Verdict]:
    return check_programs(programs, LIMITS, sandbox=sandbox)


@pytest.fixture(params=[pytest.param("bwrap", marks=needs_bwrap), "none"])
def sandbox(request: pytest.FixtureRequest) -> SandboxKind:
    kind: SandboxKind = request.param
    return kind


def test_verdicts_say_what_became_of_each(sandbox: SandboxKind) -> None:
    right, wrong, raises, quits = verdicts(
        humaneval_program(PROMPT, "    return x // 2\n", HALF_TEST, "half"),
        humaneval_program(PROMPT, "    return x\n", HALF_TEST, "half"),
        humaneval_program(PROMPT, "    return x // 0\n", HALF_TEST, "half"),
        humaneval_program(PROMPT, "    import os; os._exit(3)\n", HALF_TEST, "half"),
        sandbox=sandbox,
    )
    assert right == Verdict(Outcome.PASSED)
    assert right.passed
    assert wrong == Verdict(Outcome.FAILED, "a test does not hold")
    assert raises.outcome is Outcome.ERROR
    assert raises.reason.startswith("ZeroDivisionError")
    assert quits.outcome is Outcome.ENDED
    assert "exit status 3" in quits.reason


def test_a_program_that_takes_too_long_is_timed_out(sandbox: SandboxKind) -> None:
    program = Program("def f():\n    while True: pass\n", "f()", ("f",))
    assert check_programs([program], Limits(seconds=1), sandbox=sandbox) == [
        Verdict(Outcome.TIMED_OUT, "not done after 1 seconds")
    ]


@needs_bwrap
def test_the_tests_use_the_prompts_own_functions() -> None:
    completion = "    return 7\n\n\ndef double(x):\n    return 7\n"
    test = (
        "def check(candidate):\n    assert double(candidate(2)) == 2\n    assert double(1) == 2\n"
    )
    program = humaneval_program(PROMPT, completion, test, "half")
    assert verdicts(program)[0].outcome is Outcome.FAILED


@needs_bwrap
def test_objects_of_the_program_can_be_made_and_handed_back() -> None:
    tests = ["assert total(root) == 6", "assert total(Node(4)) == 4", "assert root.left.value == 2"]
    right = mbpp_program(NODE, tests, NODE_SETUP, reference=NODE)
    wrong = mbpp_program(NODE.replace("node.value +", ""), tests, NODE_SETUP, reference=NODE)
    assert right.names == ("Node", "total")
    assert [one.outcome for one in verdicts(right, wrong)] == [Outcome.PASSED, Outcome.FAILED]


@needs_bwrap
def test_names_of_builtins_are_the_programs_only_where_the_reference_defines_them() -> None:
    tests = ["assert sum(10, 15) == 6", "assert len([sum(1, 1)]) == 1"]
    reference = "import math\ndef sum(a, b):\n    return 6 if a == 10 else 0\n"
    cheat = "def sum(a, b): return None\ndef len(x): return 1\n"
    assert mbpp_program(reference, tests, reference=reference).names == ("sum",)
    assert [
        one.passed
        for one in verdicts(
            mbpp_program(reference, tests, reference=reference),
            mbpp_program(cheat, tests, reference=reference),
        )
    ] == [True, False]


def test_the_references_imports_are_there_for_the_tests() -> None:
    program = mbpp_program(
        "def f(): return 8",
        ["assert math.isclose(f(), 8)"],
        reference="import math\nimport os\nfrom re import match\ndef f(): return 8",
    )
    assert program.preamble == "import math"
    assert verdicts(program, sandbox="none") == [Verdict(Outcome.PASSED)]


def test_tests_may_expect_an_exception() -> None:
    tests = "try:\n    f()\nexcept ValueError:\n    pass\nelse:\n    assert False"
    raising, returning = (
        Program(f"def f():\n    {body}\n", tests, ("f",)) for body in ("raise ValueError", "return")
    )
    assert [one.passed for one in verdicts(raising, returning, sandbox="none")] == [True, False]


def test_a_reason_is_one_line_of_printable_text() -> None:
    program = Program(r"raise ValueError('\x1b[2J\n\udcff' + 'x' * 999)", "", ())
    (verdict,) = verdicts(program, sandbox="none")
    assert verdict.reason.startswith("ValueError: [2J x")
    assert verdict.reason.isprintable()
    assert len(verdict.reason) <= 200


def test_no_tests_are_run_for_no_programs() -> None:
    assert check_programs([]) == []


def test_a_missing_sandbox_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check_sandbox.cache_clear()
    with pytest.raises(HeadsieveError, match="apt-get install bubblewrap"):
        verdicts(Program("", "", ()))


def test_a_sandbox_that_cannot_be_made_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "bwrap"
    command.write_text("#!/bin/sh\necho bwrap: no permission >&2\nexit 1\n")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_sandbox.cache_clear()
    with pytest.raises(HeadsieveError, match="no permission"):
        verdicts(Program("", "", ()))
