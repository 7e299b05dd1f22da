"""Tasks of headsieve's own data that have the model write: rhyming and swearing."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headsieve.measure.generation import encode_prompt
from headsieve.measure.items import ItemSet, tokenize
from headsieve.measure.texts import Prompt
from headsieve.tasks.data import load_data
from headsieve.tasks.judged import FAULTS, Document, Judge
from headsieve.tasks.rhyming import Rule, answered_word, rhymes
from headsieve.tasks.swearing import Lexicon, count_matches, load_lexicon
from headsieve.tasks.task import (
    HELD_OUT_ITEMS,
    SEARCH_ITEMS,
    Item,
    TaskItems,
    item_rng,
    share_out,
)

if TYPE_CHECKING:
    from headsieve.models.loading import Model

_RHYME_TOKENS = 8
_SWEAR_TOKENS = 64
# A word to rhyme with is searched among so many, of which one rhymes.
_RHYME_CHOICES = 8


@dataclass(frozen=True)
class Rhyming:
    """A word to a word that rhymes with it.

    Claims are made on what the model says. The search is on the log-probability of words that
    rhyme among others, all from the list; words of the one part are no choices of the other.

    Attributes
    ----------
    rule : {"stressed", "final"}
        See `headsieve.tasks.rhyming.rhymes`.
    """

    rule: Rule = "stressed"
    name: str = field(default="rhyming", init=False)

    @property
    def identity(self) -> Hashable:
        """The name and the rule."""
        return (self.name, self.rule)

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """None: any rhyme is right."""
        return frozenset()

    @property
    def judge(self) -> Judge:
        """A rhyme is 1, anything else 0."""
        return Judge(
            "accuracy",
            f"rhyming 1 {self.rule}",
            lambda words, said: [
                float(
                    (answer := answered_word(text)) is not None
                    and rhymes(word["word"], answer, self.rule)
                )
                for word, text in zip(words, said, strict=True)
            ],
            lambda _word, text: answered_word(text) is not None,
        )

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """Search and held-out words."""
        words = _shuffled(load_data("rhyming")["words"], seed, self.name)
        searched, claimed = share_out(
            len(words), limit, SEARCH_ITEMS["choice"], HELD_OUT_ITEMS["choice"]
        )
        # Few words rhyme with one of a short list, so that choices come from all that may be used.
        pool, rest = words[: len(words) // 2], words[len(words) // 2 :]
        items = self._choices(pool, searched, seed)[:search_limit]
        held_out = rest[:claimed]
        prompts, documents = self._prompts(model, held_out)
        return TaskItems(
            tokenize(items, _rhyme_prefix(), "choice", model.tokenizer),
            self.judge.items(prompts, documents),
            companions={FAULTS: self.judge.faults(prompts, documents)},
        )

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All words, as the model answers them."""
        words = _shuffled(load_data("rhyming")["words"], seed, self.name)[:limit]
        return self.judge.items(*self._prompts(model, words))

    def _prompts(self, model: Model, words: Sequence[str]) -> tuple[list[Prompt], list[Document]]:
        template = load_data("rhyming")["template"]
        prompts = [
            Prompt(
                encode_prompt(model.tokenizer, _rhyme_prefix() + template.format(word=word)),
                _RHYME_TOKENS,
                ("\n",),
            )
            for word in words
        ]
        return prompts, [{"word": word} for word in words]

    def _choices(self, words: Sequence[str], count: int, seed: int) -> list[Item]:
        """The first words with which another one rhymes, a rhyme and others as their choices."""
        rng = item_rng(seed, f"{self.name} choices")
        template = load_data("rhyming")["template"]
        items: list[Item] = []
        for word in words:
            if len(items) == count:
                break
            rhyming = [other for other in words if rhymes(word, other, self.rule)]
            if not rhyming:
                continue
            others = [one for one in words if one != word and one not in rhyming]
            chosen = [others[at] for at in rng.permutation(len(others))[: _RHYME_CHOICES - 1]]
            right = int(rng.integers(len(chosen) + 1))
            chosen.insert(right, rhyming[int(rng.integers(len(rhyming)))])
            items.append(
                Item(template.format(word=word), tuple(f" {one}\n" for one in chosen), right)
            )
        return items


@dataclass(frozen=True)
class Swearing:
    """Requests that invite strong language; how many words of a lexicon the answers have.

    The metric is words of the lexicon an answer. What is left of the unmodified model's count, as
    the paper has it, is the quotient of two of these. The search is on what the model writes, too.

    Attributes
    ----------
    path : str
        The file of the lexicon.
    """

    path: str
    lexicon: Lexicon = field(init=False, repr=False)
    name: str = field(default="swearing", init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lexicon", load_lexicon(Path(self.path).expanduser()))

    @property
    def identity(self) -> Hashable:
        """The name and the lexicon."""
        return (self.name, self.lexicon)

    @property
    def facts(self) -> frozenset[tuple[str, str]]:
        """None are known."""
        return frozenset()

    @property
    def judge(self) -> Judge:
        """Words of the lexicon in an answer."""
        entries = sorted(" ".join(entry) for entry in self.lexicon.entries)
        return Judge(
            "swear_words",
            f"swearing 1 {entries}",
            lambda _requests, said: [float(count_matches(text, self.lexicon)) for text in said],
            lambda _request, _text: True,
        )

    def item_sets(
        self, model: Model, seed: int, limit: int | None = None, *, search_limit: int | None = None
    ) -> TaskItems:
        """Search and held-out requests."""
        requests = _shuffled(load_data("swearing")["prompts"], seed, self.name)
        searched, claimed = share_out(
            len(requests), limit, SEARCH_ITEMS["answer"], HELD_OUT_ITEMS["answer"]
        )
        held_out = self._prompts(model, requests[searched : searched + claimed])
        search = requests[:searched][:search_limit]
        return TaskItems(
            self.judge.items(*self._prompts(model, search)),
            self.judge.items(*held_out),
            companions={FAULTS: self.judge.faults(*held_out)},
        )

    def whole(self, model: Model, seed: int, limit: int | None = None) -> ItemSet:
        """All requests."""
        requests = _shuffled(load_data("swearing")["prompts"], seed, self.name)[:limit]
        return self.judge.items(*self._prompts(model, requests))

    def _prompts(
        self, model: Model, requests: Sequence[str]
    ) -> tuple[list[Prompt], list[Document]]:
        tokenizer = model.tokenizer
        prompts = [
            Prompt(encode_prompt(tokenizer, _as_request(tokenizer, text)), _SWEAR_TOKENS)
            for text in requests
        ]
        return prompts, [{"request": text} for text in requests]


def _rhyme_prefix() -> str:
    """The worked examples."""
    data = load_data("rhyming")
    return "".join(
        f"{data['template'].format(word=word)} {rhyme}\n" for word, rhyme in data["examples"]
    )


def _as_request(tokenizer: Any, text: str) -> str:
    """A request as a chat model is asked it, thinking off; as it is where there is no template."""
    if not tokenizer.chat_template:
        return f"{text}\n"
    return str(
        tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
    )


def _shuffled(texts: Sequence[str], seed: int, name: str) -> list[str]:
    return [texts[number] for number in item_rng(seed, name).permutation(len(texts))]
