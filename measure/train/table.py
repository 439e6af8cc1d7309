"""The strategies that can be run for real, by the name that a scenario gives them: the twins of simcore's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

from measure.train.data_parallel import DataParallelTrainer
from measure.train.hogwild import HogwildTrainer
from measure.train.job import Job
from measure.train.local_sgd import LocalSgdTrainer
from measure.train.mesh import Mesh
from measure.train.server import ParameterServerTrainer
from measure.train.synchronous import SynchronousTrainer
from measure.train.uneven import UnevenTrainer
from simcore.scenario.strategy import StrategyTable


class Trainer(Protocol):
    """What every strategy's trainer offers."""

    steps: int
    """Optimizer steps that one call of ``step`` takes."""

    def step(self) -> torch.Tensor:
        """One optimizer step, or one round of them; returns the loss."""

    def close(self) -> None:
        """End whatever the trainer started."""


def build_ddp(job: Job, strategy: StrategyTable, mesh: Mesh) -> Trainer:
    """DDP, joined where ranks have unequally many inputs."""
    trainer = SynchronousTrainer(job, strategy, mesh)
    return UnevenTrainer(trainer, mesh) if strategy.uneven_inputs else trainer


TRAINERS: dict[str, Callable[[Job, StrategyTable, Mesh], Trainer]] = {
    "dp": DataParallelTrainer,
    "ddp": build_ddp,
    "zero1": SynchronousTrainer,
    "zero2": SynchronousTrainer,
    "fsdp": SynchronousTrainer,
    "local-sgd": LocalSgdTrainer,
    "async-ps": ParameterServerTrainer,
    "hogwild": HogwildTrainer,
}
