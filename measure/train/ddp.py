"""DistributedDataParallel for real: the twin of ``simcore/strategies/ddp.py``."""

from __future__ import annotations

import math
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from measure.train.job import Job
from simcore.errors import InputError
from simcore.scenario.strategy import StrategyTable
from simcore.units import MIB

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
        _check_one_bucket(wrapped, strategy)
        state = powerSGD_hook.PowerSGDState(
            group, matrix_approximation_rank=strategy.powersgd_rank, start_powerSGD_iter=POWERSGD_START
        )
        wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif strategy.compression != "none":
        wrapped.register_comm_hook(group, HOOKS[strategy.compression])


def _check_one_bucket(wrapped: DistributedDataParallel, strategy: StrategyTable) -> None:
    """Refuse PowerSGD over gloo with several buckets.

    Its hook starts collectives from the threads that complete others, in an order that may differ from rank to rank, so
    that ranks would wait for each other for ever.
    """
    size_mb = sum(parameter.numel() * parameter.element_size() for parameter in wrapped.parameters()) / MIB
    on_gloo = dist.get_backend(wrapped.process_group) == "gloo" and wrapped.process_group.size() > 1
    if on_gloo and size_mb > (strategy.bucket_cap_mb or 1.0):
        raise InputError("strategy.bucket_cap_mb: over gloo torch's PowerSGD hook is safe with one bucket only; give "
                         f"bucket_cap_mb = {math.ceil(size_mb)} or more")  # fmt: skip


def _as_local_tensors(module: nn.Module) -> None:
    """Tensor-parallel parameters as DDP takes them: it knows plain tensors only, and torch's own helper swaps them."""
    if any(isinstance(parameter, DTensor) for parameter in module.parameters()):
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

        _pre_dp_module_transform(module)
