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


def pairs_of(team: Team | None, strategy: StrategyTable, device_type: str, ranks: int) -> Mesh | None:
    """A mesh of two ranks for each pair of the first ``ranks``, so that all pairs can do the same at once.

    Every rank of the world must ask alike; those outside get None.
    """
    pairs = [DeviceMesh(device_type, torch.tensor(pair).view(_shape(2, strategy)), mesh_dim_names=AXES)
             for pair in zip(range(0, ranks, 2), range(1, ranks, 2), strict=True)]  # fmt: skip
    return Mesh(pairs[team.world.rank // 2]) if team is not None else None


def mesh_of(team: Team | None, gpus: int, strategy: StrategyTable, device_type: str) -> Mesh | None:
    """The mesh over the first ``gpus`` ranks; every rank of the world must ask alike, those outside get None.

    Raises ``ValueError`` where the ranks do not hold whole copies of the model.
    """
    grid = DeviceMesh(device_type, torch.arange(gpus).view(_shape(gpus, strategy)), mesh_dim_names=AXES)
    return Mesh(grid) if team is not None else None


def _shape(gpus: int, strategy: StrategyTable) -> tuple[int, ...]:
    """Ranks along each axis of the mesh of so many ranks."""
    copies = strategy.copies(gpus)
    shards = strategy.shards(copies) if strategy.data in SHARDED else strategy.expert_parallel
    inside = (strategy.context_parallel, strategy.tensor_parallel)
    return (strategy.pipeline_parallel, copies // shards, shards, *inside)
