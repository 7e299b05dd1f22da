"""What a task is: items with right answers, and how they are shared out."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

import numpy as np

from headsieve.errors import HeadsieveError

Kind = Literal["answer", "choice", "text"]

# At most so many items are searched on and claimed on. A passage of text says as much as many
# short answers, and costs as much.
SEARCH_ITEMS: dict[Kind, int] = {"answer": 32, "choice": 32, "text": 5}
HELD_OUT_ITEMS: dict[Kind, int] = {"answer": 100, "choice": 100, "text": 20}
_SEARCH_SHARE = 0.4
_FEWEST_SEARCH_ITEMS = 5


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
class Task:
    """A capability or control.

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
        return "log_prob" if self.kind == "text" else "accuracy"

    @property
    def chance(self) -> float:
        """Accuracy of blind guessing: the mean of one over the number of choices."""
        if self.kind != "choice":
            return 0.0
        return float(np.mean([1 / len(item.continuations) for item in self.items]))

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
        # Named after a file, and a C locale gives file names as they are.
        name = self.name.encode(errors="surrogateescape")
        own_seed = int.from_bytes(hashlib.sha256(name).digest()[:4], "big")
        order = np.random.default_rng([seed, own_seed]).permutation(len(self.items))
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
        if limit is not None and limit < _FEWEST_SEARCH_ITEMS:
            raise HeadsieveError(
                f"A limit of {limit} is too low; a search needs {_FEWEST_SEARCH_ITEMS} items."
            )
        prefix, items = self.examples(seed)
        searched = min(limit or SEARCH_ITEMS[self.kind], int(len(items) * _SEARCH_SHARE))
        if searched < _FEWEST_SEARCH_ITEMS:
            needed = int(np.ceil(_FEWEST_SEARCH_ITEMS / _SEARCH_SHARE)) + self.shots
            raise HeadsieveError(
                f"Task {self.name} has {len(self.items)} items; at least {needed} are needed for "
                f"{self.shots} examples, search items and held-out items."
            )
        claimed = min(limit or HELD_OUT_ITEMS[self.kind], len(items) - searched)
        return Split(prefix, items[:searched], items[searched : searched + claimed])
