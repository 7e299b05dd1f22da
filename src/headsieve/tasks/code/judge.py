"""Verdicts on model-written programs."""

from __future__ import annotations

import ast
import json
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from headsieve.tasks.code.sandbox import Confined, Limits, SandboxKind, check_sandbox, start

_LARGEST_POOL = 16  # with two sandboxes each, and a user id for each of these
# How long a program that closed its pipes may take to end before it is killed.
_GRACE_SECONDS = 0.5


class Outcome(StrEnum):
    """What became of a program."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    ENDED = "ended"
    TIMED_OUT = "timed out"


@dataclass(frozen=True)
class Verdict:
    """An outcome, and why in a few words (empty for a pass)."""

    outcome: Outcome
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether all tests held."""
        return self.outcome is Outcome.PASSED


@dataclass(frozen=True)
class Program:
    """A program and its tests.

    Attributes
    ----------
    source : str
        What the model wrote, complete.
    tests : str
        Python that raises unless the program is right. It is never shown to the program.
    names : tuple of str
        What the tests use of the program.
    preamble : str
        Python that the tests need beside it, by the author of the problem.
    """

    source: str
    tests: str
    names: tuple[str, ...]
    preamble: str = ""


def humaneval_program(prompt: str, completion: str, test: str, entry_point: str) -> Program:
    """A completion of a HumanEval problem; the arguments are the fields of the data set.

    Functions that a prompt gives beside the one to be written are the prompt's in the tests,
    whatever the completion makes of them.
    """
    tests = f"{test}\ncheck({entry_point})\n"
    try:
        ast.parse(prompt)
    except SyntaxError:  # no docstring, so no body: then it gives no other functions either
        preamble = ""
    else:
        preamble = prompt
    return Program(prompt + completion, tests, (entry_point,), preamble)


def mbpp_program(
    code: str, test_list: Sequence[str], test_setup_code: str = "", *, reference: str
) -> Program:
    """An answer to an MBPP problem.

    Parameters
    ----------
    code : str
        What the model wrote.
    test_list, test_setup_code : sequence of str, str
        Fields of the data set.
    reference : str
        The data set's own solution (its field `code`), which tells what of the names in the tests
        the program is to define; modules that it imports are imported for the tests.
    """
    tests = "\n".join([test_setup_code, *test_list, ""])
    used = {node.id for node in ast.walk(ast.parse(tests)) if isinstance(node, ast.Name)}
    body = ast.parse(reference).body
    defined = {
        statement.name
        for statement in body
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    imports = [
        ast.unparse(statement)
        for statement in body
        if isinstance(statement, ast.Import | ast.ImportFrom)
        and any((name.asname or name.name).split(".")[0] in used for name in statement.names)
    ]
    return Program(code, tests, tuple(sorted(used & defined)), "\n".join(imports))


def check_programs(
    programs: Sequence[Program],
    limits: Limits = Limits(),  # noqa: B008 - immutable
    workers: int | None = None,
    sandbox: SandboxKind = "bwrap",
) -> list[Verdict]:
    """Run programs against their tests, each in a sandbox of its own, several at a time.

    A program runs in one process and its tests in another, each without network, files or sight
    of the other. The tests call the program through a pair of pipes on which only plain data
    passes, and the verdict leaves by a file that only the tests' process has. See
    ``docs/code-execution.md`` for what this guarantees and what not.

    Parameters
    ----------
    programs : sequence of Program
    limits : Limits, optional
        For each program.
    workers : int, optional
        Programs at a time, at most 16; by default one for each available processor.
    sandbox : {"bwrap", "none"}, optional
        ``none`` runs programs as the user, with limits on time, memory and file size alone.

    Returns
    -------
    list of Verdict
        In the order of the programs.

    Raises
    ------
    HeadsieveError
        If there can be no sandbox here.
    """
    if not programs:
        return []
    check_sandbox(sandbox)
    workers = min(workers or len(os.sched_getaffinity(0)), _LARGEST_POOL)
    with ThreadPoolExecutor(workers) as pool:
        verdicts = [pool.submit(_check, program, limits, sandbox) for program in programs]
        try:
            return [verdict.result() for verdict in verdicts]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


def _check(program: Program, limits: Limits, sandbox: SandboxKind) -> Verdict:
    job = {
        "source": program.source,
        "tests": program.tests,
        "names": program.names,
        "preamble": program.preamble,
    }
    job_file, verdict_file = os.memfd_create("job"), os.memfd_create("verdict")
    with open(job_file, "w+b") as sent, open(verdict_file, "rb") as received:
        sent.write(json.dumps(job).encode())
        sent.flush()
        sent.seek(0)
        ends = (*os.pipe(), *os.pipe())
        request_read, request_write, answer_read, answer_write = ends
        deadline = time.monotonic() + limits.seconds
        started: list[Confined] = []
        try:
            try:
                subject = start("program", limits, sandbox, request_read, answer_write)
                started.append(subject)
                files = (job_file, verdict_file)
                checker = start("checker", limits, sandbox, answer_read, request_write, files)
                started.append(checker)
            finally:
                for end in ends:
                    os.close(end)
            in_time = checker.wait(deadline - time.monotonic()) is not None
            received.seek(0)
            written = received.read()
            status = subject.wait(_GRACE_SECONDS) if in_time and b'"ended"' in written else None
        finally:
            for process in started:
                process.end()
    if not in_time:
        return Verdict(Outcome.TIMED_OUT, f"not done after {limits.seconds:g} seconds")
    if not written:
        return Verdict(Outcome.ERROR, "its tests ended without a verdict")
    verdict = json.loads(written)
    reason = verdict["reason"]
    if status is not None:
        reason += f" (exit status {status})"
    return Verdict(Outcome(verdict["outcome"]), reason)
