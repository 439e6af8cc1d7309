"""Which ranks a collective joins: the axes of the mesh, tensor-parallel ranks innermost and pipeline stages outermost.

``measure/train/mesh.py`` lays out the same order.
"""

from __future__ import annotations

from simcore.costs.network import Group
from simcore.graph.tasks import Axis
from simcore.scenario.strategy import SHARDED, StrategyTable


def groups_of(strategy: StrategyTable, gpus: int) -> dict[Axis, Group]:
    """The group of each axis at so many GPUs: how many ranks, and how far apart its neighbours lie.

    The ranks of a context hold the same parameters, so they synchronise gradients, and share shards, with the copies.
    """
    copies = strategy.copies(gpus)
    tensor, context = strategy.tensor_parallel, strategy.context_parallel
    alike = copies * context
    shards = min(strategy.shards(copies) * context, alike) if strategy.data in SHARDED else 1
    experts = min(strategy.expert_parallel, copies)
    return {
        "tensor": Group(tensor, 1),
        "context": Group(context, tensor),
        "shard": Group(shards, tensor),
        "expert": Group(experts, tensor),
        "replicate": Group(alike // (shards * experts), tensor * shards * experts),
        "copies": Group(alike, tensor),
        "pipeline": Group(2 if strategy.pipeline_parallel > 1 else 1, tensor * alike),
        "server": Group(2, gpus, lone=True),
    }
