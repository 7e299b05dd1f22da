"""Options of the command line: none is accepted and then ignored."""

from __future__ import annotations

import argparse
import inspect
import re
from typing import Any

import pytest

from headsieve.cli import build_parser, main, options


def commands() -> dict[str, Any]:
    (parsers,) = (
        action
        for action in build_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(parsers.choices)


@pytest.mark.parametrize("name", sorted(commands()))
def test_every_option_of_a_command_is_used(name: str) -> None:
    command = commands()[name]
    module = inspect.getmodule(command.get_default("run"))
    assert module is not None
    source = inspect.getsource(module) + inspect.getsource(options)
    given = {action.dest for action in command._actions} - {"help"}
    assert given <= set(re.findall(r"options\.(\w+)", source))


@pytest.mark.parametrize("command", ["atlas", "reproduce"])
def test_what_a_command_cannot_do_it_does_not_take(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([command, "--ablation", "mean"])
    assert "--ablation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"),
    [("4GB", 4e9), ("500mb", 5e8), ("1.5 G", 1.5e9), ("4GiB", 4 * 2**30), ("1024", 1024)],
)
def test_memory(text: str, size: float) -> None:
    found = build_parser().parse_args(["heads", "--memory", text])
    assert found.memory == size


@pytest.mark.parametrize("text", ["lots", "4XB", "-1GB", ""])
def test_no_memory(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["heads", f"--memory={text}"])
    assert "is no size such as 4GB" in capsys.readouterr().err
