"""Simulated models: tasks that depend on known heads, and answer any mask as a real model would.

Every item of a task has a margin of its own, in nats. Each head that is knocked out takes
something off it, more from some items than from others; what all of them take together saturates,
and the logistic function turns what is left into a probability. So the truth is known exactly:
what every head costs alone, without noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from efficiency.measures import Truth, selectivity
from efficiency.shapley import UnableError
from headsieve.scores import Score
from headsieve.sensing.problem import (
    Answer,
    AnyQuestion,
    Columns,
    GradientQuestion,
    Masks,
    Problem,
    to_masks,
)

FloatArray = NDArray[np.float64]

CAPABILITY = "capability"
CONTROL_LIMIT = 0.05
_MARGIN = 3.0
_MARGIN_SPREAD = 1.5
_SENSITIVITY_SPREAD = 0.4
# Slope of the accuracy with respect to a shift of all margins, where half of the answers are right.
_SLOPE = 0.2
_CONTROL_HEADS = 4


@dataclass(frozen=True)
class Case:
    """A kind of simulated model.

    Attributes
    ----------
    heads : int
    mattering : int
        Heads that the capability needs and no control does.
    controls : int
        Control tasks, each with a few heads of its own.
    general : int
        Heads that every task needs, as strongly as the capability needs its own.
    backups : int
        Of the heads that matter, so many have a backup: another head that does most of their work
        when they are gone, and nothing before.
    items : int
        Items of each task.
    noise : float
        What no effect of a head explains: standard deviation of the accuracy under masks that
        leave half of it. The same mask always gives the same score.
    strongest, decay : float
        Nats that the strongest head takes off an item's margin, and the share of it that each
        next head takes.
    most : float
        Nats that any number of heads can take off a margin.
    background : float
        Nats that all the other heads take together.
    """

    heads: int
    mattering: int = 10
    controls: int = 0
    general: int = 0
    backups: int = 0
    items: int = 100
    noise: float = 0.03
    strongest: float = 4.0
    decay: float = 0.85
    most: float = 8.0
    background: float = 15.0


# 1024 heads of which 10 matter, with saturation and noise of 3 points.
STANDARD = Case(heads=1024)

CASES: Mapping[str, Case] = {
    "standard": STANDARD,
    "few-heads": Case(heads=128, mattering=3, items=50),
    "many-matter": Case(heads=512, mattering=20, decay=0.92),
    "few-items": Case(heads=256, mattering=6, items=20, noise=0.05),
    "selective": Case(heads=256, controls=5, general=4, items=32, mattering=6, decay=0.8),
    "selective-1024": Case(heads=1024, controls=5, general=6, items=100),
    "backups": Case(heads=512, controls=3, general=3, backups=3, items=500),
    **{f"growth-{heads}": Case(heads=heads) for heads in (128, 256, 512, 1024, 2048, 4096)},
}


@dataclass(frozen=True)
class _Task:
    margins: FloatArray  # (items,)
    weights: FloatArray  # (items, planted)
    background: FloatArray  # (heads,)


class SimulatedModel:
    """A model of which it is known which heads each task needs.

    Parameters
    ----------
    case : Case
    seed : int
    held_out : bool
        Whether to answer on other items of the same tasks.
    """

    def __init__(self, case: Case, seed: int, *, held_out: bool = False) -> None:
        self.case = case
        self.seed = seed
        rng = np.random.default_rng([seed, case.heads, case.mattering])
        items = np.random.default_rng([seed, 1 + held_out])
        tasks = (CAPABILITY, *(f"control {number + 1}" for number in range(case.controls)))
        own = {task: case.mattering if task == CAPABILITY else _CONTROL_HEADS for task in tasks}
        count = sum(own.values()) + case.general + case.backups
        # All heads that anything needs: general ones, each task's own, backups.
        self._planted = rng.choice(case.heads, count, replace=False)
        places = np.arange(count)
        general, places = places[: case.general], places[case.general :]
        strengths = case.strongest * case.decay ** np.arange(max(case.mattering, case.general))
        self._tasks: dict[str, _Task] = {}
        for task in tasks:
            weights = np.zeros(count)
            weights[general] = strengths[: case.general] * rng.uniform(0.8, 1.2, case.general)
            mine, places = places[: own[task]], places[own[task] :]
            weights[mine] = strengths[: own[task]]
            if task == CAPABILITY:
                self._backed = mine[: case.backups]
            sensitivity = items.normal(1, _SENSITIVITY_SPREAD, (case.items, count)).clip(0)
            background = rng.exponential(case.background / case.heads, case.heads)
            background[self._planted] = 0
            self._tasks[task] = _Task(
                items.normal(_MARGIN, _MARGIN_SPREAD, case.items), sensitivity * weights, background
            )
        self._backups = places

    def problem(self, budget: int, set_size: int = 5) -> Problem:
        """What a search is given."""
        controls = {task: CONTROL_LIMIT for task in self._tasks if task != CAPABILITY}
        return Problem(self.case.heads, CAPABILITY, controls, budget, set_size, self.seed)

    def answer(self, question: AnyQuestion) -> Answer:
        """Scores of the masks that were asked for."""
        if isinstance(question, GradientQuestion):
            raise UnableError("A simulated model's gradient would say nothing of a real one's.")
        return {task: self.scores(task, question.masks) for task in question.tasks}

    def scores(self, task: str, masks: Masks, *, noisy: bool = True) -> list[Score]:
        """Scores of a task, one a mask.

        Parameters
        ----------
        task : str
        masks : ndarray of bool, shape (masks, heads)
        noisy : bool
            Whether with the noise of a measurement.
        """
        margins = self._margins(task, masks)
        if noisy:
            margins += self._noise(task, masks)
        return [
            Score(-np.logaddexp(0, -margin), (margin > 0).astype(float), margin)
            for margin in margins
        ]

    def effects(self, task: str) -> FloatArray:
        """True effect of every head alone on a task's search score, in nats, shape (heads,)."""
        nothing = np.zeros((1, self.case.heads), dtype=bool)
        base = self.scores(task, nothing, noisy=False)[0].search
        singles = np.eye(self.case.heads, dtype=bool)
        return np.array([one.search - base for one in self.scores(task, singles, noisy=False)])

    def truth(self) -> Truth:
        """What a ranking is held against."""
        effects = [self.effects(task) for task in self._tasks]
        return Truth(effects[0], selectivity(effects))

    def held_out_drops(self, chosen: Columns) -> tuple[float, float]:
        """What a set costs capability and, at most, a control, in accuracy on other items."""
        other = SimulatedModel(self.case, self.seed, held_out=True)
        masks = to_masks([(), chosen], self.case.heads)
        drops = []
        for task in self._tasks:
            before, after = other.scores(task, masks, noisy=False)
            drops.append(before.metric - after.metric)
        return drops[0], max(drops[1:], default=0.0)

    def _margins(self, task: str, masks: Masks) -> FloatArray:
        """Margins without noise, shape (masks, items)."""
        about = self._tasks[task]
        out = masks[:, self._planted].astype(float)
        if task == CAPABILITY and len(self._backed):
            # A head whose backup is there takes a fifth; the rest is lost only with both.
            main, backup = out[:, self._backed], out[:, self._backups]
            out[:, self._backed] = main * (0.2 + 0.8 * backup)
        taken = out @ about.weights.T + (masks @ about.background)[:, None]
        most = self.case.most
        return about.margins - most * -np.expm1(-taken / most)

    def _noise(self, task: str, masks: Masks) -> FloatArray:
        """What each mask adds to all margins of a task, shape (masks, 1); nothing to an empty one.

        Common to all items, so that it is the same whatever is read off them.
        """
        shifts = np.zeros((len(masks), 1))
        for shift, mask in zip(shifts, masks, strict=True):
            content = f"{self.seed} {task} ".encode() + np.packbits(mask).tobytes()
            digest = hashlib.blake2b(content, digest_size=8).digest()
            if mask.any():
                shift[0] = np.random.default_rng(int.from_bytes(digest, "big")).normal()
        return shifts * self.case.noise / _SLOPE


def cases() -> dict[str, Callable[[int], SimulatedModel]]:
    """For each case, what makes its model of a seed."""
    return {name: partial(SimulatedModel, case) for name, case in CASES.items()}
