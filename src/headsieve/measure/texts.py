"""What a model is asked and what it says: all that workers are sent and send back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headsieve.measure.packing import TokenSequence


@dataclass(frozen=True)
class Prompt:
    """Tokens to be continued greedily.

    Attributes
    ----------
    tokens : tuple of int
    max_new_tokens : int
    stop : tuple of str
        The continuation ends before the first of these.
    """

    tokens: tuple[int, ...]
    max_new_tokens: int
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class Texts:
    """What an item set asks of a model, and all that must be sent to where the model is.

    Attributes
    ----------
    sequences : tuple of TokenSequence
        Texts to be scored.
    prompts : tuple of Prompt
        Prompts to be continued.
    right : tuple of int
        Numbers of those sequences that are right texts, as far as that is known.
    """

    sequences: tuple[TokenSequence, ...]
    prompts: tuple[Prompt, ...] = ()
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class Continuation:
    """What the model said after a prompt.

    Attributes
    ----------
    tokens : tuple of int
        Those of the stop string included, but not the token that ends a text.
    text : str
        Up to the first stop string.
    ended : bool
        Whether it ended by itself or at a stop string, rather than at the limit.
    """

    tokens: tuple[int, ...]
    text: str
    ended: bool


@dataclass(frozen=True)
class Responses:
    """What the model says of an item set under one mask.

    Attributes
    ----------
    log_prob : ndarray of float64, shape (sequences,)
        Sum over the scored tokens of each sequence, in nats.
    greedy : ndarray of bool, shape (sequences,)
        Whether greedy decoding says every scored token.
    margin : ndarray of float64, shape (sequences,)
        Smallest margin of a scored token, in nats.
    continuations : tuple of Continuation
        One for each prompt.
    """

    log_prob: NDArray[np.float64]
    greedy: NDArray[np.bool_]
    margin: NDArray[np.float64]
    continuations: tuple[Continuation, ...] = ()
