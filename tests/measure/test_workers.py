"""Workers: measuring here and through Ray keep one contract, whatever happens to workers."""

from __future__ import annotations

import importlib.util
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headsieve.errors import HeadsieveError
from headsieve.measure.in_process import InProcess
from headsieve.measure.items import GenerationItems, ItemSet, tokenize
from headsieve.measure.journal import Journal
from headsieve.measure.measurer import Measurer
from headsieve.measure.ray_cluster import _largest_share, share_out
from headsieve.measure.ray_workers import RayWorkers, _Job
from headsieve.measure.texts import Prompt, Texts
from headsieve.measure.workers import Batch, Workers
from headsieve.models.loading import Model, Source, load_model
from headsieve.scores import Score
from headsieve.tasks import Item
from tests.tiny import Masks, byte_tokenizer, tiny_model

NEEDS_RAY = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed"
)
WITH_RAY = pytest.param("ray", marks=[NEEDS_RAY, pytest.mark.ray])

ITEMS: dict[str, ItemSet] = {
    "answer": tokenize(
        [Item("ab ->", (" cd\n",)), Item("abc ->", (" d\n",))],
        "q -> r\n",
        "answer",
        byte_tokenizer(),
    ),
    "choice": tokenize(
        [Item("A cat", (" is", " are")), Item("Dogs", (" is", " are", " am"), 1)],
        "",
        "choice",
        byte_tokenizer(),
    ),
    # A judge need not be sent anywhere.
    "written": GenerationItems(
        (Prompt(tuple(b"ab"), 3), Prompt(tuple(b"abc"), 2, ("e",))),
        lambda said: [float(len(one.text) > 1) for one in said],
        "more than one letter",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a folder with the tiny Llama, for workers to load."""
    folder = tmp_path_factory.mktemp("model")
    model = tiny_model("llama")
    model.hf.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def loaded(folder: Path) -> Model:
    """Give the model as workers load it."""
    return load_model(folder, device="cpu")


@pytest.fixture(scope="module")
def notes() -> list[str]:
    """Give what the shared Ray workers told."""
    return []


@pytest.fixture(scope="module")
def ray_workers(folder: Path, notes: list[str]) -> Iterator[RayWorkers]:
    """Give two Ray workers; a cluster takes seconds to start, so all tests share it."""
    with RayWorkers(Source(str(folder), "cpu"), 2, note=notes.append) as workers:
        yield workers


@pytest.fixture(params=["in process", WITH_RAY])
def workers(request: pytest.FixtureRequest) -> Workers:
    """Give workers of either kind."""
    if request.param == "in process":
        return InProcess()
    found: RayWorkers = request.getfixturevalue("ray_workers")
    return found


def measurer(
    model: Model, workers: Workers, items: dict[str, ItemSet] = ITEMS, **more: Any
) -> Measurer:
    return Measurer(model, items, Journal(), workers=workers, **{"batch_size": 2} | more)


def assert_identical(found: list[Score], expected: list[Score]) -> None:
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one.log_prob, other.log_prob)
        np.testing.assert_array_equal(one.value, other.value)
        np.testing.assert_array_equal(one.margin, other.margin)


def many(count: int, heads: int) -> Masks:
    return np.random.default_rng(0).random((count, heads)) < 0.2


def test_scores_are_those_of_one_process(loaded: Model, workers: Workers, masks: Masks) -> None:
    expected = Measurer(loaded, ITEMS, Journal(), batch_size=2).measure_all(masks, list(ITEMS))
    found = measurer(loaded, workers).measure_all(masks, list(ITEMS))
    for name in ITEMS:
        assert_identical(found[name], expected[name])


def test_gradients_are_those_of_one_process(loaded: Model, workers: Workers) -> None:
    expected = Measurer(loaded, ITEMS, Journal()).gradient("answer")
    np.testing.assert_array_equal(measurer(loaded, workers).gradient("answer"), expected)


def test_every_mask_is_journalled_once(loaded: Model, workers: Workers, masks: Masks) -> None:
    told: list[tuple[str, int]] = []
    journal = Journal()
    measuring = Measurer(
        loaded,
        ITEMS,
        journal,
        batch_size=1,
        on_measured=lambda *count: told.append(count),
        workers=workers,
    )
    twice = np.concatenate([masks, masks])
    measuring.measure_all(twice, list(ITEMS))
    measuring.measure_all(masks, list(ITEMS))
    assert journal.totals()[0] == len(masks) * len(ITEMS)
    assert sorted(told) == sorted([(name, 1) for name in ITEMS] * len(masks))


def test_every_batch_is_answered_once(loaded: Model, workers: Workers) -> None:
    workers.begin(loaded, {"answer": Texts(ITEMS["answer"].sequences)}, {}, "auto")
    batches = [Batch("answer", mask[None]) for mask in many(7, len(loaded.geometry))]
    numbers = [number for number, _ in workers.measure(batches)]
    assert sorted(numbers) == list(range(7))


def test_measurements_that_were_made_survive_an_interruption(
    loaded: Model, workers: Workers
) -> None:
    masks = many(6, len(loaded.geometry))
    expected = Measurer(loaded, ITEMS, Journal(), batch_size=1).measure(masks, "answer")
    journal = Journal()

    def interrupt(_name: str, _count: int) -> None:
        if journal.totals()[0] == 3:
            raise KeyboardInterrupt

    def measuring(**more: Any) -> Measurer:
        return Measurer(loaded, ITEMS, journal, batch_size=1, workers=workers, **more)

    with pytest.raises(KeyboardInterrupt):
        measuring(on_measured=interrupt).measure(masks, "answer")
    assert journal.totals()[0] == 3
    assert_identical(measuring().measure(masks, "answer"), expected)
    assert journal.totals()[0] == len(masks)


def test_what_the_model_cannot_take_is_one_sentence(loaded: Model, workers: Workers) -> None:
    with pytest.raises(HeadsieveError, match="batch size must be auto or at least 1"):
        measurer(loaded, workers, batch_size=0)


@NEEDS_RAY
@pytest.mark.ray
def test_a_killed_worker_changes_nothing(
    loaded: Model, ray_workers: RayWorkers, notes: list[str]
) -> None:
    masks = many(24, len(loaded.geometry))
    expected = Measurer(loaded, ITEMS, Journal(), batch_size=1).measure(masks, "answer")
    journal = Journal()
    kills = iter((5, 10, 15))
    next_kill = [next(kills)]

    def kill(_name: str, _count: int) -> None:
        if journal.totals()[0] >= next_kill[0]:
            next_kill[0] = next(kills, 1000)
            ready = [worker for worker in ray_workers._workers if worker.facts is not None]
            assert ready[0].facts is not None
            os.kill(ready[0].facts.pid, signal.SIGKILL)

    measuring = Measurer(
        loaded, ITEMS, journal, batch_size=1, on_measured=kill, workers=ray_workers
    )
    assert_identical(measuring.measure(masks, "answer"), expected)
    assert journal.totals()[0] == len({mask.tobytes() for mask in masks})
    assert any("died" in note for note in notes)


@NEEDS_RAY
@pytest.mark.ray
def test_a_stopped_worker_is_overtaken(
    loaded: Model, ray_workers: RayWorkers, notes: list[str]
) -> None:
    masks = many(8, len(loaded.geometry))
    measuring = measurer(loaded, ray_workers, batch_size=1)
    measuring.measure(masks[:4], "answer")
    while not all(worker.facts for worker in ray_workers._workers):
        ray_workers._collect(None)
    (stopped, *_) = [worker.facts.pid for worker in ray_workers._workers if worker.facts]
    os.kill(stopped, signal.SIGSTOP)
    try:
        found = measuring.measure(masks, "answer")
    finally:
        os.kill(stopped, signal.SIGCONT)
    expected = Measurer(loaded, ITEMS, Journal(), batch_size=1).measure(masks, "answer")
    assert_identical(found, expected)
    assert any("slow" in note for note in notes)


@NEEDS_RAY
@pytest.mark.ray
def test_workers_of_another_model_are_refused(ray_workers: RayWorkers) -> None:
    other = tiny_model("qwen2")
    with pytest.raises(HeadsieveError, match=r"another model .* fingerprint"):
        Measurer(other, ITEMS, Journal(), workers=ray_workers)


@NEEDS_RAY
@pytest.mark.ray
def test_what_a_worker_cannot_load_is_one_sentence(ray_workers: RayWorkers, tmp_path: Path) -> None:
    del ray_workers  # only so that there is a cluster
    with pytest.raises(HeadsieveError, match=r"has no config\.json"):
        RayWorkers(Source(str(tmp_path), "cpu"), 1)


@NEEDS_RAY
@pytest.mark.ray
def test_ray_leaves_random_numbers_alone(ray_workers: RayWorkers, loaded: Model) -> None:
    random.seed(1)
    before = random.getstate()
    measurer(loaded, ray_workers).measure(many(2, len(loaded.geometry)), "answer")
    assert random.getstate() == before


def test_workers_need_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(HeadsieveError, match=r"pip install headsieve\[ray\]"):
        RayWorkers(Source(), 2)
    with pytest.raises(HeadsieveError, match="at least 1, not 0"):
        RayWorkers(Source(), 0)


def test_a_share_is_one_that_all_workers_can_have() -> None:
    assert _largest_share([8, 8], 2) == 8
    assert _largest_share([3, 5], 2) == 3
    assert _largest_share([64], 6) == 10
    with pytest.raises(HeadsieveError, match="too few for 9 workers"):
        _largest_share([4, 4], 9)


def test_without_anyone_left_to_ask_it_ends() -> None:
    """As when one worker has refused for lack of memory, and the other cannot start."""
    workers = RayWorkers.__new__(RayWorkers)
    workers._workers, workers._calls = [], 0
    with pytest.raises(HeadsieveError, match="No worker has enough memory"):
        list(workers._run([_Job("measure", ())], []))


@NEEDS_RAY
@pytest.mark.parametrize(
    ("workers", "device_map", "expected"),
    [(None, None, (8, 1)), (4, None, (4, 1)), (4, "auto", (4, 2)), (1, "auto", (1, 4))],
)
def test_a_model_that_is_spread_has_an_equal_share_of_the_gpus(
    workers: int | None,
    device_map: str | None,
    expected: tuple[int, int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two machines of four GPUs; no worker is spread over both."""
    node = {"Alive": True, "Resources": {"CPU": 32.0, "GPU": 4.0}}
    monkeypatch.setattr("ray.nodes", lambda: [node, node])
    source = Source("meta-llama/Llama-3.3-70B-Instruct", device_map=device_map)
    shares = share_out(source, workers, local=False)
    assert (shares.workers, shares.gpus) == expected
