"""The mesh of ranks that a product of strategies trains on: pipeline, copies, shards, context, tensor, in this order.

Tensor-parallel ranks are neighbours, since they talk most; pipeline stages lie furthest apart. Shards are the ranks
that hold one copy of something together: of parameters (FSDP), or of the experts. Ranks of a context hold the same
parameters: they synchronise gradients like copies.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from measure.world import Team
from simcore.scenario.strategy import SHARDED, StrategyTable

AXES = ("pipeline", "replicate", "shard", "context", "tensor")


@dataclass(frozen=True)
class Mesh:
    """The ranks of one training as a grid, seen from one of them."""

    grid: DeviceMesh

    def size(self, axis: str) -> int:
        """Ranks along an axis."""
        return self.grid[axis].size()

    def place(self, axis: str) -> int:
        """This rank's place along an axis."""
        return self.grid[axis].get_local_rank()

    def group(self, axis: str) -> dist.ProcessGroup:
        """The ranks that differ from this one only along an axis."""
        return self.grid[axis].get_group()

    def alike(self, axis: str) -> DeviceMesh:
        """An axis together with the context's, whose ranks hold the same parameters."""
        return self.grid[axis] if self.size("context") == 1 else self.grid[axis, "context"]._flatten(f"{axis} alike")


def mesh_of(team: Team | None, gpus: int, strategy: StrategyTable, device_type: str) -> Mesh | None:
    """The mesh over the first ``gpus`` ranks; every rank of the world must ask alike, those outside get None.

    Raises ``ValueError`` where the ranks do not hold whole copies of the model.
    """
    copies = strategy.copies(gpus)
    shards = strategy.shards(copies) if strategy.data in SHARDED else strategy.expert_parallel
    context, tensor = strategy.context_parallel, strategy.tensor_parallel
    shape = (strategy.pipeline_parallel, copies // shards, shards, context, tensor)
    grid = DeviceMesh(device_type, torch.arange(gpus).view(shape), mesh_dim_names=AXES)
    return Mesh(grid) if team is not None else None
