"""What is measured of a task: an item set, and item scores from what the model says of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError, NoGradientError
from headsieve.measure.packing import TokenSequence
from headsieve.measure.texts import Continuation, Prompt, Responses
from headsieve.scores import LOG_PROB, LOG_PROB_FLOOR, Score, margin_of

if TYPE_CHECKING:
    from headsieve.tasks.task import Item

Kind = Literal["answer", "choice", "text"]


class ItemSet(Protocol):
    """Items of one task, tokenised for one model.

    The measurer computes log-probabilities of `sequences` and continuations of `prompts` under
    each mask; either may be empty. `score` makes item scores of them.
    """

    @property
    def sequences(self) -> tuple[TokenSequence, ...]:
        """Texts to be scored."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Prompts to be continued."""

    @property
    def right(self) -> tuple[int, ...]:
        """Numbers of those sequences that are right texts, as far as that is known.

        Of several right answers to an item the first. Empty where only what the model writes is
        judged.
        """

    @property
    def metric(self) -> str:
        """What `Score.value` is: ``accuracy``, ``exact_match``, or ``log_prob`` (nats a token)."""

    @property
    def chance(self) -> float:
        """The metric of blind guessing."""

    @property
    def fingerprint(self) -> str:
        """Changes when anything that is measured changes."""

    def __len__(self) -> int:
        """Number of items."""

    def score(self, responses: Responses) -> Score:
        """Item scores from what the model says under one mask."""

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivative of the search score with respect to each sequence's log-probability.

        Parameters
        ----------
        log_prob : ndarray of float64, shape (sequences,)

        Returns
        -------
        ndarray of float64, shape (sequences,)

        Raises
        ------
        HeadsieveError
            If the search score is no function of log-probabilities.
        """


def fingerprint(*content: Any) -> str:
    """Sixteen characters that change with the content, which JSON can write."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class ContinuationItems:
    """Items whose score follows from the log-probabilities of given continuations.

    Attributes
    ----------
    kind : {"answer", "choice", "text"}
    sequences : tuple of TokenSequence
        One for each continuation of each item, items in order. A text may come in several parts.
    counts : tuple of int
        Continuations of each item.
    correct : tuple of tuple of int
        The right ones of each.
    """

    kind: Kind
    sequences: tuple[TokenSequence, ...]
    counts: tuple[int, ...]
    correct: tuple[tuple[int, ...], ...]
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        digest = fingerprint(
            self.kind,
            self.counts,
            [right[0] if len(right) == 1 else right for right in self.correct],
            [(sequence.tokens, sequence.start) for sequence in self.sequences],
        )
        object.__setattr__(self, "fingerprint", digest)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """None."""
        return ()

    @property
    def right(self) -> tuple[int, ...]:
        """The first right continuation of each item; of text, all parts."""
        if self.kind == "text":
            return tuple(range(len(self.sequences)))
        firsts = np.cumsum((0, *self.counts[:-1])).tolist()
        return tuple(
            first + correct[0]
            for first, correct in zip(firsts, self.correct, strict=True)
            if correct
        )

    @property
    def metric(self) -> str:
        """``accuracy``, or ``log_prob`` for plain text."""
        return LOG_PROB if self.kind == "text" else "accuracy"

    @property
    def chance(self) -> float:
        """For choices, the mean share of right ones."""
        if self.kind != "choice":
            return 0.0
        shares = [
            len(right) / count for right, count in zip(self.correct, self.counts, strict=True)
        ]
        return float(np.mean(shares))

    def score(self, responses: Responses) -> Score:
        """Item scores from sequence scores."""
        log_prob = responses.log_prob
        if self.kind == "text":
            mean = self._by_item(log_prob, np.add) / self.lengths
            return Score(mean, mean, np.zeros_like(mean))
        if self.kind == "answer":
            return Score(log_prob, responses.greedy.astype(float), responses.margin)
        right = np.zeros(len(self))
        value = np.zeros(len(self))
        margin = np.zeros(len(self))
        for number, (values, correct) in enumerate(self._choices(log_prob)):
            others = np.delete(values, correct)
            best_right = values[correct].max(initial=-np.inf)
            whole = np.logaddexp.reduce(values)
            right[number] = np.logaddexp.reduce(values[correct]) - whole if correct else -np.inf
            value[number] = values.argmax() in correct
            margin[number] = best_right - others.max(initial=-np.inf)
        return Score(right, value, margin)

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivative of the search score with respect to each sequence's log-probability."""
        if self.kind == "text":
            slopes = np.repeat(1 / self.lengths, self.counts)
        elif self.kind == "answer":
            slopes = np.ones(len(self.sequences))
        else:
            item_slopes = []
            for values, correct in self._choices(log_prob):
                slope = -_shares(values)
                if correct:
                    slope[correct] += _shares(values[correct])
                item_slopes.append(slope)
            slopes = np.concatenate(item_slopes)
        unused = np.zeros(len(log_prob))
        score = self.score(Responses(log_prob, unused.astype(bool), unused))
        # The score of an item at the floor does not move.
        moves = score.log_prob > LOG_PROB_FLOOR
        return np.asarray(slopes * np.repeat(moves, self.counts) / len(self))

    def _by_item(self, values: NDArray[Any], reduction: np.ufunc) -> NDArray[Any]:
        """Sequence values brought together item by item."""
        starts = np.cumsum((0, *self.counts[:-1]))
        return np.asarray(reduction.reduceat(values, starts))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Scored tokens of each item."""
        lengths = [len(sequence.tokens) - sequence.start for sequence in self.sequences]
        return self._by_item(np.array(lengths), np.add)

    def _choices(
        self, log_prob: NDArray[np.float64]
    ) -> list[tuple[NDArray[np.float64], list[int]]]:
        """For each item, the values of its choices and the right ones."""
        parts = np.split(log_prob, np.cumsum(self.counts)[:-1])
        return [(part, list(right)) for part, right in zip(parts, self.correct, strict=True)]


def _shares(log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities among these alone."""
    return np.asarray(np.exp(log_prob - np.logaddexp.reduce(log_prob)))


@dataclass(frozen=True, eq=False)
class GenerationItems:
    """Items that the model must continue, and a judge of what it says.

    Attributes
    ----------
    prompts : tuple of Prompt
        One for each item.
    judge : callable
        The metric of each item, 0 to 1, from all items' continuations under one mask.
    rules : str
        What the verdicts depend on beside the continuations (reference answers, version of the
        judge); a part of the fingerprint.
    metric : str
    """

    prompts: tuple[Prompt, ...]
    judge: Callable[[Sequence[Continuation]], Sequence[float]]
    rules: str
    metric: str = "accuracy"
    chance: float = 0.0
    sequences: tuple[TokenSequence, ...] = ()
    right: tuple[int, ...] = ()
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        prompts = [(one.tokens, one.max_new_tokens, one.stop) for one in self.prompts]
        object.__setattr__(self, "fingerprint", fingerprint(prompts, self.rules, self.metric))

    def __len__(self) -> int:
        return len(self.prompts)

    def score(self, responses: Responses) -> Score:
        """The judge's verdicts, which stand for log-probabilities and margins too."""
        value = np.asarray(self.judge(responses.continuations), dtype=np.float64)
        return Score(value, value, margin_of(value))

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Refuse: what is said is no smooth function of anything."""
        raise no_gradient()


@dataclass(frozen=True, eq=False)
class JoinedItems:
    """Item sets measured as one.

    Attributes
    ----------
    parts : tuple of ItemSet
        All with the same metric.
    weights : ndarray of float64, shape (items,), mean 1
        Of each item in the mean of the metric; its value is multiplied by it.
    """

    parts: tuple[ItemSet, ...]
    weights: NDArray[np.float64]
    sequences: tuple[TokenSequence, ...] = field(init=False)
    prompts: tuple[Prompt, ...] = field(init=False)

    def __post_init__(self) -> None:
        sequences = tuple(one for part in self.parts for one in part.sequences)
        prompts = tuple(one for part in self.parts for one in part.prompts)
        object.__setattr__(self, "sequences", sequences)
        object.__setattr__(self, "prompts", prompts)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def right(self) -> tuple[int, ...]:
        """Those of all parts."""
        firsts = np.cumsum((0, *(len(part.sequences) for part in self.parts))).tolist()
        return tuple(
            first + number
            for first, part in zip(firsts, self.parts, strict=False)
            for number in part.right
        )

    @property
    def metric(self) -> str:
        """That of all parts."""
        return self.parts[0].metric

    @property
    def chance(self) -> float:
        """The mean over the items, weighted as the metric is."""
        chances = np.repeat(
            [part.chance for part in self.parts], [len(part) for part in self.parts]
        )
        return float((self.weights * chances).mean())

    @property
    def fingerprint(self) -> str:
        """That of all parts and of the weights."""
        return fingerprint([part.fingerprint for part in self.parts], self.weights.tolist())

    def score(self, responses: Responses) -> Score:
        """Item scores of all parts."""
        scores = []
        first, first_prompt = 0, 0
        for part in self.parts:
            own = slice(first, first + len(part.sequences))
            said = slice(first_prompt, first_prompt + len(part.prompts))
            first, first_prompt = own.stop, said.stop
            scores.append(
                part.score(
                    Responses(
                        responses.log_prob[own],
                        responses.greedy[own],
                        responses.margin[own],
                        responses.continuations[said],
                    )
                )
            )
        return Score(
            np.concatenate([score.log_prob for score in scores]),
            self.weights * np.concatenate([score.value for score in scores]),
            np.concatenate([score.margin for score in scores]),
        )

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivative of the search score with respect to each sequence's log-probability."""
        ends = np.cumsum([len(part.sequences) for part in self.parts])
        own = np.split(log_prob, ends[:-1])
        return np.concatenate(
            [
                part.slopes(values) * len(part) / len(self)
                for part, values in zip(self.parts, own, strict=True)
            ]
        )


def no_gradient() -> NoGradientError:
    """The error of an item set whose search score has no derivative."""
    return NoGradientError("what a model says has no gradient")


def tokenize(items: Sequence[Item], prefix: str, kind: Kind, tokenizer: Any) -> ContinuationItems:
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
    return ContinuationItems(
        kind,
        tuple(sequences),
        tuple(len(item.continuations) for item in items),
        tuple((item.correct,) for item in items),
    )


def _shared(prompt: Sequence[int], tokens: Sequence[int]) -> int:
    """Number of tokens before the first in which a text differs from its prompt alone."""
    for number, (one, other) in enumerate(zip(prompt, tokens, strict=False)):
        if one != other:
            return number
    return min(len(prompt), len(tokens) - 1)
