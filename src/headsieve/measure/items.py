"""Items as token sequences, and item scores from token scores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from headsieve.errors import HeadsieveError
from headsieve.measure.packing import TokenSequence
from headsieve.scores import LOG_PROB_FLOOR, Score
from headsieve.tasks.task import Item, Kind


@dataclass(frozen=True)
class ItemSet:
    """Items of one task, tokenised for one model.

    Attributes
    ----------
    kind : {"answer", "choice", "text"}
    sequences : tuple of TokenSequence
        One for each continuation of each item, items in order.
    counts : tuple of int
        Continuations of each item.
    correct : tuple of int
        The right one of each.
    fingerprint : str
        Changes when anything that is measured changes.
    """

    kind: Kind
    sequences: tuple[TokenSequence, ...]
    counts: tuple[int, ...]
    correct: tuple[int, ...]
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        content = [
            self.kind,
            self.counts,
            self.correct,
            [(sequence.tokens, sequence.start) for sequence in self.sequences],
        ]
        digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
        object.__setattr__(self, "fingerprint", digest)

    def __len__(self) -> int:
        return len(self.counts)

    def score(
        self,
        log_prob: NDArray[np.float64],
        greedy: NDArray[np.bool_],
        margin: NDArray[np.float64],
    ) -> Score:
        """Item scores from sequence scores.

        Parameters
        ----------
        log_prob : ndarray of float64, shape (sequences,)
            Sum over the scored tokens of each sequence.
        greedy : ndarray of bool, shape (sequences,)
            Whether greedy decoding says every scored token.
        margin : ndarray of float64, shape (sequences,)
            Smallest margin of a scored token.
        """
        if self.kind == "text":
            lengths = [len(sequence.tokens) - sequence.start for sequence in self.sequences]
            mean = log_prob / lengths
            return Score(mean, mean, np.zeros_like(mean))
        if self.kind == "answer":
            return Score(log_prob, greedy.astype(float), margin)
        ends = np.cumsum(self.counts)
        choices = np.split(log_prob, ends[:-1])
        best = [values.argmax() for values in choices]
        right = np.zeros(len(choices))
        margins = np.zeros(len(choices))
        for number, (values, correct) in enumerate(zip(choices, self.correct, strict=True)):
            right[number] = values[correct] - np.logaddexp.reduce(values)
            margins[number] = values[correct] - np.delete(values, correct).max()
        return Score(right, np.equal(best, self.correct).astype(float), margins)

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivative of the search score with respect to each sequence's log-probability.

        Parameters
        ----------
        log_prob : ndarray of float64, shape (sequences,)

        Returns
        -------
        ndarray of float64, shape (sequences,)
        """
        if self.kind == "text":
            lengths = [len(sequence.tokens) - sequence.start for sequence in self.sequences]
            item_slopes = [np.array([1 / length]) for length in lengths]
        elif self.kind == "answer":
            item_slopes = [np.ones(1) for _ in self.sequences]
        else:
            ends = np.cumsum(self.counts)
            item_slopes = []
            for values, correct in zip(np.split(log_prob, ends[:-1]), self.correct, strict=True):
                slope = -softmax(values)
                slope[correct] += 1
                item_slopes.append(slope)
        score = self.score(log_prob, np.zeros(len(log_prob), dtype=bool), np.zeros(len(log_prob)))
        # The score of an item at the floor does not move.
        moves = score.log_prob > LOG_PROB_FLOOR
        return np.concatenate(
            [slope * move / len(self) for slope, move in zip(item_slopes, moves, strict=True)]
        )


def tokenize(items: Sequence[Item], prefix: str, kind: Kind, tokenizer: Any) -> ItemSet:
    """Tokenise items behind their few-shot examples.

    Prompt and continuation are tokenised as one text, and what is scored begins at the first
    token in which it differs from the prompt alone. A choice may merge with the end of the prompt
    where others do not; all of them are scored from where the first one differs, behind the same
    tokens.
    """
    sequences: list[TokenSequence] = []
    for item in items:
        prompt = tokenizer(prefix + item.prompt)["input_ids"] if prefix + item.prompt else []
        texts = [
            tuple(tokenizer(prefix + item.prompt + continuation)["input_ids"])
            for continuation in item.continuations
        ]
        for continuation, tokens in zip(item.continuations, texts, strict=True):
            # The first token has nothing before it to be predicted from.
            if len(tokens) < 2:
                raise HeadsieveError(
                    f"The item {(item.prompt + continuation)[:40]!r} is a single token; it needs a "
                    "longer prompt."
                )
        start = max(1, min(_shared(prompt, tokens) for tokens in texts))
        sequences += [TokenSequence(tokens, start) for tokens in texts]
    return ItemSet(
        kind,
        tuple(sequences),
        tuple(len(item.continuations) for item in items),
        tuple(item.correct for item in items),
    )


def _shared(prompt: Sequence[int], tokens: Sequence[int]) -> int:
    """Number of tokens before the first in which a text differs from its prompt alone."""
    for number, (one, other) in enumerate(zip(prompt, tokens, strict=False)):
        if one != other:
            return number
    return min(len(prompt), len(tokens) - 1)
