"""Clocks: marks in time on a device, and waits that are accurate to a tenth of a millisecond.

A mark is taken without waiting for the device (CUDA events on a GPU); differences are read once all is over.
"""

from __future__ import annotations

import ctypes
import statistics
import sys
import time
from typing import Any, Protocol

import torch

Mark = Any
"""A moment as its clock took it: a float on the CPU, an event on a GPU."""


class Clock(Protocol):
    """What every clock offers."""

    def mark(self) -> Mark:
        """The moment when all work issued so far will have ended."""

    def settle(self) -> None:
        """Wait until everything marked is over."""

    def between(self, earlier: Mark, later: Mark) -> float:
        """Seconds from one mark to another; call ``settle`` first."""


class CpuClock:
    """Marks on the host: work on the CPU is over when the call returns."""

    def mark(self) -> Mark:
        """The time now."""
        return time.perf_counter()

    def settle(self) -> None:
        """Nothing is outstanding on a CPU."""

    def between(self, earlier: Mark, later: Mark) -> float:
        """Seconds from one mark to another."""
        return float(later - earlier)


class CudaClock:
    """Marks on the current CUDA stream."""

    def mark(self) -> Mark:
        """An event recorded behind all work issued so far."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def settle(self) -> None:
        """Wait for the device."""
        torch.cuda.synchronize()

    def between(self, earlier: Mark, later: Mark) -> float:
        """Seconds from one mark to another."""
        return float(earlier.elapsed_time(later)) / 1e3


def clock_for(device: torch.device) -> Clock:
    """The clock of a device."""
    return CudaClock() if device.type == "cuda" else CpuClock()


def sharpen_sleep() -> None:
    """Ask Linux to end this thread's sleeps when they are due: by default it may be 50 µs late, to save wake-ups."""
    if sys.platform == "linux":
        set_timer_slack = 29  # PR_SET_TIMERSLACK, in nanoseconds
        ctypes.CDLL(None).prctl(set_timer_slack, ctypes.c_ulong(1), 0, 0, 0)


class Pacer:
    """A device made of waiting: each piece of work lasts its costed time, and lateness never adds up.

    Forward, the device never waits for the host, so pieces follow each other exactly. Backward, hooks and copies
    between two pieces are real work and count; what does not is how late the last sleep ended, nor what the framework
    takes from one piece to the next, which the forward pass has just shown.
    """

    def __init__(self) -> None:
        self._deadline = 0.0
        self._ended = 0.0
        self._gaps: list[float] = []
        self._gap_s = 0.0

    def start_forward(self) -> None:
        """A new chain of pieces begins now."""
        self._deadline = self._ended = time.perf_counter()
        self._gaps = []

    def rejoin(self) -> None:
        """Something real stood in between: the next piece starts now."""
        self._deadline = self._ended = time.perf_counter()

    def start_backward(self) -> None:
        """The chain turns round: from here on gaps count, but for what forward's were."""
        self._gap_s = statistics.median(self._gaps) if self._gaps else 0.0
        self._deadline = self._ended = time.perf_counter() + self._gap_s

    def forward(self, seconds: float) -> None:
        """Let a forward piece of ``seconds`` pass."""
        self._gaps.append(time.perf_counter() - self._ended)
        self.wait_until(self._deadline + seconds)

    def backward_deadline(self, seconds: float) -> float:
        """When a backward piece of ``seconds``, whose turn is now, will end by ``time.perf_counter``."""
        overslept = max(0.0, self._ended - self._deadline)
        return time.perf_counter() + seconds - overslept - self._gap_s

    def wait_until(self, deadline: float) -> None:
        """Sleep until ``deadline`` of ``time.perf_counter``; the CPU is free meanwhile."""
        if (left := deadline - time.perf_counter()) > 0:
            time.sleep(left)
        self._deadline = deadline
        self._ended = time.perf_counter()
