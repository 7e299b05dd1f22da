"""How tasks that come from outside are asked and judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from headsieve.errors import HeadsieveError
from headsieve.names import option

Sandbox = Literal["bwrap", "none"]
RhymeRule = Literal["stressed", "final"]

# What the names of such tasks begin with.
PREFIX = "lm-eval:"


@dataclass(frozen=True)
class HarnessOptions:
    """Options of lm-evaluation-harness, with its meaning, and of the paper's capabilities.

    Attributes
    ----------
    include_path : str or None
        A folder with more task files (YAML).
    num_fewshot : int or None
        Few-shot examples before each document; None: as many as each task asks for. A task that
        asks for none gets none.
    apply_chat_template : bool
        Whether prompts go through the model's chat template, few-shot examples as turns. Thinking
        is off.
    system_instruction : str or None
        What stands before each prompt.
    lexicon : str or None
        The file of words that `swearing` counts.
    allow_code_execution : bool
        Whether programs that the model writes may be run, which `humaneval` and `mbpp` need.
    sandbox : {"bwrap", "none"}
        What such programs are confined by.
    rhyme_rule : {"stressed", "final"}
        From which vowel on words must sound alike to rhyme; see `headsieve.tasks.rhyming.rhymes`.
    """

    include_path: str | None = None
    num_fewshot: int | None = None
    apply_chat_template: bool = False
    system_instruction: str | None = None
    lexicon: str | None = None
    allow_code_execution: bool = False
    sandbox: Sandbox = "bwrap"
    rhyme_rule: RhymeRule = "stressed"

    def __post_init__(self) -> None:
        """Refuse what the harness would stumble over."""
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise HeadsieveError(
                f"The number of few-shot examples must be 0 or more, not {self.num_fewshot}."
            )
        for what, given, known in (
            ("sandbox", self.sandbox, get_args(Sandbox)),
            ("rhyme rule", self.rhyme_rule, get_args(RhymeRule)),
        ):
            if given not in known:
                raise HeadsieveError(f"There is no {what} {given!r}; use {' or '.join(known)}.")

    @property
    def words(self) -> list[str]:
        """The options on a command line."""
        words: list[str] = []
        if self.include_path is not None:
            words += option("--include-path", self.include_path)
        if self.num_fewshot is not None:
            words += option("--num-fewshot", self.num_fewshot)
        if self.apply_chat_template:
            words += ["--apply-chat-template"]
        if self.system_instruction is not None:
            words += option("--system-instruction", self.system_instruction)
        if self.lexicon is not None:
            words += option("--lexicon", self.lexicon)
        if self.allow_code_execution:
            words += ["--allow-code-execution", "--sandbox", self.sandbox]
        if self.rhyme_rule != "stressed":
            words += ["--rhyme-rule", self.rhyme_rule]
        return words
