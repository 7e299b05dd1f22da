"""Studies and scores whose heads give a mean or a sampled output instead of zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headsieve.errors import HeadsieveError
from headsieve.handover import export
from headsieve.localization import locate
from headsieve.measure.ablation import Ablation, Replacement
from headsieve.measure.items import ContinuationItems, tokenize
from headsieve.models.knockout import knockout
from headsieve.models.loading import Model
from headsieve.progress import Progress
from headsieve.scoring import score
from headsieve.study import Study
from headsieve.tasks import ItemTask, load_task
from tests.taskfiles import lasting, write_task

HEADS = ["L0H1", "L2H3"]


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with two task files."""
    monkeypatch.chdir(tmp_path)
    write_task(Path("skill.json"))
    write_task(Path("other.json"), "?")


def find(model: Model, ablation: Ablation, **options: Any) -> Study:
    given: dict[str, Any] = {
        "controls": ["other.json"],
        "budget": 20,
        "heads": 2,
        "max_control_drop": 1.0,
        "force": True,
    }
    return locate(model, ["skill.json"], ablation=ablation, **given | options)


class Counting(Progress):
    """Counts evaluations."""

    made = 0

    def advance(self, count: int) -> None:
        self.made += count


def accuracy(model: Model, items: ContinuationItems, heads: list[str], outputs: Any) -> float:
    """Accuracy on items of two choices each, with transformers alone."""
    mask = np.isin(np.arange(len(model.geometry)), model.geometry.columns(heads))[None]
    right = []
    for number, correct in enumerate(items.correct):
        totals = []
        for sequence in items.sequences[2 * number : 2 * number + 2]:
            tokens = torch.tensor([sequence.tokens])
            with (
                torch.inference_mode(),
                knockout(model.hf, model.geometry, mask, replacement=outputs),
            ):
                logits = model.hf(tokens).logits[0].log_softmax(-1)
            places = range(sequence.start, len(sequence.tokens))
            totals.append(sum(float(logits[at - 1, tokens[0, at]]) for at in places))
        right.append(int(np.argmax(totals)) in correct)
    return float(np.mean(right))


@pytest.mark.parametrize("ablation", ["mean", "resample"])
def test_held_out_items_are_measured_with_what_search_items_give(
    llama: Model, ablation: Ablation
) -> None:
    selected = (study := find(llama, ablation))["skill"].selected
    task = load_task("skill.json")
    assert isinstance(task, ItemTask)
    split = task.split(0)
    search, held_out = (
        tokenize(items, split.prefix, task.kind, llama.tokenizer)
        for items in (split.search, split.held_out)
    )
    outputs = Replacement.over(ablation, search, 0).outputs(llama)
    claim = study["skill"].verification.capability
    assert claim.knocked_out == accuracy(llama, held_out, selected, outputs)

    rest = tokenize(task.examples(0)[1], split.prefix, task.kind, llama.tokenizer)
    scored = score(llama, ["skill.json"], knockout=HEADS, ablation=ablation)["skill"]
    assert scored.knocked_out == accuracy(llama, rest, HEADS, outputs)


@pytest.mark.parametrize("ablation", ["mean", "resample"])
def test_a_study_says_its_ablation_and_resumes_only_with_it(
    llama: Model, ablation: Ablation
) -> None:
    study = find(llama, ablation, out="run")
    assert f"--ablation {ablation}" in study.result.command
    assert study["skill"].heads != find(llama, "zero")["skill"].heads
    again = find(llama, ablation, out="run", resume=True, progress=(resumed := Counting()))
    assert resumed.made == 0
    assert lasting(again.result) == lasting(study.result)
    assert "output is set to its " in Path("run/report.html").read_text()
    with pytest.raises(HeadsieveError, match=f"has ablation = '{ablation}', not 'zero'"):
        find(llama, "zero", out="run", resume=True)


def test_the_card_of_an_export_says_that_the_study_had_another_ablation(llama: Model) -> None:
    study = find(llama, "mean")
    export(llama, "edited", study=study)
    card = Path("edited/README.md").read_text()
    assert "heads whose output was set to its mean output over the task's search items;**" in card


def test_a_word_that_is_no_ablation_is_refused(llama: Model) -> None:
    word: Any = "median"
    with pytest.raises(HeadsieveError, match="no ablation 'median'; use zero, mean or resample"):
        find(llama, word)
    with pytest.raises(HeadsieveError, match="no ablation 'median'"):
        score(llama, ["skill.json"], knockout=HEADS, ablation=word)
