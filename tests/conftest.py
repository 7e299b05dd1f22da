"""Fixtures: tiny models, and a check that no test leaves a hook on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hypothesis
import numpy as np
import pytest

from headsieve.models.loading import Model
from tests.taskfiles import write_task
from tests.tiny import CONFIGS, MakeModel, Masks, count_hooks, tiny_model

# A busy machine is slow, which is no fault of what is tested.
hypothesis.settings.register_profile("headsieve", deadline=None)
hypothesis.settings.load_profile("headsieve")


@pytest.fixture(scope="session")
def make_model() -> MakeModel:
    """Give the models: `make_model(family, attention)`. Leave them as they were."""
    return tiny_model


@pytest.fixture(scope="session", params=CONFIGS)
def model(request: pytest.FixtureRequest) -> Model:
    """Give one model of each family in turn."""
    return tiny_model(request.param)


@pytest.fixture(scope="session")
def llama() -> Model:
    """Give the Llama model alone, for what does not depend on the family."""
    return tiny_model("llama")


@pytest.fixture
def masks() -> Masks:
    """Four masks: no head, one head, some heads of every layer, all heads of the last layer."""
    masks = np.zeros((4, 12), dtype=bool)
    masks[1, 5] = True
    masks[2, [0, 3, 6, 8, 9]] = True
    masks[3, -4:] = True
    return masks


@pytest.fixture(autouse=True)
def no_hook_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check after every test that the shared models bear no hooks."""
    yield
    for name in ("model", "llama"):
        if name in request.fixturenames:
            assert count_hooks(request.getfixturevalue(name).hf) == 0


@pytest.fixture
def two_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with the two task files of `tests.studies`."""
    monkeypatch.chdir(tmp_path)
    write_task(Path("skill.json"))
    write_task(Path("other.json"), "?")
