"""The measurer: masks and tasks in, scores out, each measured once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.ablation import Replacement
from headsieve.measure.engine import Engine, agree, attention_cost, check_masks, lowest_layer
from headsieve.measure.items import ItemSet
from headsieve.measure.journal import Entry, Journal, Key
from headsieve.measure.memory import halving
from headsieve.measure.packing import Row, TokenSequence, pack, single
from headsieve.models.knockout import KnockoutError, LayerOutputs
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


class Measurer:
    """Measures tasks under masks with one model, through a journal.

    Parameters
    ----------
    model : Model
    item_sets : mapping of str to ItemSet
        What can be measured, by name.
    journal : Journal
    replacements : mapping of str to Replacement, optional
        What knocked-out heads give in an item set; zero where there is none.
    batch_size : int or "auto"
        Masks in one forward pass; ``auto`` fits them to the length of the rows.
    on_measured : callable, optional
        Called with the name and the number of new measurements whenever some are finished.

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
        replacements: Mapping[str, Replacement] | None = None,
        batch_size: int | Literal["auto"] = "auto",
        on_measured: Callable[[str, int], None] | None = None,
    ) -> None:
        if batch_size != "auto" and batch_size < 1:
            raise HeadsieveError(f"The batch size must be auto or at least 1, not {batch_size}.")
        self.model = model
        self.item_sets = dict(item_sets)
        self.journal = journal
        self._replacements = dict(replacements or {})
        self._outputs: dict[str, LayerOutputs] = {}
        self._batch_size = batch_size
        self._on_measured = on_measured
        self._plans: dict[str, _Plan] = {}
        self._plain = Engine(model, reentry=False)
        self._reentering = Engine(model, reentry=True)
        _check_lengths(model, self.item_sets)

    @property
    def packed(self) -> bool:
        """Whether rows share prefixes in all item sets measured so far.

        They do where that gives what plain rows give.
        """
        return all(plan.packed for plan in self._plans.values())

    @property
    def reentry(self) -> bool:
        """Whether layers below the lowest knocked-out one are skipped, likewise."""
        return all(plan.engine.reentry for plan in self._plans.values())

    def measure(self, masks: Masks, name: str) -> list[Score]:
        """Scores of one task's items under each mask.

        Measurements in the journal are not made again. The others are made and kept batch by
        batch; which masks share a batch depends on nothing but the masks still to be measured, so
        an interrupted call continues with the same batches and the same numbers.

        Parameters
        ----------
        masks : ndarray of bool, shape (masks, heads)
        name : str
            Name of an item set.

        Returns
        -------
        list of Score, one a mask
        """
        keys = [self._key(mask, name) for mask in masks]
        known = {key: self.journal.get(key) for key in keys}
        first_row = {key: number for number, key in reversed(list(enumerate(keys)))}
        # By the lowest layer they touch, so that a batch can start there.
        missing = sorted(
            (key for key, score in known.items() if score is None),
            key=lambda key: lowest_layer(self.model.geometry, masks[[first_row[key]]]),
        )
        # Nothing is computed, not even how to compute, where everything is known.
        size = self._masks_per_batch(name) if missing else 1
        for start in range(0, len(missing), size):
            batch = missing[start : start + size]
            entries = self._measured(batch, masks[[first_row[key] for key in batch]], name)
            self.journal.add(entries)
            known.update((entry.key, entry.score) for entry in entries)
            if self._on_measured is not None:
                self._on_measured(name, len(entries))
        return [score for key in keys if (score := known[key]) is not None]

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
            If memory does not suffice.
        """
        nothing = np.zeros((1, len(self.model.geometry)), dtype=bool)
        key = self._key(nothing[0], name, gradient=True)
        gradient = self.journal.gradient(key)
        if gradient is None:
            started = time.perf_counter()
            plan, items = self._plan(name), self.item_sets[name]
            log_prob, _, _ = self._sequence_scores(plan, nothing, name)
            slopes = items.slopes(log_prob[0])
            compute = partial(plan.engine.gradient, replacement=self._replacement(name))
            try:
                parts = [compute(row, slopes[row.sequences]) for row in plan.rows]
            except (torch.OutOfMemoryError, MemoryError) as error:
                raise HeadsieveError(
                    f"There is not enough memory for gradients of {name}; do without them "
                    "(--prior none)."
                ) from error
            gradient = np.sum(parts, axis=0)
            tokens = GRADIENT_COST * sum(len(row.tokens) for row in plan.rows)
            self.journal.add_gradient(key, name, gradient, tokens, time.perf_counter() - started)
            if self._on_measured is not None:
                self._on_measured(name, GRADIENT_COST)
        return gradient

    def _measured(self, keys: Sequence[Key], masks: Masks, name: str) -> list[Entry]:
        started = time.perf_counter()
        plan = self._plan(name)
        scores = self._score(plan, masks, name)
        seconds = (time.perf_counter() - started) / len(keys)
        tokens = sum(len(row.tokens) for row in plan.rows)
        return [
            Entry(key, name, score, tokens, seconds)
            for key, score in zip(keys, scores, strict=True)
        ]

    def _score(self, plan: _Plan, masks: Masks, name: str) -> list[Score]:
        log_prob, greedy, margin = self._sequence_scores(plan, masks, name)
        if not np.isfinite(log_prob).all():
            raise HeadsieveError(
                f"The model's log-probabilities are not finite numbers; {self._not_finite()}."
            )
        items = self.item_sets[name]
        return [items.score(*scores) for scores in zip(log_prob, greedy, margin, strict=True)]

    def _sequence_scores(
        self, plan: _Plan, masks: Masks, name: str
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
        """Log-probability, greediness and margin, each of shape (masks, sequences)."""
        shape = (len(masks), len(self.item_sets[name].sequences))
        log_prob, greedy, margin = (
            np.zeros(shape),
            np.ones(shape, dtype=bool),
            np.full(shape, np.inf),
        )
        replacement = self._replacement(name)
        for row in plan.rows:
            score = partial(plan.engine.score, row, replacement=replacement)
            for part, scores in halving(score, masks):
                np.add.at(log_prob[part].T, row.sequences, scores.log_prob.T)
                np.logical_and.at(greedy[part].T, row.sequences, scores.greedy.T)
                np.minimum.at(margin[part].T, row.sequences, scores.margin.T)
        return log_prob, greedy, margin

    def _not_finite(self) -> str:
        dtype = self.model.dtype
        if dtype in ("float16", "bfloat16"):
            return f"{dtype} may be too narrow for it: try --dtype float32"
        return f"{dtype} is wide enough, so its weights may be damaged"

    def _masks_per_batch(self, name: str) -> int:
        if self._batch_size != "auto":
            return self._batch_size
        longest = max(len(row.tokens) for row in self._plan(name).rows)
        allowed = _TOKENS_PER_BATCH.get(self.model.device.type, _TOKENS_PER_BATCH["cuda"])
        return max(1, allowed // longest)

    def _plan(self, name: str) -> _Plan:
        """Choose the fastest way to compute an item set that gives what plain rows give."""
        if name not in self._plans:
            sequences = self.item_sets[name].sequences
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

    def _replacement(self, name: str) -> LayerOutputs | None:
        """What knocked-out heads give in an item set; its search and held-out items share it."""
        replacement = self._replacements.get(name)
        if replacement is None:
            return None
        if replacement.label not in self._outputs:
            self._outputs[replacement.label] = replacement.outputs(self.model)
        return self._outputs[replacement.label]

    def _key(self, mask: NDArray[np.bool_], name: str, *, gradient: bool = False) -> Key:
        heads = self.model.geometry.heads
        # Of the unmodified model nothing is replaced, but a gradient says what would be.
        replacement = self._replacements.get(name) if gradient or mask.any() else None
        return Key(
            self.model.fingerprint,
            self.item_sets[name].fingerprint,
            self.model.dtype,
            ",".join(str(heads[column]) for column in np.flatnonzero(mask)),
            *([] if replacement is None else [replacement.label]),
        )


def _check_lengths(model: Model, item_sets: Mapping[str, ItemSet]) -> None:
    limit = model.position_limit
    for name, items in item_sets.items():
        longest = max(len(sequence.tokens) for sequence in items.sequences)
        # The last token is only predicted.
        if limit is not None and longest - 1 > limit:
            raise HeadsieveError(
                f"{name}: an item has {longest} tokens with its prompt, but the model takes at "
                f"most {limit}."
            )


def _sample(row: Row, sequences: Sequence[TokenSequence]) -> list[int]:
    """Two sequences of a row: the last one, farthest from what they share, and the longest."""
    numbers = list(dict.fromkeys(row.sequences.tolist()))
    longest = max(numbers, key=lambda number: len(sequences[number].tokens))
    return list(dict.fromkeys([numbers[-1], longest]))


def _length(row: Row) -> int:
    return len(row.tokens)
