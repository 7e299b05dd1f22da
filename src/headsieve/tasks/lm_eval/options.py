"""How tasks of lm-evaluation-harness are asked."""

from __future__ import annotations

from dataclasses import dataclass

from headsieve.errors import HeadsieveError

# What the names of such tasks begin with.
PREFIX = "lm-eval:"


@dataclass(frozen=True)
class HarnessOptions:
    """Options of lm-evaluation-harness that change what a model is asked, with its meaning.

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
    """

    include_path: str | None = None
    num_fewshot: int | None = None
    apply_chat_template: bool = False
    system_instruction: str | None = None

    def __post_init__(self) -> None:
        """Refuse what the harness would stumble over."""
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise HeadsieveError(
                f"The number of few-shot examples must be 0 or more, not {self.num_fewshot}."
            )

    @property
    def words(self) -> list[str]:
        """The options on a command line."""
        words: list[str] = []
        if self.include_path is not None:
            words += ["--include-path", self.include_path]
        if self.num_fewshot is not None:
            words += ["--num-fewshot", str(self.num_fewshot)]
        if self.apply_chat_template:
            words += ["--apply-chat-template"]
        if self.system_instruction is not None:
            words += ["--system-instruction", self.system_instruction]
        return words
