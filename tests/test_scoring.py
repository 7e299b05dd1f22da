"""Scores of tasks with and without heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headsieve.errors import HeadsieveError
from headsieve.models.loading import Model
from headsieve.scoring import score
from headsieve.tasks.builtin import load_builtin
from tests.taskfiles import write_task


@pytest.fixture(autouse=True)
def skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a task file."""
    monkeypatch.chdir(tmp_path)
    write_task(Path("skill.json"))


def test_scores_with_and_without_heads(llama: Model) -> None:
    heads = ["L2H3", "L0H1"]
    plain = score(llama, ["skill.json", "text"], limit=7)
    assert {name: one.items for name, one in plain.items()} == {"skill": 7, "text": 7}
    assert plain["skill"].knocked_out is None
    assert plain["skill"].drop is None
    knocked = score(llama, ["skill.json", "text"], knockout=heads, limit=7)
    for name, one in knocked.items():
        assert one.baseline == plain[name].baseline
        assert one.knocked_out is not None
        assert one.drop == one.baseline - one.knocked_out
    before, after = by_hand(llama, "text", 7), None
    with llama.knockout(heads):
        after = by_hand(llama, "text", 7)
    assert knocked["text"].baseline == pytest.approx(before, abs=1e-4)
    assert knocked["text"].knocked_out == pytest.approx(after, abs=1e-4)
    assert abs(before - after) > 0.01


def by_hand(model: Model, name: str, limit: int) -> float:
    """Mean log-probability a token of passages of text, with transformers alone."""
    means = []
    for item in load_builtin(name).examples(0)[1][:limit]:
        tokens = model.tokenizer(item.continuations[0], return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            predictions = model.hf(tokens).logits[0, :-1].log_softmax(-1)
        means.append(predictions.gather(1, tokens[0, 1:, None]).mean().item())
    return float(np.mean(means))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"knockout": []}, "No heads to knock out were given"),
        ({"knockout": ["L9H0"]}, "no head L9H0; layers 0 to 2 have 4 heads each"),
        ({"limit": 0}, "at least 1 item, not 0"),
        ({"seed": -1}, "must be 0 or more, not -1"),
        ({"batch_size": 0}, "batch size must be auto or at least 1, not 0"),
    ],
)
def test_what_cannot_be_scored(llama: Model, options: dict[str, Any], message: str) -> None:
    with pytest.raises(HeadsieveError, match=message):
        score(llama, ["skill.json"], **options)
