"""Greedy generation under masks: many prompts under many masks decoded together."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache, DynamicCache

from headsieve.errors import HeadsieveError
from headsieve.measure.engine import agree, attention_cost, check_masks, row_logits
from headsieve.measure.memory import halving
from headsieve.measure.packing import Row, TokenSequence, pack
from headsieve.measure.texts import Continuation
from headsieve.models.knockout import KnockoutError, LayerOutputs, knockout
from headsieve.models.kv_cache import RoomyLayer
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
    ) -> None:
        self.model = model
        self._out: _Knockout = partial(
            knockout, model.hf, model.geometry, replacement=replacement, allow_mute=True
        )
        self.prompts = [tuple(prompt) for prompt in prompts]
        self.max_new_tokens = max_new_tokens
        self.stop = tuple(stop)
        self._most = default_rows(model) if rows_at_once is None else rows_at_once
        self._prefills: dict[int, _Prefill] = {}
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
                self._prefills[first] = _choose_prefill(self.model, self._out, group)
            run = partial(self._run, self._prefills[first])
            size = max(1, self._most // len(numbers))
            for start in range(0, len(masks), size):
                for part, rows in halving(run, masks[start : start + size]):
                    covered = range(start + part.start, start + part.stop)
                    places = [(mask, number) for mask in covered for number in numbers]
                    found.update(zip(places, rows, strict=True))
        prompts = range(len(self.prompts))
        return [[found[mask, number] for number in prompts] for mask in range(len(masks))]

    def _run(self, prefill: _Prefill, masks: Masks) -> list[Continuation]:
        """Rows in the order of masks, then of prompts."""
        return _decode(self.model, self._out, prefill(masks), self.max_new_tokens, self.stop)


@dataclass
class _Batch:
    """Rows that are being decoded, their padding on the left.

    Attributes
    ----------
    masks : ndarray of bool, shape (rows, heads)
    cache : transformers.Cache
        Keys and values of everything before the next token.
    seen : Tensor of bool, shape (rows, slots)
        Which slots of the cache hold something.
    logits : Tensor, shape (rows, vocabulary)
        Of the next token.
    """

    masks: Masks
    cache: Cache
    seen: torch.Tensor
    logits: torch.Tensor

    def select(self, rows: Sequence[int]) -> None:
        """Keep only some rows."""
        index = torch.as_tensor(rows, device=self.seen.device)
        self.masks = self.masks[list(rows)]
        self.cache.reorder_cache(index)
        self.seen = self.seen[index]
        self.logits = self.logits[index]

    def step(self, model: Model, tokens: torch.Tensor) -> None:
        """Append one token to every row; to be called under the rows' knockout."""
        self.seen = torch.cat([self.seen, self.seen.new_ones(len(tokens), 1)], dim=1)
        self.logits = model.hf(
            input_ids=tokens[:, None],
            attention_mask=self.seen.long(),
            position_ids=self.seen.sum(dim=1, keepdim=True) - 1,
            cache=self.cache,
            use_cache=True,
            logits_to_keep=1,
        ).logits[:, -1]


# Knocks out a row of heads for each row of a batch while its context lasts.
_Knockout = Callable[[Masks], AbstractContextManager[None]]
# Computes a group of prompts under masks; rows in the order of masks, then of prompts.
_Prefill = Callable[[Masks], _Batch]


def _choose_prefill(model: Model, out: _Knockout, group: Sequence[tuple[int, ...]]) -> _Prefill:
    """The fastest way to compute prompts that gives what plain rows give."""
    # A token after each prompt, so that the prompt's own last one becomes a node of the tree.
    sequences = [TokenSequence((*prompt, 0), len(prompt)) for prompt in group]
    rows = pack(sequences, attention_cost=attention_cost(model))
    try:
        exact = _is_exact(model, out, rows, group)
    # An architecture may refuse what it cannot take.
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, KnockoutError):
        exact = False
    if exact:
        return partial(_shared_prefill, model, out, rows)
    return partial(_plain_prefill, model, out, group)


def _is_exact(
    model: Model, out: _Knockout, rows: Sequence[Row], group: Sequence[tuple[int, ...]]
) -> bool:
    """Whether packed rows give the next tokens, and those after one more step, what plain ones do.

    As when scores are measured, the longest prompt, the last one and the one whose tokens lie
    farthest apart are tried.
    """
    longest = max(range(len(group)), key=lambda number: len(group[number]))
    gaps = {int(number): row.gap(number) for row in rows for number in row.sequences}
    sample = sorted({longest, len(group) - 1, max(gaps, key=gaps.__getitem__)})
    masks = check_masks(model)
    tried = [row.only(sample) for row in rows if np.isin(row.sequences, sample).any()]
    one = _shared_prefill(model, out, tried, masks)
    other = _plain_prefill(model, out, [group[number] for number in sample], masks)
    for _ in range(2):
        if not agree(_log_probs(one), _log_probs(other), model.dtype):
            return False
        tokens = other.logits.argmax(dim=-1)
        with out(other.masks):
            one.step(model, tokens)
            other.step(model, tokens)
    return True


def _log_probs(batch: _Batch) -> NDArray[np.float64]:
    found: NDArray[np.float64] = batch.logits.double().log_softmax(dim=-1).cpu().numpy()
    return found


def _shared_prefill(model: Model, out: _Knockout, rows: Sequence[Row], masks: Masks) -> _Batch:
    """Prompts from packed rows: each gathers the keys and values of its own tokens."""
    paths = [_path(row, number) for row in rows for number in range(len(row.sequences))]
    slots = max(map(len, paths))
    index = np.zeros((len(paths), slots), dtype=np.int64)
    for place, path in zip(index, paths, strict=True):
        place[slots - len(path) :] = path
    indices = iter(torch.as_tensor(index, device=model.device))
    logits: list[torch.Tensor] = []
    cached: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    for row in rows:
        cache = DynamicCache()
        with out(masks):
            kept = row_logits(model, row, len(masks), cache)
        logits.append(kept[:, torch.as_tensor(row.predictors, device=kept.device)])
        nodes = torch.stack([next(indices) for _ in row.sequences])
        # (masks, key-value heads, nodes, width) become (masks, prompts, heads, slots, width).
        cached.append(
            [
                (layer.keys[:, :, nodes].transpose(1, 2), layer.values[:, :, nodes].transpose(1, 2))
                for layer in cache.layers
            ]
        )
    order = np.concatenate([row.sequences for row in rows])
    back = torch.as_tensor(np.argsort(order), device=model.device)

    def joined(parts: Iterable[torch.Tensor]) -> torch.Tensor:
        return torch.cat(list(parts), dim=1)[:, back].flatten(0, 1)

    whole = Cache(layer_class_to_replicate=RoomyLayer)
    for number, layers in enumerate(zip(*cached, strict=True)):
        keys, values = zip(*layers, strict=True)
        whole.update(joined(keys), joined(values), number)
    lengths = torch.tensor([len(path) for path in paths], device=model.device)[back]
    seen = torch.arange(slots, device=model.device) >= (slots - lengths)[:, None]
    rows_masks = masks.repeat(len(order), axis=0)
    return _Batch(rows_masks, whole, seen.repeat(len(masks), 1), joined(logits))


def _path(row: Row, number: int) -> NDArray[np.int64]:
    """Nodes of a packed row's prompt, from the root on."""
    node = row.keep[row.predictors[number]]
    assert row.attends is not None
    return np.flatnonzero(row.attends[node])


def _plain_prefill(
    model: Model, out: _Knockout, group: Sequence[tuple[int, ...]], masks: Masks
) -> _Batch:
    """Every prompt in a row of its own under every mask."""
    slots = max(map(len, group))
    device = model.device
    tokens = torch.tensor([[0] * (slots - len(one)) + list(one) for one in group], device=device)
    lengths = torch.tensor([len(one) for one in group], device=device)
    seen = torch.arange(slots, device=device) >= (slots - lengths)[:, None]
    masks, seen = masks.repeat(len(group), axis=0), seen.repeat(len(masks), 1)
    with out(masks):
        output = model.hf(
            input_ids=tokens.repeat(len(masks) // len(group), 1),
            attention_mask=seen.long(),
            position_ids=(seen.cumsum(dim=1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
    # Some architectures take the option and keep nothing all the same.
    if getattr(output, "cache", None) is None:
        raise HeadsieveError(
            f"{model.name} keeps no keys and values from one token to the next, so it cannot be "
            "asked to write under knockouts; choose tasks that are scored by likelihood."
        )
    return _Batch(masks, output.cache, seen, output.logits[:, -1])


def _decode(
    model: Model, out: _Knockout, batch: _Batch, max_new_tokens: int, stop: Sequence[str]
) -> list[Continuation]:
    """Decode a batch to its end; one continuation for each of its rows."""
    ends = end_tokens(model)
    said: list[list[int]] = [[] for _ in batch.masks]
    found: dict[int, Continuation] = {}
    rows = list(range(len(said)))

    def record(chosen: torch.Tensor) -> list[int]:
        """Take down a token for each row of the batch; the places of those that go on."""
        for row, token in zip(rows, chosen.tolist(), strict=True):
            if row in found:
                continue
            if token not in ends:
                said[row].append(token)
            last = token in ends or len(said[row]) == max_new_tokens
            if last or stop:
                text, stopped = _cut(model.tokenizer, said[row], stop)
                if last or stopped:
                    found[row] = Continuation(tuple(said[row]), text, stopped or token in ends)
        return [place for place, row in enumerate(rows) if row not in found]

    chosen = batch.logits.argmax(dim=-1)
    going = record(chosen)
    while going:
        if len(going) < len(rows):
            batch.select(going)
            chosen = chosen[going]
            rows = [rows[place] for place in going]
        with out(batch.masks), few_rows(model.hf):
            while len(going) >= max(1, (1 - _ENDED_SHARE) * len(rows)):
                batch.step(model, chosen)
                chosen = batch.logits.argmax(dim=-1)
                going = record(chosen)
    return [found[row] for row in range(len(said))]


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
