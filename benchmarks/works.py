"""Works: what is measured by ``speed.py``. One function a work, listed in `WORKS`.

A new work is one more function from a model to a `Work`. What no set of scored sequences can say
(generation) needs peers of its own besides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from headsieve.measure.items import ContinuationItems, Kind, tokenize
from headsieve.measure.texts import Responses
from headsieve.models.heads import Head
from headsieve.tasks import Item
from headsieve.tasks.builtin import load_builtin

if TYPE_CHECKING:
    from headsieve.models.loading import Model

SEED = 0
Masks = NDArray[np.bool_]


@dataclass(frozen=True)
class Work:
    """Items to be scored under masks.

    Attributes
    ----------
    kind : {"answer", "choice"}
    prefix : str
        Stands before every item's prompt.
    items : tuple of Item
    item_set : ContinuationItems
        The same, tokenised.
    masks : ndarray of bool, shape (masks, heads)
    """

    kind: Kind
    prefix: str
    items: tuple[Item, ...]
    item_set: ContinuationItems
    masks: Masks

    def item_scores(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Log-probability of each item's right answer, in nats.

        Parameters
        ----------
        sums : ndarray of float64, shape (sequences,)
            Log-probability of each continuation of each item.
        """
        unused = np.zeros(len(sums))
        return self.item_set.score(Responses(sums, unused.astype(bool), unused)).log_prob


def few_shot(model: Model) -> Work:
    """12 masks of 5 heads, 48 products behind 5 examples: short answers, one long prefix."""
    prefix, items = load_builtin("multiplication").examples(SEED)
    return _work(model, "answer", prefix, items[:48], _random_masks(model))


def multiple_choice(model: Model) -> Work:
    """12 masks of 5 heads, 24 passages with four endings each: the question is shared."""
    passages = _passages(2)[:24]
    endings = [ending for _passage, ending in passages]
    items = []
    for number, (passage, ending) in enumerate(passages):
        others = endings[number + 1 :] + endings[:number]
        wrong = [other for other in others if other != ending][:3]
        items.append(Item(passage, (ending, *wrong)))
    return _work(model, "choice", "", items, _random_masks(model))


def no_prefix(model: Model) -> Work:
    """12 masks of 5 heads, the last words of 24 passages, as in LAMBADA: nothing is shared."""
    items = [Item(passage, (word,)) for passage, word in _passages(1)[:24]]
    return _work(model, "answer", "", items, _random_masks(model))


def exhaustive(model: Model) -> Work:
    """Every head on its own, 16 products behind 5 examples."""
    prefix, items = load_builtin("multiplication").examples(SEED)
    return _work(model, "answer", prefix, items[:16], np.eye(len(model.geometry), dtype=bool))


WORKS: dict[str, Callable[[Model], Work]] = {
    "few-shot": few_shot,
    "multiple-choice": multiple_choice,
    "no-prefix": no_prefix,
    "exhaustive": exhaustive,
}


def heads_of(model: Model, mask: NDArray[np.bool_]) -> list[Head]:
    """The heads that a mask knocks out."""
    units = [model.geometry.heads[column] for column in np.flatnonzero(mask)]
    return [unit for unit in units if isinstance(unit, Head)]


def _work(model: Model, kind: Kind, prefix: str, items: Sequence[Item], masks: Masks) -> Work:
    item_set = tokenize(items, prefix, kind, model.tokenizer)
    return Work(kind, prefix, tuple(items), item_set, masks)


def _random_masks(model: Model, count: int = 12, size: int = 5) -> Masks:
    rng = np.random.default_rng(SEED)
    masks = np.zeros((count, len(model.geometry)), dtype=bool)
    for mask in masks:
        mask[rng.choice(len(mask), size, replace=False)] = True
    return masks


def _passages(words: int) -> list[tuple[str, str]]:
    """The built-in passages of text in random order, each parted before its last words."""
    _prefix, items = load_builtin("text").examples(SEED)
    parts = [item.continuations[0].rstrip(".!?").rsplit(" ", words) for item in items]
    return [(passage, " " + " ".join(ending)) for passage, *ending in parts]
