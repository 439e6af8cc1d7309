"""The strategies that can be run for real, by the name that a scenario gives them: the twins of simcore's table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
import torch.distributed as dist

from measure.train.ddp import build_ddp
from measure.train.job import Job
from simcore.scenario.schema import StrategyTable


class Trainer(Protocol):
    """What every strategy's trainer offers."""

    def step(self) -> torch.Tensor:
        """One optimizer step; returns the loss."""


TRAINERS: dict[str, Callable[[Job, StrategyTable, dist.ProcessGroup | None], Trainer]] = {"ddp": build_ddp}
