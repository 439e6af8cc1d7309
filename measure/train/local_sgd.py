"""Local SGD and DiLoCo for real: steps of one's own, and a synchronisation now and then.

The twin of ``simcore/strategies/local_sgd.py``. ``average`` is torch's own ``average_parameters``; ``nesterov`` takes
the averaged change as an outer gradient (DiLoCo, Douillard et al. 2023).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed.algorithms.model_averaging.utils import average_parameters
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from measure.train.job import Job
from measure.train.mesh import Mesh
from simcore.scenario.strategy import StrategyTable

OUTER_RATE, OUTER_MOMENTUM = 0.7, 0.9
"""The outer optimizer of DiLoCo, as its authors set it."""


class LocalSgdTrainer:
    """Trains by itself for ``sync_every`` steps, then agrees with the other ranks; one call of ``step`` is a round."""

    def __init__(self, job: Job, strategy: StrategyTable, mesh: Mesh) -> None:
        self.steps = strategy.sync_every
        self._job, self._group = job, mesh.group("replicate")
        self._ranks = mesh.size("replicate")
        self._optimizer = job.optimizer.over(job.model.parameters())
        self._outer: torch.optim.Optimizer | None = None
        if strategy.outer_optimizer == "nesterov":
            self._agreed = torch.nn.Parameter(parameters_to_vector(job.model.parameters()).detach().clone())
            self._outer = torch.optim.SGD([self._agreed], OUTER_RATE, OUTER_MOMENTUM, nesterov=True)

    def step(self) -> torch.Tensor:
        """A round of local steps and the synchronisation that ends it; returns the last local loss."""
        for _ in range(self.steps):
            self._optimizer.zero_grad(set_to_none=True)
            loss = self._job.loss(self._job.model)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        if self._outer is None:
            average_parameters(iter(list(self._job.model.parameters())), self._group)
        else:
            self._take_outer_step(self._outer)
        return loss.detach()

    def close(self) -> None:
        """Nothing is left behind."""

    def _take_outer_step(self, outer: torch.optim.Optimizer) -> None:
        change = self._agreed.detach() - parameters_to_vector(self._job.model.parameters()).detach()
        dist.all_reduce(change, group=self._group)
        self._agreed.grad = change.div_(self._ranks)
        outer.step()
        vector_to_parameters(self._agreed.detach(), self._job.model.parameters())
