"""Many workers through Ray: each holds a replica of the model, takes masks and sends answers."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError, first_line
from headsieve.measure.ablation import Replacement
from headsieve.measure.dispatch import Dispatch
from headsieve.measure.ray_cluster import connect, share_out
from headsieve.measure.replica import Facts, Replica
from headsieve.measure.texts import Texts
from headsieve.measure.workers import Batch, BatchSize, Gradient, Measured, Way

if TYPE_CHECKING:
    from headsieve.models.heads import Units
    from headsieve.models.loading import Model, Source

# How often (seconds) it is looked whether a worker has become slow.
_LOOK_EVERY = 1.0
# So many workers may die of the same masks, or one after the other while they load.
_MOST_DEATHS = 5
# Seconds without any worker after which the user is told.
_PATIENCE = 60.0


_TOO_LITTLE_MEMORY = (
    "No worker has enough memory for what it is asked; use fewer workers on a machine, a smaller "
    "--dtype or a smaller model."
)


@dataclass(eq=False)
class _Worker:
    """One actor, and what it was last asked."""

    name: str
    actor: Any
    ref: Any
    # None while it loads; afterwards the call and the number of the batch it computes.
    job: tuple[int, int] | None = None
    facts: Facts | None = None
    busy: bool = True


@dataclass(frozen=True)
class _Job:
    """A method of a replica, its arguments, and how much there is to do."""

    method: str
    arguments: tuple[Any, ...]
    work: float = 1.0


class RayWorkers:
    """Workers in processes of their own, on this machine or on a cluster.

    Use it as a context manager: leaving it ends the workers and, where it was started for them,
    the cluster. A worker that dies is replaced; what it was computing, and what a slow one takes
    too long for, is computed elsewhere, and only the first answer counts.

    Parameters
    ----------
    source : Source
        What every worker loads.
    count : int, optional
        Workers; by default one for each GPU of the cluster, or for each of its machines.
    address : str, optional
        Of a Ray cluster, or ``auto``; without it a cluster is started on this machine.
    note : callable, optional
        Is told in sentences what happens to workers.

    Raises
    ------
    HeadsieveError
        If Ray is not installed or does not start, if the cluster has too little for so many
        workers, or if a worker cannot load the model.
    """

    def __init__(
        self,
        source: Source,
        count: int | None = None,
        *,
        address: str | None = None,
        note: Callable[[str], None] = lambda _text: None,
    ) -> None:
        if count is not None and count < 1:
            raise HeadsieveError(f"The number of workers must be at least 1, not {count}.")
        if importlib.util.find_spec("ray") is None:
            raise HeadsieveError(
                "Several workers need the package ray; install it with: pip install headsieve[ray]"
            )
        self._note = note
        # What a replica is told that starts later.
        self._begun: tuple[Units, dict[str, Texts], dict[str, Replacement], BatchSize] = (
            "heads",
            {},
            {},
            "auto",
        )
        self._ways: dict[str, Way] = {}
        self._pace: list[float] = []
        self._calls = 0
        self._started = 0
        self._deaths = 0
        self._facts: Facts | None = None
        self._workers: list[_Worker] = []
        self._owns_cluster = connect(address, count)
        try:
            ours = self._owns_cluster and address is None
            shares = share_out(source, count, local=ours)
            self._options = {"num_cpus": shares.cpus, "num_gpus": shares.gpus}
            self._threads, self._source = shares.threads, replace(source, memory=shares.memory)
            for _ in range(shares.workers):
                self._start()
            self._wait_for_the_first()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, and the cluster if it was started for them."""
        import ray

        for worker in self._workers:
            with contextlib.suppress(Exception):  # whatever is gone already
                ray.kill(worker.actor)
        self._workers = []
        if self._owns_cluster:
            ray.shutdown()
            self._owns_cluster = False

    @property
    def dtype(self) -> str:
        """Type in which the workers compute."""
        assert self._facts is not None
        return self._facts.dtype

    @property
    def device(self) -> str:
        """Kind of device on which they do."""
        assert self._facts is not None
        return self._facts.device.partition(":")[0]

    def begin(
        self,
        model: Model,
        texts: Mapping[str, Texts],
        replacements: Mapping[str, Replacement],
        batch_size: BatchSize,
    ) -> None:
        """Send the texts to all workers.

        Raises
        ------
        HeadsieveError
            If the workers hold another model.
        """
        assert self._facts is not None
        for what, theirs, ours in (
            ("fingerprint", self._facts.fingerprint, model.fingerprint),
            ("dtype", self._facts.dtype, model.dtype),
        ):
            if theirs != ours:
                raise HeadsieveError(
                    f"The workers hold another model than this process: its {what} is {theirs} "
                    f"there and {ours} here."
                )
        self._ways = {}
        self._begun = (model.geometry.units, dict(texts), dict(replacements), batch_size)
        for worker in self._workers:
            worker.actor.begin.remote(*self._begun)

    def way(self, name: str) -> Way:
        """How an item set is measured, as a worker finds out."""
        if name not in self._ways:
            ((_, way),) = self._run([_Job("way", (name,))], [])
            self._ways[name] = way
        return self._ways[name]

    def measure(self, batches: Sequence[Batch]) -> Iterator[tuple[int, Measured]]:
        """Measure batches on whatever workers are free; yields them as they finish."""
        jobs = [
            _Job("compute", (batch,), len(batch.masks) * self.way(batch.name).tokens)
            for batch in batches
        ]
        yield from self._run(jobs, self._pace)

    def gradient(self, name: str, slopes: NDArray[np.float64]) -> Gradient:
        """Gradient of a weighted sum of an item set's log-probabilities, from one worker."""
        ((_, found),) = self._run([_Job("gradient", (name, slopes))], [])
        gradient: Gradient = found
        return gradient

    def _run(self, jobs: Sequence[_Job], pace: list[float]) -> Iterator[tuple[int, Any]]:
        """Have every job done once; yields its number and what it gave."""
        call = _Call(Dispatch([job.work for job in jobs], pace), self._calls)
        self._calls += 1
        while not call.dispatch.finished:
            for worker in self._workers:
                if worker.busy or (taken := call.dispatch.take(worker, time.monotonic())) is None:
                    continue
                number, again = taken
                if again:
                    self._note(f"A worker is slow; {worker.name} measures the same masks.")
                worker.job, worker.busy = (call.number, number), True
                worker.ref = getattr(worker.actor, jobs[number].method).remote(
                    *jobs[number].arguments
                )
            # All that are left have refused what is left, and those that had not are gone.
            if not any(worker.busy for worker in self._workers):
                raise HeadsieveError(_TOO_LITTLE_MEMORY)
            yield from self._collect(call)

    def _collect(self, call: _Call | None) -> list[tuple[int, Any]]:
        """Wait for some worker's answer, at most for a while; what was new among the answers."""
        import ray

        found: list[tuple[int, Any]] = []
        by_ref = {worker.ref: worker for worker in self._workers if worker.busy}
        ready, _ = ray.wait(list(by_ref), num_returns=1, timeout=_LOOK_EVERY)
        for ref in ready:
            worker = by_ref[ref]
            ours = call if call and worker.job and worker.job[0] == call.number else None
            try:
                answer = ray.get(ref)
            except ray.exceptions.RayTaskError as error:
                worker.busy = False
                self._failed(worker, ours, error.cause)
            except ray.exceptions.RayError as error:
                self._lost(worker, ours, error)
            else:
                worker.busy = False
                if worker.facts is None:
                    self._loaded(worker, answer)
                # What an earlier call asked for was measured elsewhere.
                elif (
                    ours and (number := ours.dispatch.finish(worker, time.monotonic())) is not None
                ):
                    found.append((number, answer))
        return found

    def _wait_for_the_first(self) -> None:
        """The others may join later."""
        started, told = time.monotonic(), False
        while self._facts is None:
            self._collect(None)
            if not told and time.monotonic() - started > _PATIENCE:
                told = True
                self._note("No worker is ready yet; the cluster may be busy, or loading is slow.")

    def _start(self) -> None:
        import ray

        self._started += 1
        actor = ray.remote(Replica).options(max_restarts=0, **self._options).remote()
        ref = actor.load.remote(self._source, self._threads)
        # Calls are answered in order: this one is, before anything is measured.
        actor.begin.remote(*self._begun)
        self._workers.append(_Worker(f"worker {self._started}", actor, ref))

    def _loaded(self, worker: _Worker, facts: Facts) -> None:
        if self._facts is None:
            self._facts = facts
        if facts.fingerprint != self._facts.fingerprint or facts.dtype != self._facts.dtype:
            raise HeadsieveError(
                f"{worker.name} on {facts.host} loaded other weights (fingerprint "
                f"{facts.fingerprint} in {facts.dtype}) than the first one "
                f"({self._facts.fingerprint} in {self._facts.dtype}); give all machines the same "
                "model."
            )
        worker.facts = facts
        self._deaths = 0
        self._note(
            f"{worker.name} is ready: process {facts.pid} on {facts.host}, {facts.device}, "
            f"{facts.threads} threads."
        )

    def _failed(self, worker: _Worker, call: _Call | None, error: Exception) -> None:
        """A worker is alive but could not do what it was asked."""
        if worker.facts is not None and call is None:
            return
        if worker.facts is None and any(other.facts for other in self._workers):
            self._workers.remove(worker)
            self._note(f"{worker.name} cannot start, so there is one fewer: {first_line(error)}")
            return
        if isinstance(error, MemoryError) and call is not None:
            number = call.dispatch.give_back(worker, refuse=True)
            if number is None:
                return
            if not all(other in call.dispatch.refused(number) for other in self._workers):
                self._note(f"{worker.name} ran out of memory; another one measures those masks.")
                return
            raise HeadsieveError(_TOO_LITTLE_MEMORY) from error
        if isinstance(error, HeadsieveError):
            raise error
        raise HeadsieveError(
            f"{worker.name} failed: {type(error).__name__}: {first_line(error)}"
        ) from error

    def _lost(self, worker: _Worker, call: _Call | None, error: Exception) -> None:
        """A worker's process or machine is gone."""
        self._workers.remove(worker)
        if worker.facts is None:
            self._deaths += 1
            deaths = self._deaths
        elif call and (number := call.dispatch.give_back(worker)) is not None:
            call.deaths[number] = deaths = call.deaths.get(number, 0) + 1
        else:
            deaths = 0
        if deaths >= _MOST_DEATHS:
            raise HeadsieveError(
                f"{deaths} workers died one after the other, most likely of too little memory; use "
                f"fewer workers on a machine. Ray says: {first_line(error)}"
            ) from error
        self._note(f"{worker.name} died; what it was doing is done again, and another one starts.")
        self._start()


@dataclass
class _Call:
    """One call's batches, its number, and how many workers died of each batch."""

    dispatch: Dispatch
    number: int
    deaths: dict[int, int] = field(default_factory=dict)
