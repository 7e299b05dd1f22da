"""Which worker computes which batch: each until it is done, again where a worker is lost or slow.

Nothing here runs anything or looks at a clock, so the benchmark that simulates large clusters
schedules with the code that real ones are scheduled with.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

# A batch is slow once it has taken so many times what is usual for its size, and so many seconds.
_SLOW_FACTOR = 3.0
_SLOW_SECONDS = 5.0


class Dispatch:
    """Hands the batches of one call out to workers.

    Parameters
    ----------
    work : sequence of float
        How much there is to do in each batch, in any unit.
    pace : list of float
        Seconds that a unit took in earlier calls; those of this call are added to it.
    """

    def __init__(self, work: Sequence[float], pace: list[float]) -> None:
        self._work = work
        self._pace = pace
        self._waiting = list(range(len(work)))
        # For each busy worker, what it computes and since when.
        self._running: dict[Hashable, tuple[int, float]] = {}
        self._refused: dict[int, set[Hashable]] = {}
        self._done: set[int] = set()

    @property
    def finished(self) -> bool:
        """Whether every batch is done."""
        return len(self._done) == len(self._work)

    def take(self, worker: Hashable, now: float) -> tuple[int, bool] | None:
        """A batch for an idle worker, and whether a slower one is computing it already.

        None if there is nothing that it could do at the moment.
        """
        for number in self._waiting:
            if worker not in self.refused(number):
                self._waiting.remove(number)
                self._running[worker] = (number, now)
                return number, False
        slow = self._slowest(worker, now)
        if slow is None:
            return None
        self._running[worker] = (slow, now)
        return slow, True

    def finish(self, worker: Hashable, now: float) -> int | None:
        """The batch that a worker has computed, or None if another one was faster."""
        number, started = self._running.pop(worker)
        if number in self._done:
            return None
        self._done.add(number)
        # It may have been given back, and would wait for somebody else.
        if number in self._waiting:
            self._waiting.remove(number)
        self._pace.append((now - started) / self._work[number])
        return number

    def give_back(self, worker: Hashable, *, refuse: bool = False) -> int | None:
        """Take back what a worker was computing; its number, or None if that is done already.

        Parameters
        ----------
        worker : hashable
        refuse : bool
            Whether this worker must not be given that batch again.
        """
        number, _started = self._running.pop(worker)
        if number in self._done:
            return None
        if refuse:
            self._refused.setdefault(number, set()).add(worker)
        if all(other != number for other, _ in self._running.values()):
            self._waiting.insert(0, number)
        return number

    def refused(self, number: int) -> set[Hashable]:
        """The workers that must not be given a batch."""
        return self._refused.get(number, set())

    def _slowest(self, worker: Hashable, now: float) -> int | None:
        """The batch that has been running longest, if that is too long and it runs only once."""
        if not self._pace:
            return None
        usual = float(np.median(self._pace))
        running = [number for number, _ in self._running.values()]
        since = {
            number: started
            for number, started in self._running.values()
            if number not in self._done
            and running.count(number) == 1
            and worker not in self.refused(number)
            and now - started > max(_SLOW_FACTOR * usual * self._work[number], _SLOW_SECONDS)
        }
        return min(since, key=since.__getitem__, default=None)
