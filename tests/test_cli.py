"""The command line: what is printed where, and that bad input costs one clear sentence."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headsieve.check import CHECKS, _Outcome
from headsieve.cli import main
from headsieve.models.loading import Model
from headsieve.results import Result
from headsieve.tasks import builtin_names
from headsieve.tasks.paper_tasks import paper_names
from tests.taskfiles import save_model, write_task

# What may stand on standard error beside the one sentence.
PROGRESS = ("Loading ", "Unmodified model", "Searching ", "Verifying ", "Scoring", "Control ")
LOCATE = [
    *("locate", "skill.json", "--model", "model", "--device", "cpu", "--controls", "other.json"),
    *("--budget", "20", "--heads", "2", "--limit", "6", "--max-control-drop", "1", "--force"),
]
SCORE = ["score", "skill.json", "--model", "model", "--device", "cpu"]


@dataclass
class Outcome:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The one line on standard error that is no progress."""
        lines = [line for line in self.err.splitlines() if not line.startswith(PROGRESS)]
        assert len(lines) == 1, self.err
        return lines[0]


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in this process."""

    def command(*arguments: str) -> Outcome:
        capsys.readouterr()
        try:
            status = main(arguments)
        except SystemExit as stop:  # argparse's way to end
            status = int(stop.code or 0)
        return Outcome(status, *capsys.readouterr())

    return command


@pytest.fixture(scope="module")
def saved(llama: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a tiny model once."""
    return save_model(llama, tmp_path_factory.mktemp("saved") / "model")


@pytest.fixture(autouse=True)
def place(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with a model, two good task files and many bad things."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HEADSIEVE_CACHE", str(tmp_path / "cache"))
    Path("model").symlink_to(saved)
    write_task(Path("skill.json"))
    write_task(Path("other.json"), "?")
    return tmp_path


BAD_FILES = {
    "empty.json": "",
    "blank.jsonl": "\n\n",
    "no-rows.json": "[]",
    "broken.json": '[\n{"input": "a", "output": "b"},\n{"input": "c" "output": "d"}\n]',
    "broken.jsonl": '{"input": "a", "output": "b"}\n{"input": ',
    "field.jsonl": '{"input": "a", "output": "b"}\n{"input": "a", "outptu": "b"}',
    "mixed.jsonl": '{"input": "a", "output": "b"}\n{"prompt": "c", "answer": "d"}',
    "answer.jsonl": '{"prompt": "a", "choices": ["b", "c"], "answer": 2}',
    "twice.jsonl": '{"input": "a", "output": "b"}\n{"input": "a", "output": "c"}',
    "number.json": "3",
    "few.jsonl": "\n".join(f'{{"input": "{n}", "output": "b{n}"}}' for n in range(9)),
    "shots.json": '{"shots": -1, "items": [{"input": "a", "output": "b"}]}',
    "colour.json": '{"colour": "red", "items": [{"input": "a", "output": "b"}]}',
}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("empty.json", "empty.json: the file is empty"),
        ("blank.jsonl", "blank.jsonl: the file is empty"),
        ("no-rows.json", "no-rows.json: the file holds no items"),
        ("broken.json", "broken.json line 3: not valid JSON"),
        ("broken.jsonl", "broken.jsonl line 2: not valid JSON"),
        ("field.jsonl", "field.jsonl line 2: fields input, outptu fit no form"),
        ("mixed.jsonl", "mixed.jsonl line 2: fields prompt, answer, but the rows before have"),
        ("answer.jsonl", "answer.jsonl line 1: field 'answer' must be the index"),
        ("twice.jsonl", "twice.jsonl line 2: the same input stands earlier"),
        ("number.json", "number.json: expected a list of rows"),
        ("few.jsonl", "Task few has 9 items; at least 18 are needed"),
        ("shots.json", "shots.json: field 'shots' must be a whole number"),
        ("colour.json", "colour.json: unknown field 'colour'"),
    ],
)
def test_bad_task_files(run: Run, name: str, sentence: str) -> None:
    Path(name).write_text(BAD_FILES[name])
    outcome = run("locate", name, *LOCATE[2:])
    assert (outcome.status, outcome.out) == (2, "")
    assert sentence in outcome.complaint


def test_task_files_that_are_no_text(run: Run) -> None:
    Path("bytes.json").write_bytes(b'["\xff\xfe"]')
    assert "bytes.json: not UTF-8 text (byte 2)" in run("score", "bytes.json", *SCORE[2:]).complaint
    Path("folder.json").mkdir()
    outcome = run("score", "folder.json", *SCORE[2:])
    assert outcome.status == 2
    assert "Cannot read the task file folder.json" in outcome.complaint


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "required: COMMAND"),
        (["frobnicate"], "invalid choice: 'frobnicate'"),
        (["locate"], "required: CAPABILITY"),
        ([*LOCATE, "--colour", "red"], "unrecognized arguments: --colour red"),
        (["locate", "no-such-skill"], "There is no task 'no-such-skill'"),
        (["locate", "antonim"], "did you mean antonym?"),
        (["score", "missing.json"], "No task file at missing.json"),
        (["score", "lm-eval:x", "--include-path", "nowhere"], "no folder nowhere with task files"),
        (["score", "lm-eval:x", "--num-fewshot", "-1"], "must be 0 or more, not -1"),
        ([*LOCATE, "--controls", "plurals"], "did you mean plural?"),
        ([*LOCATE, "--controls", "./skill.json"], "skill.json was named twice"),
        ([*LOCATE, "--controls", "skill.json"], "skill.json was named twice"),
        (["locate", "antonym", "antonym"], "antonym was named twice"),
        (["score", "text", "text"], "text was named twice"),
        ([*LOCATE, "--strategy", "magic"], "no strategy 'magic'; use adaptive, attribution"),
        ([*LOCATE, "--budget", "12"], "A budget of 12 is too small"),
        ([*LOCATE, "--budget", "0"], "budget must be at least 1, not 0"),
        ([*LOCATE, "--budget", "many"], "argument --budget: invalid int value: 'many'"),
        ([*LOCATE, "--strategy", "exhaustive", "--budget", "12"], "needs a budget of 13"),
        ([*LOCATE, "--heads", "0"], "number of heads must be at least 1, not 0"),
        ([*LOCATE, "--heads", "13"], "The model has 12 heads; no set has 13"),
        ([*LOCATE, "--seed", "-1"], "seed must be 0 or more, not -1"),
        ([*LOCATE, "--max-control-drop", "2"], "from 0 to 1, not 2.0"),
        ([*LOCATE, "--max-control-drop", "nan"], "from 0 to 1, not nan"),
        ([*LOCATE, "--limit", "1"], "limit must be at least 5 items, not 1"),
        ([*LOCATE, "--limit", "0"], "limit must be at least 5 items, not 0"),
        ([*LOCATE, "--batch-size", "0"], "batch size must be auto or at least 1, not 0"),
        ([*LOCATE, "--batch-size", "x"], "'x' is neither auto nor a number"),
        ([*LOCATE, "--dtype", "float7"], "Unknown dtype 'float7'; use auto, float32"),
        ([*LOCATE, "--device", "abacus"], "Cannot use device 'abacus'"),
        ([*LOCATE, "--device", "cuda:99"], "Cannot use device 'cuda:99'"),
        ([*SCORE, "--knockout", "L99H0"], "no head L99H0; layers 0 to 2 have 4 heads each"),
        ([*SCORE, "--knockout", "L1H4"], "no head L1H4"),
        ([*SCORE, "--knockout", "layer 3"], "'layer 3' is not a head; write layer and head as in"),
        ([*SCORE, "--knockout", ""], "No heads to knock out were given"),
        ([*SCORE, "--knockout", ","], "No heads to knock out were given"),
        ([*SCORE, "--limit", "0"], "limit must be at least 1 item, not 0"),
        ([*SCORE, "--seed", "-3"], "seed must be 0 or more, not -3"),
        ([*SCORE, "--batch-size", "0"], "batch size must be auto or at least 1, not 0"),
        ([*SCORE, "--batch-size", "-2"], "batch size must be auto or at least 1, not -2"),
        ([*LOCATE, "--resume", "--out", "skill.json"], "skill.json is a file; name a folder"),
        ([*LOCATE, "--out", "model"], "holds other files"),
        (["heads", "--model", "/no/model"], "No model at /no/model"),
        (["heads", "--model", "no.gguf"], "No model at no.gguf"),
        (["heads", "--model", "skill.json"], "No model at skill.json"),
        (["heads", "--model", "nobody-here/no-such-model"], "nobody-here/no-such-model"),
        (["heads", "--model", "no such model!"], "Cannot load the model no such model!"),
        (["heads", "--model", ""], "The model folder . has no config.json"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments(run: Run, arguments: list[str], sentence: str) -> None:
    outcome = run(*arguments)
    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.complaint.startswith("headsieve")
    assert sentence in outcome.complaint


def copied(model: Path, name: str, *, without: str = "nothing") -> Path:
    folder = Path(name)
    folder.mkdir()
    for file in model.iterdir():
        if file.name != without:
            (folder / file.name).write_bytes(file.read_bytes())
    return folder


def damage(kind: str, saved: Path) -> str:
    """Make a damaged model; returns what names it."""
    if kind.endswith(".gguf"):
        Path(kind).write_bytes(
            {
                "magic.gguf": b"GGUF" + bytes(range(200)),
                "cut.gguf": b"GGUF\x03\x00\x00\x00",
                "other.gguf": b"PK\x03\x04 and so on",
                "empty.gguf": b"",
            }[kind]
        )
        return kind
    missing = {"no config": "config.json", "no weights": "model.safetensors"}
    folder = copied(saved, kind, without=missing.get(kind, "nothing"))
    weights = folder / "model.safetensors"
    if kind == "cut weights":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif kind == "garbage weights":
        weights.write_bytes(os.urandom(1000))
    elif kind == "few weights":
        from safetensors.torch import load_file, save_file

        tensors = load_file(weights)
        del tensors["model.layers.1.self_attn.o_proj.weight"]
        save_file(tensors, weights, {"format": "pt"})
    elif kind == "broken config":
        (folder / "config.json").write_text("{")
    elif kind == "no tokenizer":
        for file in folder.glob("tokenizer*"):
            file.unlink()
    return kind


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("no config", "no config has no config.json"),
        ("no weights", "no weights has no weights"),
        ("cut weights", "Cannot load the model cut weights"),
        ("garbage weights", "Cannot load the model garbage weights"),
        ("few weights", "few weights lacks 1 of its weights (model.layers.1.self_attn.o_proj"),
        ("broken config", "Cannot load the model broken config"),
        ("no tokenizer", "Cannot load the model no tokenizer"),
        ("magic.gguf", "Cannot read the GGUF file magic.gguf"),
        ("cut.gguf", "Cannot read the GGUF file cut.gguf"),
        ("other.gguf", "other.gguf is not a GGUF file"),
        ("empty.gguf", "empty.gguf is not a GGUF file"),
    ],
)
def test_damaged_models(run: Run, saved: Path, kind: str, sentence: str) -> None:
    outcome = run("heads", "--model", damage(kind, saved), "--device", "cpu")
    assert (outcome.status, outcome.out) == (2, "")
    assert sentence in outcome.complaint


def test_run_folders_that_are_taken(run: Run) -> None:
    first = run(*LOCATE, "--out", "run")
    assert first.status == 0
    again = run(*LOCATE, "--out", "run")
    assert (again.status, again.out) == (2, "")
    assert "run holds a study already; continue it with --resume" in again.complaint
    other = run(*LOCATE, "--out", "run", "--resume", "--budget", "21")
    assert (other.status, other.out) == (2, "")
    assert "has budget = 20, not 21" in other.complaint
    Path("run/measurements.sqlite").write_bytes(b"no database" * 100)
    broken = run(*LOCATE, "--out", "run", "--resume")
    assert (broken.status, broken.out) == (2, "")
    assert "Cannot keep measurements in run/measurements.sqlite" in broken.complaint
    Path("run/measurements.sqlite").unlink()
    with sqlite3.connect("run/measurements.sqlite") as connection:
        connection.execute("CREATE TABLE measurements (model TEXT, tokens INTEGER, seconds REAL)")
        connection.execute("INSERT INTO measurements VALUES ('m', 1, 0.1)")
    foreign = run(*LOCATE, "--out", "run", "--resume")
    assert (foreign.status, foreign.out) == (2, "")
    assert "no such column" in foreign.complaint


@pytest.mark.parametrize("function", ["os.fsync", "matplotlib.figure.Figure.savefig"])
def test_no_space_left(run: Run, monkeypatch: pytest.MonkeyPatch, function: str) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(function, full)
        outcome = run(*LOCATE, "--out", "run")
    assert (outcome.status, outcome.out) == (2, "")
    assert "No space left on device" in outcome.complaint
    assert run(*LOCATE, "--out", "run", "--resume").status == 0


def test_no_space_left_for_measurements(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = sqlite3.connect

    def small(path: Any) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 4")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr(sqlite3, "connect", small)
        outcome = run(*LOCATE, "--out", "run")
    assert (outcome.status, outcome.out) == (2, "")
    assert "Cannot keep measurements in run/measurements.sqlite: " in outcome.complaint
    assert "full" in outcome.complaint
    assert run(*LOCATE, "--out", "run", "--resume").status == 0


def test_a_capability_that_the_model_lacks(run: Run) -> None:
    outcome = run(*(word for word in LOCATE if word != "--force"))
    assert (outcome.status, outcome.out) == (2, "")
    assert "choose another capability or use --force" in outcome.complaint


def test_an_interruption_says_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("headsieve.report.progress.ConsoleProgress.advance", interrupt)
        outcome = run(*LOCATE)
    assert (outcome.status, outcome.out) == (130, "")
    assert "kept in runs/skill; give the same command with --resume" in outcome.err
    assert run(*LOCATE, "--resume").status == 0


def test_locate_in_json(run: Run) -> None:
    outcome = run(*LOCATE, "--json")
    assert outcome.status == 0
    assert outcome.out == Path("runs/skill/result.json").read_text()
    assert Result.from_json(outcome.out).capabilities["skill"].heads


def test_locate_for_people(run: Run) -> None:
    outcome = run(*LOCATE, "--out", "my run")
    assert outcome.status == 0
    assert outcome.out.rstrip().endswith("my run")
    assert "held out" in outcome.out or "none of them selected" in outcome.out
    assert all(line.startswith(PROGRESS) for line in outcome.err.splitlines())


def test_score_in_json(run: Run) -> None:
    outcome = run("score", "text", *SCORE[1:], "--limit", "6", "--knockout", "L1H2, l0h3", "--json")
    record = json.loads(outcome.out)
    assert (outcome.status, list(record)) == (0, ["text", "skill"])
    assert record["text"]["metric"] == "log_prob"
    assert record["skill"]["drop"] == record["skill"]["baseline"] - record["skill"]["knocked_out"]
    assert json.loads(run(*SCORE, "--json").out)["skill"]["knocked_out"] is None
    assert "skill" in run(*SCORE).out


def test_heads(run: Run, model: Model) -> None:
    save_model(model, Path("another"))
    outcome = run("heads", "--model", "another", "--device", "cpu", "--json")
    record = json.loads(outcome.out)
    assert outcome.status == 0
    assert record == {"model": "another", **json.loads(json.dumps(model.geometry.to_dict()))}
    assert (record["heads"], record["uncovered"]) == (12, [])
    assert [layer["heads"] for layer in record["layers"]] == [4, 4, 4]
    assert "12 heads in 3 layers" in run("heads", "--model", "another", "--device", "cpu").out


def test_heads_are_checked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("heads", "--model", "model", "--device", "cpu", "--check")
    checks = json.loads(run(*command, "--json").out)["checks"]
    assert [one["holds"] for one in checks] == [True] * 6
    assert "zeroed weights" in run(*command).out
    monkeypatch.setitem(CHECKS, "rows", ("what", lambda _model: _Outcome(1.0)))
    outcome = run(*command)
    assert outcome.status == 2
    assert "1 of 6 checks do not hold for model (rows)" in outcome.err.splitlines()[-1]


def test_tasks(run: Run) -> None:
    outcome = run("tasks", "--json")
    assert outcome.status == 0
    names = [one["name"] for one in json.loads(outcome.out)]
    assert names[: len(builtin_names())] == builtin_names()
    assert set(names[len(builtin_names()) :]) == set(paper_names())
    assert "antonym" in run("tasks").out
    assert "--allow-code-execution" in run("tasks").out


@pytest.mark.parametrize(
    "command", [[], ["locate"], ["score"], ["heads"], ["tasks"]], ids=lambda value: " ".join(value)
)
def test_help(run: Run, command: list[str]) -> None:
    outcome = run(*command, "--help")
    assert (outcome.status, outcome.err) == (0, "")
    for word in ["--model"] if command and command != ["tasks"] else ["tasks"]:
        assert word in outcome.out
    if not command:
        assert all(name in outcome.out for name in ("locate", "score", "heads", "tasks"))


def test_the_default_run_folder_keeps_dots_and_bears_paths(run: Run) -> None:
    for name in ("v1.0.json", "v1.5.json"):
        write_task(Path(name))
        assert run("locate", name, *LOCATE[2:]).status == 0
    assert {path.name for path in Path("runs").iterdir()} == {"v1.0", "v1.5"}


def test_names_in_progress_are_not_markup(run: Run) -> None:
    write_task(Path("[red]x:smile:.json"))
    outcome = run("locate", "[red]x:smile:.json", *LOCATE[2:])
    assert outcome.status == 0
    assert "Searching [red]x:smile:: " in outcome.err
    assert "Loading [/red] ..." in run("score", "text", "--model", "[/red]").err


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command line in which ``headsieve`` is this one."""
    program = f'headsieve() {{ "{sys.executable}" -m headsieve "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", program],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        check=False,
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize(
    "command", ["tasks", "tasks --json", "--help", "--version", "locate --help"]
)
@pytest.mark.parametrize("buffered", ["", "1"])
def test_output_that_cannot_be_written(command: str, buffered: str) -> None:
    done = shell(f"headsieve {command} > /dev/full", PYTHONUNBUFFERED=buffered)
    assert done.returncode == 2
    sentence = "headsieve: Cannot read or write the output: No space left on device.\n"
    assert done.stderr == sentence


def test_a_closed_pipe_is_no_error() -> None:
    done = shell("set -o pipefail; headsieve tasks | true; headsieve tasks | head -n 1")
    assert (done.returncode, done.stderr) == (0, "")
    done = shell("headsieve tasks | true; exit ${PIPESTATUS[0]}")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("command", ["score --help", "tasks"])
def test_a_terminal_of_few_characters(command: str) -> None:
    few = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = shell(f"headsieve {command}", **few)
    assert (done.returncode, done.stderr) == (0, "")
    assert "L13H4,L20H8" in done.stdout or "antonym" in done.stdout


def test_help_and_tasks_load_no_heavy_library() -> None:
    program = (
        "import sys\n"
        "import headsieve, headsieve.cli\n"
        "headsieve.cli.main(['tasks'])\n"
        "heavy = {'torch', 'transformers', 'scipy', 'sklearn', 'matplotlib'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_tasks_of_a_harness_that_is_not_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval.defaults", None)
    monkeypatch.setitem(sys.modules, "lm_eval.tasks", None)
    from headsieve.tasks.lm_eval import loading

    loading._manager.cache_clear()
    outcome = run("score", "lm-eval:arc_easy")
    assert outcome.status == 2
    assert "pip install 'headsieve[lm-eval]'" in outcome.complaint
