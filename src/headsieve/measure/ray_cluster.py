"""A Ray cluster: joined or started, and shared out among workers."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from headsieve.errors import HeadsieveError, first_line
from headsieve.models.footprint import free_bytes

if TYPE_CHECKING:
    from headsieve.models.loading import Source

# What Ray's store of objects takes in a cluster of our own; answers never fill it.
_STORE_BYTES = 100 << 20


@dataclass(frozen=True)
class Shares:
    """How many workers there are to be, and what each of them has.

    Attributes
    ----------
    workers : int
    cpus, gpus : int
        That Ray sets aside for it.
    threads : int
    memory : int or None
        Bytes that measuring may take besides the weights; None for half of what is free.
    """

    workers: int
    cpus: int
    gpus: int
    threads: int
    memory: int | None


def connect(address: str | None, count: int | None) -> bool:
    """Join a cluster or start one; whether one was joined or started that was not before.

    Raises
    ------
    HeadsieveError
        If there is none, or Ray does not start.
    """
    import ray

    if ray.is_initialized():
        return False
    # Nothing is reported to anyone unless the user has said so.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"address": address}
    if address is None:
        options = {
            "address": "local",
            "num_cpus": count or 1,
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
        }
    # Ray draws the names of its files from Python's global generator.
    state = random.getstate()
    try:
        ray.init(log_to_driver=False, configure_logging=False, **options)
    except Exception as error:  # Ray raises plain exceptions
        raise HeadsieveError(
            f"Ray does not start: {first_line(error)}"
            if address is None
            else f"There is no Ray cluster at {address}: {first_line(error)}"
        ) from error
    finally:
        random.setstate(state)
    return True


def share_out(source: Source, count: int | None, *, local: bool) -> Shares:
    """What a cluster has, shared among so many workers, or as many as it has GPUs or machines.

    Parameters
    ----------
    source : Source
        What each of them loads.
    count : int, optional
    local : bool
        Whether the cluster is this machine alone, all of it ours.

    Raises
    ------
    HeadsieveError
        If it has too little.
    """
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = 0 if source.device == "cpu" else int(sum(node.get("GPU", 0) for node in nodes))
    count = count or gpus or len(nodes)
    if gpus and count > gpus:
        raise HeadsieveError(
            f"There are {gpus} GPUs for {count} workers; use --workers {gpus} at most, or "
            "--device cpu."
        )
    if local:
        cpus, threads = 0, max(1, torch.get_num_threads() // count)
    else:
        cpus = threads = _largest_share([int(node.get("CPU", 0)) for node in nodes], count)
    # A model that is not spread over several GPUs uses one.
    each = _largest_share([int(node.get("GPU", 0)) for node in nodes], count) if gpus else 0
    each = each if source.device_map else min(each, 1)
    memory = source.memory
    if memory is None and local and not each:
        # Each would take half of what is free.
        memory = free_bytes(torch.device("cpu"), spread=False)[0] // (2 * count)
    return Shares(count, cpus, each, threads, memory)


def _largest_share(amounts: Sequence[int], count: int) -> int:
    """The most that every one of so many workers can have of what the machines have."""
    for share in range(sum(amounts) // count, 0, -1):
        if sum(amount // share for amount in amounts) >= count:
            return share
    raise HeadsieveError(
        f"The cluster has {sum(amounts)} free CPUs or GPUs, too few for {count} workers."
    )
