"""Documents of one task of lm-evaluation-harness as an item set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headsieve.errors import HeadsieveError
from headsieve.measure.items import ContinuationItems, Kind, fingerprint, no_gradient
from headsieve.measure.packing import TokenSequence
from headsieve.measure.texts import Prompt, Responses
from headsieve.scores import LOG_PROB, Score, margin_of
from headsieve.tasks.lm_eval.loading import harness
from headsieve.tasks.lm_eval.options import PREFIX

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from headsieve.tasks.lm_eval.requests import RequestNotes

# Metrics by which the likeliest choice is right, or that for its length.
_COMPARISONS = ("acc", "acc_norm", "acc_bytes")


@dataclass(frozen=True)
class Measure:
    """What of the harness's results is an item's value: a metric, and the filter it comes after.

    Attributes
    ----------
    metric : str
        ``log_prob`` for text, whose metrics have no value for a single document.
    filter : str
    """

    metric: str
    filter: str


@dataclass(frozen=True, eq=False)
class HarnessItems:
    """Some documents of a task, the requests they make, and the harness's judgement of the answers.

    Attributes
    ----------
    task : lm_eval.api.task.Task
    measure : Measure
    requests : tuple of tuple of lm_eval.api.instance.Instance
        Of each document.
    sequences : tuple of TokenSequence
        Those that `known` looks at come first.
    prompts : tuple of Prompt
    places : tuple of tuple of tuple of int
        For each request of each document, the numbers of its sequences, or that of its prompt.
    known : ContinuationItems or None
        How likely right answers are; None where only the harness can tell which answer is right.
    """

    task: Any
    measure: Measure
    requests: tuple[tuple[Instance, ...], ...]
    sequences: tuple[TokenSequence, ...]
    prompts: tuple[Prompt, ...]
    places: tuple[tuple[tuple[int, ...], ...], ...]
    known: ContinuationItems | None
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        digest = fingerprint(
            [(sequence.tokens, sequence.start) for sequence in self.sequences],
            [(one.tokens, one.max_new_tokens, one.stop) for one in self.prompts],
            [self.measure.metric, self.measure.filter, self.task.VERSION],
            # What is right may be said by any field of a document.
            [str(requests[0].doc) for requests in self.requests],
        )
        object.__setattr__(self, "fingerprint", digest)

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def right(self) -> tuple[int, ...]:
        """Right texts, where headsieve can tell which they are."""
        return () if self.known is None else self.known.right

    @property
    def metric(self) -> str:
        """The harness's name of it, or ``log_prob`` (nats a token)."""
        return self.measure.metric

    @property
    def chance(self) -> float:
        """The metric of blind guessing among choices; 0 where there are none."""
        return 0.0 if self.known is None else self.known.chance

    def score(self, responses: Responses) -> Score:
        """Item scores: the harness's metric, and how likely right answers are."""
        right = None if self.known is None else self._right(responses)
        if self.metric == LOG_PROB:
            assert right is not None
            assert self.known is not None
            # Weighted so that the mean is that over all tokens, as in a perplexity.
            lengths = self.known.lengths
            return Score(right.log_prob, right.value * lengths / lengths.mean(), right.margin)
        results = self.results(responses, (self.measure.filter,))[self.measure.filter]
        try:
            value = np.array([float(one[self.metric]) for one in results])
        except (KeyError, TypeError, ValueError):
            raise HeadsieveError(
                f"{PREFIX}{self.task.get_config('task')}: its metric {self.metric} is no number "
                "for a single document."
            ) from None
        if right is None:
            return Score(value, value, margin_of(value))
        return Score(right.log_prob, value, self._margins(responses, right, value))

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Derivative of the search score with respect to each sequence's log-probability."""
        if self.known is None:
            raise no_gradient()
        slopes = np.zeros(len(log_prob))
        count = len(self.known.sequences)
        slopes[:count] = self.known.slopes(log_prob[:count])
        return slopes

    def results(
        self, responses: Responses, filters: Sequence[str] | None = None
    ) -> dict[str, list[dict[str, Any]]]:
        """The harness's metrics of each document, after each filter.

        Parameters
        ----------
        responses : Responses
        filters : sequence of str, optional
            Names of filters; default all.
        """
        instances = [one for requests in self.requests for one in requests]
        for instance, places in zip(
            instances, (places for own in self.places for places in own), strict=True
        ):
            answer = self._answer(instance, places, responses)
            instance.resps = [answer] * (instance.repeats or 1)
        found = {}
        with harness():
            for ensemble in self.task._filters:
                if filters is not None and ensemble.name not in filters:
                    continue
                ensemble.apply(instances)
                found[ensemble.name] = [
                    self.task.process_results(
                        requests[0].doc, [one.filtered_resps[ensemble.name] for one in requests]
                    )
                    for requests in self.requests
                ]
        return found

    def _answer(self, request: Instance, places: tuple[int, ...], responses: Responses) -> Any:
        """What the harness expects of a model for a request."""
        if request.request_type == "generate_until":
            return responses.continuations[places[0]].text
        log_prob = float(responses.log_prob[list(places)].sum())
        if request.request_type == "loglikelihood_rolling":
            return log_prob
        return log_prob, bool(responses.greedy[places[0]])

    def _right(self, responses: Responses) -> Score:
        assert self.known is not None
        own = slice(len(self.known.sequences))
        return self.known.score(
            Responses(responses.log_prob[own], responses.greedy[own], responses.margin[own])
        )

    def _margins(
        self, responses: Responses, right: Score, value: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """By how much right answers win by the metric's own comparison, in nats."""
        assert self.known is not None
        if callable(self.task.config.process_results) or self.metric not in _COMPARISONS:
            return margin_of(value)
        if self.known.kind == "answer" or self.metric == "acc":
            return right.margin
        margins = np.zeros(len(self))
        ends = np.cumsum((0, *self.known.counts))
        for number, (requests, correct) in enumerate(
            zip(self.requests, self.known.correct, strict=True)
        ):
            choices = self.task.doc_to_choice(requests[0].doc)
            lengths = np.array(
                [
                    len(choice if self.metric == "acc_norm" else choice.encode())
                    for choice in choices
                ]
            )
            values = responses.log_prob[ends[number] : ends[number + 1]] / lengths
            others = np.delete(values, correct).max(initial=-np.inf)
            best = max(correct, key=values.__getitem__, default=None)
            # In nats of the right choice.
            margins[number] = -np.inf if best is None else (values[best] - others) * lengths[best]
        return margins


def build_items(
    task: Any, measure: Measure, requests: Sequence[Sequence[Instance]], notes: RequestNotes
) -> HarnessItems:
    """Tokenise the requests of some documents.

    Parameters
    ----------
    task : lm_eval.api.task.Task
    measure : Measure
    requests : sequence of sequence of lm_eval.api.instance.Instance
        Of each document.
    notes : RequestNotes
    """
    judged = [_right_ones(task, own) for own in requests]
    kind = judged[0][0]
    sequences: list[TokenSequence] = []
    aside: list[TokenSequence] = []
    counts: list[int] = []
    asides: list[tuple[int, int, int]] = []
    prompts: list[Prompt] = []
    places: list[list[tuple[int, ...]]] = []
    for number, own in enumerate(requests):
        places.append([])
        first = len(sequences)
        for place, request in enumerate(own):
            if request.request_type == "generate_until":
                places[-1].append((len(prompts),))
                prompts.append(notes.prompt(request))
                continue
            found = notes.sequences(request)
            if kind is not None and place < judged[number][1]:
                places[-1].append(tuple(range(len(sequences), len(sequences) + len(found))))
                sequences += found
            else:
                places[-1].append(())
                asides.append((number, place, len(found)))
                aside += found
        counts.append(len(sequences) - first)
    right = None
    if kind is not None:
        correct = tuple(golds for _, _, golds in judged)
        right = ContinuationItems(kind, tuple(sequences), tuple(counts), correct)
    end = len(sequences)
    for number, place, count in asides:
        places[number][place] = tuple(range(end, end + count))
        end += count
    return HarnessItems(
        task,
        measure,
        tuple(map(tuple, requests)),
        (*sequences, *aside),
        tuple(prompts),
        tuple(map(tuple, places)),
        right,
    )


def _right_ones(
    task: Any, requests: Sequence[Instance]
) -> tuple[Kind | None, int, tuple[int, ...]]:
    """How a document's right answer is told: the kind, the requests that matter, the right ones."""
    from lm_eval.api.task import ConfigurableTask

    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return "text", len(requests), (0,)
    if not isinstance(task, ConfigurableTask):
        return None, 0, ()
    if task.OUTPUT_TYPE == "loglikelihood" and len(requests) == 1:
        return "answer", 1, (0,)
    if task.OUTPUT_TYPE != "multiple_choice":
        return None, 0, ()
    doc = requests[0].doc
    choices = task.doc_to_choice(doc)
    gold = task.doc_to_text(doc) if task.multiple_input else task.doc_to_target(doc)
    named = gold if isinstance(gold, list) else [gold]
    places = [choices.index(one) if one in choices else one for one in named]
    right = [place for place in places if isinstance(place, int) and 0 <= place < len(choices)]
    return "choice", len(choices), tuple(right)
