"""Greedy generation under masks: many prompts under many masks decoded together."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.engine import Engine
from headsieve.measure.memory import halving
from headsieve.measure.prefill import Prefill, choose_prefill
from headsieve.measure.texts import Continuation
from headsieve.models.knockout import LayerOutputs
from headsieve.models.products import few_rows

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]

# A decoding step reads all weights once for all rows; beyond so many, more rows save little.
_ROWS_AT_ONCE = {"cpu": 128, "cuda": 512}
# Rows that have ended are taken out once they are this share of a batch: taking them out copies
# what is cached of the others.
_ENDED_SHARE = 0.125


def encode_prompt(tokenizer: Any, text: str) -> tuple[int, ...]:
    """Tokens of a prompt, with exactly one begin-of-text token where the tokenizer has one.

    A chat template writes it into the text, and the tokenizer would put another before it.
    """
    begin = tokenizer.bos_token
    written = bool(begin) and text.startswith(begin)
    return tuple(tokenizer(text, add_special_tokens=not written)["input_ids"])


def require_room(model: Model, prompt: Sequence[int], max_new_tokens: int) -> None:
    """Refuse a prompt that cannot be continued.

    Raises
    ------
    HeadsieveError
        If it is empty or, with what is to follow it, too long for the model.
    """
    if not prompt:
        raise HeadsieveError("A prompt without tokens cannot be continued.")
    limit = model.position_limit
    if limit is not None and len(prompt) + max_new_tokens > limit:
        raise HeadsieveError(
            f"A prompt has {len(prompt)} tokens and up to {max_new_tokens} are to follow, but the "
            f"model takes at most {limit}."
        )


def can_write(model: Model) -> bool:
    """Whether the architecture keeps keys and values, without which no model is asked to write."""
    options = inspect.signature(type(model.hf).forward).parameters
    return not {"cache", "past_key_values"}.isdisjoint(options)


def default_rows(model: Model) -> int:
    """Rows (prompts times masks) that are best decoded in one batch."""
    return _ROWS_AT_ONCE.get(model.device.type, _ROWS_AT_ONCE["cuda"])


class Generator:
    """Continues the same prompts greedily under ever other masks.

    What prompts have in common is computed once a mask. Rows of several masks decode in one batch,
    and a row leaves it when it has ended.

    Parameters
    ----------
    model : Model
    prompts : sequence of token sequences
    max_new_tokens : int
    stop : sequence of str
        A text ends before the first of these.
    rows_at_once : int, optional
        Rows (prompts times masks) in one batch, at most; fewer when memory runs out.
    replacement : mapping of int to Tensor, optional
        What knocked-out heads give, as for `knockout`; zero without it.
    engine : Engine, optional
        Reads the prompts; without it, one of the generator's own.

    Raises
    ------
    HeadsieveError
        If a prompt is empty or, with what is to follow it, too long for the model, or an option
        makes no sense.
    """

    def __init__(
        self,
        model: Model,
        prompts: Sequence[Sequence[int]],
        *,
        max_new_tokens: int,
        stop: Sequence[str] = (),
        rows_at_once: int | None = None,
        replacement: LayerOutputs | None = None,
        engine: Engine | None = None,
    ) -> None:
        self.model = model
        self._engine = engine or Engine(model)
        self._replacement = replacement
        self.prompts = [tuple(prompt) for prompt in prompts]
        self.max_new_tokens = max_new_tokens
        self.stop = tuple(stop)
        self._most = default_rows(model) if rows_at_once is None else rows_at_once
        self._ends = end_tokens(model)
        self._prefills: dict[int, Prefill] = {}
        if max_new_tokens < 1 or self._most < 1:
            raise HeadsieveError("At least one new token and one row at once are needed.")
        if isinstance(stop, str) or not all(stop):
            raise HeadsieveError("The stop strings must be a list of strings, none of them empty.")
        for prompt in self.prompts:
            require_room(model, prompt, max_new_tokens)

    @torch.inference_mode()
    def generate(self, masks: Masks) -> list[list[Continuation]]:
        """Continue all prompts under each mask.

        Parameters
        ----------
        masks : ndarray of bool, shape (masks, heads)

        Returns
        -------
        list of list of Continuation
            For each mask, one for each prompt.
        """
        self.model.hf.eval()
        found: dict[tuple[int, int], Continuation] = {}
        # Prompts that begin alike share most when they are computed together.
        order = sorted(range(len(self.prompts)), key=lambda number: self.prompts[number])
        for first in range(0, len(order), self._most):
            numbers = order[first : first + self._most]
            if first not in self._prefills:
                group = [self.prompts[number] for number in numbers]
                self._prefills[first] = choose_prefill(self._engine, group, self._replacement)
            run = partial(self._run, self._prefills[first])
            size = max(1, self._most // len(numbers))
            for start in range(0, len(masks), size):
                for part, rows in halving(run, masks[start : start + size]):
                    covered = range(start + part.start, start + part.stop)
                    places = [(mask, number) for mask in covered for number in numbers]
                    found.update(zip(places, rows, strict=True))
        prompts = range(len(self.prompts))
        return [[found[mask, number] for number in prompts] for mask in range(len(masks))]

    def _run(self, prefill: Prefill, masks: Masks) -> list[Continuation]:
        """Rows in the order of masks, then of prompts."""
        batch = prefill(masks)
        said: list[list[int]] = [[] for _ in batch.masks]
        found: dict[int, Continuation] = {}
        rows = list(range(len(said)))
        chosen = batch.logits.argmax(dim=-1)
        going = self._record(chosen, rows, said, found)
        while going:
            if len(going) < len(rows):
                batch.select(going)
                chosen = chosen[going]
                rows = [rows[place] for place in going]
            knocked_out = self._engine.knockout(batch.masks, self._replacement)
            with knocked_out, few_rows(self.model.hf):
                while len(going) >= max(1, (1 - _ENDED_SHARE) * len(rows)):
                    batch.step(self.model, chosen)
                    chosen = batch.logits.argmax(dim=-1)
                    going = self._record(chosen, rows, said, found)
        return [found[row] for row in range(len(said))]

    def _record(
        self,
        chosen: torch.Tensor,
        rows: Sequence[int],
        said: Sequence[list[int]],
        found: dict[int, Continuation],
    ) -> list[int]:
        """Take down a token of each row of the batch; the places of those that go on."""
        for row, token in zip(rows, chosen.tolist(), strict=True):
            if row in found:
                continue
            if token not in self._ends:
                said[row].append(token)
            last = token in self._ends or len(said[row]) == self.max_new_tokens
            if last or self.stop:
                text, stopped = _cut(self.model.tokenizer, said[row], self.stop)
                if last or stopped:
                    ended = stopped or token in self._ends
                    found[row] = Continuation(tuple(said[row]), text, ended)
        return [place for place, row in enumerate(rows) if row not in found]


def _cut(tokenizer: Any, tokens: Sequence[int], stop: Sequence[str]) -> tuple[str, bool]:
    """The text of tokens up to the first stop string, and whether there was one."""
    text: str = tokenizer.decode(tokens, skip_special_tokens=True)
    places = [place for string in stop if (place := text.find(string)) >= 0]
    return (text[: min(places)], True) if places else (text, False)


def end_tokens(model: Model) -> frozenset[int]:
    """Tokens that end a text: those the model's configuration names, and the tokenizer's own."""
    given = model.hf.generation_config.eos_token_id
    named = [given] if given is None or isinstance(given, int) else given
    return frozenset({*named, model.tokenizer.eos_token_id} - {None})
