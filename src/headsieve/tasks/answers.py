"""What a model writes where a task has a short answer, whatever it is scored by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headsieve.measure.generation import can_write, encode_prompt
from headsieve.measure.items import ItemSet
from headsieve.measure.texts import Prompt
from headsieve.tasks.judged import FAULTS, FaultItems
from headsieve.tasks.task import Item

if TYPE_CHECKING:
    from headsieve.models.loading import Model

# Tokens beyond those of the longest right answer.
_MORE_TOKENS = 4
# A choice can be a sentence; what shows how the model goes on is shorter.
_MOST_TOKENS = 24


def answer_prompts(items: Sequence[Item], prefix: str, model: Model) -> list[Prompt | None]:
    """Prompts to be continued, with room for the longest right answer, to the end of the line.

    Parameters
    ----------
    items : sequence of Item
    prefix : str
        What stands before each.
    model : Model

    Returns
    -------
    list of Prompt or None
        One for each item; None where the model has no room for it or cannot write.
    """
    if not can_write(model):
        return [None] * len(items)
    tokenizer, limit = model.tokenizer, model.position_limit
    new_tokens = min(_longest(items, tokenizer) + _MORE_TOKENS, _MOST_TOKENS)
    # An answer of several lines, or one that begins on the next, must not end with the first.
    stop = () if any("\n" in answer.rstrip("\n") for answer in _right(items)) else ("\n",)
    tokens = [encode_prompt(tokenizer, prefix + item.prompt) for item in items]
    return [
        Prompt(one, new_tokens, stop)
        if one and (limit is None or len(one) + new_tokens <= limit)
        else None
        for one in tokens
    ]


def answer_companions(items: Sequence[Item], prefix: str, model: Model) -> Mapping[str, ItemSet]:
    """Faults of form in what the model says to each item, as `TaskItems.companions`.

    Any text is an answer; what counts is whether there is one and whether it comes to an end. None
    where the model has no room for one of the prompts or cannot write, where answers are not one
    line each, with its end, and where one is so long that a wrong one may rightly take more tokens
    than are written.
    """
    prompts = answer_prompts(items, prefix, model)
    lines = all(answer.find("\n") == len(answer) - 1 for answer in _right(items))
    too_long = _longest(items, model.tokenizer) > _MOST_TOKENS - _MORE_TOKENS
    if None in prompts or too_long or not lines:
        return {}
    fitting = tuple(prompt for prompt in prompts if prompt is not None)
    return {FAULTS: FaultItems(fitting, lambda said: [True] * len(said), "any text")}


def _longest(items: Sequence[Item], tokenizer: Any) -> int:
    """Tokens of the longest right answer."""
    return max(len(tokenizer(answer)["input_ids"]) for answer in _right(items))


def _right(items: Sequence[Item]) -> list[str]:
    return [item.continuations[item.correct] for item in items]
