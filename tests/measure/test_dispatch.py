"""Dispatch: every batch is done once, whatever workers do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headsieve.measure.dispatch import Dispatch


@given(
    batches=st.integers(0, 12),
    workers=st.integers(1, 5),
    fates=st.lists(st.sampled_from(["done", "lost", "refused", "slow"]), max_size=60),
)
def test_every_batch_is_done_once(batches: int, workers: int, fates: list[str]) -> None:
    dispatch = Dispatch([1.0] * batches, [0.01])
    done: list[int] = []
    busy: dict[int, int] = {}
    alive = list(range(workers))
    now = 0.0
    # Then nothing more goes wrong, on a worker that has refused nothing.
    for fate in [*fates, *["done"] * (batches + workers)]:
        now += 10
        for worker in alive:
            if worker not in busy and (taken := dispatch.take(worker, now)):
                busy[worker] = taken[0]
        if not busy:
            break
        worker = next(iter(busy))
        if fate == "slow" and len(busy) > 1:
            continue
        del busy[worker]
        if fate in ("done", "slow"):
            if (number := dispatch.finish(worker, now)) is not None:
                done.append(number)
        else:
            dispatch.give_back(worker, refuse=fate == "refused")
            alive.remove(worker)
            alive.append(max(alive, default=0) + worker + 1)
    assert sorted(done) == list(range(batches))
    assert dispatch.finished


def test_a_slow_batch_is_given_to_one_other_worker() -> None:
    dispatch = Dispatch([1.0, 1.0], pace=[1.0])
    assert dispatch.take("slow", 0) == (0, False)
    assert dispatch.take("fast", 0) == (1, False)
    assert dispatch.finish("fast", 1) == 1
    assert dispatch.take("fast", 2) is None
    assert dispatch.take("fast", 6) == (0, True)
    assert dispatch.take("third", 60) is None
    assert dispatch.finish("fast", 7) == 0
    assert dispatch.finished
    assert dispatch.finish("slow", 99) is None


def test_a_large_batch_is_not_slow_for_taking_longer() -> None:
    dispatch = Dispatch([1.0, 100.0], pace=[1.0])
    dispatch.take("one", 0)
    dispatch.take("two", 0)
    dispatch.finish("one", 1)
    assert dispatch.take("one", 200) is None
    assert dispatch.take("one", 400) == (1, True)


def test_a_batch_does_not_go_back_to_a_worker_that_refused_it() -> None:
    dispatch = Dispatch([1.0], pace=[])
    dispatch.take("small", 0)
    assert dispatch.give_back("small", refuse=True) == 0
    assert dispatch.take("small", 1) is None
    assert dispatch.refused(0) == {"small"}
    assert dispatch.take("large", 1) == (0, False)
