"""Ways to score a work under masks: headsieve's and those of others, one a module.

Each is a `Peer`; `PEERS` says where it is, so that only the libraries of those that run are loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from works import Masks, Work, heads_of

if TYPE_CHECKING:
    from headsieve.models.heads import Head
    from headsieve.models.loading import Model

HEADSIEVE = "headsieve"
PEERS = {
    "plain": "peers.plain:Plain",
    "plain-answers-only": "peers.plain:AnswersOnly",
    "plain-cached-prefix": "peers.cached_prefix:CachedPrefix",
    "transformer-lens": "peers.transformer_lens_peer:TransformerLens",
    "nnsight": "peers.nnsight_peer:NNsight",
    "pyvene": "peers.pyvene_peer:Pyvene",
    "lm-eval": "peers.lm_eval_peer:LMEval",
    "paper": "peers.lm_eval_peer:Paper",
    "no-mask-sharing": "peers.own:NoMaskSharing",
    "plain-generate": "peers.plain:Generate",
}


class NotApplicableError(Exception):
    """A peer has nothing to offer for a work; the message says why."""


class Peer(ABC):
    """Answers a work under masks; made once, before anything is timed.

    Parameters
    ----------
    model : Model
        The peer's own; it may change it.
    work : Work

    Raises
    ------
    NotApplicableError
        If the peer has nothing to offer for this work.
    """

    # Distributions whose versions are printed.
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Model, work: Work) -> None:
        self.model = model
        self.work = work
        if not self.applies(work):
            does = "generates no text" if work.new_tokens else "only generates text"
            raise NotApplicableError(f"it {does}")

    @staticmethod
    def applies(work: Work) -> bool:
        """Whether this is a work for it; by default one to be scored."""
        return not work.new_tokens

    @abstractmethod
    def score(self, masks: Masks) -> NDArray[np.float64]:
        """Answer each mask.

        Returns
        -------
        ndarray of float64, shape (masks, items) or (masks, items * new_tokens)
            Log-probabilities of the items' right answers, in nats; or the tokens generated, -1
            after a text's end.
        """


class MaskByMask(Peer):
    """A peer for which one mask costs what any other does, so that a few of them tell its speed."""

    def score(self, masks: Masks) -> NDArray[np.float64]:
        return np.stack(
            [self.work.item_scores(self.sums(heads_of(self.model, mask))) for mask in masks]
        )

    @abstractmethod
    def sums(self, heads: Sequence[Head]) -> NDArray[np.float64]:
        """Log-probability of each sequence's scored tokens without these heads, in nats."""


def tokens_of(texts: Sequence[Sequence[int]], length: int) -> NDArray[np.float64]:
    """Generated texts one after the other, each filled up to a length with -1."""
    filled = np.full((len(texts), length), -1.0)
    for row, text in zip(filled, texts, strict=True):
        row[: len(text)] = text
    return filled.ravel()


def load_peer(name: str) -> type[Peer]:
    """Import a peer.

    Raises
    ------
    ImportError
        If its library is not installed.
    """
    module, _, attribute = PEERS.get(name, "peers.own:Headsieve").partition(":")
    peer: type[Peer] = getattr(import_module(module), attribute)
    return peer
