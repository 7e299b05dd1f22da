"""Tasks, groups and tags of lm-evaluation-harness as tasks of headsieve."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headsieve.errors import HeadsieveError, first_line
from headsieve.measure.items import ContinuationItems, ItemSet, JoinedItems, Kind
from headsieve.scores import LOG_PROB
from headsieve.tasks.letters import letter_companions
from headsieve.tasks.lm_eval.loading import Loaded, harness, load, require
from headsieve.tasks.lm_eval.options import PREFIX, HarnessOptions
from headsieve.tasks.task import (
    FEWEST_ITEMS,
    FEWEST_SEARCH_ITEMS,
    HELD_OUT_ITEMS,
    SEARCH_ITEMS,
    Item,
    TaskItems,
    item_rng,
    share_out,
)

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

    from headsieve.models.loading import Model
    from headsieve.tasks.lm_eval.items import Measure
    from headsieve.tasks.lm_eval.requests import RequestNotes

# Of several metrics, the one that is reported most.
_PREFERRED = "acc_norm"
_MEANS = ("mean", "nanmean")

# A document: the number of its task in a group, and its own in that task's data.
Place = tuple[int, int]


@dataclass(frozen=True)
class HarnessTask:
    """A task of lm-evaluation-harness, or all those of a group or tag together.

    The harness defines documents, prompts, few-shot examples and scoring. An item is a document;
    its value is the task's main metric, which is ``acc_norm`` where there is one and else the
    first that is a mean over documents. Tasks that have the model write are searched on the
    log-probability of the reference text, where they have one.

    Parameters
    ----------
    word : str
        Its name in the harness.
    options : HarnessOptions
    alias : str, optional
        Under which results list it instead of ``lm-eval:`` and its name.

    Raises
    ------
    HeadsieveError
        If lm-eval is not installed, there is no such task, or it runs what the model writes.
    """

    word: str
    options: HarnessOptions
    alias: str | None = None

    def __post_init__(self) -> None:
        require(self.word, self.options)

    @property
    def name(self) -> str:
        """As it is given on the command line."""
        return self.alias or PREFIX + self.word

    @property
    def identity(self) -> Hashable:
        """The name and the options."""
        return (self.word, self.options)

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """None are known."""
        return frozenset()

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """Search and held-out documents, drawn at random from all there are.

        Where a group's mean counts every task alike, its documents are drawn in turns from each.
        """
        build = _Builder(self, model)
        kind: Kind = "text" if build.measures[0].metric == LOG_PROB else "answer"
        pool = build.shuffled(seed)
        searched, claimed = share_out(len(pool), limit, SEARCH_ITEMS[kind], HELD_OUT_ITEMS[kind])
        if searched < FEWEST_SEARCH_ITEMS:
            raise HeadsieveError(
                f"{self.name} has {len(pool)} documents; at least {FEWEST_ITEMS} are needed for a "
                "search and a claim."
            )
        held_out = pool[searched : searched + claimed]
        search = pool[:searched][:search_limit]
        build.request([*search, *held_out])
        return TaskItems(
            build.search_items(search),
            build.items(held_out),
            {"search": build.numbers(search), "held-out": build.numbers(held_out)},
            build.companions(held_out),
        )

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All documents, or the first `limit` of each task, as in the harness."""
        build = _Builder(self, model)
        places = [
            (number, document)
            for number, size in enumerate(build.sizes)
            for document in range(size if limit is None else min(size, limit))
        ]
        build.request(places)
        return build.items(places)


class _Builder:
    """Makes item sets of documents of a loaded task or group, for one model."""

    def __init__(self, task: HarnessTask, model: Model) -> None:
        self.name = task.name
        self.options = task.options
        self.loaded: Loaded = load(task.word, task.options)
        with harness():
            from headsieve.tasks.lm_eval.requests import RequestNotes

            self.notes: RequestNotes = RequestNotes(model)
            self.sizes = [len(one.eval_docs) for one in self.loaded.tasks]
        if task.options.apply_chat_template and not self.notes.tokenizer.chat_template:
            raise HeadsieveError(
                f"The model {model.name} has no chat template; leave out --apply-chat-template."
            )
        wanted = _aggregation(self.loaded)
        self.by_size = wanted is None or bool(wanted.weight_by_size)
        self.measures = [_measure(one, wanted) for one in self.loaded.tasks]
        metrics = sorted({one.metric for one in self.measures})
        if len(metrics) > 1:
            raise HeadsieveError(
                f"The tasks of {self.name} are measured by {' and '.join(metrics)}, which have no "
                "common mean; name them one by one."
            )
        self._requests: dict[Place, list[Instance]] = {}

    def shuffled(self, seed: int) -> list[Place]:
        """All documents in random order."""
        rng = item_rng(seed, self.name)
        places = [(task, one) for task, size in enumerate(self.sizes) for one in range(size)]
        order = [places[number] for number in rng.permutation(len(places))]
        if self.by_size:
            return order
        turns: dict[int, int] = {}
        ranked = []
        for place in order:
            turns[place[0]] = turns.get(place[0], -1) + 1
            ranked.append((turns[place[0]], place))
        return [place for _turn, place in sorted(ranked, key=lambda one: one[0])]

    def request(self, places: Iterable[Place]) -> None:
        """Let the harness build the requests of documents."""
        for number, numbers in _by_task(places).items():
            task = self.loaded.tasks[number]
            shots = task.get_config("num_fewshot") or 0
            # Examples are drawn document by document, so those before must be drawn for, too.
            chosen = list(range(numbers[-1] + 1)) if shots else numbers
            try:
                with harness():
                    task.build_all_requests(
                        samples=chosen,
                        system_instruction=self.options.system_instruction,
                        apply_chat_template=self.options.apply_chat_template,
                        fewshot_as_multiturn=True,
                        chat_template=self.notes.apply_chat_template
                        if self.options.apply_chat_template
                        else None,
                    )
            except Exception as error:  # a task may be any code
                raise HeadsieveError(
                    f"{PREFIX}{_name(task)} cannot make its prompts: {first_line(error)}"
                ) from error
            wanted = set(numbers)
            for instance in task.instances:
                document = chosen[instance.doc_id]
                if document in wanted:
                    self._requests.setdefault((number, document), []).append(instance)

    def items(self, places: Sequence[Place]) -> ItemSet:
        """Documents as the harness measures them."""
        from headsieve.tasks.lm_eval.items import build_items

        with harness():
            return self._joined(
                {
                    number: build_items(
                        self.loaded.tasks[number],
                        self.measures[number],
                        [self._requests[number, document] for document in numbers],
                        self.notes,
                    )
                    for number, numbers in _by_task(places).items()
                }
            )

    def search_items(self, places: Sequence[Place]) -> ItemSet:
        """Documents as they are searched: reference texts instead of generation."""
        if any(task.OUTPUT_TYPE != "generate_until" for task in self.loaded.tasks):
            return self.items(places)
        parts: dict[int, ItemSet] = {}
        with harness():
            for number, numbers in _by_task(places).items():
                task = self.loaded.tasks[number]
                references = [
                    self._reference(task, *self._requests[number, document]) for document in numbers
                ]
                sequences = [
                    sequence
                    for reference in references
                    if reference is not None
                    for sequence in self.notes.sequences(reference)
                ]
                if len(sequences) < len(numbers):
                    return self.items(places)
                count = len(sequences)
                parts[number] = ContinuationItems(
                    "text", tuple(sequences), (1,) * count, ((0,),) * count
                )
            return self._joined(parts)

    def companions(self, places: Sequence[Place]) -> dict[str, ItemSet]:
        """What stands beside documents that are answered by letters; empty for others."""
        questions = []
        for number, numbers in _by_task(places).items():
            task = self.loaded.tasks[number]
            if task.OUTPUT_TYPE != "multiple_choice" or task.multiple_input:
                return {}
            for document in numbers:
                requests = self._requests[number, document]
                choices = tuple(task.doc_to_choice(requests[0].doc))
                gold = task.doc_to_target(requests[0].doc)
                right = choices.index(gold) if gold in choices else gold
                if not isinstance(right, int):  # several are right
                    return {}
                questions.append(Item(str(requests[0].args[0]), choices, right))
        return letter_companions(questions, "", self.notes.tokenizer)

    def numbers(self, places: Iterable[Place]) -> dict[str, list[int]]:
        """The documents of each task, by their place in its data."""
        return {
            _name(self.loaded.tasks[number]): numbers
            for number, numbers in _by_task(places).items()
        }

    def _joined(self, parts: dict[int, ItemSet]) -> ItemSet:
        if len(parts) == 1:
            return next(iter(parts.values()))
        sizes = np.array([len(part) for part in parts.values()])
        weights = np.ones(len(sizes)) if self.by_size else sizes.sum() / (len(sizes) * sizes)
        return JoinedItems(tuple(parts.values()), np.repeat(weights, sizes))

    def _reference(self, task: Any, request: Instance, *_more: Instance) -> Instance | None:
        """The request for the log-probability of a document's reference text, if it has one."""
        from lm_eval.api.instance import Instance

        target = task.doc_to_target(request.doc)
        if task.get_config("doc_to_choice") is not None and isinstance(target, int):
            target = task.doc_to_choice(request.doc)[target]
        if isinstance(target, list) and target:
            target = target[0]
        if not isinstance(target, str) or not target.strip():
            return None
        # After the header of a turn nothing parts the prompt from the answer.
        chat = self.options.apply_chat_template and not task.get_config("gen_prefix")
        delimiter = "" if chat else task.get_config("target_delimiter") or ""
        return Instance(
            request_type="loglikelihood",
            doc=request.doc,
            arguments=(request.args[0], delimiter + target),
            idx=0,
            metadata=(_name(task), request.doc_id, 1),
        )


def _name(task: Any) -> str:
    """A task's name; its property of that name draws a random number."""
    return str(task.get_config("task"))


def _by_task(places: Iterable[Place]) -> dict[int, list[int]]:
    """Documents of each task, both ascending."""
    found: dict[int, list[int]] = {}
    for number, document in sorted(places):
        found.setdefault(number, []).append(document)
    return found


def _aggregation(loaded: Loaded) -> Any:
    """How a group takes its mean; None where it says nothing of it."""
    listed = getattr(loaded.group, "aggregate_metric_list", None)
    return listed[0] if listed else None


def _measure(task: Any, wanted: Any) -> Measure:
    """A task's main metric, or that of its group, and the filter that comes before it."""
    from headsieve.tasks.lm_eval.items import Measure

    name = f"{PREFIX}{_name(task)}"
    filters = [ensemble.name for ensemble in task._filters]
    if task.OUTPUT_TYPE == "loglikelihood_rolling":
        return Measure(LOG_PROB, filters[0])
    better = task.higher_is_better()
    means = [
        metric
        for metric, aggregation in task.aggregation().items()
        if getattr(aggregation, "__name__", "") in _MEANS and better.get(metric, True)
    ]
    if not means:
        raise HeadsieveError(
            f"{name} has no metric that is a mean over documents ("
            f"{', '.join(task.aggregation()) or 'none'}), so no document has a score of its own."
        )
    metric = _PREFERRED if _PREFERRED in means else means[0]
    if wanted is not None:
        if wanted.metric in means:
            metric = wanted.metric
        named = wanted.filter_list
        filters = [one for one in filters if named is None or one in named] or filters
    return Measure(metric, filters[0])
