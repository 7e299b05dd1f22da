"""The process that runs a model-written program and does what the checker asks of it.

Nothing here is secret or decides anything: the program may take this process over entirely, and
then still only chooses which values it answers.
"""

from __future__ import annotations

import json
import sys
import types
from typing import Any

from . import wire
from .confine import confine, take_standard_streams

_MODULE = "program"


class _Program:
    """The loaded program, and the objects of it that the checker has references to."""

    def __init__(self) -> None:
        self.module = types.ModuleType(_MODULE)
        self.objects: list[Any] = []

    def answer(self, request: list[Any]) -> Any:
        """Do what a request says and encode the outcome."""
        operation, *arguments = request
        return wire.encode(getattr(self, f"_{operation}")(*arguments), self._refer)

    def _load(self, source: str) -> None:
        sys.modules[_MODULE] = self.module
        exec(compile(source, f"<{_MODULE}>", "exec"), self.module.__dict__)

    def _name(self, name: str) -> Any:
        if name not in self.module.__dict__:
            raise NameError(f"name {name!r} is not defined")
        return self.module.__dict__[name]

    def _call(self, target: int, arguments: Any, named: Any) -> Any:
        return self.objects[target](*self._value(arguments), **self._value(named))

    def _get(self, target: int, name: str) -> Any:
        return getattr(self.objects[target], name)

    def _set(self, target: int, name: str, value: Any) -> None:
        setattr(self.objects[target], name, self._value(value))

    def _value(self, message: Any) -> Any:
        return self._resolve(wire.decode(message))

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, wire.Reference):
            return self.objects[value.number]
        if isinstance(value, dict):
            return {key: self._resolve(element) for key, element in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._resolve(element) for element in value)
        return value

    def _refer(self, value: Any) -> int:
        for number, known in enumerate(self.objects):
            if known is value:
                return number
        self.objects.append(value)
        return len(self.objects) - 1


def main() -> None:
    """Answer requests until there are no more."""
    confine(json.loads(sys.argv[1]))
    requests, answers = take_standard_streams()
    program = _Program()
    while (request := wire.receive(requests)) is not None:
        try:
            outcome = {"value": program.answer(request)}
        except BaseException as error:  # the program may raise anything, SystemExit included
            outcome = {"raised": [type(error).__name__, str(error)[:200]]}
        wire.send(answers, outcome)
