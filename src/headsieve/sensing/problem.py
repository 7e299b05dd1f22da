"""What a search is given, what it asks for, and what it has been told."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from headsieve.scores import GRADIENT_COST, Score

Masks = NDArray[np.bool_]
Columns = tuple[int, ...]
Prior = Literal["none", "gradient"]

# A nat that the right answers lose counts as much as this share of the capability.
SHARE_PER_NAT = 0.1
# What is measured by force, at chance, has no whole to take a share of.
_LEAST_WHOLE = 0.1


@dataclass(frozen=True)
class Problem:
    """One capability to localize.

    Attributes
    ----------
    heads : int
        Heads of the model, the columns of every mask.
    capability : str
    controls : mapping of str to float
        Each control's name and how much of its metric a chosen set may cost it.
    budget : int
        Evaluations of the capability that the search may ask for.
    set_size : int
        Heads in the set to be found, at most.
    seed : int
    in_nats : frozenset of str
        Tasks whose metric is a log-probability, not an accuracy.
    prior : {"none", "gradient"}
        Whether the search may ask for gradients to begin with.
    chance : float
        Share of the capability's items that guessing gets right.
    """

    heads: int
    capability: str
    controls: Mapping[str, float]
    budget: int
    set_size: int
    seed: int
    in_nats: frozenset[str] = frozenset()
    prior: Prior = "none"
    chance: float = 0.0

    @property
    def tasks(self) -> tuple[str, ...]:
        """The capability, then its controls."""
        return (self.capability, *self.controls)


@dataclass(frozen=True)
class Question:
    """Masks to be measured, shape (masks, heads), on these tasks."""

    masks: Masks
    tasks: tuple[str, ...]


@dataclass(frozen=True)
class GradientQuestion:
    """The gradient of each task's search score with respect to a gate on every head.

    Of the unmodified model. It costs `GRADIENT_COST` evaluations.
    """

    tasks: tuple[str, ...]


AnyQuestion = Question | GradientQuestion
# For each task, a score a mask; to a `GradientQuestion`, for each task that has one, the gradient,
# shape (heads,).
Answer = Mapping[str, Sequence[Score] | NDArray[np.float64]]


@dataclass
class Ledger:
    """Everything a search has been told.

    Attributes
    ----------
    problem : Problem
    scores : dict
        For each task, the score of each set of heads (ascending columns; ``()`` for the
        unmodified model).
    gradients : dict
        For each task that it was asked for, the gradient of the search score.
    """

    problem: Problem
    scores: dict[str, dict[Columns, Score]] = field(init=False)
    gradients: dict[str, NDArray[np.float64]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.scores = {task: {} for task in self.problem.tasks}

    def ask(
        self, sets: Sequence[Columns], tasks: Sequence[str]
    ) -> Generator[Question, Answer, None]:
        """Ask for what is not known yet of these sets of heads, and note the answer.

        Use it as ``yield from ledger.ask(...)`` within a strategy.
        """
        together: dict[tuple[Columns, ...], list[str]] = {}
        for task in tasks:
            unknown = [chosen for chosen in dict.fromkeys(sets) if chosen not in self.scores[task]]
            if unknown:
                together.setdefault(tuple(unknown), []).append(task)
        for unknown_sets, asked in together.items():
            answer = yield Question(to_masks(unknown_sets, self.problem.heads), tuple(asked))
            for task in asked:
                scores = cast(Sequence[Score], answer[task])
                self.scores[task].update(zip(unknown_sets, scores, strict=True))

    def ask_gradients(self) -> Generator[GradientQuestion, Answer, None]:
        """Ask for the gradients of all tasks, and note those that there are.

        Those of controls are no use where the capability has none.
        """
        for tasks in ((self.problem.capability,), tuple(self.problem.controls)):
            answer = yield GradientQuestion(tasks)
            for task, gradient in answer.items():
                self.gradients[task] = cast(NDArray[np.float64], gradient)
            if not self.gradients:
                return

    @property
    def spent(self) -> int:
        """Evaluations of the capability so far."""
        capability = self.problem.capability
        return len(self.scores[capability]) + GRADIENT_COST * (capability in self.gradients)

    @property
    def left(self) -> int:
        """Evaluations of the capability that the budget still allows."""
        return self.problem.budget - self.spent

    @property
    def control_evaluations(self) -> int:
        """Evaluations of controls so far."""
        return sum(
            len(self.scores[task]) + GRADIENT_COST * (task in self.gradients)
            for task in self.problem.controls
        )

    def drop(self, task: str, chosen: Columns) -> float:
        """How much a measured set costs a task: in smooth accuracy, or in nats for `in_nats`.

        A few dozen items that are right or wrong resolve no loss of 0.05, and whatever luck the
        unmodified model had on them looks like a loss under every mask; margins move smoothly and
        show the same loss without that bias.
        """
        return float(self._losses(task, chosen).mean())

    def excess(self, chosen: Columns) -> float:
        """By how much a set costs controls more than they may lose, summed over them.

        A control exceeds its limit when its drop does by more than one standard error: on a few
        dozen items a set that costs nothing would fail a limit of 0.05 on one of six controls
        about as often as not.
        """
        return sum(
            max(0.0, self.drop(task, chosen) - allowed - self.noise(task, chosen))
            for task, allowed in self.problem.controls.items()
        )

    def noise(self, task: str, chosen: Columns) -> float:
        """Standard error of a set's drop on a task, over its items."""
        losses = self._losses(task, chosen)
        return float(losses.std() / np.sqrt(len(losses)))

    def _losses(self, task: str, chosen: Columns) -> NDArray[np.float64]:
        """What a set costs each item of a task."""
        before, after = self.scores[task][()], self.scores[task][chosen]
        if task in self.problem.in_nats:
            return before.value - after.value
        return before.smooth - after.smooth

    def damage(self, chosen: Columns) -> float:
        """What a measured set does to the capability, in shares of it.

        The share that is lost (see `remaining`), and a tenth for each nat that the right answers
        become less likely: that goes on counting when all search items are wrong already, and
        others are not yet.
        """
        capability = self.problem.capability
        scores = self.scores[capability]
        nats = scores[()].search - scores[chosen].search
        if capability in self.problem.in_nats:
            return SHARE_PER_NAT * nats
        return 1 - self.remaining(chosen) + SHARE_PER_NAT * nats

    def remaining(self, chosen: Columns) -> float:
        """Share of the capability that a measured set leaves: of its smooth accuracy above chance.

        Below zero where a set leaves less than guessing would. Chance is that of the accuracy;
        among many choices the smooth accuracy of a guess is a little higher.
        """
        capability = self.problem.capability
        drop = self.drop(capability, chosen)
        if capability in self.problem.in_nats:
            return float(np.exp(-drop))
        whole = self.scores[capability][()].smooth_accuracy - self.problem.chance
        return 1 - drop / max(whole, _LEAST_WHOLE)

    def complete(self) -> list[Columns]:
        """Sets measured on the capability and on every control, the unmodified model left out."""
        known = self.scores[self.problem.capability]
        return [
            chosen
            for chosen in known
            if chosen and all(chosen in self.scores[task] for task in self.problem.controls)
        ]


def to_masks(sets: Sequence[Columns], heads: int) -> Masks:
    """Sets of heads as masks, shape (sets, heads)."""
    masks = np.zeros((len(sets), heads), dtype=bool)
    for mask, chosen in zip(masks, sets, strict=True):
        mask[list(chosen)] = True
    return masks


def to_sets(masks: Masks) -> list[Columns]:
    """Masks as sets of heads."""
    return [tuple(int(column) for column in np.flatnonzero(mask)) for mask in masks]
