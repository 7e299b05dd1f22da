"""The measurer: masks and tasks in, scores out, each measured once."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.engine import Engine, lowest_layer
from headsieve.measure.items import ItemSet
from headsieve.measure.journal import Entry, Journal, Key
from headsieve.measure.packing import Row, TokenSequence, pack, single
from headsieve.scores import Score

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]

# Tokens a batch may hold when its size is not given: enough to fill the machine.
_TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 65536}
# By how much a sequence's log-probability may differ by rounding alone, in nats. Where a shorter
# way to compute it differs by more, that way is not taken.
_TOLERANCE = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
_SAMPLE = 4


class Measurer:
    """Measures tasks under masks with one model, through a journal.

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

    Attributes
    ----------
    packed : bool
        Whether rows share prefixes: whether that gives what plain rows give.
    reentry : bool
        Whether layers below the lowest knocked-out one are skipped: whether that gives the same.
    """

    def __init__(
        self,
        model: Model,
        item_sets: Mapping[str, ItemSet],
        journal: Journal,
        *,
        batch_size: int | Literal["auto"] = "auto",
        on_measured: Callable[[str, int], None] | None = None,
    ) -> None:
        if batch_size != "auto" and batch_size < 1:
            raise HeadsieveError(f"The batch size must be auto or at least 1, not {batch_size}.")
        self.model = model
        self.item_sets = dict(item_sets)
        self.journal = journal
        self._batch_size = batch_size
        self._on_measured = on_measured
        self._rows: dict[str, list[Row]] = {}
        self._engine = Engine(model, reentry=False)
        self.packed = _works(self._packing_is_exact)
        self.reentry = _works(self._reentry_is_exact)
        self._engine = Engine(model, reentry=self.reentry)

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
        size = self._masks_per_batch(name)
        for start in range(0, len(missing), size):
            batch = missing[start : start + size]
            entries = self._measured(batch, masks[[first_row[key] for key in batch]], name)
            self.journal.add(entries)
            known.update((entry.key, entry.score) for entry in entries)
            if self._on_measured is not None:
                self._on_measured(name, len(entries))
        return [score for key in keys if (score := known[key]) is not None]

    def _measured(self, keys: Sequence[Key], masks: Masks, name: str) -> list[Entry]:
        started = time.perf_counter()
        rows = self._packed_rows(name)
        scores = self._score(rows, masks, self.item_sets[name])
        seconds = (time.perf_counter() - started) / len(keys)
        tokens = sum(len(row.tokens) for row in rows)
        return [
            Entry(key, name, score, tokens, seconds)
            for key, score in zip(keys, scores, strict=True)
        ]

    def _score(self, rows: Sequence[Row], masks: Masks, items: ItemSet) -> list[Score]:
        log_prob = np.zeros((len(masks), len(items.sequences)))
        greedy = np.ones((len(masks), len(items.sequences)), dtype=bool)
        margin = np.full((len(masks), len(items.sequences)), np.inf)
        for row in rows:
            for part, scores in self._halving(row, masks):
                np.add.at(log_prob[part].T, row.sequences, scores.log_prob.T)
                np.logical_and.at(greedy[part].T, row.sequences, scores.greedy.T)
                np.minimum.at(margin[part].T, row.sequences, scores.margin.T)
        if not np.isfinite(log_prob).all():
            raise HeadsieveError(
                f"The model's log-probabilities are not finite numbers; {self.model.dtype} may be "
                "too narrow for it: try --dtype float32."
            )
        return [items.score(*scores) for scores in zip(log_prob, greedy, margin, strict=True)]

    def _halving(self, row: Row, masks: Masks):  # type: ignore[no-untyped-def]
        """Score a row under all masks, in ever smaller batches if memory runs out."""
        size = len(masks)
        start = 0
        while start < len(masks):
            part = slice(start, start + size)
            try:
                scores = self._engine.score(row, masks[part])
            except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
                if not _is_out_of_memory(error) or size == 1:
                    raise
                size = (size + 1) // 2
                gc.collect()
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                continue
            yield part, scores
            start += size

    def _masks_per_batch(self, name: str) -> int:
        if self._batch_size != "auto":
            return self._batch_size
        longest = max(len(row.tokens) for row in self._packed_rows(name))
        allowed = _TOKENS_PER_BATCH.get(self.model.device.type, _TOKENS_PER_BATCH["cuda"])
        return max(1, allowed // longest)

    def _packed_rows(self, name: str) -> list[Row]:
        if name not in self._rows:
            sequences = self.item_sets[name].sequences
            self._rows[name] = (
                pack(sequences, attention_cost=self._attention_cost())
                if self.packed
                else single(sequences)
            )
        return self._rows[name]

    def _attention_cost(self) -> float:
        """Cost of a query-key pair against that of a token's matrix products."""
        pair = sum(4 * layer.heads * layer.head_dim for layer in self.model.geometry.layers)
        token = 2 * sum(
            parameter.numel() for parameter in self.model.hf.parameters() if parameter.dim() == 2
        )
        # Masked attention reaches about two thirds of the speed of a plain matrix product.
        return float(1.5 * pair / token)

    def _sample(self) -> list[TokenSequence]:
        """A few sequences of every item set, the longest of all among them."""
        sequences = [
            sequence
            for items in self.item_sets.values()
            for sequence in (*items.sequences[:2], max(items.sequences, key=_length))
        ]
        return sorted(sequences, key=_length)[-_SAMPLE:]

    def _packing_is_exact(self) -> bool:
        sample = self._sample()
        nothing = np.zeros((1, len(self.model.geometry)), dtype=bool)
        packed = self._totals(pack(sample, attention_cost=0.0), nothing, self._engine)
        return self._agree(packed, self._totals(single(sample), nothing, self._engine))

    def _reentry_is_exact(self) -> bool:
        sample = self._sample()
        rows = pack(sample, attention_cost=0.0) if self.packed else single(sample)
        # A head in the middle: layers are skipped below it and computed above it.
        mask = np.zeros((1, len(self.model.geometry)), dtype=bool)
        mask[0, len(self.model.geometry) // 2] = True
        started_within = self._totals(rows, mask, Engine(self.model, reentry=True))
        return self._agree(started_within, self._totals(rows, mask, self._engine))

    def _totals(self, rows: Sequence[Row], masks: Masks, engine: Engine) -> NDArray[np.float64]:
        """Log-probabilities of the sample's sequences."""
        total = np.zeros(_SAMPLE)
        for row in rows:
            np.add.at(total, row.sequences, engine.score(row, masks).log_prob[0])
        return total

    def _agree(self, one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
        tolerance = _TOLERANCE.get(self.model.dtype, _TOLERANCE["bfloat16"])
        return bool(np.abs(one - other).max() < tolerance)

    def _key(self, mask: NDArray[np.bool_], name: str) -> Key:
        heads = self.model.geometry.heads
        return Key(
            self.model.fingerprint,
            self.item_sets[name].fingerprint,
            self.model.dtype,
            ",".join(str(heads[column]) for column in np.flatnonzero(mask)),
        )


def _works(check: Callable[[], bool]) -> bool:
    """Whether a check holds; an architecture may refuse what it cannot take."""
    try:
        return check()
    except (RuntimeError, TypeError, ValueError, IndexError):
        return False


def _length(sequence: TokenSequence) -> int:
    return len(sequence.tokens)


def _is_out_of_memory(error: BaseException) -> bool:
    return (
        isinstance(error, (torch.OutOfMemoryError, MemoryError))
        or "not enough memory" in str(error).lower()
        or "out of memory" in str(error).lower()
    )
