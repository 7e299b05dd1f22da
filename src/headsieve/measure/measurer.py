"""The measurer: masks and tasks in, scores out, each measured once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.engine import Engine, agree, attention_cost, check_masks, lowest_layer
from headsieve.measure.generation import Generator, default_rows, require_room
from headsieve.measure.items import ItemSet, no_gradient
from headsieve.measure.journal import Entry, Journal, Key
from headsieve.measure.memory import halving
from headsieve.measure.packing import Row, TokenSequence, pack, single
from headsieve.measure.texts import Continuation, Prompt, Responses, Texts
from headsieve.measure.workers import Batch, BatchSize, Gradient, Measured, Way, Workers
from headsieve.models.knockout import KnockoutError
from headsieve.scores import GRADIENT_COST, Score

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]

# Tokens a batch may hold when its size is not given: enough to fill the machine.
_TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65536}


@dataclass(frozen=True)
class _Plan:
    """How one item set is computed."""

    rows: list[Row]
    packed: bool
    engine: Engine

    @property
    def tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)


class Measurer:
    """Measures tasks under masks of one model, through a journal.

    Parameters
    ----------
    model : Model
    item_sets : mapping of str to ItemSet
        What can be measured, by name.
    journal : Journal
    batch_size : int or "auto"
        Masks in one forward pass; ``auto`` fits them to the length of the rows.
    on_measured : callable, optional
        Called with the name and the number of new measurements whenever some are finished.
    workers : Workers, optional
        What runs the model; by default this process.

    Raises
    ------
    HeadsieveError
        If an item is longer than the model's positions reach.
    """

    def __init__(
        self,
        model: Model,
        item_sets: Mapping[str, ItemSet],
        journal: Journal,
        *,
        batch_size: BatchSize = "auto",
        on_measured: Callable[[str, int], None] | None = None,
        workers: Workers | None = None,
    ) -> None:
        if batch_size != "auto" and batch_size < 1:
            raise HeadsieveError(f"The batch size must be auto or at least 1, not {batch_size}.")
        self.model = model
        self.item_sets = dict(item_sets)
        self.journal = journal
        self._on_measured = on_measured
        _check_lengths(model, self.item_sets)
        self._workers = workers or InProcess()
        texts = {
            name: Texts(one.sequences, one.prompts, one.right)
            for name, one in self.item_sets.items()
        }
        self._workers.begin(model, texts, batch_size)
        self._ways: dict[str, Way] = {}

    @property
    def packed(self) -> bool:
        """Whether rows share prefixes in all item sets measured so far.

        They do where that gives what plain rows give.
        """
        return all(way.packed for way in self._ways.values())

    @property
    def reentry(self) -> bool:
        """Whether layers below the lowest knocked-out one are skipped, likewise."""
        return all(way.reentry for way in self._ways.values())

    def measure(self, masks: Masks, name: str) -> list[Score]:
        """Scores of one task's items under each mask.

        Parameters
        ----------
        masks : ndarray of bool, shape (masks, heads)
        name : str
            Name of an item set.

        Returns
        -------
        list of Score, one a mask
        """
        return self.measure_all(masks, [name])[name]

    def measure_all(self, masks: Masks, names: Sequence[str]) -> dict[str, list[Score]]:
        """Scores of several tasks' items under each mask.

        Measurements in the journal are not made again. The others are made and kept batch by
        batch; which masks share a batch depends on nothing but the masks still to be measured, so
        an interrupted call continues with the same batches and the same numbers, and any number of
        workers gives those numbers too.

        Parameters
        ----------
        masks : ndarray of bool, shape (masks, heads)
        names : sequence of str
            Names of item sets.

        Returns
        -------
        dict of str to list of Score, one a mask
        """
        keys = {name: [self._key(mask, name) for mask in masks] for name in names}
        known = {key: self.journal.get(key) for name in names for key in keys[name]}
        asked: list[list[Key]] = []
        batches: list[Batch] = []
        for name in names:
            row: dict[Key, NDArray[np.bool_]] = {}
            for key, mask in zip(keys[name], masks, strict=True):
                row.setdefault(key, mask)
            # By the lowest layer they touch, so that a batch can start there.
            missing = sorted(
                (key for key in row if known[key] is None),
                key=lambda key: lowest_layer(self.model.geometry, row[key][None]),
            )
            # Nothing is computed, not even how to compute, where everything is known.
            size = self._way(name).masks_per_batch if missing else 1
            for start in range(0, len(missing), size):
                asked.append(missing[start : start + size])
                batches.append(Batch(name, np.array([row[key] for key in asked[-1]])))
        for number, measured in self._workers.measure(batches):
            name = batches[number].name
            entries = self._scored(asked[number], name, measured)
            self.journal.add(entries)
            known.update((entry.key, entry.score) for entry in entries)
            if self._on_measured is not None:
                self._on_measured(name, len(entries))
        return {
            name: [score for key in keys[name] if (score := known[key]) is not None]
            for name in names
        }

    def responses(self, masks: Masks, name: str) -> list[Responses]:
        """What the model says of one task's items under each mask; the journal is not asked.

        Parameters
        ----------
        masks : ndarray of bool, shape (masks, heads)
        name : str
            Name of an item set.
        """
        ((_, measured),) = self._workers.measure([Batch(name, masks)])
        return measured.responses

    def gradient(self, name: str) -> NDArray[np.float64]:
        """Derivative of a task's search score with respect to a gate on each head.

        For the unmodified model, at gates of one. It takes about as long as three measurements
        and is, like them, kept in the journal.

        Parameters
        ----------
        name : str
            Name of an item set.

        Returns
        -------
        ndarray of float64, shape (heads,)
            In nats.

        Raises
        ------
        HeadsieveError
            If memory does not suffice, or the score does not follow from log-probabilities.
        """
        geometry = self.model.geometry
        key = self._key(np.zeros(len(geometry), dtype=bool), name)
        if geometry.units != "heads":
            # Gates on other units have another gradient.
            key = replace(key, mask=geometry.units)
        gradient = self.journal.gradient(key)
        if gradient is None:
            items = self.item_sets[name]
            if not items.sequences:
                raise no_gradient()
            started = time.perf_counter()
            (unmodified,) = self.responses(np.zeros((1, len(geometry)), dtype=bool), name)
            found = self._workers.gradient(name, items.slopes(unmodified.log_prob))
            gradient = found.values
            seconds = time.perf_counter() - started
            self.journal.add_gradient(key, name, gradient, found.tokens, seconds)
            if self._on_measured is not None:
                self._on_measured(name, GRADIENT_COST)
        return gradient

    def _scored(self, keys: Sequence[Key], name: str, measured: Measured) -> list[Entry]:
        """Score what the model says under a batch's masks."""
        started = time.perf_counter()
        scores = [self.item_sets[name].score(one) for one in measured.responses]
        seconds = measured.seconds + (time.perf_counter() - started) / len(keys)
        return [
            Entry(key, name, score, tokens, seconds)
            for key, score, tokens in zip(keys, scores, measured.tokens, strict=True)
        ]

    def _way(self, name: str) -> Way:
        if name not in self._ways:
            self._ways[name] = self._workers.way(name)
        return self._ways[name]

    def _key(self, mask: NDArray[np.bool_], name: str) -> Key:
        heads = self.model.geometry.heads
        return Key(
            self.model.fingerprint,
            self.item_sets[name].fingerprint,
            self.model.dtype,
            ",".join(str(heads[column]) for column in np.flatnonzero(mask)),
        )


class InProcess:
    """Runs the model in this process."""

    @property
    def device(self) -> str:
        """Kind of device that the model is on."""
        return self.model.device.type

    def begin(self, model: Model, texts: Mapping[str, Texts], batch_size: BatchSize) -> None:
        """Say what will be measured of which model."""
        self.model = model
        self.texts = dict(texts)
        self._batch_size = batch_size
        self._plans: dict[str, _Plan] = {}
        self._generators: dict[str, list[tuple[list[int], Generator]]] = {}
        self._plain = Engine(model, reentry=False)
        self._reentering = Engine(model, reentry=True)

    def way(self, name: str) -> Way:
        """How an item set is measured."""
        plan, prompts = self._plan(name), self.texts[name].prompts
        return Way(
            masks_per_batch(self.model, plan.rows, prompts, self._batch_size),
            self._read_tokens(name) + sum(prompt.max_new_tokens for prompt in prompts),
            plan.packed,
            plan.engine.reentry,
        )

    def measure(self, batches: Sequence[Batch]) -> Iterator[tuple[int, Measured]]:
        """Measure batches in their order."""
        for number, batch in enumerate(batches):
            yield number, self.compute(batch)

    def compute(self, batch: Batch) -> Measured:
        """Measure one batch.

        Raises
        ------
        HeadsieveError
            If the model's log-probabilities are not finite numbers.
        """
        started = time.perf_counter()
        log_prob, greedy, margin = self._sequence_scores(batch)
        if not np.isfinite(log_prob).all():
            raise HeadsieveError(
                f"The model's log-probabilities are not finite numbers; {self._not_finite()}."
            )
        responses = [
            Responses(*one)
            for one in zip(log_prob, greedy, margin, self._continuations(batch), strict=True)
        ]
        read = self._read_tokens(batch.name)
        tokens = [
            read + sum(len(said.tokens) for said in response.continuations)
            for response in responses
        ]
        seconds = (time.perf_counter() - started) / len(batch.masks)
        return Measured(responses, tokens, seconds)

    def gradient(self, name: str, slopes: NDArray[np.float64]) -> Gradient:
        """Gradient of a weighted sum of an item set's log-probabilities."""
        started = time.perf_counter()
        plan = self._plan(name)
        try:
            parts = [plan.engine.gradient(row, slopes[row.sequences]) for row in plan.rows]
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise HeadsieveError(
                f"There is not enough memory for gradients of {name}; do without them "
                "(--prior none)."
            ) from error
        tokens = GRADIENT_COST * plan.tokens
        return Gradient(np.sum(parts, axis=0), tokens, time.perf_counter() - started)

    def _continuations(self, batch: Batch) -> list[tuple[Continuation, ...]]:
        """For each mask, what the model says after each prompt."""
        name, masks = batch.name, batch.masks
        prompts = self.texts[name].prompts
        if name not in self._generators:
            alike: dict[tuple[int, tuple[str, ...]], list[int]] = {}
            for number, prompt in enumerate(prompts):
                alike.setdefault((prompt.max_new_tokens, prompt.stop), []).append(number)
            self._generators[name] = [
                (
                    numbers,
                    Generator(
                        self.model,
                        [prompts[number].tokens for number in numbers],
                        max_new_tokens=most,
                        stop=stop,
                    ),
                )
                for (most, stop), numbers in alike.items()
            ]
        said: list[dict[int, Continuation]] = [{} for _ in masks]
        for numbers, generator in self._generators[name]:
            for found, row in zip(said, generator.generate(masks), strict=True):
                found.update(zip(numbers, row, strict=True))
        return [tuple(found[number] for number in range(len(prompts))) for found in said]

    def _read_tokens(self, name: str) -> int:
        """Tokens computed for one mask, without those that are generated."""
        prompts = sum(len(prompt.tokens) for prompt in self.texts[name].prompts)
        return self._plan(name).tokens + prompts

    def _sequence_scores(
        self, batch: Batch
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
        """Log-probability, greediness and margin, each of shape (masks, sequences)."""
        plan = self._plan(batch.name)
        shape = (len(batch.masks), len(self.texts[batch.name].sequences))
        log_prob = np.zeros(shape)
        greedy = np.ones(shape, dtype=bool)
        margin = np.full(shape, np.inf)
        for row in plan.rows:
            for part, scores in halving(partial(plan.engine.score, row), batch.masks):
                np.add.at(log_prob[part].T, row.sequences, scores.log_prob.T)
                np.logical_and.at(greedy[part].T, row.sequences, scores.greedy.T)
                np.minimum.at(margin[part].T, row.sequences, scores.margin.T)
        return log_prob, greedy, margin

    def _not_finite(self) -> str:
        dtype = self.model.dtype
        if dtype in ("float16", "bfloat16"):
            return f"{dtype} may be too narrow for it: try --dtype float32"
        return f"{dtype} is wide enough, so its weights may be damaged"

    def _plan(self, name: str) -> _Plan:
        """Choose the fastest way to compute an item set that gives what plain rows give."""
        sequences = self.texts[name].sequences
        if not sequences:
            return _Plan([], True, self._reentering)
        if name not in self._plans:
            shared = pack(sequences, attention_cost=attention_cost(self.model))
            plain = single(sequences)
            plans = (
                _Plan(shared, True, self._reentering),
                _Plan(shared, True, self._plain),
                _Plan(plain, False, self._reentering),
            )
            self._plans[name] = next(
                (plan for plan in plans if self._is_exact(plan, sequences)),
                _Plan(plain, False, self._plain),
            )
        return self._plans[name]

    def _is_exact(self, plan: _Plan, sequences: Sequence[TokenSequence]) -> bool:
        """Whether sequences score in a plan's rows what each of them scores alone.

        What an architecture may get wrong grows with the length of the row (attention by place in
        the row) or of the sequence (sliding windows), so the longest of both are tried.
        """
        longest = max(range(len(sequences)), key=lambda number: len(sequences[number].tokens))
        its_row = next(row for row in plan.rows if longest in row.sequences)
        try:
            for row in dict.fromkeys((max(plan.rows, key=_length), its_row)):
                totals = self._totals(plan.engine, row)
                for number in _sample(row, sequences):
                    alone = self._totals(self._plain, *single([sequences[number]]))
                    if not agree(totals[number], alone[0], self.model.dtype):
                        return False
        # An architecture may refuse what it cannot take.
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, KnockoutError):
            return False
        return True

    def _totals(self, engine: Engine, row: Row) -> dict[int, NDArray[np.float64]]:
        """Log-probability of each sequence of a row under two masks."""
        masks = check_masks(self.model)
        parts = [scores.log_prob for _part, scores in halving(partial(engine.score, row), masks)]
        log_prob = np.concatenate(parts)
        return {
            int(number): log_prob[:, row.sequences == number].sum(axis=1)
            for number in np.unique(row.sequences)
        }


def masks_per_batch(
    model: Model, rows: Sequence[Row], prompts: Sequence[Prompt], batch_size: BatchSize
) -> int:
    """Masks that packed rows and prompts are computed under at once: as asked for, or as fit."""
    if batch_size != "auto":
        return batch_size
    sizes = []
    if rows:
        allowed = _TOKENS_PER_BATCH.get(model.device.type, _TOKENS_PER_BATCH["cuda"])
        sizes.append(allowed // max(len(row.tokens) for row in rows))
    if prompts:
        sizes.append(default_rows(model) // len(prompts))
    return max(1, min(sizes, default=1))


def _check_lengths(model: Model, item_sets: Mapping[str, ItemSet]) -> None:
    limit = model.position_limit
    for name, items in item_sets.items():
        longest = max((len(sequence.tokens) for sequence in items.sequences), default=0)
        # The last token is only predicted.
        if limit is not None and longest - 1 > limit:
            raise HeadsieveError(
                f"{name}: an item has {longest} tokens with its prompt, but the model takes at "
                f"most {limit}."
            )
        # Otherwise told only when they are continued, perhaps after a long search.
        for prompt in items.prompts:
            require_room(model, prompt.tokens, prompt.max_new_tokens)


def _sample(row: Row, sequences: Sequence[TokenSequence]) -> list[int]:
    """Two sequences of a row: the last one, farthest from what they share, and the longest."""
    numbers = list(dict.fromkeys(row.sequences.tolist()))
    longest = max(numbers, key=lambda number: len(sequences[number].tokens))
    return list(dict.fromkeys([numbers[-1], longest]))


def _length(row: Row) -> int:
    return len(row.tokens)
