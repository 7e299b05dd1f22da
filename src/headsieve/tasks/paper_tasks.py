"""The paper's capabilities by name: where each has its items from, and how answers are judged.

Public data sets come through the task of that name in lm-evaluation-harness, from the hub or, with
``--include-path``, from task files of that name in a folder.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, Any

from headsieve.errors import HeadsieveError
from headsieve.tasks.code import (
    Program,
    check_programs,
    check_sandbox,
    humaneval_program,
    mbpp_program,
)
from headsieve.tasks.gsm8k import flexible_answer, same_answer, strict_answer
from headsieve.tasks.judged import Document, Judge, JudgedTask
from headsieve.tasks.task_set import TaskSet

if TYPE_CHECKING:
    from headsieve.tasks.code import SandboxKind
    from headsieve.tasks.lm_eval.options import HarnessOptions
    from headsieve.tasks.lm_eval.task import HarnessTask
    from headsieve.tasks.task import Task

SETS = {
    "math": ("gsm8k", "arithmetic"),
    "code": ("mbpp", "humaneval"),
    "general": ("hellaswag", "boolq", "arc_challenge", "mmlu"),
}
_HARNESS = "extra lm-eval"
_RUN = f"{_HARNESS}, --allow-code-execution"
# What each task is judged by, what it needs, and what it is.
_DESCRIBED = {
    "gsm8k": ("exact_match", _HARNESS, "School mathematics; the answer marked as final"),
    "gsm8k_flexible": ("exact_match", _HARNESS, "School mathematics; the last number said"),
    "arithmetic": ("acc", _HARNESS, "Sums, differences and products of numbers"),
    "humaneval": ("pass@1", _RUN, "Python functions from their docstrings"),
    "mbpp": ("pass@1", _RUN, "Python programs from a sentence"),
    "hellaswag": ("acc_norm", _HARNESS, "The likeliest end of a passage"),
    "boolq": ("acc", _HARNESS, "Yes or no, about a passage"),
    "arc_challenge": ("acc_norm", _HARNESS, "School science, as a choice"),
    "mmlu": ("acc", _HARNESS, "Exam questions on 57 subjects, by letter"),
    "wmdp": ("acc", _HARNESS, "Hazardous knowledge, by letter: the next three together"),
    "wmdp_bio": ("acc", _HARNESS, "Hazardous knowledge of biology"),
    "wmdp_chem": ("acc", _HARNESS, "Hazardous knowledge of chemistry"),
    "wmdp_cyber": ("acc", _HARNESS, "Hazardous knowledge of computer security"),
    "rhyming": ("accuracy", "", "A word that rhymes with another"),
    "swearing": ("swear_words", "--lexicon FILE", "Words of a lexicon in what is written"),
    "math": ("mean", _HARNESS, "gsm8k and arithmetic"),
    "code": ("pass@1", _RUN, "mbpp and humaneval"),
    "general": ("mean", _HARNESS, "hellaswag, boolq, arc_challenge and mmlu"),
}
_ANSWERS: dict[str, Callable[[str], str | None]] = {
    "gsm8k": strict_answer,
    "gsm8k_flexible": flexible_answer,
}
_PROGRAMS: dict[str, Callable[[Document, str], Program]] = {
    "humaneval": lambda problem, text: humaneval_program(
        problem["prompt"], text, problem["test"], problem["entry_point"]
    ),
    "mbpp": lambda problem, text: mbpp_program(
        text,
        problem["test_list"],
        problem.get("test_setup_code") or "",
        reference=problem["code"],
    ),
}


def paper_names() -> list[str]:
    """Names of the paper's capabilities and of sets of them, sorted."""
    return sorted(_DESCRIBED)


def describe_paper_tasks() -> list[dict[str, Any]]:
    """One record a capability of the paper: name, metric, needs, description; other facts None."""
    return [
        {
            "name": name,
            "kind": "paper",
            "metric": metric,
            "items": None,
            "accuracy": None,
            "description": description,
            "needs": needs,
        }
        for name, (metric, needs, description) in _DESCRIBED.items()
    ]


def load_paper_task(name: str, options: HarnessOptions) -> Task:
    """Find one of the paper's capabilities.

    Parameters
    ----------
    name : str
        One of `paper_names`.
    options : HarnessOptions

    Raises
    ------
    HeadsieveError
        If something that it needs is missing: lm-eval, a lexicon, or leave to run programs.
    """
    if name in SETS:
        return TaskSet(name, tuple(load_paper_task(member, options) for member in SETS[name]))
    if name == "rhyming":
        from headsieve.tasks.written import Rhyming

        return Rhyming(options.rhyme_rule)
    if name == "swearing":
        if options.lexicon is None:
            raise HeadsieveError(
                "The task swearing counts words of a list that does not come with headsieve; name "
                "one with --lexicon FILE."
            )
        from headsieve.tasks.written import Swearing

        return Swearing(options.lexicon)
    if name in _ANSWERS:
        return JudgedTask(_harness_task("gsm8k", options, alias=name), _answer_judge(name))
    if name in _PROGRAMS:
        if not options.allow_code_execution:
            raise HeadsieveError(
                f"The task {name} runs programs that the model writes; allow it with "
                "--allow-code-execution."
            )
        check_sandbox(options.sandbox)
        return JudgedTask(_code_task(name, options), _program_judge(name, options.sandbox))
    return _harness_task(name, options, alias=name)


def _harness_task(word: str, options: HarnessOptions, alias: str) -> HarnessTask:
    from headsieve.tasks.lm_eval.task import HarnessTask

    return HarnessTask(word, options, alias)


def _code_task(name: str, options: HarnessOptions) -> HarnessTask:
    """Prompts of the harness's task, from the user's folder or else headsieve's own task file.

    The harness's own file cannot be used: reading it loads what would run the programs.
    """
    from headsieve.tasks.lm_eval.loading import explains

    if options.include_path is None or not explains(options.include_path, name):
        folder = str(resources.files("headsieve.tasks.lm_eval") / "prompts")
        options = replace(options, include_path=folder)
    return _harness_task(name, options, alias=name)


def _answer_judge(name: str) -> Judge:
    """Final answers of worked solutions."""
    found = _ANSWERS[name]

    def verdicts(problems: Sequence[Document], said: Sequence[str]) -> list[float]:
        return [
            float(same_answer(found(text), problem["answer"]))
            for problem, text in zip(problems, said, strict=True)
        ]

    return Judge("exact_match", f"{name} 1", verdicts, lambda _, text: found(text) is not None)


def _program_judge(name: str, sandbox: SandboxKind) -> Judge:
    """Programs that pass their tests."""
    program = _PROGRAMS[name]

    def verdicts(problems: Sequence[Document], said: Sequence[str]) -> list[float]:
        programs = [program(problem, text) for problem, text in zip(problems, said, strict=True)]
        return [float(one.passed) for one in check_programs(programs, sandbox=sandbox)]

    return Judge("pass@1", f"{name} 1", verdicts, partial(_parses, program))


def _parses(program: Callable[[Document, str], Program], problem: Document, text: str) -> bool:
    try:
        ast.parse(program(problem, text).source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
