"""Nothing is found where nothing is: at chance a search is refused, whatever the seed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from headsieve.errors import HeadsieveError
from headsieve.localization import locate
from headsieve.models.loading import Model
from tests.taskfiles import WORDS

RUNS = 20
# A model that guesses is above chance by luck once in a while.
MOST_FOUND = 1


def write_guesses(path: Path) -> str:
    """Write questions whose answers were drawn at random."""
    rng = random.Random(0)
    rows = [
        {"prompt": f"{one} {other}", "choices": ["yes", "no", "may"], "answer": rng.randrange(3)}
        for one in WORDS
        for other in rng.sample(WORDS, 4)
    ]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


def write_shuffled(path: Path) -> str:
    """Write words and outputs that belong to others."""
    outputs = random.Random(0).sample(WORDS, len(WORDS))
    rows = [{"input": word, "output": output} for word, output in zip(WORDS, outputs, strict=True)]
    path.write_text(json.dumps(rows), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("write", [write_guesses, write_shuffled])
def test_a_capability_at_chance_is_refused(llama: Model, tmp_path: Path, write: object) -> None:
    assert callable(write)
    task = write(tmp_path / "skill.json")
    reasons = []
    for seed in range(RUNS):
        try:
            locate(llama, [task], controls=["text"], budget=20, heads=2, seed=seed, limit=20)
        except HeadsieveError as error:
            reasons.append(str(error))
    assert len(reasons) >= RUNS - MOST_FOUND
    assert all("too little to localize" in reason for reason in reasons)
