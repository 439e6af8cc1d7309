"""DistributedDataParallel for real: the twin of ``simcore/strategies/ddp.py``."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from measure.train.job import Job
from simcore.scenario.schema import StrategyTable

HOOKS = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}


class DdpTrainer:
    """Trains a job in DDP over a process group; every call of ``step`` is one optimizer step."""

    def __init__(self, job: Job, strategy: StrategyTable, group: dist.ProcessGroup | None) -> None:
        self._job, self._passes = job, strategy.gradient_accumulation
        self.model = DistributedDataParallel(
            job.model,
            device_ids=[job.device] if job.device.type == "cuda" else None,
            process_group=group,
            bucket_cap_mb=strategy.bucket_cap_mb,
            find_unused_parameters=strategy.find_unused_parameters,
            gradient_as_bucket_view=strategy.gradient_as_bucket_view,
            static_graph=strategy.static_graph,
        )
        if strategy.compression != "none":
            self.model.register_comm_hook(group, HOOKS[strategy.compression])

    def step(self) -> torch.Tensor:
        """One optimizer step: passes under ``no_sync``, one that synchronises, the optimizer; returns the last loss."""
        self._job.optimizer.zero_grad(set_to_none=True)
        for index in range(self._passes):
            last = index == self._passes - 1
            with nullcontext() if last else self.model.no_sync():
                loss = self._job.loss(self.model)
                (loss / self._passes).backward()  # type: ignore[no-untyped-call]
        self._job.optimizer.step()
        return loss.detach()


def build_ddp(job: Job, strategy: StrategyTable, group: Any) -> DdpTrainer:
    """The trainer of ``data = "ddp"``."""
    return DdpTrainer(job, strategy, group)
