"""What asynchronous trainers share: workers come and go as they like, and note how stale what they learnt from was."""

from __future__ import annotations

import torch


class AsynchronousTrainer:
    """A worker that waits for no other. ``staleness`` collects, step by step, how many updates by others came between
    reading the parameters and changing them."""

    steps = 1

    def __init__(self) -> None:
        self.staleness: list[int] = []

    def enter(self) -> None:
        """Begin to take part."""

    def step(self) -> torch.Tensor:
        """One step of this worker; returns its loss."""
        raise NotImplementedError

    def leave(self) -> None:
        """Take no part for a while: nobody may wait for this worker."""

    def close(self) -> None:
        """End whatever the trainer started."""
