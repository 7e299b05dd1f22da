"""Timing peers in turn, each in a process of its own with a model of its own.

Processes keep the peers' patches of transformers apart, and their memory too.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flops import matrix_peak, needed_flops
from headsieve.errors import first_line
from peers import HEADSIEVE, MaskByMask, load_peer
from works import WORKS, Masks

# Peers that take one mask after another are timed on so many of them a round, others each round.
MASKS_A_ROUND = 3
# Nats by which an item's score may differ from headsieve's in float32.
TOLERANCE = 1e-4


@dataclass
class Contender:
    """What was measured of one peer.

    Attributes
    ----------
    seconds : list of float
        A mask, one entry a round.
    difference : float
        Largest difference of an item's score from headsieve's, in nats.
    peak_memory : int
        Bytes that its process held at most, or on a GPU its tensors.
    versions : dict of str to str
    """

    seconds: list[float] = field(default_factory=list)
    difference: float = 0.0
    peak_memory: int = 0
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class Contest:
    """One work in one dtype, measured.

    Attributes
    ----------
    contenders : dict of str to Contender
        headsieve and the peers that ran.
    left_out : dict of str to str
        The peers that did not, and why.
    peaks : list of float
        Operations a second of a matrix product, one entry a round.
    needed : float
        Operations that a mask needs.
    """

    contenders: dict[str, Contender]
    left_out: dict[str, str]
    peaks: list[float]
    needed: float

    def ratios(self, peer: str) -> NDArray[np.float64]:
        """How many times headsieve's seconds a peer took, one entry a round."""
        own = self.contenders[HEADSIEVE].seconds
        return np.divide(self.contenders[peer].seconds, own)

    @property
    def utilisation(self) -> NDArray[np.float64]:
        """Share of the matrix peak that headsieve reached, one entry a round."""
        own = self.contenders[HEADSIEVE].seconds
        return self.needed / np.multiply(own, self.peaks)


class PeerError(Exception):
    """A peer could not be set up, or failed."""


class _Worker:
    """A peer in another process."""

    def __init__(self, peer: str, work: str, model: str, dtype: str, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(other, peer, work, model, dtype, device), daemon=True
        )
        self._process.start()
        other.close()

    def receive(self) -> Any:
        """The process's next answer.

        Raises
        ------
        PeerError
            If it failed or is gone.
        """
        try:
            answer = self._connection.recv()
        except EOFError:
            raise PeerError("its process ended unexpectedly") from None
        if isinstance(answer, PeerError):
            raise answer
        return answer

    def score(self, masks: list[int]) -> tuple[float, NDArray[np.float64], int]:
        """Seconds, scores of shape (masks, items) and peak memory so far."""
        self._connection.send(masks)
        seconds, scores, memory = self.receive()
        return seconds, scores, memory

    def close(self) -> None:
        self._connection.close()
        self._process.join()


def contest(
    work: str, peers: Sequence[str], model: str, dtype: str, *, rounds: int, device: str
) -> Contest:
    """Time headsieve and peers on a work, all of them once a round, in changing order.

    Every peer first scores some masks untimed; what it says is compared with what headsieve says,
    and so is everything that it says later.

    Parameters
    ----------
    work : str
        One of `WORKS`.
    peers : sequence of str
    model : str
        As `headsieve.load_model` takes it.
    dtype : str
    rounds : int
        With none, only the first scores are compared.
    device : str
        ``cpu`` or ``cuda``.

    Raises
    ------
    PeerError
        If headsieve itself fails.
    """
    names = [HEADSIEVE, *peers]
    workers = {name: _Worker(name, work, model, dtype, device) for name in names}
    left_out: dict[str, str] = {}
    try:
        result = Contest({}, left_out, [], 0.0)
        ready: dict[str, _Ready] = {}

        def leave_out(name: str, error: PeerError) -> None:
            if name == HEADSIEVE:
                raise error
            left_out[name] = str(error)
            result.contenders.pop(name, None)
            workers.pop(name).close()

        for name in names:
            try:
                ready[name] = workers[name].receive()
                result.contenders[name] = Contender(versions=ready[name].versions)
            except PeerError as error:
                leave_out(name, error)
        count = ready[HEADSIEVE].masks
        result.needed = ready[HEADSIEVE].needed
        # Round 0 is not timed: it tells whether the numbers agree, and warms everything up.
        reference = np.empty(0)
        for number in range(rounds + 1):
            some = [(number * MASKS_A_ROUND + one) % count for one in range(MASKS_A_ROUND)]
            if number:
                result.peaks.append(matrix_peak(dtype, device))
            order = list(workers)
            # headsieve's scores come first where there are none to compare with.
            shift = number % len(order)
            for name in order[shift:] + order[:shift]:
                masks = some if ready[name].mask_by_mask else list(range(count))
                try:
                    seconds, scores, memory = workers[name].score(masks)
                except PeerError as error:
                    leave_out(name, error)
                    continue
                if name == HEADSIEVE and not number:
                    reference = scores
                contender = result.contenders[name]
                difference = float(np.abs(scores - reference[masks]).max())
                contender.difference = max(contender.difference, difference)
                contender.peak_memory = memory
                if number:
                    contender.seconds.append(seconds / len(masks))
        return result
    finally:
        for worker in workers.values():
            worker.close()


def difference_to_cpu(work: str, model: str, device: str) -> float:
    """Largest difference of headsieve's float32 scores on a device from those on the CPU, in nats.

    Raises
    ------
    PeerError
        If headsieve fails on either.
    """
    workers = [_Worker(HEADSIEVE, work, model, "float32", where) for where in (device, "cpu")]
    try:
        counts = [worker.receive().masks for worker in workers]
        some = list(range(min(MASKS_A_ROUND, *counts)))
        one, other = (worker.score(some)[1] for worker in workers)
        return float(np.abs(one - other).max())
    finally:
        for worker in workers:
            worker.close()


@dataclass(frozen=True)
class _Ready:
    """What a worker says of itself when it is set up."""

    masks: int
    mask_by_mask: bool
    needed: float
    versions: dict[str, str]


def _serve(
    connection: Connection, name: str, work_name: str, model_name: str, dtype: str, device: str
) -> None:
    """Answer indices of masks with seconds, scores and peak memory until the pipe is closed."""
    # What libraries print is not for the parent's standard output, nor progress bars for anyone.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        import torch

        import headsieve as hs
        from headsieve.provenance import peak_memory

        kind = load_peer(name)
        model = hs.load_model(model_name, dtype=dtype, device=device)
        work = WORKS[work_name](model)
        needed = needed_flops(model, work)
        peer = kind(model, work)
        versions = {package: metadata.version(package) for package in kind.packages}
        connection.send(_Ready(len(work.masks), isinstance(peer, MaskByMask), needed, versions))
        while True:
            masks: Masks = work.masks[connection.recv()]
            started = time.perf_counter()
            scores = peer.score(masks)
            seconds = time.perf_counter() - started
            cuda = model.device.type == "cuda"
            memory = torch.cuda.max_memory_allocated() if cuda else peak_memory()
            connection.send((seconds, scores, memory))
    # The contest is over, one way or another.
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except ImportError as error:
        connection.send(PeerError(f"{error} (the dependency group `bench` has it)"))
    # Other people's libraries raise what they like; whatever it is, this peer cannot take part.
    except Exception as error:
        connection.send(PeerError(first_line(error)))


def machine(device: str) -> dict[str, Any]:
    """What the figures depend on besides the code; `device` may be ``auto``."""
    import torch

    cuda = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    return {
        "processor": torch.cuda.get_device_name() if cuda else platform.machine(),
        "threads": torch.get_num_threads(),
        "device": "cuda" if cuda else "cpu",
    }
