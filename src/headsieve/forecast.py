"""What a study will take: rehearsed with made-up scores, timed by a few real batches."""

from __future__ import annotations

import heapq
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import nnls

from headsieve.errors import HeadsieveError
from headsieve.localization import locate
from headsieve.measure.ablation import Replacement
from headsieve.measure.costs import ModelCosts, Work, kept_bytes, mask_bytes, prompt_bytes
from headsieve.measure.engine import attention_cost, check_masks, lowest_layer
from headsieve.measure.in_process import (
    COMPARED_TOKENS,
    InProcess,
    compared_sequences,
    masks_per_batch,
    rows_at_once,
)
from headsieve.measure.packing import TokenSequence, pack, single
from headsieve.measure.texts import Continuation, Responses, Texts
from headsieve.measure.workers import Batch, BatchSize, Gradient, Measured, Way
from headsieve.provenance import peak_memory
from headsieve.scores import GRADIENT_COST

if TYPE_CHECKING:
    from headsieve.models.loading import Model

# A calibration makes its batches so often, but stops once it has taken so long (seconds).
_ROUNDS = 5
_CALIBRATION = 10.0
# Larger batches are timed as so many masks.
_MOST_MASKS = 256
# How many controls are measured depends on what a search finds, so several are made up.
_REHEARSALS = 4


@dataclass(frozen=True)
class Forecast:
    """What a study is expected to take.

    Attributes
    ----------
    evaluations : int
        On capabilities and controls, verification included.
    tokens : int
        That the model computes.
    flops : float
        Floating-point operations in matrix products.
    flops_per_second : float
        That this machine reached in the calibration.
    seconds : float
        From the loaded model to the finished run folder.
    peak_memory_bytes : int
        Of one process, the model included. Workers on one machine take it each, and the process
        that tells them what to do keeps another copy of the weights.
    device_memory_bytes : int or None
        Of the GPU, where there is one.
    workers : int
        Over which measuring is shared.
    """

    evaluations: int
    tokens: int
    flops: float
    flops_per_second: float
    seconds: float
    peak_memory_bytes: int
    device_memory_bytes: int | None
    workers: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


def forecast(
    model: Model,
    capabilities: Sequence[str | os.PathLike[str]],
    *,
    workers: int = 1,
    **options: Any,
) -> Forecast:
    """Foretell what `locate` will take with the same arguments.

    The study is rehearsed from its first question to its page, four times, with scores that are
    made up, so that the strategy asks about as much as it will; a few real batches say how long the
    model takes. How many controls an adaptive search measures depends on what it finds, so the
    number of evaluations is an estimate too. Where the model must write, it is taken to write as
    much as it may.

    Parameters
    ----------
    model : Model
    capabilities : sequence of str or path
    workers : int
        Replicas that measure, each as fast as this process.
    **options
        As of `locate`.

    Returns
    -------
    Forecast

    Raises
    ------
    HeadsieveError
        If anything that was asked for cannot be done.
    """
    if workers < 1:
        raise HeadsieveError(f"The number of workers must be at least 1, not {workers}.")
    rehearsal = _Rehearsal(model.device.type, workers)
    started = time.perf_counter()
    options = {**options, "workers": rehearsal, "resume": False, "force": True}
    with tempfile.TemporaryDirectory() as place:
        options["out"] = os.path.join(place, "run")
        costs = [locate(model, capabilities, **options).result.cost]
    everything_else = time.perf_counter() - started - rehearsal.calibration
    # Files are written but once; they take as long whatever is found.
    options["out"] = None
    costs += [locate(model, capabilities, **options).result.cost for _ in range(1, _REHEARSALS)]
    on_gpu = model.device.type == "cuda"
    return Forecast(
        evaluations=round(statistics.fmean(cost.evaluations for cost in costs)),
        tokens=round(statistics.fmean(cost.tokens for cost in costs)),
        flops=rehearsal.work.flops / _REHEARSALS,
        flops_per_second=rehearsal.work.flops / max(rehearsal.seconds_of_work, 1e-9),
        seconds=everything_else + rehearsal.seconds / _REHEARSALS,
        peak_memory_bytes=peak_memory() + (0 if on_gpu else rehearsal.more_memory),
        device_memory_bytes=torch.cuda.max_memory_allocated() + rehearsal.more_memory
        if on_gpu
        else None,
        workers=workers,
    )


class _Rehearsal:
    """Workers that make answers up and count what measuring would have taken."""

    def __init__(self, device: str, workers: int) -> None:
        self._device = device
        self._count = workers
        self.work = Work()
        self.seconds = 0.0
        self.seconds_of_work = 0.0
        self.calibration = 0.0
        self._begun = 0
        self._written = 0
        self._kept_already = 0
        self._longest = 0

    @property
    def device(self) -> str:
        """Kind of device that the calibration runs on."""
        return self._device

    def begin(
        self,
        model: Model,
        texts: Mapping[str, Texts],
        replacements: Mapping[str, Replacement],
        batch_size: BatchSize,
    ) -> None:
        """Pack everything, and time a few batches of the first item set and of the largest.

        They are timed once; another rehearsal makes up other answers.
        """
        self._ways: dict[str, Way] = {}
        self._entered: set[str] = set()
        self._make_up(model, texts)
        self._begun += 1
        if self._begun > 1:
            return
        self._model = model
        self._texts = dict(texts)
        self._read = {name: _read(one) for name, one in texts.items()}
        self._costs = ModelCosts(model)
        cost = attention_cost(model)
        self._rows = {
            name: pack(one.sequences, attention_cost=cost) for name, one in self._read.items()
        }
        started = time.perf_counter()
        self._calibrate(replacements, batch_size)
        self.calibration = time.perf_counter() - started

    def _make_up(self, model: Model, texts: Mapping[str, Texts]) -> None:
        rng = np.random.default_rng(self._begun)
        # A few heads matter much and most hardly, as in real models.
        self._nats = {name: rng.pareto(1.5, len(model.geometry)) * 0.1 for name in texts}
        self._margins = {
            name: rng.normal(2, 1.5, len(one.sequences)) for name, one in texts.items()
        }

    def way(self, name: str) -> Way:
        """How an item set will be measured, and what it takes to find out."""
        if name not in self._ways:
            self._ways[name] = self._way(name)
            self._spend([self._trial(name)])
        return self._ways[name]

    def measure(self, batches: Sequence[Batch]) -> Iterator[tuple[int, Measured]]:
        """Make answers up."""
        works = []
        for batch in batches:
            entries = [lowest_layer(self._model.geometry, mask[None]) for mask in batch.masks]
            work = self._batch_work(batch.name, entries)
            if any(entries) and self._reentry and batch.name not in self._entered:
                self._entered.add(batch.name)
                work += self._batch_work(batch.name, [0])
            works.append(work)
        self._spend(works)
        for number, batch in enumerate(batches):
            responses = [self._respond(batch.name, mask) for mask in batch.masks]
            tokens = [self.way(batch.name).tokens] * len(responses)
            yield number, Measured(responses, tokens, 0.0)

    def gradient(self, name: str, slopes: NDArray[np.float64]) -> Gradient:
        """Make a gradient up.

        Of longer rows than before one is computed, too: a backward pass has a peak of memory of
        its own, and not every model has one.
        """
        longest = max(len(row.tokens) for row in self._rows[name])
        if longest > self._longest:
            started = time.perf_counter()
            try:
                # Prompts, read here as texts, have no slope.
                prompts = len(self._texts[name].prompts)
                self._real.gradient(name, np.pad(slopes, (0, prompts)))
            finally:
                self.calibration += time.perf_counter() - started
            self._longest = longest
        work = self._batch_work(name, [0] * GRADIENT_COST)
        self._spend([work])
        return Gradient(self._nats[name], GRADIENT_COST * self.way(name).tokens, 0.0)

    @property
    def more_memory(self) -> int:
        """Bytes that the study will take and the calibration did not.

        Hidden states that it keeps, and keys and values of what it writes.
        """
        if not self._reentry:
            return self._written
        rows = [row for name in self._entered for row in self._rows[name]]
        kept = kept_bytes(self._model, rows, self._memory)
        return max(0, kept - self._kept_already) + self._written

    def _calibrate(self, replacements: Mapping[str, Replacement], batch_size: BatchSize) -> None:
        """Time real batches, and fit seconds to passes and operations of layers and head."""
        model = self._model
        self._real = real = InProcess()
        # Reading tells how fast the model is; writing to the end would take too long.
        real.begin(model, self._read, replacements, batch_size)
        self._batch_size, self._memory = batch_size, model.memory_budget // 2
        names = list(self._read)
        largest = max(names, key=self._load)
        way = real.way(names[0])
        self._packed, self._reentry = way.packed, way.reentry
        if not way.packed:
            self._rows = {name: single(one.sequences) for name, one in self._read.items()}
        lowest = [0, len(model.geometry.layers) // 2]
        times: dict[tuple[str, int], list[float]] = {}
        started = time.perf_counter()
        for number in range(_ROUNDS + 1):
            for name in dict.fromkeys((names[0], largest)):
                size = self._timed(name)
                for layer in lowest:
                    masks = np.zeros((size, len(model.geometry)), dtype=bool)
                    masks[:, [head.layer >= layer for head in model.geometry.heads].index(True)] = 1
                    measured = real.compute(Batch(name, masks))
                    times.setdefault((name, layer), []).append(measured.seconds * size)
            if not number:
                started = time.perf_counter()
            elif time.perf_counter() - started > _CALIBRATION:
                break
        works, seconds = [], []
        for (name, layer), found in times.items():
            size = self._timed(name)
            works.append(_facts(self._reading(name, [layer] * size)))
            # The first one also keeps hidden states.
            seconds.append(float(np.median(found[1:])))
        matrix = np.array(works) / np.array(seconds)[:, None]
        scale = matrix.max(axis=0)
        fitted, _ = nnls(matrix / scale, np.ones(len(seconds)))
        self._seconds_each = fitted / scale
        tried = [row for name in {names[0], largest} for row in self._rows[name]]
        self._kept_already = kept_bytes(model, tried, self._memory) if self._reentry else 0

    def _timed(self, name: str) -> int:
        """Masks of a batch that is timed: half a batch, so that it can be timed more often."""
        return max(1, self._size(name) // 2)

    def _size(self, name: str) -> int:
        prompts = self._texts[name].prompts
        size, memory = self._batch_size, self._memory
        found = masks_per_batch(self._model, self._rows[name], prompts, size, memory)
        return min(found, _MOST_MASKS)

    def _way(self, name: str) -> Way:
        read = sum(len(row.tokens) for row in self._rows[name])
        written = sum(prompt.max_new_tokens for prompt in self._texts[name].prompts)
        return Way(self._size(name), read + written, self._packed, self._reentry)

    def _load(self, name: str) -> float:
        return float(
            self._size(name) * max(mask_bytes(self._model, row) for row in self._rows[name])
        )

    def _batch_work(self, name: str, entries: Sequence[int]) -> Work:
        prompts = self._texts[name].prompts
        rows = rows_at_once(self._model, prompts, self._memory) if prompts else 1
        for prompt in prompts:
            taken = min(rows, len(prompts) * len(entries)) * prompt_bytes(self._model, prompt)
            self._written = max(self._written, taken)
        return self._reading(name, entries) + self._costs.writing(prompts, len(entries), rows)

    def _reading(self, name: str, entries: Sequence[int]) -> Work:
        if not self._reentry:
            entries = [0] * len(entries)
        return sum((self._costs.forward(row, entries) for row in self._rows[name]), start=Work())

    def _trial(self, name: str) -> Work:
        """What is run to find out whether packed rows are exact."""
        geometry, masks = self._model.geometry, check_masks(self._model)
        entries = [lowest_layer(geometry, mask[None]) for mask in masks]
        sequences = self._read[name].sequences
        longest = max(sequences, key=lambda one: len(one.tokens))
        (alone,) = single([longest])
        row = max(self._rows[name], key=lambda row: len(row.tokens))
        row = row.only(compared_sequences(row, sequences), COMPARED_TOKENS)
        forward = self._costs.forward
        once = forward(row, [0]) + forward(row, entries)
        return once + forward(alone, [0] * len(masks)) + forward(alone, [0] * len(masks))

    def _spend(self, works: Sequence[Work]) -> None:
        """Count works that any of the workers may do, each when one is free."""
        free = [0.0] * self._count
        for work in works:
            seconds = float(_facts(work) @ self._seconds_each)
            self.work += work
            self.seconds_of_work += seconds
            heapq.heappush(free, heapq.heappop(free) + seconds)
        self.seconds += max(free)

    def _respond(self, name: str, mask: NDArray[np.bool_]) -> Responses:
        """Right texts lose with the heads that matter, and others win; nothing is written."""
        texts = self._texts[name]
        margin = self._margins[name] - float(self._nats[name][mask].sum())
        is_right = np.isin(np.arange(len(margin)), texts.right)
        log_prob = np.minimum(np.where(is_right, margin, -margin), 0) - 0.3
        said = (Continuation((), "", True),) * len(texts.prompts)
        return Responses(log_prob, margin > 0, margin, said)


def _facts(work: Work) -> NDArray[np.float64]:
    """What seconds are fitted to."""
    return np.array([work.passes, work.layer_flops, work.head_flops])


def _read(texts: Texts) -> Texts:
    """Everything that is read as texts to be scored, prompts with some token after each."""
    prompts = tuple(TokenSequence((*one.tokens, 0), len(one.tokens)) for one in texts.prompts)
    return Texts((*texts.sequences, *prompts))
