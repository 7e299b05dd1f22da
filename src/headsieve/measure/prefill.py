"""Reading prompts under masks: the keys and values from which writing goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Cache

from headsieve.errors import HeadsieveError
from headsieve.measure.engine import Engine, agree, attention_cost, check_masks
from headsieve.measure.packing import Row, TokenSequence, pack
from headsieve.models.knockout import KnockoutError, LayerOutputs
from headsieve.models.kv_cache import RoomyLayer

if TYPE_CHECKING:
    from headsieve.models.loading import Model

Masks = NDArray[np.bool_]


@dataclass
class DecodingBatch:
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


# Computes a group of prompts under masks; rows in the order of masks, then of prompts.
Prefill = Callable[[Masks], DecodingBatch]


def choose_prefill(
    engine: Engine, group: Sequence[tuple[int, ...]], replacement: LayerOutputs | None
) -> Prefill:
    """The fastest way to compute prompts that gives what plain rows give.

    Parameters
    ----------
    engine : Engine
    group : sequence of token sequences
    replacement : mapping of int to Tensor, optional
        What knocked-out heads give, as for `knockout`; zero without it.
    """
    # A token after each prompt, so that the prompt's own last one becomes a node of the tree.
    sequences = [TokenSequence((*prompt, 0), len(prompt)) for prompt in group]
    rows = pack(sequences, attention_cost=attention_cost(engine.model))
    for reentry in (True, False) if engine.reentry else (False,):
        # What an engine keeps of the rows that are tried is not needed again.
        if _is_exact(Engine(engine.model, reentry=reentry), rows, group, replacement):
            chosen = engine if reentry else Engine(engine.model, reentry=False)
            return partial(_shared, chosen, rows, replacement)
    return partial(_plain, engine, group, replacement)


def _is_exact(
    engine: Engine,
    rows: Sequence[Row],
    group: Sequence[tuple[int, ...]],
    replacement: LayerOutputs | None,
) -> bool:
    """Whether packed rows give the next tokens, and those after one more step, what plain ones do.

    As when scores are measured, the longest prompt, the last one and the one whose tokens lie
    farthest apart are tried.
    """
    longest = max(range(len(group)), key=lambda number: len(group[number]))
    gaps = {int(number): row.gap(number) for row in rows for number in row.sequences}
    sample = sorted({longest, len(group) - 1, max(gaps, key=gaps.__getitem__)})
    masks = check_masks(engine.model)
    tried = [row.only(sample) for row in rows if np.isin(row.sequences, sample).any()]
    other = _plain(engine, [group[number] for number in sample], replacement, masks)
    try:
        one = _shared(engine, tried, replacement, masks)
        for _ in range(2):
            if not agree(_log_probs(one), _log_probs(other), engine.model.dtype):
                return False
            tokens = other.logits.argmax(dim=-1)
            with engine.knockout(other.masks, replacement):
                one.step(engine.model, tokens)
                other.step(engine.model, tokens)
    # An architecture may refuse what it cannot take.
    except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, KnockoutError):
        return False
    return True


def _log_probs(batch: DecodingBatch) -> NDArray[np.float64]:
    found: NDArray[np.float64] = batch.logits.double().log_softmax(dim=-1).cpu().numpy()
    return found


def _shared(
    engine: Engine, rows: Sequence[Row], replacement: LayerOutputs | None, masks: Masks
) -> DecodingBatch:
    """Prompts from packed rows: each gathers the keys and values of its own tokens."""
    device = engine.model.device
    paths = [_path(row, number) for row in rows for number in range(len(row.sequences))]
    slots = max(map(len, paths))
    index = np.zeros((len(paths), slots), dtype=np.int64)
    for place, path in zip(index, paths, strict=True):
        place[slots - len(path) :] = path
    indices = iter(torch.as_tensor(index, device=device))
    logits: list[torch.Tensor] = []
    cached: list[list[tuple[torch.Tensor, torch.Tensor]]] = []
    for row in rows:
        kept, layers = engine.read(row, masks, replacement=replacement)
        logits.append(kept[:, torch.as_tensor(row.predictors, device=kept.device)])
        nodes = torch.stack([next(indices) for _ in row.sequences])
        # (masks, key-value heads, nodes, width) become (masks, prompts, heads, slots, width).
        cached.append(
            [
                (keys[:, :, nodes].transpose(1, 2), values[:, :, nodes].transpose(1, 2))
                for keys, values in layers
            ]
        )
    order = np.concatenate([row.sequences for row in rows])
    back = torch.as_tensor(np.argsort(order), device=device)

    def joined(parts: Iterable[torch.Tensor]) -> torch.Tensor:
        return torch.cat(list(parts), dim=1)[:, back].flatten(0, 1)

    whole = Cache(layer_class_to_replicate=RoomyLayer)
    for number, parts in enumerate(zip(*cached, strict=True)):
        all_keys, all_values = zip(*parts, strict=True)
        whole.update(joined(all_keys), joined(all_values), number)
    lengths = torch.tensor([len(path) for path in paths], device=device)[back]
    seen = torch.arange(slots, device=device) >= (slots - lengths)[:, None]
    rows_masks = masks.repeat(len(order), axis=0)
    return DecodingBatch(rows_masks, whole, seen.repeat(len(masks), 1), joined(logits))


def _path(row: Row, number: int) -> NDArray[np.int64]:
    """Nodes of a packed row's prompt, from the root on."""
    node = row.keep[row.predictors[number]]
    assert row.attends is not None
    return np.flatnonzero(row.attends[node])


def _plain(
    engine: Engine,
    group: Sequence[tuple[int, ...]],
    replacement: LayerOutputs | None,
    masks: Masks,
) -> DecodingBatch:
    """Every prompt in a row of its own under every mask."""
    model = engine.model
    slots = max(map(len, group))
    device = model.device
    tokens = torch.tensor([[0] * (slots - len(one)) + list(one) for one in group], device=device)
    lengths = torch.tensor([len(one) for one in group], device=device)
    seen = torch.arange(slots, device=device) >= (slots - lengths)[:, None]
    masks, seen = masks.repeat(len(group), axis=0), seen.repeat(len(masks), 1)
    with engine.knockout(masks, replacement):
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
    return DecodingBatch(masks, output.cache, seen, output.logits[:, -1])
