"""What a task is, and the plain one: items with right answers."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from headsieve.errors import HeadsieveError
from headsieve.measure.items import ItemSet, Kind, tokenize
from headsieve.scores import LOG_PROB

if TYPE_CHECKING:
    from headsieve.models.loading import Model

# At most so many items are searched on and claimed on. A passage of text says as much as many
# short answers, and costs as much.
SEARCH_ITEMS: dict[Kind, int] = {"answer": 32, "choice": 32, "text": 5}
HELD_OUT_ITEMS: dict[Kind, int] = {"answer": 100, "choice": 100, "text": 20}
CONTROL_SEARCH_ITEMS = 24
_SEARCH_SHARE = 0.4
FEWEST_SEARCH_ITEMS = 5
# With fewer there is no search and no claim.
FEWEST_ITEMS = math.ceil(FEWEST_SEARCH_ITEMS / _SEARCH_SHARE)


@dataclass(frozen=True)
class TaskItems:
    """A task's items for a study, disjoint, tokenised for one model.

    The two need not be measured alike: a search wants a cheap, continuous score, a claim the
    task's own metric.

    Attributes
    ----------
    search, held_out : ItemSet
    documents : mapping of str to mapping of str to sequence of int
        Where items come from numbered documents: under ``search`` and ``held-out``, the numbers
        of each data set's documents.
    companions : mapping of str to ItemSet
        What else is measured of the chosen heads, to tell whether they hold the capability or the
        form of its answers (`headsieve.form`): the held-out items as `TEXT`, a trivial task as
        `TRIVIAL`, the faults of what is written as `FAULTS`.
    """

    search: ItemSet
    held_out: ItemSet
    documents: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    companions: Mapping[str, ItemSet] = field(default_factory=dict)


class Task(Protocol):
    r"""A capability or control: what a study and ``headsieve score`` ask of a task.

    To add a kind of task, write a class with these members and let `headsieve.tasks.find_task`
    make it of a name. Its item sets may be of any class that has the members of
    `headsieve.measure.items.ItemSet`:

    - texts to be found likely, answers to be said, choices: `ContinuationItems`, most easily by
      `tokenize`;
    - what the model writes, with a judge of it: `GenerationItems`. The judge is given all of an
      item set's continuations under one mask and says what each is worth, 0 to 1::

          GenerationItems(
              prompts=tuple(
                  Prompt(encode_prompt(model.tokenizer, text), max_new_tokens=64, stop=("\n",))
                  for text in texts
              ),
              judge=lambda said: [float(one.text.strip() == "4") for one in said],
              rules="equals 4, version 1",
          )

    Generating takes many passes through the model and what is judged right or wrong says little
    about each head, so let such a task be searched on something cheaper where there is anything:
    `TaskItems` may hold `ContinuationItems` of reference answers (kind ``text``: nats a token) to
    search on and `GenerationItems` to claim on.
    """

    @property
    def name(self) -> str:
        """Under which results list it."""

    @property
    def identity(self) -> Hashable:
        """Equal for two tasks that are the same under two names."""

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """Pairs of a word of a prompt and the right answer, by which like tasks are told."""

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """Search and held-out items.

        Parameters
        ----------
        model : Model
        seed : int
            Of the choice of items.
        limit : int, optional
            At most so many search items and so many held-out items.
        search_limit : int, optional
            At most so many search items; the others stay unused.

        Raises
        ------
        HeadsieveError
            If the task is too small for a search and a claim, or its data cannot be had.
        """

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All items, or at most `limit`, as ``headsieve score`` measures them.

        Raises
        ------
        HeadsieveError
            If there are none, or the task's data cannot be had.
        """


@dataclass(frozen=True)
class Item:
    """A prompt and what may follow it.

    Attributes
    ----------
    prompt : str
        Empty for plain text.
    continuations : tuple of str
        The answer, or all choices, or the text itself, exactly as they follow the prompt.
    correct : int
        Which of them is right.
    """

    prompt: str
    continuations: tuple[str, ...]
    correct: int = 0


@dataclass(frozen=True)
class Split:
    """Disjoint parts of a task's items; `prefix` holds the few-shot examples as text."""

    prefix: str
    search: tuple[Item, ...]
    held_out: tuple[Item, ...]


@dataclass(frozen=True)
class ItemTask:
    """A task of prompts and what may follow them: the built-in ones, and those of task files.

    Attributes
    ----------
    name : str
    kind : {"answer", "choice", "text"}
        Whether the model must say the answer, find the right choice likelier than the others, or
        merely find the text likely.
    items : tuple of Item
    shots : int
        Items set aside as few-shot examples.
    description, source : str
    """

    name: str
    kind: Kind
    items: tuple[Item, ...]
    shots: int = 0
    description: str = ""
    source: str = ""

    @property
    def metric(self) -> str:
        """``accuracy``, or ``log_prob`` (nats a token) for plain text."""
        return LOG_PROB if self.kind == "text" else "accuracy"

    @property
    def identity(self) -> Hashable:
        """Equal for two tasks that are the same under two names."""
        return self.items

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """Pairs of a word of the prompt and the right answer, whatever the template."""
        return frozenset(
            (word.lower(), item.continuations[item.correct].strip().lower())
            for item in self.items
            for word in re.findall(r"[^\W\d_]{3,}", item.prompt)
        )

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """Search and held-out items, as `split` shares them out."""
        split = self.split(seed, limit)
        companions: Mapping[str, ItemSet] = {}
        if self.kind == "choice":
            from headsieve.tasks.letters import letter_companions

            companions = letter_companions(split.held_out, split.prefix, model.tokenizer)
        elif self.kind == "answer":
            from headsieve.tasks.answers import answer_companions

            companions = answer_companions(split.held_out, split.prefix, model)
        return TaskItems(
            tokenize(split.search[:search_limit], split.prefix, self.kind, model.tokenizer),
            tokenize(split.held_out, split.prefix, self.kind, model.tokenizer),
            companions=companions,
        )

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All items but the few-shot examples."""
        prefix, items = self.examples(seed)
        return tokenize(items[:limit], prefix, self.kind, model.tokenizer)

    def examples(self, seed: int) -> tuple[str, tuple[Item, ...]]:
        """The few-shot examples as text, and all other items in random order.

        The same seed gives the same order, whatever other tasks there are.

        Raises
        ------
        HeadsieveError
            If no item is left beside the examples.
        """
        if len(self.items) <= self.shots:
            raise HeadsieveError(
                f"Task {self.name} has {len(self.items)} items, of which {self.shots} would be "
                "few-shot examples; it needs more."
            )
        order = item_rng(seed, self.name).permutation(len(self.items))
        ordered = [self.items[number] for number in order]
        shots, rest = ordered[: self.shots], ordered[self.shots :]
        prefix = "".join(item.prompt + item.continuations[item.correct] for item in shots)
        return prefix, tuple(rest)

    def split(self, seed: int, limit: int | None = None) -> Split:
        """Share the items out at random into few-shot examples, search and held-out items.

        Parameters
        ----------
        seed : int
        limit : int, optional
            At most so many search items and so many held-out items.

        Raises
        ------
        HeadsieveError
            If the task is too small for a search and a claim.
        """
        prefix, items = self.examples(seed)
        searched, claimed = share_out(
            len(items), limit, SEARCH_ITEMS[self.kind], HELD_OUT_ITEMS[self.kind]
        )
        if searched < FEWEST_SEARCH_ITEMS:
            needed = FEWEST_ITEMS + self.shots
            raise HeadsieveError(
                f"Task {self.name} has {len(self.items)} items; at least {needed} are needed for "
                f"{self.shots} examples, search items and held-out items."
            )
        return Split(prefix, items[:searched], items[searched : searched + claimed])


def item_rng(seed: int, name: str) -> np.random.Generator:
    """The generator by which a task's items are ordered, whatever other tasks there are."""
    # Named after a file, and a C locale gives file names as they are.
    own_seed = int.from_bytes(hashlib.sha256(name.encode(errors="surrogateescape")).digest()[:4])
    return np.random.default_rng([seed, own_seed])


def share_out(items: int, limit: int | None, search: int, held_out: int) -> tuple[int, int]:
    """How many items are searched on and claimed on.

    Parameters
    ----------
    items : int
        How many there are.
    limit : int or None
        At most so many of each; otherwise `search` and `held_out`.

    Raises
    ------
    HeadsieveError
        If the limit is too low for a search.
    """
    if limit is not None and limit < FEWEST_SEARCH_ITEMS:
        raise HeadsieveError(
            f"A limit of {limit} is too low; a search needs {FEWEST_SEARCH_ITEMS} items."
        )
    searched = min(limit or search, int(items * _SEARCH_SHARE))
    return searched, min(limit or held_out, items - searched)
