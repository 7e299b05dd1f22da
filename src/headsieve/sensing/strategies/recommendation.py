"""What a search ends with."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from headsieve.sensing.choice import SetCost
from headsieve.sensing.problem import Answer, AnyQuestion, Columns
from headsieve.sensing.recovery import Effects


@dataclass(frozen=True)
class Recommendation:
    """The result of a search.

    Attributes
    ----------
    selected : tuple of int
        The set of heads found, the most effective first; empty if nothing was found.
    effects : Effects
    frontier : list of SetCost
    evaluations, control_evaluations : int
    """

    selected: Columns
    effects: Effects
    frontier: list[SetCost]
    evaluations: int
    control_evaluations: int


Search = Generator[AnyQuestion, Answer, Recommendation]
Step = Generator[AnyQuestion, Answer, None]
