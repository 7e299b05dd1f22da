"""What takes the place of a knocked-out head's output: zero, its mean, or one that it gave once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, get_args

import numpy as np
import torch

from headsieve.errors import HeadsieveError
from headsieve.models.heads import NOUNS, Units
from headsieve.models.outputs import mean_outputs, outputs_at

if TYPE_CHECKING:
    from headsieve.measure.items import ItemSet
    from headsieve.measure.packing import TokenSequence
    from headsieve.models.loading import Model

Ablation = Literal["zero", "mean", "resample"]


@dataclass(frozen=True)
class Replacement:
    """What stands for the outputs of heads that are knocked out in one task.

    With ``mean`` a head gives its mean output over every token of the right texts (prompt and right
    answer) of the task's search items. With ``resample`` it gives what it gave at one scored token
    of one of them: every item lends one of its scored places, drawn at random, and every head
    draws the item that it takes. Either is one vector a head, the same at every position of every
    item, so that scores do not depend on which items share a row.

    Attributes
    ----------
    ablation : {"mean", "resample"}
    right : tuple of TokenSequence
        The right texts.
    fingerprint : str
        Of the search items.
    seed : int
        Of the draws.
    """

    ablation: Ablation
    right: tuple[TokenSequence, ...]
    fingerprint: str
    seed: int

    @classmethod
    def over(cls, ablation: Ablation, items: ItemSet, seed: int) -> Self:
        """Take it over the right texts of a task's search items, whichever items are measured.

        Raises
        ------
        HeadsieveError
            If right texts are not known.
        """
        if not items.right:
            raise HeadsieveError(
                f"The ablation {ablation} is taken over right answers, and a task here has none "
                "beside its judge; use --ablation zero."
            )
        right = tuple(items.sequences[number] for number in items.right)
        return cls(ablation, right, items.fingerprint, seed)

    @property
    def label(self) -> str:
        """What tells it from other replacements, in one word."""
        return ablation_label(self.ablation, self.fingerprint, self.seed)

    def outputs(self, model: Model) -> dict[int, torch.Tensor]:
        """Outputs of all heads of each layer, by its number; float32, (heads * head_dim,)."""
        tokens = [
            torch.tensor([sequence.tokens[: model.position_limit]], dtype=torch.long)
            for sequence in self.right
        ]
        model.hf.eval()
        if self.ablation == "mean":
            return mean_outputs(model.hf, model.geometry, tokens)
        rng = np.random.default_rng([self.seed, int(self.fingerprint, 16)])
        # A scored token is predicted one place before it stands.
        places = [int(rng.integers(one.start - 1, len(one.tokens) - 1)) for one in self.right]
        lent = outputs_at(model.hf, model.geometry, tokens, places)
        drawn = {}
        for layer in model.geometry.layers:
            items = torch.from_numpy(rng.integers(len(self.right), size=layer.heads))
            by_head = lent[layer.layer].reshape(len(self.right), layer.heads, layer.head_dim)
            drawn[layer.layer] = by_head[items, torch.arange(layer.heads)].flatten()
        return drawn


def ablation_label(ablation: Ablation, items: str, seed: int) -> str:
    """Name what knocked-out heads give instead, so that no measurement answers for another.

    Parameters
    ----------
    ablation : {"zero", "mean", "resample"}
    items : str
        Fingerprint of the search items that it is taken from.
    seed : int
    """
    if ablation == "zero":
        return ablation
    return f"mean-{items}" if ablation == "mean" else f"resample-{items}-{seed}"


def require_ablation(word: str, units: Units) -> None:
    """Refuse a word that names no ablation, or none of these units.

    Raises
    ------
    HeadsieveError
    """
    *others, last = get_args(Ablation)
    if word not in (*others, last):
        raise HeadsieveError(f"There is no ablation {word!r}; use {', '.join(others)} or {last}.")
    if word != "zero" and units not in ("heads", "kv-groups"):
        raise HeadsieveError(
            f"The ablation {word} is of heads and KV groups; {NOUNS[units][1]} can only be zeroed."
        )
