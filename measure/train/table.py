"""The strategies that can be run for real, by the name that a scenario gives them: the twins of simcore's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from measure.train.job import Job
from measure.train.mesh import Mesh
from measure.train.synchronous import SynchronousTrainer
from simcore.scenario.strategy import StrategyTable


class Trainer(Protocol):
    """What every strategy's trainer offers."""

    steps: int
    """Optimizer steps that one call of ``step`` takes."""

    def step(self) -> torch.Tensor:
        """One optimizer step, or one round of them; returns the loss."""

    def close(self) -> None:
        """End whatever the trainer started."""


TRAINERS: dict[str, Callable[[Job, StrategyTable, Mesh], Trainer]] = {
    "ddp": SynchronousTrainer,
    "zero1": SynchronousTrainer,
    "zero2": SynchronousTrainer,
    "fsdp": SynchronousTrainer,
}
