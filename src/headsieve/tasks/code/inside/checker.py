"""The process that runs the tests of a problem against a program in another process.

The verdict leaves by a file that only this process has. What the program answers arrives as plain
data, so `==`, `len` and all else that the tests do with it is Python's own.
"""

from __future__ import annotations

import builtins
import json
import os
import sys
from typing import Any, BinaryIO

from . import wire
from .confine import confine, take_standard_streams

_LONGEST_REASON = 200


class _ProgramLostError(BaseException):
    """The program ended or answered nonsense; no `except Exception` of a test may hide that."""


class _Connection:
    """Puts requests to the program."""

    def __init__(self, answers: BinaryIO, requests: BinaryIO):
        self._answers = answers
        self._requests = requests

    def ask(self, *request: Any) -> Any:
        """The value that the program answers.

        Raises
        ------
        Exception
            What the program raised, as the built-in exception of that name.
        """
        try:
            wire.send(self._requests, request)
            outcome = wire.receive(self._answers)
            if outcome is None:
                raise _ProgramLostError("the program ended before it answered")
            if not isinstance(outcome, dict):
                raise wire.MalformedMessageError("a message of no known form")
            if "raised" in outcome:
                name, text = map(str, outcome["raised"])
            else:
                return self._receive(wire.decode(outcome["value"]))
        except BrokenPipeError:
            raise _ProgramLostError("the program ended before it answered") from None
        except (wire.MalformedMessageError, KeyError, TypeError, ValueError) as error:
            raise _ProgramLostError(f"the program answered {error}") from None
        raise _as_builtin(name, text)

    def send_value(self, value: Any) -> Any:
        """Encode a value of the tests for the program."""
        return wire.encode(value, _refer)

    def _receive(self, value: Any) -> Any:
        if isinstance(value, wire.Reference):
            return _Remote(self, value.number)
        if isinstance(value, dict):
            return {self._receive(key): self._receive(element) for key, element in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)(self._receive(element) for element in value)
        return value


class _Remote:
    """An object of the program: it can be called, and its public attributes read and set.

    It equals nothing but another reference to the same object, and its truth cannot be asked for,
    so a program gains nothing by answering with objects of its own classes.
    """

    def __init__(self, connection: _Connection, number: int):
        object.__setattr__(self, "_connection", connection)
        object.__setattr__(self, "_number", number)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        send_value = self._connection.send_value
        return self._connection.ask(
            "call", self._number, send_value(list(arguments)), send_value(named)
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._connection.ask("get", self._number, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._connection.ask("set", self._number, name, self._connection.send_value(value))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Remote) and self._number == other._number

    def __hash__(self) -> int:
        return hash(self._number)

    def __bool__(self) -> bool:
        raise TypeError("an object of the program's own is neither true nor false")


def _refer(value: Any) -> int:
    if isinstance(value, _Remote):
        return int(value._number)
    raise TypeError(f"a test cannot hand a {type(value).__name__} to the program")


def _as_builtin(name: str, text: str) -> Exception:
    """What the program raised, for tests that expect an exception."""
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception):
        try:
            return kind(text)
        except TypeError:  # some take more than a message
            pass
    return RuntimeError(f"{name}: {text}")


def _run(job: dict[str, Any], connection: _Connection) -> tuple[str, str]:
    """Outcome and reason."""
    namespace: dict[str, Any] = {"__name__": "tests"}
    try:
        connection.ask("load", job["source"])
        exec(compile(job["preamble"], "<preamble>", "exec"), namespace)
        for name in job["names"]:
            namespace[name] = connection.ask("name", name)
        exec(compile(job["tests"], "<tests>", "exec"), namespace)
    except AssertionError as error:
        return "failed", f"a test does not hold: {error}" if str(error) else "a test does not hold"
    except _ProgramLostError as error:
        return "ended", str(error)
    except BaseException as error:  # whatever the tests meet, it is no pass
        return "error", f"{type(error).__name__}: {error}"
    return "passed", ""


def main() -> None:
    """Check one program and write the verdict."""
    job_file, verdict_file = int(sys.argv[2]), int(sys.argv[3])
    confine(json.loads(sys.argv[1]))
    answers, requests = take_standard_streams()
    with os.fdopen(job_file, encoding="utf-8") as file:
        job = json.load(file)
    outcome, reason = _run(job, _Connection(answers, requests))
    # Parts of it may be the program's words, which are not to move anyone's cursor.
    printable = "".join(letter if letter.isprintable() else " " for letter in reason)
    reason = " ".join(printable.split())[:_LONGEST_REASON]
    with os.fdopen(verdict_file, "w", encoding="ascii") as file:
        json.dump({"outcome": outcome, "reason": reason}, file)
    # The program may hold the other end of a pipe open; nothing is left to be flushed to it.
    os._exit(0)
