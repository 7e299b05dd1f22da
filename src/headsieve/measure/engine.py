"""Scores of packed rows under masks: the one place where the model runs to be measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from transformers import DynamicCache

from headsieve.measure.memory import keep_freed_memory
from headsieve.measure.packing import Row
from headsieve.models.attention import sparse_attention
from headsieve.models.knockout import LayerOutputs, gates, knockout
from headsieve.models.placing import placed
from headsieve.models.reentry import enter_at, record_layer_inputs

if TYPE_CHECKING:
    from transformers import Cache

    from headsieve.models.heads import Geometry
    from headsieve.models.loading import Model

# Keys and values of a layer.
KeysValues = tuple[torch.Tensor, torch.Tensor]

# Logits are turned into log-probabilities this many at a time, which bounds memory at large
# vocabularies.
_LOGITS_AT_ONCE = 1 << 25
# By how much log-probabilities may differ by rounding alone, in nats. Where a shorter way to
# compute them differs by more, that way is not taken.
_ROUNDING = {"float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}


@dataclass(frozen=True)
class TokenScores:
    """What the model said of the scored tokens of one row.

    Attributes
    ----------
    log_prob : ndarray of float64, shape (masks, scored)
        Log-probability of each scored token, in nats.
    greedy : ndarray of bool, shape (masks, scored)
        Whether it was the likeliest token.
    margin : ndarray of float64, shape (masks, scored)
        Its log-probability less that of the likeliest other token.
    """

    log_prob: NDArray[np.float64]
    greedy: NDArray[np.bool_]
    margin: NDArray[np.float64]

    def take(self, masks: NDArray[np.intp]) -> TokenScores:
        """The scores of some masks, by their numbers."""
        return TokenScores(self.log_prob[masks], self.greedy[masks], self.margin[masks])


class Engine:
    """Runs one model over packed rows under masks.

    Below the lowest layer in which a mask knocks anything out, the model computes what it computes
    unmodified. Those hidden states are kept for each row, and each mask's copy of it starts there.

    Parameters
    ----------
    model : Model
    reentry : bool
        Whether to start in the middle; without it every layer is computed.
    kept_bytes : int
        Hidden states of the unmodified model are kept up to about so much.
    """

    def __init__(self, model: Model, *, reentry: bool = True, kept_bytes: int = 1 << 30) -> None:
        self.model = model
        self.reentry = reentry
        self._unmodified: dict[Row, _Unmodified] = {}
        self._kept_bytes, self._most_bytes = 0, kept_bytes
        if model.device.type == "cpu":
            keep_freed_memory()

    @torch.inference_mode()
    def score(
        self, row: Row, masks: NDArray[np.bool_], *, replacement: LayerOutputs | None = None
    ) -> TokenScores:
        """Score one packed row under several masks, in one batch.

        Parameters
        ----------
        row : Row
        masks : ndarray of bool, shape (masks, heads)
        replacement : mapping of int to Tensor, optional
            What knocked-out heads give, as for `knockout`; zero without it.
        """
        logits, order = self._logits(row, masks, replacement)
        return _token_scores(logits, row).take(np.argsort(order))

    @torch.inference_mode()
    def read(
        self, row: Row, masks: NDArray[np.bool_], *, replacement: LayerOutputs | None = None
    ) -> tuple[torch.Tensor, list[KeysValues]]:
        """Read one packed row under several masks, in one batch, to go on from there.

        Parameters
        ----------
        row : Row
        masks : ndarray of bool, shape (masks, heads)
        replacement : mapping of int to Tensor, optional
            What knocked-out heads give, as for `knockout`; zero without it.

        Returns
        -------
        logits : Tensor, shape (masks, kept, vocabulary)
        layers : list of pairs of Tensor, each of shape (masks, key-value heads, nodes, width)
            Keys and values of each layer.
        """
        cache = DynamicCache()
        logits, order = self._logits(row, masks, replacement, cache)
        layers = [(layer.keys, layer.values) for layer in cache.layers]
        if (unmodified := self._unmodified.get(row)) is not None:
            layers = [
                (_filled(keys, before[0], len(masks)), _filled(values, before[1], len(masks)))
                for (keys, values), before in zip(layers, unmodified.layers, strict=True)
            ]
        back = torch.as_tensor(np.argsort(order), device=logits.device)
        return logits[back], [
            (keys[back.to(keys.device)], values[back.to(values.device)]) for keys, values in layers
        ]

    def knockout(
        self,
        masks: NDArray[np.bool_],
        replacement: LayerOutputs | None = None,
        entries: Sequence[int] | None = None,
    ) -> AbstractContextManager[None]:
        """`headsieve.models.knockout.knockout` of this model, of heads that give nothing as well.

        A head that gives nothing is measured like any other: its knockout has no effect.
        """
        return knockout(
            self.model.hf,
            self.model.geometry,
            masks,
            replacement=replacement,
            allow_mute=True,
            entries=entries,
        )

    def gradient(
        self,
        row: Row,
        slopes: NDArray[np.float64],
        *,
        replacement: LayerOutputs | None = None,
    ) -> NDArray[np.float64]:
        """Derivative of a weighted sum of log-probabilities with respect to a gate on each head.

        Costs about as much as three forward passes.

        Parameters
        ----------
        row : Row
        slopes : ndarray of float64, shape (scored,)
            Weight of each scored token's log-probability.
        replacement : mapping of int to Tensor, optional
            What comes in as a gate closes; nothing without it.

        Returns
        -------
        ndarray of float64, shape (heads,)
        """
        model = self.model
        model.hf.eval()
        values = torch.ones((1, len(model.geometry)), device=model.device, requires_grad=True)
        with (
            torch.enable_grad(),
            _fixed_weights(model.hf),
            gates(model.hf, model.geometry, values, replacement),
        ):
            logits = row_logits(model, row, 1)[0].float()
            total = torch.logsumexp(logits, dim=-1)
            predictors = placed(row.predictors, logits.device)
            targets = placed(row.targets, logits.device)
            log_prob = logits[predictors, targets] - total[predictors]
            weights = torch.as_tensor(slopes, device=logits.device, dtype=log_prob.dtype)
            (gradient,) = torch.autograd.grad(log_prob @ weights, values)
        return gradient[0].double().cpu().numpy()

    def _logits(
        self,
        row: Row,
        masks: NDArray[np.bool_],
        replacement: LayerOutputs | None,
        cache: Cache | None = None,
    ) -> tuple[torch.Tensor, NDArray[np.intp]]:
        """Logits at a row's kept nodes under masks, and the masks' order in the batch.

        Those that enter at the lowest layer come first, there and in the cache's layers.
        """
        model = self.model
        # Whoever trained it meanwhile may have left dropout on.
        model.hf.eval()
        lowest = np.array([lowest_layer(model.geometry, mask[None]) for mask in masks])
        unmodified = None
        if self.reentry and lowest.any():
            unmodified = self._kept(row, with_cache=cache is not None)
        if unmodified is None:
            with self.knockout(masks, replacement):
                return row_logits(model, row, len(masks), cache), np.arange(len(masks))
        order = np.argsort(lowest, kind="stable")
        entries: list[int] = lowest[order].tolist()
        enter = enter_at(model.hf, entries, unmodified.inputs)
        with self.knockout(masks[order], replacement, entries), enter:
            return row_logits(model, row, 1, cache), order

    def _kept(self, row: Row, *, with_cache: bool) -> _Unmodified | None:
        """What the unmodified model computes of a row; nothing where it takes too much."""
        if row not in self._unmodified:
            if self._kept_bytes > self._most_bytes:
                return None
            cache = DynamicCache() if with_cache else None
            inputs = record_layer_inputs(
                self.model.hf, lambda: row_logits(self.model, row, 1, cache)
            )
            layers = [] if cache is None else [(one.keys, one.values) for one in cache.layers]
            self._unmodified[row] = _Unmodified(inputs, layers)
            tensors = [*inputs, *(tensor for layer in layers for tensor in layer)]
            self._kept_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return self._unmodified[row]


@dataclass(frozen=True)
class _Unmodified:
    """What the unmodified model computes of a row, from which masks enter in the middle.

    Attributes
    ----------
    inputs : list of Tensor, shape (1, nodes, width)
        What enters each layer.
    layers : list of pairs of Tensor, each of shape (1, key-value heads, nodes, width)
        Each layer's keys and values; none where nobody goes on from them.
    """

    inputs: list[torch.Tensor]
    layers: list[KeysValues]


def _filled(states: torch.Tensor | None, unmodified: torch.Tensor, count: int) -> torch.Tensor:
    """A layer's keys or values for all masks: who enters above it has the unmodified model's."""
    present = 0 if states is None else len(states)
    rest = unmodified.expand(count - present, -1, -1, -1)
    return rest if states is None else torch.cat([states, rest])


@contextmanager
def _fixed_weights(hf: nn.Module) -> Iterator[None]:
    """Let no weight take a gradient, so that nothing is kept for theirs."""
    trained = [parameter for parameter in hf.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def row_logits(model: Model, row: Row, count: int, cache: Cache | None = None) -> torch.Tensor:
    """Logits at a packed row's kept nodes, the row given `count` times.

    Parameters
    ----------
    model : Model
    row : Row
    count : int
    cache : transformers.Cache, optional
        Takes the keys and values of all nodes.

    Returns
    -------
    Tensor, shape (count, kept, vocabulary)
    """
    with sparse_attention():
        output: torch.Tensor = model.hf(
            input_ids=placed(row.tokens, model.device).expand(count, -1),
            attention_mask=_attention_mask(model, row),
            position_ids=placed(row.positions, model.device).expand(count, -1),
            logits_to_keep=placed(row.keep, model.device),
            cache=cache,
            use_cache=cache is not None,
        ).logits
    # Some architectures take any option and leave it aside.
    return output if output.shape[1] == len(row.keep) else output[:, row.keep]


def agree(one: NDArray[np.float64], other: NDArray[np.float64], dtype: str) -> bool:
    """Whether two ways to compute log-probabilities differ by no more than rounding does."""
    tolerance = _ROUNDING.get(dtype, _ROUNDING["bfloat16"])
    return np.allclose(one, other, rtol=0, atol=tolerance)


def check_masks(model: Model) -> NDArray[np.bool_]:
    """Masks under which different ways to compute the same are compared.

    Two knock out a head in the middle: there are layers below it to skip and layers above it to
    compute, and a batch of one would hide what is not given for every row. The third joins them at
    the top.
    """
    masks = np.zeros((3, len(model.geometry)), dtype=bool)
    masks[:2, len(model.geometry) // 2] = True
    masks[1:, -1] = True
    return masks


def attention_cost(model: Model) -> float:
    """Cost of a query-key pair against that of a token's matrix products."""
    pair = sum(4 * layer.heads * layer.head_dim for layer in model.geometry.layers)
    token = 2 * sum(
        parameter.numel() for parameter in model.hf.parameters() if parameter.dim() == 2
    )
    # Masked attention reaches about two thirds of the speed of a plain matrix product.
    return float(1.5 * pair / token)


def lowest_layer(geometry: Geometry, masks: NDArray[np.bool_]) -> int:
    """The lowest layer in which any of the masks knocks out a head; 0 if none does."""
    columns = np.flatnonzero(masks.any(axis=0))
    return geometry.heads[columns[0]].layer if len(columns) else 0


def _attention_mask(model: Model, row: Row) -> torch.Tensor | None:
    """The row's tree as an additive mask of shape (1, 1, nodes, nodes), for eager and sdpa."""
    if row.attends is None:
        return None
    dtype = model.hf.dtype
    attends = placed(row.attends, model.device)
    mask = torch.zeros(attends.shape, dtype=dtype, device=model.device)
    return mask.masked_fill_(~attends, torch.finfo(dtype).min)[None, None]


def _token_scores(logits: torch.Tensor, row: Row) -> TokenScores:
    masks, kept, vocabulary = logits.shape
    log_prob = torch.empty((masks, len(row.targets)), dtype=torch.float32, device=logits.device)
    margin = torch.empty_like(log_prob)
    greedy = torch.empty((masks, len(row.targets)), dtype=torch.bool, device=logits.device)
    step = max(1, _LOGITS_AT_ONCE // (masks * vocabulary))
    for first in range(0, kept, step):
        chunk = logits[:, first : first + step].float()
        # Predictors ascend in no order of their own: the chunk serves those that point into it.
        # Chosen here: a device that is asked how many there are has to finish first.
        serves = (row.predictors >= first) & (row.predictors < first + step)
        served = placed(np.flatnonzero(serves), logits.device)
        places = placed(row.predictors[serves] - first, logits.device)
        targets = placed(row.targets[serves], logits.device)
        target = chunk[:, places, targets]
        best = chunk.topk(2, dim=-1)
        # The logarithm of the sum of exponentials, in the logits' own memory.
        largest = best.values[..., :1]
        total = (chunk.sub_(largest).exp_().sum(dim=-1).log() + largest[..., 0])[:, places]
        greedy[:, served] = best.indices[:, places, 0] == targets
        other = torch.where(greedy[:, served], best.values[:, places, 1], best.values[:, places, 0])
        log_prob[:, served] = target - total
        margin[:, served] = target - other
    return TokenScores(
        log_prob.double().cpu().numpy(), greedy.cpu().numpy(), margin.double().cpu().numpy()
    )
