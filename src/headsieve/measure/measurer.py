"""The measurer: masks and tasks in, scores out, each measured once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError, NoGradientError
from headsieve.measure.ablation import Replacement
from headsieve.measure.engine import lowest_layer
from headsieve.measure.generation import require_room
from headsieve.measure.in_process import InProcess
from headsieve.measure.items import ItemSet, no_gradient
from headsieve.measure.journal import Entry, Journal, Key
from headsieve.measure.texts import Responses, Texts
from headsieve.measure.workers import Batch, BatchSize, Measured, Way, Workers
from headsieve.scores import GRADIENT_COST, Score

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]


class Measurer:
    """Measures tasks under masks of one model, through a journal.

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
    workers : Workers, optional
        What runs the model; by default this process.

    Raises
    ------
    HeadsieveError
        If an item is longer than the model's positions reach, or heads would have to be replaced
        while the model writes.
    """

    def __init__(
        self,
        model: Model,
        item_sets: Mapping[str, ItemSet],
        journal: Journal,
        *,
        replacements: Mapping[str, Replacement] | None = None,
        batch_size: BatchSize = "auto",
        on_measured: Callable[[str, int], None] | None = None,
        workers: Workers | None = None,
    ) -> None:
        if batch_size != "auto" and batch_size < 1:
            raise HeadsieveError(f"The batch size must be auto or at least 1, not {batch_size}.")
        self.model = model
        self.item_sets = dict(item_sets)
        self.journal = journal
        self._replacements = dict(replacements or {})
        self._on_measured = on_measured
        _check_lengths(model, self.item_sets)
        self._workers = workers or InProcess()
        texts = {
            name: Texts(one.sequences, one.prompts, one.right)
            for name, one in self.item_sets.items()
        }
        self._workers.begin(model, texts, self._replacements, batch_size)
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
        key = self._key(np.zeros(len(geometry), dtype=bool), name, gradient=True)
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
            try:
                found = self._workers.gradient(name, items.slopes(unmodified.log_prob))
            except NoGradientError:
                # A study that is resumed, perhaps with more memory, goes on as it began.
                self.journal.add_gradient(key, name, np.zeros(0), 0, 0.0)
                raise
            gradient = found.values
            seconds = time.perf_counter() - started
            self.journal.add_gradient(key, name, gradient, found.tokens, seconds)
            if self._on_measured is not None:
                self._on_measured(name, GRADIENT_COST)
        if not len(gradient):
            raise NoGradientError("there was none when it was tried first")
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
