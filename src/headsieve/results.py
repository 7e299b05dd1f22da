"""The form of ``result.json``: what other programs may rely on.

Numbers are not rounded. A change that breaks a reader raises `SCHEMA`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from headsieve.errors import HeadsieveError
from headsieve.models.heads import parse_unit

if TYPE_CHECKING:
    from headsieve.models.heads import AnyUnit
    from headsieve.sensing.recovery import Effects

SCHEMA = 1

Interval = tuple[float, float]


class Part(BaseModel):
    """What all parts of a result have in common: no other entries, no infinities, no changes."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True
    )


class Document(Part):
    """What is a JSON file of its own."""

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the file's text; one of another form raises `pydantic.ValidationError`."""
        return cls.model_validate_json(text)

    def to_json(self) -> str:
        """The text of the file."""
        return self.model_dump_json(by_alias=True, indent=2) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain lists and dictionaries."""
        return self.model_dump(mode="json", by_alias=True)


class ModelInfo(Part):
    """The model that was studied."""

    name: str
    revision: str | None
    architecture: str
    layers: int
    heads: int
    dtype: str
    device: str
    fingerprint: str

    def require(self, heads: Iterable[PlacedHead]) -> None:
        """Check that heads are within the model, as charts take for granted.

        Raises
        ------
        ValueError
            If one is not.
        """
        for one in heads:
            if one.layer >= self.layers or one.index > self.heads:
                raise ValueError(f"a model of {self.layers} layers has no {one.head}")


class PlacedHead(Part):
    """A head, or another unit, by its name and by its place."""

    head: str
    layer: int = Field(ge=0)
    index: int = Field(ge=0)

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        try:
            unit = parse_unit(self.head)
        except HeadsieveError as error:
            raise ValueError(str(error)) from None
        if (unit.layer, unit.index) != (self.layer, self.index):
            raise ValueError(f"{self.head} is not in layer {self.layer}, index {self.index}")
        return self


class HeadResult(PlacedHead):
    """One head.

    Attributes
    ----------
    effect : float
        Change of the capability's search score (mean log-probability of the right answer, nats)
        when the head is knocked out; negative: the capability needs it.
    ci : tuple of float
        95 % interval of the effect.
    selection : float
        Share of resamplings in which the head is among the best.
    control_effect : float or None
        Its worst effect on a control's search score; None where no control was measured.
    """

    effect: float
    ci: Interval
    selection: float
    control_effect: float | None


class FrontierPoint(Part):
    """A measured set that no other beats both in drop and in worst control drop (search items)."""

    heads: list[str]
    drop: float
    worst_control_drop: float


class Evaluations(Part):
    """Evaluations spent on the capability and on its controls."""

    capability: int
    controls: int


class Claim(Part):
    """A task before and after the knockout, on held-out items; `drop` is the difference.

    Attributes
    ----------
    metric : str
        ``accuracy``, a share by another name (``acc_norm``, ``exact_match``), or ``log_prob``,
        which is nats a token.
    """

    metric: str
    items: int
    baseline: float
    knocked_out: float
    drop: float
    ci: Interval


class TaskScore(Part):
    """A task as ``headsieve score`` measures it.

    Attributes
    ----------
    metric : str
        As that of `Claim`.
    ci : tuple of float
        95 % interval of the drop or, where nothing is knocked out, of the baseline.
    """

    metric: str
    items: int
    baseline: float
    knocked_out: float | None
    drop: float | None
    ci: Interval


class CapabilityClaim(Claim):
    """The capability's own claim, with the p-value of a sign-flip permutation test."""

    p_value: float


class RandomSets(Part):
    """Drops of the capability under random sets of as many heads."""

    count: int
    mean_drop: float
    max_drop: float


class FormCheck(Part):
    """Whether a drop is one of the form of the answers, and not of what is known.

    Attributes
    ----------
    explains : bool or None
        None where what was measured cannot tell.
    reason : str
    text : Claim or None
        The same items answered in words, for a task that is answered by letters.
    trivial : Claim or None
        Trivial questions answered by letters.
    faults : dict of str to tuple of float
        For what is written: the share of answers with each fault of form, before and after.
    """

    explains: bool | None
    reason: str
    text: Claim | None = None
    trivial: Claim | None = None
    faults: dict[str, tuple[float, float]] = Field(default_factory=dict)


class SubsetDrop(Part):
    """Some of the selected heads, and what the capability loses without them."""

    heads: list[str]
    drop: float


class HeadShare(Part):
    """A head's Shapley value: its share in the drop; `ci` is its 95 % interval."""

    head: str
    value: float
    ci: Interval


class HeadPair(Part):
    """The Shapley interaction index of two heads, with its 95 % interval.

    Above zero they back each other up: together they cost more than each of them. Below zero they
    overlap: what one costs, the other does not cost again.
    """

    heads: tuple[str, str]
    value: float
    ci: Interval


class Interactions(Part):
    """All subsets of the selected heads, on held-out items (`headsieve.interactions`)."""

    subsets: list[SubsetDrop]
    shapley: list[HeadShare]
    pairs: list[HeadPair]


class Verification(Part):
    """What held-out items say.

    Attributes
    ----------
    form : FormCheck or None
        For capabilities that are answered by letters, in words or in longer writing, where heads
        were chosen; otherwise ``result.json`` leaves it out.
    interactions : Interactions or None
        Where they were asked for and heads were chosen; otherwise ``result.json`` leaves it out.
    """

    capability: CapabilityClaim
    controls: dict[str, Claim]
    random_sets: RandomSets
    form: FormCheck | None = Field(default=None, exclude_if=lambda form: form is None)
    interactions: Interactions | None = Field(default=None, exclude_if=lambda one: one is None)


class CapabilityResult(Part):
    """One capability: its heads, best first, the set chosen among them and its verification."""

    heads: list[HeadResult] = Field(min_length=1)
    selected: list[str]
    frontier: list[FrontierPoint]
    evaluations: Evaluations
    verification: Verification

    @model_validator(mode="after")
    def _heads_agree(self) -> Self:
        names = {head.head for head in self.heads}
        if len(names) < len(self.heads):
            raise ValueError("a head is there twice")
        if not set(self.selected) <= names:
            raise ValueError("a selected head is not among the heads")
        return self


class Cost(Part):
    """What the study measured and what it took; times of resumed parts included."""

    evaluations: int
    tokens: int
    seconds: float
    peak_memory_bytes: int


class Result(Document):
    """A whole study."""

    schema_: Literal[1] = Field(alias="schema")
    headsieve: str
    created: str
    seed: int
    command: str
    model: ModelInfo
    capabilities: dict[str, CapabilityResult] = Field(min_length=1)
    cost: Cost
    versions: dict[str, str]

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        for capability in self.capabilities.values():
            self.model.require(capability.heads)
        return self


def ranked_heads(effects: Effects, heads: Sequence[AnyUnit]) -> list[HeadResult]:
    """What is known of every head, the most needed first."""
    return [
        HeadResult(
            head=str(heads[column]),
            layer=heads[column].layer,
            index=heads[column].index,
            effect=float(effects.effect[column]),
            ci=(float(effects.low[column]), float(effects.high[column])),
            selection=float(effects.selection[column]),
            control_effect=None
            if np.isnan(effects.control_effect[column])
            else float(effects.control_effect[column]),
        )
        for column in np.argsort(effects.effect, kind="stable")
    ]
