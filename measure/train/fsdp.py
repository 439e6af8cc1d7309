"""ZeRO for real: ``ZeroRedundancyOptimizer`` (stage 1) and ``fully_shard`` (2 and 3, whole or hybrid).

The twin of ``simcore/strategies/fsdp.py`` and ``zero.py``.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer

from measure.models.chain import Chain, Stage
from measure.train.job import AUTOCAST, Job, OptimizerChoice
from measure.train.mesh import Mesh
from simcore.scenario.strategy import StrategyTable

REDUCED_AS = {"none": None, "fp16": torch.float16, "bf16": torch.bfloat16}


def shard_fully(module: nn.Module, job: Job, strategy: StrategyTable, mesh: Mesh) -> nn.Module:
    """``module`` sharded block by block over the mesh's shards, and copied over its replicates; in place."""
    hybrid = mesh.size("replicate") > 1  # torch takes no context beside a hybrid mesh, so that stays with the copies
    grid = mesh.grid["replicate", "shard"] if hybrid else mesh.alike("shard")
    reduced = REDUCED_AS[strategy.compression]
    gathered = job.autocast if job.autocast in AUTOCAST.values() else None
    policy = MixedPrecisionPolicy(param_dtype=gathered, reduce_dtype=reduced or (torch.float32 if gathered else None))
    reshard = strategy.data == "fsdp"
    blocks = [block for block in blocks_of(module) if any(True for _ in block.parameters())]
    for block in blocks:
        fully_shard(block, mesh=grid, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(module, mesh=grid, mp_policy=policy)
    _prefetch(blocks, strategy.prefetch)
    return module


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The blocks of a chain or a stage; of any other module, its numbered children (``h.0``, ``layers.3``)."""
    if isinstance(module, Stage):
        return list(module.run)
    if isinstance(module, Chain):
        return module.blocks()
    names = [name for name, _ in module.named_modules()]
    return [module.get_submodule(name) for name in names if _first_number_ends(name)]


def _first_number_ends(name: str) -> bool:
    parts = name.split(".")
    return parts[-1].isdigit() and not any(part.isdigit() for part in parts[:-1])


def _prefetch(blocks: list[nn.Module], depth: int) -> None:
    """Gather so many blocks ahead; FSDP does one by itself in backward, and one in forward as streams allow."""
    if depth == 1:
        return
    for order, set_prefetch in ((blocks, "set_modules_to_forward_prefetch"),
                                (blocks[::-1], "set_modules_to_backward_prefetch")):  # fmt: skip
        for position, block in enumerate(order):
            assert isinstance(block, FSDPModule)
            getattr(block, set_prefetch)(order[position + 1 : position + 1 + depth])


def share_optimizer(choice: OptimizerChoice, module: nn.Module, mesh: Mesh) -> torch.optim.Optimizer:
    """An optimizer whose state and work are shared among the copies (ZeRO stage 1)."""
    return ZeroRedundancyOptimizer(
        module.parameters(),
        optimizer_class=choice.kind,
        process_group=mesh.alike("replicate").get_group(),
        **choice.options,
    )
