"""The pulse: shared memory in which every rank says that it lives, what it is doing, and why it failed.

The launching process reads it to draw progress and to name the rank that died or hangs; writing costs a rank well
under a microsecond.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

HEARTBEAT_S = 0.5
WAITING = "waiting for the others"

_RECORD = np.dtype(
    [
        ("pid", "i8"),
        ("heartbeat", "f8"),
        ("moved", "f8"),
        ("count", "i8"),
        ("label", "S120"),
        ("done", "f8"),
        ("failed", "f8"),
        ("error", "S600"),
        ("is_input", "?"),
    ]
)


@dataclass(frozen=True, slots=True)
class Vitals:
    """One rank as its pulse shows it; times are of the machine's monotonic clock, 0 where it never happened."""

    rank: int
    pid: int
    heartbeat: float
    moved: float
    count: int
    label: str
    done: float
    failed: float
    error: str
    is_input: bool


class Pulse:
    """The pulse of all ranks in one file: ranks write their own record, the launching process reads all."""

    def __init__(self, path: Path, ranks: int, create: bool = False) -> None:
        self._records = np.memmap(path, dtype=_RECORD, mode="w+" if create else "r+", shape=(ranks,))

    def vitals(self) -> list[Vitals]:
        """Every rank as it stands now."""
        return [
            Vitals(
                rank=rank,
                pid=int(record["pid"]),
                heartbeat=float(record["heartbeat"]),
                moved=float(record["moved"]),
                count=int(record["count"]),
                label=bytes(record["label"]).decode(errors="replace"),
                done=float(record["done"]),
                failed=float(record["failed"]),
                error=bytes(record["error"]).decode(errors="replace"),
                is_input=bool(record["is_input"]),
            )
            for rank, record in enumerate(self._records)
        ]

    def writer(self, rank: int) -> Beat:
        """The writing end for one rank, with its heartbeat started."""
        return Beat(self._records, rank)


class Beat:
    """A rank's own end of the pulse. Without shared memory (in a torchrun world) it only remembers its label."""

    def __init__(self, records: np.memmap | None = None, rank: int = 0) -> None:
        self._records = records
        self._rank = rank
        self.label = "starting"
        self.done = 0.0
        if records is not None:
            records[rank]["pid"] = os.getpid()
            records[rank]["moved"] = time.monotonic()
            threading.Thread(target=self._heartbeat, daemon=True).start()

    def move(self, label: str, done: float | None = None) -> None:
        """Say what comes next, and which part of the whole is done (0 to 1)."""
        self.label = label
        self.done = self.done if done is None else done
        if self._records is not None:
            record = self._records[self._rank]
            record["label"] = label.encode()[:120]
            record["done"] = self.done
            record["moved"] = time.monotonic()
            record["count"] += 1

    def fail(self, error: str, is_input: bool) -> None:
        """Say why this rank is about to end, and whether it is the user's input that is at fault."""
        if self._records is not None:
            record = self._records[self._rank]
            record["error"] = error.encode()[:600]
            record["is_input"] = is_input
            record["failed"] = time.monotonic()

    def _heartbeat(self) -> None:
        assert self._records is not None
        while True:
            self._records[self._rank]["heartbeat"] = time.monotonic()
            time.sleep(HEARTBEAT_S)
