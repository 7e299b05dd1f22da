"""Judging model-written programs in a sandbox."""

from headsieve.tasks.code.judge import (
    Outcome,
    Program,
    Verdict,
    check_programs,
    humaneval_program,
    mbpp_program,
)
from headsieve.tasks.code.sandbox import Limits, SandboxKind, check_sandbox

__all__ = [
    "Limits",
    "Outcome",
    "Program",
    "SandboxKind",
    "Verdict",
    "check_programs",
    "check_sandbox",
    "humaneval_program",
    "mbpp_program",
]
