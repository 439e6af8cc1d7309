"""Workers without a barrier, as events: who computes, who shares the server's link, how stale what they bring is.

Arrival order decides, so this is a loop over a heap; a serial number breaks ties. Transfers at the same time share the
link, as flows do (processor sharing), one way in and one way out. Workers begin out of step and vary a little, always
in the same way, so that one question has one answer.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass
from functools import lru_cache

UPDATES = 2000
WARM_UP = 0.25
"""The part of the run that is not counted, while the workers fall into step with the queue."""


@dataclass(frozen=True, slots=True)
class Workers:
    """Workers in a loop: compute for their own ``work_s``, send for ``transfer_s``, and get as much back.

    ``bound`` is how many steps one may be ahead of the slowest; None for any number. ``jitter`` is a worker's own
    variation from step to step, relative to its work.
    """

    work_s: tuple[float, ...]
    transfer_s: float
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


class _Link:
    """One way of the server's link: those who use it at once share it equally.

    Progress is counted in virtual time, which passes more slowly the more there are.
    """

    def __init__(self, transfer_s: float) -> None:
        self._transfer_s = transfer_s
        self._virtual = self._seen_at = 0.0
        self._active: list[tuple[float, int, int]] = []

    def add(self, now: float, serial: int, worker: int) -> None:
        """A transfer begins."""
        self._advance(now)
        heapq.heappush(self._active, (self._virtual + self._transfer_s, serial, worker))

    @property
    def next_end(self) -> float:
        """When the next transfer ends if nothing else begins."""
        if not self._active:
            return math.inf
        return self._seen_at + max(0.0, self._active[0][0] - self._virtual) * len(self._active)

    def pop(self, now: float) -> int:
        """The worker whose transfer ends now."""
        self._advance(now)
        return heapq.heappop(self._active)[2]

    def _advance(self, now: float) -> None:
        if self._active:
            self._virtual += (now - self._seen_at) / len(self._active)
        self._seen_at = now


class _Loop:
    def __init__(self, workers: Workers) -> None:
        self._workers, self._count = workers, len(workers.work_s)
        self._random = random.Random(1)
        self._computing: list[tuple[float, int, int]] = []
        self._inward, self._outward = _Link(workers.transfer_s), _Link(workers.transfer_s)
        self._serial = 0
        self._version = 0
        self._read_at = [0] * self._count
        self._steps = [0] * self._count
        self._held: deque[int] = deque()
        self._updates: list[tuple[float, int]] = []

    def run(self) -> Steady:
        """Each event is a worker that has computed, sent or received; what it does next follows."""
        for worker, work_s in enumerate(self._workers.work_s):
            self._compute(worker, self._random.random() * (work_s + 2 * self._workers.transfer_s))
        while len(self._updates) < UPDATES:
            computed = self._computing[0][0] if self._computing else math.inf
            now = min(computed, self._inward.next_end, self._outward.next_end)
            if now == computed:
                self._inward.add(now, self._next_serial(), heapq.heappop(self._computing)[2])
            elif now == self._inward.next_end:
                self._update(self._inward.pop(now), now)
            else:
                self._compute(self._outward.pop(now), now)
        counted = self._updates[round(WARM_UP * UPDATES) :]
        passed = counted[-1][0] - counted[0][0]
        stale = tuple(sorted(stale for _, stale in counted))
        return Steady(passed / max(1, len(counted) - 1) * self._count, stale)

    def _update(self, worker: int, now: float) -> None:
        """Gradients arrive; everyone who is not too far ahead of the slowest is sent the parameters."""
        self._updates.append((now, self._version - self._read_at[worker]))
        self._version += 1
        self._steps[worker] += 1
        self._held.append(worker)
        bound = self._workers.bound
        slowest = min(self._steps) if bound is not None else 0
        for _ in range(len(self._held)):
            held = self._held.popleft()
            if bound is None or self._steps[held] - slowest <= bound:
                self._read_at[held] = self._version
                self._outward.add(now, self._next_serial(), held)
            else:
                self._held.append(held)

    def _compute(self, worker: int, begun: float) -> None:
        work_s = self._workers.work_s[worker] * max(0.0, 1 + self._random.gauss(0, self._workers.jitter))
        heapq.heappush(self._computing, (begun + work_s, self._next_serial(), worker))

    def _next_serial(self) -> int:
        self._serial += 1
        return self._serial
