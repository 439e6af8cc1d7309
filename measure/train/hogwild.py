"""Hogwild for real: processes of one host that change the same parameters without a lock (Niu et al. 2011).

The twin of ``simcore/strategies/hogwild.py``. The parameters are a file in shared memory that every process maps.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

from measure.train.asynchronous import AsynchronousTrainer
from measure.train.job import Job
from measure.train.mesh import Mesh
from simcore.errors import InputError
from simcore.scenario.strategy import StrategyTable

SHARED_MEMORY = Path("/dev/shm")


class HogwildTrainer(AsynchronousTrainer):
    """A worker on parameters that all workers of the host share."""

    def __init__(self, job: Job, strategy: StrategyTable, mesh: Mesh) -> None:
        super().__init__()
        if job.device.type != "cpu":
            raise InputError('strategy.data: "hogwild" shares the memory of CPU processes; give --cpu-ranks')
        self._job, self._place = job, mesh.place("replicate")
        self._counts = _share(job.model, mesh)
        self._optimizer = job.optimizer.over(job.model.parameters())

    def step(self) -> torch.Tensor:
        """Read, compute, change in place; others do likewise meanwhile."""
        read_at = self._updates_by_others()
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._job.loss(self._job.model)
        loss.backward()  # type: ignore[no-untyped-call]
        self.staleness.append(self._updates_by_others() - read_at)
        self._optimizer.step()
        self._counts[self._place] += 1
        return loss.detach()

    def _updates_by_others(self) -> int:
        return int(self._counts.sum() - self._counts[self._place])


def _share(model: torch.nn.Module, mesh: Mesh) -> torch.Tensor:
    """Move the model's parameters into shared memory; returns the workers' counts of updates, shared likewise."""
    parameters = list(model.parameters())
    elements = sum(parameter.numel() for parameter in parameters)
    group, ranks = mesh.group("replicate"), mesh.size("replicate")
    folder = SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())
    names = [tempfile.mkdtemp(dir=folder, prefix="simscale-") if mesh.place("replicate") == 0 else None]
    dist.broadcast_object_list(names, src=0, group=group)
    home = Path(str(names[0]))
    shared = torch.from_file(str(home / "parameters"), shared=True, size=elements)
    counts = torch.from_file(str(home / "counts"), shared=True, size=ranks, dtype=torch.int64)
    offset = 0
    for parameter in parameters:
        place = shared[offset : offset + parameter.numel()].view_as(parameter)
        if mesh.place("replicate") == 0:
            place.copy_(parameter.detach())
        parameter.data = place
        offset += parameter.numel()
    dist.barrier(group=group)
    if mesh.place("replicate") == 0:  # mapped by all: the names are no longer needed, and nothing must stay behind
        for name in ("parameters", "counts"):
            (home / name).unlink()
        home.rmdir()
    return counts
