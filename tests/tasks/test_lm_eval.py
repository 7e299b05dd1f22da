"""Tasks of lm-evaluation-harness: the same answers and metrics as its own evaluation gives."""

from __future__ import annotations

import math
import random
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headsieve.errors import HeadsieveError
from headsieve.forecast import forecast
from headsieve.localization import locate
from headsieve.measure.items import ItemSet, JoinedItems
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.models.loading import Model
from headsieve.scoring import score
from headsieve.study import Study
from headsieve.tasks import HarnessOptions, Task, load_task
from headsieve.tasks.lm_eval import loading
from tests.tasks.harness_tasks import DOCUMENTS, write_harness_tasks
from tests.tiny import tiny_model

lm_eval = pytest.importorskip("lm_eval", reason="the extra lm-eval is not installed")

HEADS = ("L0H1", "L1H2", "L2H3")
NAMES = ("choice", "contexts", "several_right", "mutual", "last_letter", "passages", "written")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_harness_tasks(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(autouse=True)
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the harness from describing this machine after every evaluation."""
    monkeypatch.setattr("lm_eval.evaluator.add_env_info", lambda _results: None)


def task(folder: Path, name: str, **options: Any) -> Task:
    return load_task(f"lm-eval:tiny_{name}", HarnessOptions(str(folder), **options))


def simple_evaluate(model: Model, folder: Path, name: str, **options: Any) -> dict[str, Any]:
    """What the harness says, with its own model class."""
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    evaluated: dict[str, Any] = lm_eval.simple_evaluate(
        model=HFLM(pretrained=model.hf, tokenizer=model.tokenizer, batch_size=1),
        tasks=[f"tiny_{name}"],
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
        **options,
    )
    return evaluated


def parts(items: ItemSet) -> list[Any]:
    return list(items.parts) if isinstance(items, JoinedItems) else [items]


@pytest.mark.parametrize(
    ("family", "name", "heads"),
    [
        *(("llama", name, HEADS) for name in NAMES),
        ("llama", "choice", ()),
        ("llama", "written", ()),
        ("gpt2", "choice", HEADS),
        ("gpt2", "written", HEADS),
    ],
)
def test_documents_get_what_the_harness_gives_them(
    folder: Path, family: str, name: str, heads: tuple[str, ...]
) -> None:
    model = tiny_model(family)
    with model.knockout(heads) if heads else nullcontext():
        theirs = simple_evaluate(model, folder, name)
    items = task(folder, name).whole(model, seed=0)
    assert len(items) == DOCUMENTS
    mask = np.zeros((1, len(model.geometry)), dtype=bool)
    mask[0, list(model.geometry.columns(heads))] = True
    measurer = Measurer(model, {name: items}, Journal())
    (responses,) = measurer.responses(mask, name)
    (part,) = parts(items)
    results = part.results(responses)
    samples = theirs["samples"][f"tiny_{name}"]
    assert len(samples) == DOCUMENTS * len(results)
    for sample in samples:
        mine = results[sample["filter"]][int(sample["doc_id"])]
        assert list(mine) == sample["metrics"]
        for metric, value in mine.items():
            assert value == pytest.approx(sample[metric], abs=1e-3)
    (found,) = measurer.measure(mask, name)
    metrics = theirs["results"][f"tiny_{name}"]
    if name == "passages":
        rate = math.log2(math.e) * tokens_a_byte(model, items)
        assert -found.metric * rate == pytest.approx(metrics["bits_per_byte,none"], abs=1e-4)
    else:
        expected = next(
            value for key, value in metrics.items() if key.startswith(f"{items.metric},")
        )
        assert found.metric == pytest.approx(expected)


def tokens_a_byte(model: Model, items: ItemSet) -> float:
    scored = sum(len(one.tokens) - one.start for one in items.sequences)
    said = [model.tokenizer.decode(one.tokens[one.start :]) for one in items.sequences]
    return scored / len("".join(said).encode())


@pytest.mark.parametrize(
    "options",
    [
        {"num_fewshot": 3},
        {"num_fewshot": 1, "system_instruction": "Think."},
    ],
)
def test_options_mean_what_they_mean_in_the_harness(
    llama: Model, folder: Path, options: dict[str, Any]
) -> None:
    for name in ("choice", "last_letter", "written"):
        theirs = simple_evaluate(llama, folder, name, limit=9, **options)
        items = task(folder, name, **options).whole(llama, seed=0, limit=9)
        (part,) = parts(items)
        mine = [[one.args[0] for one in requests] for requests in part.requests]
        samples = theirs["samples"][f"tiny_{name}"][: len(mine)]
        assert mine == [[one[0] for one in sample["arguments"]] for sample in samples]


def test_prompts_go_through_the_chat_template(llama: Model, folder: Path) -> None:
    with pytest.raises(HeadsieveError, match="has no chat template"):
        task(folder, "choice", apply_chat_template=True).whole(llama, seed=0)
    template = "{% for one in messages %}<{{ one.role }}>{{ one.content }}{% endfor %}<assistant>"
    llama.tokenizer.chat_template = template
    try:
        options: dict[str, Any] = {"num_fewshot": 1, "apply_chat_template": True}
        theirs = simple_evaluate(llama, folder, "choice", limit=4, **options)
        items = task(folder, "choice", **options).whole(llama, seed=0, limit=4)
    finally:
        llama.tokenizer.chat_template = None
    (part,) = parts(items)
    mine = [[tuple(one.args) for one in requests] for requests in part.requests]
    samples = theirs["samples"]["tiny_choice"]
    assert mine == [[tuple(one) for one in sample["arguments"]] for sample in samples]
    assert mine[0][0][0].startswith("<user>")


@pytest.mark.parametrize("name", ["by_size", "alike"])
@pytest.mark.parametrize("limit", [None, 3])
def test_a_group_averages_as_the_harness_does(
    llama: Model, folder: Path, name: str, limit: int | None
) -> None:
    theirs = simple_evaluate(llama, folder, name, limit=limit)["groups"][f"tiny_{name}"]
    items = task(folder, name).whole(llama, seed=0, limit=limit)
    nothing = np.zeros((1, len(llama.geometry)), dtype=bool)
    (found,) = Measurer(llama, {name: items}, Journal()).measure(nothing, name)
    assert found.metric == pytest.approx(theirs["acc,none"])
    assert len(items) == (DOCUMENTS + 8 if limit is None else 6)


@pytest.mark.parametrize("name", [*NAMES, "by_size", "alike"])
def test_search_and_held_out_documents_are_disjoint(llama: Model, folder: Path, name: str) -> None:
    own = task(folder, name).item_sets(llama, seed=0, limit=6)
    search, held_out = own.documents["search"], own.documents["held-out"]
    assert sum(map(len, search.values())) == len(own.search) == 6
    assert sum(map(len, held_out.values())) == len(own.held_out) == 6
    for dataset in set(search) & set(held_out):
        assert not set(search[dataset]) & set(held_out[dataset])
    if name == "alike":
        assert {len(numbers) for numbers in search.values()} == {3}
    other = task(folder, name).item_sets(llama, seed=1, limit=6)
    assert other.documents != own.documents
    again = task(folder, name).item_sets(llama, seed=0, limit=6)
    assert again.documents == own.documents
    assert again.search.fingerprint == own.search.fingerprint
    assert again.held_out.fingerprint == own.held_out.fingerprint


def test_few_shot_examples_of_a_document_do_not_depend_on_which_are_drawn(
    llama: Model, folder: Path
) -> None:
    whole = task(folder, "last_letter").whole(llama, seed=0)
    some = task(folder, "last_letter").item_sets(llama, seed=0, limit=6)
    for number, sequence in zip(
        some.documents["search"]["tiny_last_letter"], some.search.sequences, strict=True
    ):
        assert sequence == whole.sequences[number]


def test_what_is_written_is_searched_by_its_reference(llama: Model, folder: Path) -> None:
    own = task(folder, "written").item_sets(llama, seed=0)
    assert (own.search.metric, own.held_out.metric) == ("log_prob", "exact_match")
    assert not own.search.prompts
    assert len(own.held_out.prompts) == len(own.held_out)
    sequence = own.search.sequences[0]
    text = llama.tokenizer.decode(sequence.tokens)
    word = text.splitlines()[1].split(" ->")[0]
    assert llama.tokenizer.decode(sequence.tokens[sequence.start :]) == f" {word[::-1]}"


@pytest.mark.parametrize("name", ["choice", "several_right", "last_letter", "written", "alike"])
def test_margins_are_positive_where_answers_are_right(
    llama: Model, folder: Path, masks: Any, name: str
) -> None:
    items = task(folder, name).whole(llama, seed=0)
    for one in Measurer(llama, {name: items}, Journal()).measure(masks, name):
        np.testing.assert_array_equal(one.margin > 0, one.value > 0)


@pytest.mark.parametrize("name", ["choice", "last_letter", "mutual", "alike"])
def test_the_gradient_is_that_of_the_search_score(llama: Model, folder: Path, name: str) -> None:
    items = task(folder, name).whole(llama, seed=0, limit=5)
    measurer = Measurer(llama, {name: items}, Journal())
    nothing = np.zeros((1, len(llama.geometry)), dtype=bool)
    (responses,) = measurer.responses(nothing, name)
    slopes = items.slopes(responses.log_prob)
    step = 1e-5
    for number in range(len(items.sequences)):
        ends = []
        for sign in (1, -1):
            moved = responses.log_prob.copy()
            moved[number] += sign * step
            there = type(responses)(moved, responses.greedy, responses.margin)
            ends.append(items.score(there).search)
        assert slopes[number] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


def test_a_forecast_counts_what_the_model_may_write(llama: Model, folder: Path) -> None:
    options: dict[str, Any] = {
        "controls": ["lm-eval:tiny_choice"],
        "budget": 20,
        "heads": 2,
        "limit": 5,
        "harness": HarnessOptions(str(folder)),
    }
    found = forecast(llama, ["lm-eval:tiny_written"], **options)
    own = task(folder, "written").item_sets(llama, seed=0, limit=5)
    assert found.evaluations >= 20
    assert found.tokens > 20 * sum(len(one.tokens) for one in own.search.sequences) / 2
    assert found.flops > 0


def test_global_generators_are_left_alone(llama: Model, folder: Path) -> None:
    def states() -> tuple[Any, ...]:
        return random.random(), np.random.random(), float(torch.rand(1))

    def seed() -> None:
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)

    seed()
    expected = states()
    seed()
    items = task(folder, "choice").whole(llama, seed=0)
    nothing = np.zeros((1, len(llama.geometry)), dtype=bool)
    Measurer(llama, {"choice": items}, Journal()).measure(nothing, "choice")
    assert states() == expected


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("unsafe", "is judged by running what the model writes"),
        ("both", "is judged by running what the model writes"),
        ("sampled", "do_sample = True; only greedy"),
        ("no_mean", "no metric that is a mean over documents"),
        ("no_data", "lm-eval:tiny_no_data cannot be loaded, perhaps because its data set"),
    ],
)
def test_what_cannot_be_measured(llama: Model, folder: Path, name: str, sentence: str) -> None:
    with pytest.raises(HeadsieveError, match=sentence):
        task(folder, name).whole(llama, seed=0)


def test_wrong_options_are_told(tmp_path: Path) -> None:
    with pytest.raises(HeadsieveError, match="no folder nowhere with task files"):
        load_task("lm-eval:tiny_choice", HarnessOptions("nowhere"))
    with pytest.raises(HeadsieveError, match="must be 0 or more, not -1"):
        HarnessOptions(num_fewshot=-1)


def test_an_unknown_name_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Reading the harness's own task files takes it many seconds.
    own = loading._manager(str(folder), defaults=False)
    monkeypatch.setattr(loading, "_manager", lambda _path, *, defaults: own)
    with pytest.raises(HeadsieveError, match=r"no task 'tiny_choise'; did you mean lm-eval:tiny_c"):
        task(folder, "choise")


def test_a_score_and_a_study(
    llama: Model, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    harness = HarnessOptions(str(folder))
    results = score(llama, ["lm-eval:tiny_choice"], knockout=["L0H1"], limit=5, harness=harness)
    assert results["lm-eval:tiny_choice"].metric == "acc_norm"
    assert results["lm-eval:tiny_choice"].items == 5
    options: dict[str, Any] = {
        "controls": ["lm-eval:tiny_written", "text"],
        "budget": 20,
        "heads": 2,
        "limit": 5,
        "max_control_drop": 1.0,
        "force": True,
        "harness": harness,
        "out": "run",
    }
    study = locate(llama, ["lm-eval:tiny_choice"], **options)
    checks = study["lm-eval:tiny_choice"].verification
    assert checks.capability.metric == "acc_norm"
    assert checks.controls["lm-eval:tiny_written"].metric == "exact_match"
    loaded = Study.load("run")
    assert loaded == study
    assert loaded.config.harness == harness
    own = load_task("lm-eval:tiny_choice", harness).item_sets(llama, seed=0, limit=5)
    assert loaded.config.documents["lm-eval:tiny_choice"] == own.documents
    assert f"--include-path {folder}" in study.result.command
    locate(llama, ["lm-eval:tiny_choice"], **options, resume=True)
    changed = options | {"harness": HarnessOptions(str(folder), num_fewshot=1)}
    with pytest.raises(HeadsieveError, match="has harness ="):
        locate(llama, ["lm-eval:tiny_choice"], **changed, resume=True)
