"""DistributedDataParallel for real: the twin of ``simcore/strategies/ddp.py``."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from measure.train.job import Job
from simcore.scenario.strategy import StrategyTable

HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}
POWERSGD_START = 2
"""Steps before PowerSGD compresses: torch asks for two at least, so that warm-up ends before it starts."""


def wrap_ddp(module: nn.Module, job: Job, strategy: StrategyTable, group: dist.ProcessGroup | None) -> nn.Module:
    """``module`` in DDP over ``group``; bare where it learns nothing, which DDP refuses."""
    if not any(parameter.requires_grad for parameter in module.parameters()):
        return module
    if strategy.sync_batchnorm:
        module = nn.SyncBatchNorm.convert_sync_batchnorm(module, group)  # type: ignore[no-untyped-call]
    _as_local_tensors(module)
    wrapped = DistributedDataParallel(
        module,
        device_ids=[job.device] if job.device.type == "cuda" else None,
        process_group=group,
        bucket_cap_mb=strategy.bucket_cap_mb,
        find_unused_parameters=strategy.find_unused_parameters,
        gradient_as_bucket_view=strategy.gradient_as_bucket_view,
        static_graph=strategy.static_graph,
    )
    _register_hook(wrapped, strategy, group)
    return wrapped


def _register_hook(wrapped: DistributedDataParallel, strategy: StrategyTable, group: Any) -> None:
    if strategy.compression == "powersgd":
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=strategy.powersgd_rank, start_powerSGD_iter=POWERSGD_START
        )
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif strategy.compression != "none":
        wrapped.register_comm_hook(group, HOOKS[strategy.compression])


def _as_local_tensors(module: nn.Module) -> None:
    """Tensor-parallel parameters as DDP takes them: it knows plain tensors only, and torch's own helper swaps them."""
    if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

        _pre_dp_module_transform(module)
