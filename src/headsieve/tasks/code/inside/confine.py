"""Limits that a process sets itself, before it runs anything that is not ours."""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, BinaryIO


def confine(settings: dict[str, Any]) -> None:
    """Set resource limits, which children inherit and nobody can raise; then give up root.

    `settings` has `cpu_seconds`, `memory`, `file_bytes`, `open_files` and, where they can be
    enforced, `processes` and `user`, a number that no other process runs under.
    """
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_CPU: settings["cpu_seconds"],
        resource.RLIMIT_AS: settings["memory"],
        resource.RLIMIT_FSIZE: settings["file_bytes"],
        resource.RLIMIT_NOFILE: settings["open_files"],
        resource.RLIMIT_MEMLOCK: 0,
    }
    if settings["processes"] is not None:
        limits[resource.RLIMIT_NPROC] = settings["processes"]
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(limit, (value, value))
    user = settings["user"]
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)


def take_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Standard input and output as streams of their own; the standard ones then lead nowhere."""
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (sys.stdin, sys.stdout, sys.stderr):
        os.dup2(nowhere, standard.fileno())
    return source, target
