"""Example items: what the model says to them before and after a knockout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from headsieve.measure.generation import Generator
from headsieve.results import Part
from headsieve.scores import LOG_PROB
from headsieve.sensing.problem import Columns, to_masks
from headsieve.tasks import ItemTask, Task
from headsieve.tasks.answers import answer_prompts

if TYPE_CHECKING:
    from headsieve.workbench import Workbench

# Of each kind, the first that come: items that the knockout turned wrong, and others.
_TURNED = 4
_OTHERS = 4


class Example(Part):
    """One held-out item.

    Attributes
    ----------
    prompt, expected : str
        The item's own, without the few-shot examples before it.
    before, after : str
        What the model says greedily, up to the end of the line.
    right_before, right_after : bool
        As the item is scored: whether the right answer is what greedy decoding says or, of
        choices, the likeliest.
    """

    prompt: str
    expected: str
    before: str
    after: str
    right_before: bool
    right_after: bool


class Examples(Part):
    """Examples of one capability, and the few-shot examples that stand before each."""

    prefix: str
    kind: str
    items: list[Example]


_FORM = TypeAdapter(dict[str, Examples])


def examples_json(examples: Mapping[str, Examples]) -> str:
    """The text of ``examples.json``."""
    return _FORM.dump_json(dict(examples), indent=2).decode() + "\n"


def read_examples(text: str) -> dict[str, Examples]:
    """Read ``examples.json``; a file of another form raises `pydantic.ValidationError`."""
    return _FORM.validate_json(text)


def collect_examples(
    bench: Workbench,
    task: Task,
    name: str,
    selected: Columns,
    *,
    seed: int,
    limit: int | None,
) -> Examples | None:
    """Continue a few held-out items with and without the selected heads.

    The first four items that the knockout turned from right to wrong, and the first four others.

    Parameters
    ----------
    bench : Workbench
    task : Task
    name : str
        Under which `bench` knows it.
    selected : tuple of int
    seed, limit
        Of the split of items.

    Returns
    -------
    Examples or None
        None where no head is knocked out, where no item leaves room for an answer, for plain text,
        and for tasks that are not made of prompts and answers (those of lm-evaluation-harness),
        whose items only they can show.
    """
    if not isinstance(task, ItemTask) or task.metric == LOG_PROB or not selected:
        return None
    model = bench.model
    masks = to_masks([(), selected], len(model.geometry))
    before, after = (score.value > 0 for score in bench.held_out(masks, name))
    split = task.split(seed, limit)
    prompts = dict(enumerate(answer_prompts(split.held_out, split.prefix, model)))
    fit = {number: prompt for number, prompt in prompts.items() if prompt is not None}
    turned = [number for number in fit if before[number] and not after[number]][:_TURNED]
    others = [number for number in fit if not before[number] or after[number]][:_OTHERS]
    chosen = [*turned, *others]
    if not chosen:
        return None
    first = fit[chosen[0]]
    replacement = bench.replacements.get(f"{name} held-out")
    generator = Generator(
        model,
        [fit[number].tokens for number in chosen],
        max_new_tokens=first.max_new_tokens,
        stop=first.stop,
        replacement=None if replacement is None else replacement.outputs(model),
    )
    whole, without = generator.generate(masks)
    return Examples(
        prefix=split.prefix,
        kind=task.kind,
        items=[
            Example(
                prompt=item.prompt,
                expected=item.continuations[item.correct].strip(),
                before=one.text.strip(),
                after=other.text.strip(),
                right_before=bool(before[number]),
                right_after=bool(after[number]),
            )
            for number, one, other in zip(chosen, whole, without, strict=True)
            for item in (split.held_out[number],)
        ],
    )
