"""The real cases: capabilities of SmolLM2, from a bank of measured masks and live.

A bank is one compressed NumPy file: the masks that were measured, packed eight heads to a byte,
and for each task the log-probability and the margin of every item under every mask, in single
precision, and its gradient with respect to gates on all heads. What is not in it is measured when
it is asked for, and kept in a journal beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from efficiency.compare import answered, enough
from efficiency.measures import Truth, selectivity
from efficiency.methods import Method
from efficiency.shapley import UnableError
from headsieve.errors import HeadsieveError
from headsieve.scores import Score
from headsieve.sensing.problem import (
    Answer,
    AnyQuestion,
    Columns,
    GradientQuestion,
    Masks,
    Problem,
    to_masks,
    to_sets,
)

PATH = Path(__file__).with_name("bank.npz")
CAPABILITIES = (
    *("antonym", "multiplication", "capital", "past-tense"),
    *("plural", "copying", "agreement", "addition"),
)
TEXT = "text"
# Of the tasks whose items are choices.
CHANCE = {"agreement": 0.5}
# Cases without controls, whose truth are the effects on the capability as they are.
ALONE = "-alone"
CONTROL_LIMIT = 0.05
# Items are split the same way whatever the seed of a method.
_ITEMS_SEED = 0

Measure = Callable[[Masks, str], Sequence[Score]]
Slope = Callable[[str], NDArray[np.float64]]


@dataclass
class Bank:
    """Measured masks.

    Attributes
    ----------
    heads : int
    scores : dict
        For each task, the score of each set of heads on search items.
    gradients : dict
        For each task, the gradient of its search score.
    """

    heads: int
    scores: dict[str, dict[Columns, Score]] = field(default_factory=dict)
    gradients: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the bank into a file, all of it or nothing."""
        arrays: dict[str, NDArray[np.generic]] = {"heads": np.array(self.heads)}
        sets = sorted({chosen for known in self.scores.values() for chosen in known})
        arrays["masks"] = np.packbits(to_masks(sets, self.heads), axis=1)
        number = {chosen: row for row, chosen in enumerate(sets)}
        for task, known in self.scores.items():
            rows = sorted(known)
            arrays[f"{task}/rows"] = np.array([number[one] for one in rows], dtype=np.uint16)
            for name in ("log_prob", "margin"):
                items = np.stack([getattr(known[one], name) for one in rows])
                arrays[f"{task}/{name}"] = items.astype(np.float32)
        for task, gradient in self.gradients.items():
            arrays[f"{task}/gradient"] = gradient.astype(np.float32)
        unfinished = path.with_suffix(".unfinished.npz")
        np.savez_compressed(unfinished, **arrays)  # type: ignore[arg-type]  # NumPy's own stubs
        unfinished.replace(path)

    @classmethod
    def load(cls, path: Path) -> Bank:
        """Read a bank.

        Raises
        ------
        HeadsieveError
            If the file is not one.
        """
        try:
            with np.load(path) as arrays:
                bank = cls(int(arrays["heads"]))
                masks = np.unpackbits(arrays["masks"], axis=1, count=bank.heads).astype(bool)
                sets = to_sets(masks)
                for key in arrays.files:
                    task, _, name = key.rpartition("/")
                    if name == "gradient":
                        bank.gradients[task] = arrays[key].astype(float)
                    if name != "rows":
                        continue
                    log_prob = arrays[f"{task}/log_prob"].astype(float)
                    margin = arrays[f"{task}/margin"].astype(float)
                    bank.scores[task] = {
                        sets[row]: _score(task, *items)
                        for row, *items in zip(arrays[key], log_prob, margin, strict=True)
                    }
        except (OSError, ValueError, KeyError) as error:
            raise HeadsieveError(f"{path} is not a bank of measured masks: {error}.") from error
        return bank


def _score(task: str, log_prob: NDArray[np.float64], margin: NDArray[np.float64]) -> Score:
    return Score(log_prob, log_prob if task == TEXT else (margin > 0).astype(float), margin)


class MeasuredModel:
    """Answers from a bank, and live what is not in it.

    Parameters
    ----------
    bank : Bank
        What is measured live is added to it.
    search : callable
        Measures masks on a task's search items.
    gradient : callable
        Gives the gradient of a task's search score.
    capability : str
    tasks : sequence of str
        The capability and its controls.
    seed : int
        Of the search.
    """

    def __init__(
        self,
        bank: Bank,
        search: Measure,
        gradient: Slope,
        capability: str,
        tasks: Sequence[str],
        seed: int,
    ) -> None:
        self.bank = bank
        self.capability = capability
        self.controls = [task for task in tasks if task != capability]
        self._search = search
        self._gradient = gradient
        self._seed = seed

    def problem(self, budget: int, set_size: int = 5) -> Problem:
        """What a search is given."""
        return Problem(
            self.bank.heads,
            self.capability,
            dict.fromkeys(self.controls, CONTROL_LIMIT),
            budget,
            set_size,
            self._seed,
            frozenset({TEXT}),
            prior="gradient",
            chance=CHANCE.get(self.capability, 0.0),
        )

    def answer(self, question: AnyQuestion) -> Answer:
        """Scores of the masks that were asked for, or gradients."""
        if isinstance(question, GradientQuestion):
            for task in set(question.tasks) - set(self.bank.gradients):
                self.bank.gradients[task] = self._gradient(task).astype(np.float32).astype(float)
            return {task: self.bank.gradients[task] for task in question.tasks}
        return {task: self._scores(to_sets(question.masks), task) for task in question.tasks}

    def _scores(self, sets: Sequence[Columns], task: str) -> list[Score]:
        known = self.bank.scores.setdefault(task, {})
        missing = list(dict.fromkeys(chosen for chosen in sets if chosen not in known))
        if missing:
            scores = self._search(to_masks(missing, self.bank.heads), task)
            for chosen, one in zip(missing, scores, strict=True):
                # As it will be read again, so that a replay asks the same.
                log_prob, margin = (
                    items.astype(np.float32).astype(float) for items in (one.log_prob, one.margin)
                )
                known[chosen] = _score(task, log_prob, margin)
        return [known[chosen] for chosen in sets]

    def truth(self) -> Truth:
        """What exhaustive single knockouts say of every head."""
        sets: list[Columns] = [(), *((head,) for head in range(self.bank.heads))]
        effects = []
        for task in (self.capability, *self.controls):
            base, *singles = self._scores(sets, task)
            effects.append(np.array([one.search for one in singles]) - base.search)
        return Truth(effects[0], selectivity(effects))

    def held_out_drops(self, chosen: Columns) -> tuple[float, float]:
        """Not measured: a study verifies its own set; docs/results.md has such verifications."""
        return float("nan"), float("nan")


@cache
def _live(folder: Path) -> tuple[int, Measure, Slope]:
    """The model's heads, and what measures it through a journal in a folder."""
    from headsieve.measure.journal import Journal
    from headsieve.models.loading import load_model
    from headsieve.progress import Progress
    from headsieve.tasks import load_task
    from headsieve.workbench import Workbench, split_tasks

    model = load_model("smollm2")
    tasks = {name: load_task(name) for name in (*CAPABILITIES, TEXT)}
    bench = Workbench(
        model,
        tasks,
        split_tasks(model, tasks, {}, seed=_ITEMS_SEED, limit=None),
        Journal(folder / "bank.sqlite"),
        batch_size="auto",
        progress=Progress(),
    )

    def gradient(task: str) -> NDArray[np.float64]:
        return np.asarray(bench.answer(GradientQuestion((task,)))[task], dtype=np.float64)

    return len(model.geometry), bench.search, gradient


def cases(path: Path) -> Mapping[str, Callable[[int], MeasuredModel]]:
    """For each real case, what makes its model of a seed; nothing where there is no bank."""
    if not path.exists():
        return {}
    bank = Bank.load(path)
    return {
        task + kind: partial(_case, bank, path.parent, task + kind)
        for kind in ("", ALONE)
        for task in CAPABILITIES
        if task in bank.scores
    }


def _case(bank: Bank, folder: Path, case: str, seed: int) -> MeasuredModel:
    def search(masks: Masks, task: str) -> Sequence[Score]:
        return _live(folder)[1](masks, task)

    def gradient(task: str) -> NDArray[np.float64]:
        return _live(folder)[2](task)

    capability = case.removesuffix(ALONE)
    tasks = (capability,) if case.endswith(ALONE) else (*CAPABILITIES, TEXT)
    return MeasuredModel(bank, search, gradient, capability, tasks, seed)


def measure(
    path: Path,
    capabilities: Sequence[str],
    methods: Mapping[str, Method],
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> None:
    """Measure the truth of the real cases and what methods ask, and write the bank after each.

    Interrupted, it goes on from the journal, which has every measurement.
    """
    heads = _live(path.parent)[0]
    bank = Bank.load(path) if path.exists() else Bank(heads)
    for capability in capabilities:
        _case(bank, path.parent, capability, 0).truth()
        bank.save(path)
        for seed in seeds:
            subject = _case(bank, path.parent, capability, seed)
            for name, method in methods.items():
                for budget in enough(name, heads, budgets):
                    try:
                        answered(method, subject.problem(budget), subject)
                    except (HeadsieveError, UnableError):
                        # What cannot be done within the budget asks for nothing to be kept.
                        continue
            bank.save(path)
