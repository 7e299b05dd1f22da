"""Running the model in this process: packed rows, shared prefixes, the right way for the model."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError, NoGradientError, first_line
from headsieve.measure.ablation import Replacement
from headsieve.measure.costs import gradient_bytes, logit_bytes, mask_bytes, prompt_bytes
from headsieve.measure.engine import Engine, agree, attention_cost, check_masks
from headsieve.measure.generation import Generator, default_rows
from headsieve.measure.memory import halving
from headsieve.measure.packing import Row, TokenSequence, pack, single
from headsieve.measure.texts import Continuation, Prompt, Responses, Texts
from headsieve.measure.workers import Batch, BatchSize, Gradient, Measured, Way
from headsieve.models.knockout import KnockoutError, LayerOutputs
from headsieve.scores import GRADIENT_COST

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]


# What a batch may hold when its size is not given: enough tokens to fill the machine, and no more
# logits than that (with many words, they are most of what a batch takes).
_TOKENS_PER_BATCH = {"cpu": 4096, "cuda": 65536}
_LOGIT_BYTES_PER_BATCH = {"cpu": 1 << 29, "cuda": 1 << 32}
# Of a sequence that tells whether a row is exact, so many last tokens are compared: they hang on
# all before them, and a whole text's would take many logits.
COMPARED_TOKENS = 32


@dataclass(frozen=True)
class _Plan:
    """How one item set is computed."""

    rows: list[Row]
    packed: bool
    engine: Engine

    @property
    def tokens(self) -> int:
        return sum(len(row.tokens) for row in self.rows)


class InProcess:
    """Runs the model in this process."""

    @property
    def device(self) -> str:
        """Kind of device that the model is on."""
        return self.model.device.type

    def begin(
        self,
        model: Model,
        texts: Mapping[str, Texts],
        replacements: Mapping[str, Replacement],
        batch_size: BatchSize,
    ) -> None:
        """Say what will be measured of which model."""
        self.model = model
        self.texts = dict(texts)
        self._replacements = dict(replacements)
        self._outputs: dict[str, LayerOutputs] = {}
        self._batch_size = batch_size
        # One half for a batch, the other for the hidden states that are kept.
        self._memory = model.memory_budget // 2
        self._plans: dict[str, _Plan] = {}
        self._generators: dict[str, list[tuple[list[int], Generator]]] = {}
        self._plain = Engine(model, reentry=False)
        self._reentering = Engine(model, reentry=True, kept_bytes=self._memory)

    def way(self, name: str) -> Way:
        """How an item set is measured."""
        plan, prompts = self._plan(name), self.texts[name].prompts
        return Way(
            masks_per_batch(self.model, plan.rows, prompts, self._batch_size, self._memory),
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
        compute = partial(plan.engine.gradient, replacement=self._replacement(name))
        needed = max(gradient_bytes(self.model, row) for row in plan.rows)
        if needed > self.model.memory_budget:
            raise NoGradientError(
                f"it would take {needed / 1e9:.1f} GB, more than measuring may take (--memory)"
            )
        try:
            parts = [compute(row, slopes[row.sequences]) for row in plan.rows]
        except (torch.OutOfMemoryError, MemoryError) as error:
            raise NoGradientError("there is not enough memory for it") from error
        except RuntimeError as error:
            # Some kernels, such as those of quantised weights, have no backward pass.
            raise NoGradientError(f"PyTorch says: {first_line(error)}") from error
        values = np.sum(parts, axis=0)
        if not np.isfinite(values).all():
            raise NoGradientError(f"in {self.model.dtype} it is not finite")
        tokens = GRADIENT_COST * plan.tokens
        return Gradient(values, tokens, time.perf_counter() - started)

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
                        rows_at_once=rows_at_once(self.model, prompts, self._memory),
                        replacement=self._replacement(name),
                        engine=self._reentering,
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
        replacement = self._replacement(batch.name)
        for row in plan.rows:
            score = partial(plan.engine.score, row, replacement=replacement)
            for part, scores in halving(score, batch.masks):
                np.add.at(log_prob[part].T, row.sequences, scores.log_prob.T)
                np.logical_and.at(greedy[part].T, row.sequences, scores.greedy.T)
                np.minimum.at(margin[part].T, row.sequences, scores.margin.T)
        return log_prob, greedy, margin

    def _replacement(self, name: str) -> LayerOutputs | None:
        """What knocked-out heads give in an item set; its search and held-out items share it."""
        replacement = self._replacements.get(name)
        if replacement is None:
            return None
        if replacement.label not in self._outputs:
            self._outputs[replacement.label] = replacement.outputs(self.model)
        return self._outputs[replacement.label]

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
        # Its hidden states are of rows that are not measured again.
        engine = Engine(self.model, reentry=plan.engine.reentry)
        try:
            for row in dict.fromkeys((max(plan.rows, key=_length), its_row)):
                numbers = compared_sequences(row, sequences)
                totals = self._totals(engine, row.only(numbers, COMPARED_TOKENS))
                for number in numbers:
                    (plain,) = single([sequences[number]])
                    alone = self._totals(self._plain, plain.only([0], COMPARED_TOKENS))
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
    model: Model,
    rows: Sequence[Row],
    prompts: Sequence[Prompt],
    batch_size: BatchSize,
    memory: int,
) -> int:
    """Masks that packed rows and prompts are computed under at once: as asked for, or as fit.

    Parameters
    ----------
    model : Model
    rows : sequence of Row
    prompts : sequence of Prompt
    batch_size : int or "auto"
    memory : int
        Bytes that a batch may take.
    """
    if batch_size != "auto":
        return batch_size
    sizes = []
    if rows:
        kind = model.device.type if model.device.type == "cpu" else "cuda"
        sizes.append(_TOKENS_PER_BATCH[kind] // max(len(row.tokens) for row in rows))
        sizes.append(_LOGIT_BYTES_PER_BATCH[kind] // max(logit_bytes(model, row) for row in rows))
        sizes.append(memory // max(mask_bytes(model, row) for row in rows))
    if prompts:
        sizes.append(rows_at_once(model, prompts, memory) // len(prompts))
    return max(1, min(sizes, default=1))


def rows_at_once(model: Model, prompts: Sequence[Prompt], memory: int) -> int:
    """Prompts times masks that are decoded in one batch of so many bytes."""
    fit = memory // max(prompt_bytes(model, prompt) for prompt in prompts)
    return max(1, min(default_rows(model), fit))


def compared_sequences(row: Row, sequences: Sequence[TokenSequence]) -> list[int]:
    """Sequences of a row that tell whether it is exact.

    The last one, the longest, and the one whose tokens lie farthest apart.
    """
    numbers = list(dict.fromkeys(row.sequences.tolist()))
    longest = max(numbers, key=lambda number: len(sequences[number].tokens))
    return list(dict.fromkeys([numbers[-1], longest, max(numbers, key=row.gap)]))


def _length(row: Row) -> int:
    return len(row.tokens)
