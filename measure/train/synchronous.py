"""Synchronous training for real: any product of tensor, pipeline and data parallelism that torch allows."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from measure.paced import PacedBlock
from measure.train.context import spread_context
from measure.train.ddp import wrap_ddp
from measure.train.expert import spread_experts
from measure.train.fsdp import blocks_of, shard_fully, share_optimizer
from measure.train.job import Job
from measure.train.mesh import Mesh
from measure.train.pipeline import PipelinePass, cut
from measure.train.tensor import split_tensors
from simcore.scenario.strategy import SHARDED, StrategyTable


class SynchronousTrainer:
    """Trains a job over a mesh; every call of ``step`` is one optimizer step."""

    steps = 1

    def __init__(self, job: Job, strategy: StrategyTable, mesh: Mesh) -> None:
        self._job, self._mesh, self._passes = job, mesh, strategy.gradient_accumulation
        self.parts = _divided(job, strategy, mesh)
        self._pipeline = PipelinePass(job, strategy, mesh, self.parts) if strategy.pipeline_parallel > 1 else None
        self._optimizers = [_optimizer(job, strategy, mesh, part) for part in self.parts.values()]

    def step(self) -> torch.Tensor:
        """One optimizer step over all accumulated passes; returns the last pass's loss."""
        for optimizer in self._optimizers:
            optimizer.zero_grad(set_to_none=True)
        for index in range(self._passes):
            loss = self._pipeline.run() if self._pipeline else self._pass(last=index == self._passes - 1)
        for optimizer in self._optimizers:
            optimizer.step()
        return loss

    def close(self) -> None:
        """Nothing is left behind."""

    def _pass(self, last: bool) -> torch.Tensor:
        model = self.parts[0]
        with _synchronised(model, last), spread_context(self._job, self._mesh):
            loss = self._job.loss(model)
            (loss / self._passes).backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def _divided(job: Job, strategy: StrategyTable, mesh: Mesh) -> dict[int, nn.Module]:
    """This rank's part of the model, by pipeline stage: split, cut, made to recompute, and joined to its copies."""
    if strategy.tensor_parallel > 1:
        split_tensors(job.model, mesh, strategy.sequence_parallel)
    if strategy.expert_parallel > 1:
        spread_experts(job.model, strategy, mesh, job.batch)
    parts: dict[int, nn.Module] = {0: job.model}
    if strategy.pipeline_parallel > 1:
        parts = dict(cut(job.model, strategy, mesh.place("pipeline")))
    for part in parts.values():
        _open_pacing(part)
        if strategy.activation_checkpointing == "full":
            _recompute(part)
        if strategy.compile:
            for block in blocks_of(part):
                block.compile()
    return {number: _joined(part, job, strategy, mesh) for number, part in parts.items()}


def _joined(part: nn.Module, job: Job, strategy: StrategyTable, mesh: Mesh) -> nn.Module:
    if strategy.data in SHARDED:
        return shard_fully(part, job, strategy, mesh)
    if mesh.alike("replicate").size() == 1 and strategy.gpus_per_copy * strategy.expert_parallel > 1:
        return part
    return wrap_ddp(part, job, strategy, mesh.alike("replicate").get_group())


def _open_pacing(part: nn.Module) -> None:
    """A paced part keeps its own time from its first block on."""
    blocks = blocks_of(part)
    if blocks and isinstance(blocks[0], PacedBlock):
        blocks[0].opens = True


def _recompute(part: nn.Module) -> None:
    """Keep only each block's input, and run the block again in backward."""
    for block in blocks_of(part):
        _replace(part, block, checkpoint_wrapper(block))


def _replace(parent: nn.Module, child: nn.Module, by: nn.Module) -> None:
    for module in list(parent.modules()):
        for name, held in list(module.named_children()):
            if held is child:
                module.register_module(name, by)


def _optimizer(job: Job, strategy: StrategyTable, mesh: Mesh, part: nn.Module) -> torch.optim.Optimizer:
    parameters = list(part.parameters())
    if not parameters:
        return torch.optim.SGD([torch.zeros(1)])
    if strategy.data == "zero1":
        return share_optimizer(job.optimizer, part, mesh)
    if strategy.tensor_parallel > 1:  # sharded and whole parameters do not mix in one multi-tensor update
        return _one_by_one(job, parameters)
    return job.optimizer.over(parameters)


def _one_by_one(job: Job, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    optimizer = job.optimizer.over(parameters)
    for group in optimizer.param_groups:
        group["foreach"] = False
    return optimizer


def _synchronised(model: nn.Module, last: bool) -> AbstractContextManager[None]:
    """The context of one accumulated pass: only the last one synchronises gradients."""
    if isinstance(model, DistributedDataParallel):
        return nullcontext() if last else model.no_sync()
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(last)
    return nullcontext()
