"""What a model writes, judged by headsieve: right or wrong, and well or badly formed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from headsieve.measure.items import (
    GenerationItems,
    ItemSet,
    fingerprint,
    no_gradient,
)
from headsieve.measure.texts import Continuation, Prompt, Responses
from headsieve.scores import Score, margin_of
from headsieve.tasks.degenerate import Fault, find_faults
from headsieve.tasks.task import TaskItems

if TYPE_CHECKING:
    from headsieve.measure.packing import TokenSequence
    from headsieve.models.loading import Model
    from headsieve.tasks.lm_eval.task import HarnessTask

FAULTS = "faults"

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Judge:
    """How answers to documents are judged.

    Attributes
    ----------
    metric : str
    version : str
        Changes whenever a verdict may.
    verdicts : callable
        What each answer is worth, from the documents and what was said of each.
    parsed : callable
        Whether there is an answer at all in what was said of a document, right or wrong.
    """

    metric: str
    version: str
    verdicts: Callable[[Sequence[Document], Sequence[str]], Sequence[float]]
    parsed: Callable[[Document, str], bool]

    def items(self, prompts: Sequence[Prompt], documents: Sequence[Document]) -> GenerationItems:
        """Prompts to be continued, and this judge of what is said."""
        return GenerationItems(
            prompts=tuple(prompts),
            judge=lambda said: self.verdicts(documents, [one.text for one in said]),
            rules=fingerprint(self.version, [str(document) for document in documents]),
            metric=self.metric,
        )

    def faults(self, prompts: Sequence[Prompt], documents: Sequence[Document]) -> FaultItems:
        """The same prompts, and what is wrong in form with what is said."""

        def parsed(said: Sequence[Continuation]) -> list[bool]:
            return [
                self.parsed(document, one.text)
                for document, one in zip(documents, said, strict=True)
            ]

        return FaultItems(tuple(prompts), parsed, self.version)


@dataclass(frozen=True, eq=False)
class FaultItems:
    """Prompts to be continued, and for each prompt every fault of form that an answer can have.

    An item is one fault of one answer, 1 where it has it: the faults of the first answer in the
    order of `Fault`, then those of the next.

    Attributes
    ----------
    prompts : tuple of Prompt
    parsed : callable
        Whether there is an answer in each continuation.
    version : str
        Of what `parsed` depends on.
    """

    prompts: tuple[Prompt, ...]
    parsed: Callable[[Sequence[Continuation]], Sequence[bool]]
    version: str
    sequences: tuple[TokenSequence, ...] = ()
    right: tuple[int, ...] = ()
    metric: str = FAULTS
    chance: float = 0.0
    fingerprint: str = field(init=False)

    def __post_init__(self) -> None:
        prompts = [(one.tokens, one.max_new_tokens, one.stop) for one in self.prompts]
        object.__setattr__(self, "fingerprint", fingerprint(FAULTS, prompts, self.version))

    def __len__(self) -> int:
        return len(self.prompts) * len(Fault)

    def score(self, responses: Responses) -> Score:
        """One for each fault, zero where an answer lacks it."""
        said = responses.continuations
        value = np.array(
            [
                float(fault in found)
                for one, parsed in zip(said, self.parsed(said), strict=True)
                for found in (find_faults(one.text, parsed=parsed, cut_off=not one.ended),)
                for fault in Fault
            ]
        )
        return Score(value, value, margin_of(value))

    def slopes(self, log_prob: NDArray[np.float64]) -> NDArray[np.float64]:
        """Refuse, as that of `GenerationItems` does."""
        raise no_gradient()


@dataclass(frozen=True)
class JudgedTask:
    """A task of lm-evaluation-harness that has the model write, judged by headsieve.

    The harness makes the prompts. The search is on the log-probability of the reference text, as
    in `HarnessTask`.

    Attributes
    ----------
    source : HarnessTask
    judge : Judge
    """

    source: HarnessTask
    judge: Judge

    @property
    def name(self) -> str:
        """That of the harness's task."""
        return self.source.name

    @property
    def identity(self) -> Hashable:
        """Of the harness's task and the judge."""
        return (self.source.identity, self.judge.version)

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """None are known."""
        return frozenset()

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """Search and held-out documents, as those of the harness's task."""
        items = self.source.item_sets(model, seed, limit, search_limit=search_limit)
        documents = _documents(items.held_out)
        prompts = items.held_out.prompts
        return replace(
            items,
            held_out=self.judge.items(prompts, documents),
            companions={FAULTS: self.judge.faults(prompts, documents)},
        )

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All documents, or the first `limit`."""
        items = self.source.whole(model, seed, limit)
        return self.judge.items(items.prompts, _documents(items))


def _documents(items: ItemSet) -> list[Document]:
    from headsieve.tasks.lm_eval.items import HarnessItems

    assert isinstance(items, HarnessItems)
    return [requests[0].doc for requests in items.requests]
