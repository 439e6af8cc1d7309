"""torch's DataParallel for real: one process, a thread a replica.

The twin of ``simcore/strategies/data_parallel.py``. On GPUs it is ``nn.DataParallel`` itself. Its pieces know no CPU,
so there the same steps stand beside it: replicas whose parameters are copies in the graph, the batch scattered, a
thread a replica, outputs gathered; autograd then sums the gradients into the original.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel

from measure.train.job import Job
from measure.train.mesh import Mesh
from simcore.scenario.strategy import StrategyTable


class DataParallelTrainer:
    """Trains on every replica from rank 0's process; the other ranks only lend their devices."""

    steps = 1

    def __init__(self, job: Job, strategy: StrategyTable, mesh: Mesh) -> None:
        replicas = mesh.size("replicate")
        self._job, self._leads = job, mesh.place("replicate") == 0
        self._inputs = _repeated(job.inputs, replicas)
        self._targets = _repeated(job.targets, replicas)
        self.model = (
            DataParallel(job.model, list(range(replicas)))
            if job.device.type == "cuda"
            else _CpuDataParallel(job.model, replicas)
        )
        self._optimizer = job.optimizer.over(job.model.parameters())

    def step(self) -> torch.Tensor:
        """One optimizer step of the whole batch; returns the loss. Ranks other than the first do nothing."""
        if not self._leads:
            return torch.zeros(())
        self._optimizer.zero_grad(set_to_none=True)
        with self._job.precision():
            loss = self._job.criterion(self.model(self._inputs), self._targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        return loss.detach()

    def close(self) -> None:
        """Nothing is left behind."""


class _CpuDataParallel(nn.Module):
    """DataParallel's forward on the CPU, step by step; autograd runs the same steps backwards."""

    def __init__(self, module: nn.Module, replicas: int) -> None:
        super().__init__()
        self.module, self._replicas = module, replicas

    def forward(self, inputs: torch.Tensor) -> Any:
        replicas = [_replica(self.module) for _ in range(self._replicas)]
        scattered = [part.clone() for part in inputs.chunk(self._replicas)]
        with ThreadPoolExecutor(self._replicas) as threads:  # parallel_apply's threads, which it gives only to GPUs
            outputs = list(threads.map(lambda replica, part: replica(part), replicas, scattered))
        return torch.cat(outputs)


def _replica(module: nn.Module) -> nn.Module:
    """A copy of ``module`` whose parameters are copies in the graph of the original's, as ``replicate`` makes them."""
    memo = {id(parameter): parameter.clone() for parameter in module.parameters()}
    memo |= {id(buffer): buffer.clone() for buffer in module.buffers()}
    return _Replicator(memo).copy(module)


class _Replicator:
    """Copies a tree of modules, with tensors as a memo has them."""

    def __init__(self, tensors: dict[int, torch.Tensor]) -> None:
        self._tensors = tensors

    def copy(self, module: nn.Module) -> nn.Module:
        """A shallow copy of ``module``, its children copied alike."""
        replica = copy.copy(module)
        replica.__dict__ = dict(module.__dict__)
        replica._parameters = {}
        replica._buffers = {name: self._tensors[id(held)] for name, held in module._buffers.items() if held is not None}
        replica._modules = {name: child and self.copy(child) for name, child in module._modules.items()}
        for name, parameter in module._parameters.items():
            if parameter is not None:  # a plain attribute, since a replica's parameter is no leaf
                object.__setattr__(replica, name, self._tensors[id(parameter)])
        return replica


def _repeated(batch: torch.Tensor, times: int) -> torch.Tensor:
    """The whole batch that DataParallel scatters: this rank's, once for every replica."""
    return batch.repeat(times, *(1 for _ in batch.shape[1:]))
