"""Whole studies of a tiny model: DESIGN section 5, points 7, 8 and 10, and the form of results."""

from __future__ import annotations

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headsieve.errors import HeadsieveError
from headsieve.localization import locate
from headsieve.measure.items import ContinuationItems, tokenize
from headsieve.models.loading import Model
from headsieve.progress import Progress
from headsieve.results import Result
from headsieve.scoring import score
from headsieve.study import Study
from headsieve.tasks import ItemTask, load_task
from headsieve.tasks.selection import CONTROL_COUNT, TEXT_CONTROL
from tests.studies import Counting, find, rows
from tests.taskfiles import WORDS, lasting
from tests.test_scoring import by_hand

pytestmark = pytest.mark.usefixtures("two_tasks")


class Meddling(Progress):
    """Reseeds every global generator all the time."""

    def advance(self, count: int) -> None:
        random.seed(count)
        np.random.seed(count)
        torch.manual_seed(count)


def test_a_study_and_its_run_folder(llama: Model) -> None:
    counting = Counting()
    study = find(llama, out="run", progress=counting)
    found = study["skill"]
    assert found.selected
    assert len(found.selected) <= 3
    assert 0 < found.evaluations.capability <= 24
    assert found.evaluations.controls <= 24
    assert study.result.cost.evaluations == counting.made == rows(Path("run/measurements.sqlite"))
    assert {head.head for head in found.heads} == {str(head) for head in llama.geometry.heads}
    effects = [head.effect for head in found.heads]
    assert effects == sorted(effects)
    assert all(head.ci[0] <= head.effect <= head.ci[1] for head in found.heads)
    assert all(0 <= head.selection <= 1 for head in found.heads)
    assert found.selected in [point.heads for point in found.frontier] or not found.frontier
    checks = found.verification
    assert list(checks.controls) == ["other"]
    for one in (checks.capability, *checks.controls.values()):
        assert one.drop == one.baseline - one.knocked_out
        assert one.items == 6
    assert checks.random_sets.count > 0

    files = {str(path.relative_to("run")) for path in Path("run").rglob("*") if path.is_file()}
    figures = {
        f"figures/skill-{stem}"
        for stem in (
            *("effects.png", "effects.svg", "effects.pdf"),
            *("curve.png", "curve.svg", "curve.pdf", "curve.csv"),
        )
    }
    assert files - {".lock"} == figures | {
        *("study.toml", "measurements.sqlite", "result.json", "heads.csv"),
        *("heads.json", "examples.json", "report.html"),
    }
    loaded = Study.load("run")
    assert loaded == study
    assert loaded.folder == Path("run")


def test_examples_are_held_out_items_as_they_were_scored(llama: Model) -> None:
    study = find(llama, out="run")
    shown = study.examples["skill"]
    assert study["skill"].selected
    assert 0 < len(shown.items) <= 6
    task = load_task("skill.json")
    assert isinstance(task, ItemTask)
    split = task.split(0, 6)
    held_out = {item.prompt: item for item in split.held_out}
    for one in shown.items:
        item = held_out[one.prompt]
        assert one.expected == item.continuations[item.correct].strip()
        assert "\n" not in one.before + one.after
    claim = study["skill"].verification.capability
    if len(shown.items) == claim.items:
        assert sum(one.right_before for one in shown.items) == claim.baseline * claim.items
        assert sum(one.right_after for one in shown.items) == claim.knocked_out * claim.items
    # Those that the knockout turned come first.
    turned = [one.right_before and not one.right_after for one in shown.items]
    assert turned == sorted(turned, reverse=True)


def test_a_model_that_cannot_write_has_no_examples(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(llama).examples
    monkeypatch.setattr("headsieve.tasks.answers.can_write", lambda _model: False)
    study = find(llama)
    assert study["skill"].selected
    assert not study.examples


def test_a_study_says_what_it_holds(llama: Model) -> None:
    study = find(llama)
    assert repr(study).startswith("<Study of ")
    assert ", ".join(study["skill"].selected) in repr(study)
    with pytest.raises(KeyError, match="'other' is not in this study, which has"):
        study["other"]


def test_a_study_without_examples_still_loads(llama: Model) -> None:
    study = find(llama, out="run")
    Path("run/examples.json").unlink()
    loaded = Study.load("run")
    assert loaded.examples == {}
    assert loaded.result == study.result
    assert "What the model says" not in loaded.write_page(Path("run")).read_text()
    Path("run/examples.json").write_text('{"skill": 3}')
    with pytest.raises(HeadsieveError, match="holds no examples"):
        Study.load("run")


def test_a_study_with_interactions(llama: Model) -> None:
    pytest.importorskip("shapiq", reason="the extra interactions is not installed")
    study = find(llama, interactions=True)
    found = study["skill"].verification.interactions
    assert found is not None
    assert [one.head for one in found.shapley] == study["skill"].selected
    whole = study["skill"].verification.capability.drop
    assert found.subsets[-1].drop == pytest.approx(whole)
    assert sum(one.value for one in found.shapley) == pytest.approx(whole)
    assert find(llama)["skill"].verification.interactions is None


def test_the_form_of_result_json(llama: Model) -> None:
    find(llama, out="run")
    text = Path("run/result.json").read_text()
    result = Result.from_json(text)
    assert result.to_json() == text
    record = json.loads(text)
    assert record["schema"] == 1
    assert set(record) == {
        *("schema", "headsieve", "created", "seed", "command"),
        *("model", "capabilities", "cost", "versions"),
    }
    assert set(record["model"]) == {
        *("name", "revision", "architecture", "layers", "heads"),
        *("dtype", "device", "fingerprint"),
    }
    assert (record["model"]["layers"], record["model"]["heads"]) == (3, 12)
    assert record["model"]["architecture"] == "LlamaForCausalLM"
    assert set(record["cost"]) == {"evaluations", "tokens", "seconds", "peak_memory_bytes"}
    assert {"python", "torch", "transformers"} <= set(record["versions"])
    (one,) = record["capabilities"].values()
    assert set(one) == {"heads", "selected", "frontier", "evaluations", "verification"}
    assert set(one["heads"][0]) == {
        *("head", "layer", "index", "effect", "ci", "selection", "control_effect"),
    }
    for point in one["frontier"]:
        assert set(point) == {"heads", "drop", "worst_control_drop"}
    assert set(one["evaluations"]) == {"capability", "controls"}
    checks = one["verification"]
    assert set(checks) == {"capability", "controls", "random_sets"}
    claim = {"metric", "items", "baseline", "knocked_out", "drop", "ci"}
    assert set(checks["capability"]) == claim | {"p_value"}
    assert all(set(control) == claim for control in checks["controls"].values())
    assert set(checks["random_sets"]) == {"count", "mean_drop", "max_drop"}


@pytest.mark.parametrize("schema", ["2", None])
def test_a_result_of_another_form_is_refused(llama: Model, schema: str | None) -> None:
    find(llama, out="run")
    path = Path("run/result.json")
    text = path.read_text()
    path.write_text("{}" if schema is None else text.replace('"schema": 1', '"schema": 2'))
    with pytest.raises(HeadsieveError, match="not a result of schema 1"):
        Study.load("run")
    path.unlink()
    with pytest.raises(HeadsieveError, match=r"no finished study \(run/result\.json"):
        Study.load("run")


def test_the_same_seed_gives_the_same_result(llama: Model) -> None:
    reference = lasting(find(llama).result)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    assert lasting(find(llama, progress=Meddling()).result) == reference
    assert lasting(find(llama, seed=1).result) != reference


def test_a_search_leaves_global_random_states_alone(llama: Model) -> None:
    def states() -> list[Any]:
        return [random.random(), np.random.random(), torch.rand(1).item()]

    def seed() -> None:
        random.seed(3)
        np.random.seed(3)
        torch.manual_seed(3)

    seed()
    expected = states()
    seed()
    find(llama)
    assert states() == expected


@pytest.mark.parametrize("seed", [0, 1])
def test_search_items_held_out_items_and_examples_are_disjoint(
    llama: Model, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    pairs = [{"input": word, "output": word[::-1]} for word in WORDS]
    Path("pairs.json").write_text(json.dumps(pairs))
    measured: list[set[str]] = []
    examples: set[str] = set()

    def spy(items: Any, prefix: str, kind: Any, tokenizer: Any) -> ContinuationItems:
        item_set = tokenize(items, prefix, kind, tokenizer)
        texts = [tokenizer.decode(sequence.tokens) for sequence in item_set.sequences]
        lines = [text.splitlines() for text in texts]
        measured.append({one[-1] for one in lines})
        examples.update(line for one in lines for line in one[:-1])
        return item_set

    monkeypatch.setattr("headsieve.tasks.task.tokenize", spy)
    find(llama, "pairs.json", controls=[], seed=seed)
    search, held_out = measured
    assert (len(search), len(held_out), len(examples)) == (6, 6, 5)
    assert not search & held_out
    assert not examples & (search | held_out)


def test_a_capability_that_the_model_lacks_is_refused(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match=r"not clearly above chance .* should at 0\.60"):
        find(llama, force=False, out="run")
    # What was measured is kept, and goes on when forced.
    counting = Counting()
    forced = find(llama, out="run", resume=True, progress=counting)
    assert counting.made == forced.result.cost.evaluations - 1


def test_too_small_a_budget_measures_nothing(llama: Model) -> None:
    counting = Counting()
    with pytest.raises(HeadsieveError, match="budget of 19 is too small"):
        find(llama, budget=19, out="run", progress=counting)
    assert counting.made == 0
    find(llama, out="run")  # the folder is still free


@pytest.mark.parametrize(
    ("strategy", "budget", "spent"),
    [("exhaustive", 13, 13), ("exhaustive", 40, 13), ("paper", 12, 12)],
)
def test_the_other_strategies(llama: Model, strategy: str, budget: int, spent: int) -> None:
    study = find(llama, strategy=strategy, budget=budget, out="run")
    found = study["skill"]
    assert found.evaluations.capability == spent
    assert found.evaluations.controls == (0 if strategy == "paper" else spent)
    assert study.config.strategy == strategy
    assert all((head.control_effect is None) == (strategy == "paper") for head in found.heads)
    assert Study.load("run") == study


def test_gradients_are_counted_and_not_computed_twice(llama: Model) -> None:
    counting = Counting()
    found = find(llama, out="run", prior="gradient", progress=counting)
    evaluations = found["skill"].evaluations
    with sqlite3.connect("run/measurements.sqlite") as connection:
        searched = "SELECT COUNT(*) FROM measurements WHERE task LIKE '% search'"
        ((measured,),) = connection.execute(searched)
        ((gradients,),) = connection.execute("SELECT COUNT(*) FROM gradients")
    assert gradients == 2
    assert evaluations.capability + evaluations.controls == measured + 3 * gradients
    again = find(llama, out="run", resume=True, prior="gradient", progress=(resumed := Counting()))
    assert resumed.made == 0
    assert lasting(again.result) == lasting(found.result)
    with pytest.raises(HeadsieveError, match="There is no prior 'magic'; use none or gradient"):
        find(llama, prior="magic")


def test_gradients_guide_the_search_unless_there_are_none(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert find(llama).config.prior == "gradient"
    assert find(llama, strategy="exhaustive", budget=13).config.prior == "none"
    grad = torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", no_memory)
    notes: list[str] = []
    progress = Progress()
    monkeypatch.setattr(progress, "note", notes.append)
    found = find(llama, out="run", progress=progress)["skill"]
    assert found.selected
    assert notes[-1] == (
        "The search goes without a gradient of skill: there is not enough memory for it."
    )
    with sqlite3.connect("run/measurements.sqlite") as connection:
        kept = connection.execute("SELECT DISTINCT gradient FROM gradients").fetchall()
    assert kept == [(b"",)]
    with pytest.raises(HeadsieveError, match="gradients, and there is none of skill;"):
        find(llama, strategy="attribution")
    monkeypatch.setattr(torch.autograd, "grad", grad)
    assert find(llama, out="run", resume=True, progress=(resumed := Counting()))["skill"] == found
    assert resumed.made == 0


def no_memory(*_args: object) -> None:
    raise torch.OutOfMemoryError


@pytest.mark.parametrize("strategy", ["exhaustive", "greedy", "paper"])
def test_only_the_adaptive_strategy_takes_a_prior(llama: Model, strategy: str) -> None:
    with pytest.raises(HeadsieveError, match=f"The strategy {strategy} takes no prior"):
        find(llama, strategy=strategy, prior="gradient")


def test_no_controls(llama: Model) -> None:
    study = find(llama, controls=[])
    assert study["skill"].verification.controls == {}
    assert study["skill"].evaluations.controls == 0
    assert "--controls none" in study.result.command


def test_each_capability_is_a_control_for_the_others(llama: Model) -> None:
    study = find(llama, "skill.json", "other.json", controls=[], out="run")
    assert list(study.result.capabilities) == ["skill", "other"]
    assert list(study["skill"].verification.controls) == ["other"]
    assert list(study["other"].verification.controls) == ["skill"]
    assert study.result.cost.evaluations == rows(Path("run/measurements.sqlite"))
    assert Study.load("run") == study


def test_default_controls_are_written_down(llama: Model) -> None:
    study = find(llama, controls=None, budget=20)
    assert study.config.controls == tuple(study["skill"].verification.controls)
    assert len(study.config.controls) == CONTROL_COUNT + 1
    assert study["skill"].verification.controls[TEXT_CONTROL].metric == "log_prob"


def test_a_model_with_heads_out_is_not_taken_for_the_unmodified_one(llama: Model) -> None:
    with llama.knockout(["L0H1"]):
        with pytest.raises(HeadsieveError, match="knocked out already"):
            find(llama)
        with pytest.raises(HeadsieveError, match="knocked out already"):
            score(llama, ["skill.json"])
        by_hand(llama, "text", 1)


def test_tasks_are_lists_of_names_or_paths(llama: Model) -> None:
    with pytest.raises(HeadsieveError, match=r"capabilities must be a list .* \['antonym'\]"):
        locate(llama, "antonym")
    with pytest.raises(HeadsieveError, match="controls must be a list"):
        find(llama, controls=Path("other.json"))
    with pytest.raises(HeadsieveError, match="tasks must be a list"):
        score(llama, "text")
    study = find(llama, Path("skill.json"), controls=[Path("other.json")])
    assert study.config.capabilities == ("skill.json",)
    assert study.config.controls == ("other.json",)
