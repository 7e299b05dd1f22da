"""The programme of arXiv 2603.03335 on any model, beside its published figures."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from headsieve.config import SMALLEST_LIMIT, Config
from headsieve.errors import HeadsieveError
from headsieve.form import check_form
from headsieve.models.knockout import require_unmodified
from headsieve.progress import Progress
from headsieve.provenance import describe_model, total_cost, versions
from headsieve.report.reproduction import figure_svg, reproduction_page
from headsieve.reproduction import Reproduction, ReproductionConfig
from headsieve.results import FormCheck
from headsieve.runs import open_journal, run_folder, write_atomically
from headsieve.sensing.problem import Columns, Problem, to_masks
from headsieve.sensing.strategies import find_strategy, search
from headsieve.tasks import HarnessOptions, load_task
from headsieve.tasks.paper import paper_figures
from headsieve.tasks.paper_tasks import SETS
from headsieve.tasks.task import TaskItems
from headsieve.tasks.task_set import average
from headsieve.verify import claim
from headsieve.workbench import Workbench

if TYPE_CHECKING:
    from headsieve.measure.journal import Journal
    from headsieve.models.loading import Model

RESULT_FILE = "reproduction.json"
PAGE_FILE = "reproduction.html"
FIGURE_FILE = "reproduction.svg"

# The paper's head sets and the tasks that each is searched on and named after.
_HEAD_SETS = {
    "math": SETS["math"],
    "code": SETS["code"],
    "swear": ("swearing",),
    "rhyme": ("rhyming",),
}
_WMDP = {"bio": "wmdp_bio", "chem": "wmdp_chem", "cyber": "wmdp_cyber"}
_SET_SIZE = 5
_CURVE_SIZE = 10
_MAX_CONTROL_DROP = 0.05


def reproduce(
    model: Model,
    *,
    strategy: str = "paper",
    budget: int = 100,
    seed: int = 0,
    limit: int | None = None,
    batch_size: int | Literal["auto"] = "auto",
    harness: HarnessOptions | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Reproduction:
    """Search for the heads of the paper's capabilities, and measure its tables with them.

    Heads for math (ten, of which the first five are the set), code, swearing and rhyming; the ten
    tasks without each set; math, code and general tasks without 0 to 10 math heads; WMDP's subjects
    without the heads of each. A task whose data cannot be had is left out and named with the
    reason.

    Parameters
    ----------
    model : Model
    strategy : str
        ``paper``, or another of `headsieve.locate`, which then searches with the other
        capabilities as controls.
    budget : int
        Evaluations a search.
    seed : int
    limit : int, optional
        Search items of each task at most, and held-out items too.
    batch_size : int or "auto"
    harness : HarnessOptions, optional
        Where task files and the lexicon are, and whether programs may be run.
    out : path, optional
        Folder for the measurements, ``reproduction.json``, the page and the figure.
    resume : bool
        Continue what was begun in `out`.
    progress : Progress, optional

    Returns
    -------
    Reproduction

    Raises
    ------
    HeadsieveError
        If no task at all can be had, or anything else that was asked for cannot be done.
    """
    progress = progress or Progress()
    harness = harness or HarnessOptions()
    find_strategy(strategy)
    model = model.with_units("heads")
    require_unmodified(model.hf, model.geometry)
    if len(model.geometry) <= _CURVE_SIZE:
        raise HeadsieveError(
            f"The model has {len(model.geometry)} heads; the programme knocks out {_CURVE_SIZE}."
        )
    if limit is not None and limit < SMALLEST_LIMIT:
        raise HeadsieveError(f"The limit must be at least {SMALLEST_LIMIT} items, not {limit}.")
    items, missing = _available(model, harness, seed, limit, progress)
    searches = _searches(items)
    config = ReproductionConfig(
        model=model.name,
        revision=model.revision,
        dtype=model.dtype,
        device=model.device.type,
        fingerprint=model.fingerprint,
        quantize=model.quantize,
        capabilities=tuple(searches),
        controls=tuple(items),
        budget=budget,
        heads=_SET_SIZE,
        max_control_drop=_MAX_CONTROL_DROP,
        strategy=strategy,
        prior="none",
        units="heads",
        ablation="zero",
        seed=seed,
        limit=limit,
        batch_size=batch_size,
        force=True,
        items={},
        harness=harness,
    ).with_items({**items, **searches})
    folder = None if out is None else run_folder(out)
    with open_journal(folder, config, resume=resume) as journal:
        done = _Programme(model, config, items, searches, journal, progress).run(missing)
        if folder is not None:
            write_atomically(folder / FIGURE_FILE, figure_svg(done))
            write_atomically(folder / PAGE_FILE, reproduction_page(done))
            write_atomically(folder / RESULT_FILE, done.to_json())
    return done


def _available(
    model: Model,
    harness: HarnessOptions,
    seed: int,
    limit: int | None,
    progress: Progress,
) -> tuple[dict[str, TaskItems], dict[str, str]]:
    """The items of every task that can be had, and why the others cannot."""
    items: dict[str, TaskItems] = {}
    missing: dict[str, str] = {}
    for name in (*paper_figures().tasks, *_WMDP.values()):
        try:
            items[name] = load_task(name, harness).item_sets(model, seed, limit)
        except HeadsieveError as error:
            missing[name] = str(error)
            progress.note(f"Without {name}: {error}")
    if not items:
        raise HeadsieveError("None of the paper's tasks can be had; see above for each.")
    return items, missing


def _searches(items: Mapping[str, TaskItems]) -> dict[str, TaskItems]:
    """What is searched on: a set of tasks as far as its tasks can be had."""
    found = {}
    for name, members in {**_HEAD_SETS, **{name: (task,) for name, task in _WMDP.items()}}.items():
        had = [items[member] for member in members if member in items]
        if had:
            found[f"{name} heads"] = TaskItems(
                average([one.search for one in had]), average([one.held_out for one in had])
            )
    return found


@dataclass
class _Programme:
    """The searches and the tables, through one journal."""

    model: Model
    config: Config
    items: Mapping[str, TaskItems]
    searches: Mapping[str, TaskItems]
    journal: Journal
    progress: Progress
    found: dict[str, Columns] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bench = Workbench(
            self.model,
            tuple(self.searches),
            {**self.searches, **self.items},
            self.journal,
            batch_size="auto" if self.config.batch_size == "auto" else int(self.config.batch_size),
            progress=self.progress,
        )

    def run(self, missing: Mapping[str, str]) -> Reproduction:
        """Everything, in the paper's order."""
        for name in self.searches:
            self._search(name.removesuffix(" heads"))
        heads = [str(head) for head in self.model.geometry.heads]
        names = {name: [heads[column] for column in own] for name, own in self.found.items()}
        table = self._table(
            [name for name in paper_figures().tasks if name in self.items], tuple(_HEAD_SETS)
        )
        curve = self._curve() if "math" in self.found else {}
        wmdp, form = self._wmdp(), self._forms()
        return Reproduction(
            schema=1,
            headsieve=metadata.version("headsieve"),
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            command=self.config.command,
            model=describe_model(self.model),
            strategy=self.config.strategy,
            budget=self.config.budget,
            seed=self.config.seed,
            limit=self.config.limit,
            items={name: len(own.held_out) for name, own in self.items.items()},
            missing=dict(missing),
            heads=names,
            table=table,
            curve=curve,
            wmdp=wmdp,
            form=form,
            cost=total_cost(self.journal),
            versions=versions(),
        )

    def _search(self, name: str) -> None:
        """Find the heads of one set, best first."""
        capability = f"{name} heads"
        others = (
            []
            if self.config.strategy == "paper"
            else [one for one in self.searches if one != capability]
        )
        problem = Problem(
            heads=len(self.model.geometry),
            capability=capability,
            controls=dict.fromkeys(others, _MAX_CONTROL_DROP),
            budget=self.config.budget,
            set_size=_CURVE_SIZE if name == "math" else _SET_SIZE,
            seed=self.config.seed,
            in_nats=self.bench.searched_in_nats,
            prior="none",
            chance=self.bench.items[capability].search.chance,
        )
        self.progress.stage(f"Searching {name}", self.config.budget * len(problem.tasks))
        found = search(find_strategy(self.config.strategy), problem, self.bench.answer)
        if found.selected:
            self.found[name] = found.selected
        else:
            self.progress.note(f"The search found no head that {name} needs.")

    def _table(self, tasks: Sequence[str], sets: Sequence[str]) -> dict[str, dict[str, float]]:
        """Every task without each head set, by the name of the set."""
        rows = {
            "none": (),
            **{one: self.found[one][:_SET_SIZE] for one in sets if one in self.found},
        }
        masks = to_masks(list(rows.values()), len(self.model.geometry))
        self.progress.stage("The table", len(masks) * len(tasks))
        table: dict[str, dict[str, float]] = {row: {} for row in rows}
        for task in tasks:
            values = [score.metric for score in self.bench.held_out(masks, task)]
            if task == "swearing":
                # As in the paper: what is left of the unmodified model's count.
                if not values[0]:
                    self.progress.note("The unmodified model used no word of the lexicon.")
                    continue
                values = [value / values[0] for value in values]
            for row, value in zip(rows, values, strict=True):
                table[row][task] = value
        return table

    def _curve(self) -> dict[str, list[float]]:
        """Math tasks, and the means of general and code tasks, without 0 to 10 math heads."""
        chosen = self.found["math"]
        sets = [chosen[:count] for count in range(len(chosen) + 1)]
        masks = to_masks(sets, len(self.model.geometry))
        lines: dict[str, tuple[str, ...]] = {name: (name,) for name in ("gsm8k", "arithmetic")}
        lines |= {name: SETS[name] for name in ("general", "code")}
        self.progress.stage("The curve", len(masks) * sum(map(len, lines.values())))
        curve = {}
        for line, members in lines.items():
            had = [member for member in members if member in self.items]
            if had:
                scores = [
                    [score.metric for score in self.bench.held_out(masks, member)] for member in had
                ]
                curve[line] = [float(value) for value in np.mean(scores, axis=0)]
        return curve

    def _wmdp(self) -> dict[str, dict[str, float]]:
        """WMDP's subjects, MMLU and the other general tasks, without the heads of each subject."""
        subjects = {name: task for name, task in _WMDP.items() if task in self.items}
        if not subjects:
            return {}
        general = [one for one in SETS["general"] if one in self.items and one != "mmlu"]
        mmlu = [one for one in ("mmlu",) if one in self.items]
        table = self._table([*subjects.values(), *mmlu, *general], tuple(subjects))
        shown = {}
        for row, values in table.items():
            shown[row] = {name: values[task] for name, task in subjects.items()}
            shown[row] |= {one: values[one] for one in mmlu}
            if general:
                shown[row]["general"] = float(np.mean([values[one] for one in general]))
        return shown

    def _forms(self) -> dict[str, FormCheck]:
        """For each head set and task that it is for, whether the form explains the drop."""
        rng = np.random.default_rng([self.config.seed, 1])
        forms = {}
        for name, tasks in {**_HEAD_SETS, **{one: (task,) for one, task in _WMDP.items()}}.items():
            columns = self.found.get(name, ())[:_SET_SIZE]
            for task in tasks:
                if not columns or task not in self.items:
                    continue
                masks = to_masks([(), columns], len(self.model.geometry))
                metric = self.items[task].held_out.metric
                before, after = self.bench.held_out(masks, task)
                own = claim(metric, before, after, rng)
                if (form := check_form(self.bench, task, columns, own, rng)) is not None:
                    forms[task] = form
        return forms
