"""Workers without a barrier, as events: who computes, who queues at the server, how stale what they bring is.

Arrival order decides, so this is a loop over a heap; a serial number breaks ties. Workers vary a little from step to
step, always in the same way, so that one question has one answer.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

EVENTS = 6000
WARM_UP = 0.25
"""The part of the run that is not counted, while the workers fall into step with the queue."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers in a loop: compute for their own ``work_s``, then be served, one at a time, for ``service_s``.

    ``bound`` is how many steps one may be ahead of the slowest; None for any number. ``jitter`` is a worker's own
    variation from step to step, relative to its work.
    """

    work_s: tuple[float, ...]
    service_s: float
    bound: int | None = None
    jitter: float = 0.0


@dataclass(frozen=True, slots=True)
class Steady:
    """What the workers settle into: seconds in which they take as many steps as they are, and every step's staleness.

    ``staleness`` counts the updates by others between reading the parameters and changing them, in rising order.
    """

    cycle_s: float
    staleness: tuple[int, ...]


@lru_cache(maxsize=512)
def settle(workers: Workers) -> Steady:
    """Run the loop until it is steady, and on."""
    return _Loop(workers).run()


class _Loop:
    def __init__(self, workers: Workers) -> None:
        self._workers, self._count = workers, len(workers.work_s)
        self._random = random.Random(1)
        self._events: list[tuple[float, int, int]] = []
        self._serial = 0
        self._free_at = 0.0
        self._version = 0
        self._read_at = [0] * self._count
        self._steps = [0] * self._count
        self._held: deque[int] = deque()
        self._updates: list[tuple[float, int]] = []

    def run(self) -> Steady:
        """Every event is a worker that has computed; serving it decides when it computes again."""
        for worker in range(self._count):
            self._compute(worker, 0.0)
        while len(self._updates) < EVENTS:
            now, _, worker = heapq.heappop(self._events)
            self._free_at = max(now, self._free_at) + self._workers.service_s
            self._updates.append((self._free_at, self._version - self._read_at[worker]))
            self._version += 1
            self._steps[worker] += 1
            self._held.append(worker)
            self._release()
        counted = self._updates[round(WARM_UP * EVENTS) :]
        passed = counted[-1][0] - counted[0][0]
        stale = tuple(sorted(stale for _, stale in counted))
        return Steady(passed / max(1, len(counted) - 1) * self._count, stale)

    def _release(self) -> None:
        """Let everyone go on who is not too far ahead of the slowest."""
        bound = self._workers.bound
        slowest = min(self._steps) if bound is not None else 0
        for _ in range(len(self._held)):
            worker = self._held.popleft()
            if bound is None or self._steps[worker] - slowest <= bound:
                self._read_at[worker] = self._version
                self._compute(worker, self._free_at)
            else:
                self._held.append(worker)

    def _compute(self, worker: int, begun: float) -> None:
        work_s = self._workers.work_s[worker] * max(0.0, 1 + self._random.gauss(0, self._workers.jitter))
        self._serial += 1
        heapq.heappush(self._events, (begun + work_s, self._serial, worker))
