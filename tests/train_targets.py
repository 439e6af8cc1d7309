"""What ranks run in tests of training: the same job in DDP over all ranks, and alone on the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from measure.train.job import Job
from measure.train.table import TRAINERS
from measure.world import World
from simcore.scenario.schema import StrategyTable

STEPS = 5
BATCH = 8
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "view": {"gradient_as_bucket_view": True},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
    "accumulate": {"gradient_accumulation": 2},
}


def train_both_ways(world: World, strategy: str, compression: str = "none") -> dict[str, Any]:
    """Losses of the DDP run, and the furthest that any parameter ends from where one process puts it."""
    torch.manual_seed(7)
    inputs, targets = torch.randn(BATCH, 16), torch.randn(BATCH, 4)
    table = StrategyTable(data="ddp", compression=compression, **OPTIONS[strategy])
    share = BATCH // world.size
    mine = slice(world.rank * share, (world.rank + 1) * share)
    together = _job(inputs[mine], targets[mine])
    trainer = TRAINERS["ddp"](together, table, None)
    losses = [float(trainer.step()) for _ in range(STEPS)]
    single = _job(inputs, targets)
    for _ in range(STEPS):
        single.optimizer.zero_grad()
        single.loss(single.model).backward()
        single.optimizer.step()
    pairs = zip(together.model.parameters(), single.model.parameters(), strict=True)
    return {"losses": losses, "furthest": max(float((one - other).abs().max()) for one, other in pairs)}


def _job(inputs: torch.Tensor, targets: torch.Tensor) -> Job:
    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))

    def loss(wrapped: nn.Module) -> torch.Tensor:
        return nn.functional.mse_loss(wrapped(inputs), targets)

    return Job(model, torch.device("cpu"), loss, torch.optim.SGD(model.parameters(), lr=0.1))
