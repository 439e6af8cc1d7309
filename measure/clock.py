"""Clocks: marks in time on a device, and waits that are accurate to a tenth of a millisecond.

A mark is taken without waiting for the device (CUDA events on a GPU); differences are read once all is over.
"""

from __future__ import annotations

import ctypes
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
        event.record()  # type: ignore[no-untyped-call]
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

    A sleep that ends late by some microseconds starts the next one as much earlier; what the framework does between
    two waits (hooks, copies) is real work and counts.
    """

    def __init__(self) -> None:
        self._late = 0.0

    def deadline_after(self, seconds: float) -> float:
        """When work of ``seconds`` that starts now will end, by ``time.perf_counter``: less what was overslept."""
        return time.perf_counter() + seconds - self._late

    def wait_until(self, deadline: float) -> None:
        """Sleep until ``deadline`` of ``time.perf_counter``; the CPU is free meanwhile."""
        if (left := deadline - time.perf_counter()) > 0:
            time.sleep(left)
        self._late = max(0.0, time.perf_counter() - deadline)

    def wait(self, seconds: float) -> None:
        """Let work of ``seconds`` pass from now."""
        self.wait_until(self.deadline_after(seconds))
