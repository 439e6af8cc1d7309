"""DDP over inputs that run out earlier on one rank: ``DistributedDataParallel.join`` lets it shadow the others.

A round is some steps; the last rank has one input fewer, and takes part in the collectives of the step it lacks.
"""

from __future__ import annotations

import torch
from torch.nn.parallel import DistributedDataParallel

from measure.train.mesh import Mesh
from measure.train.synchronous import SynchronousTrainer
from simcore.scenario.strategy import UNEVEN_ROUND


class UnevenTrainer:
    """A DDP trainer whose rounds end unevenly."""

    steps = UNEVEN_ROUND

    def __init__(self, trainer: SynchronousTrainer, mesh: Mesh) -> None:
        self._trainer = trainer
        self._short = mesh.size("replicate") > 1 and mesh.place("replicate") == mesh.size("replicate") - 1

    def step(self) -> torch.Tensor:
        """One round; returns the last loss of this rank's own."""
        model = self._trainer.parts[0]
        assert isinstance(model, DistributedDataParallel)
        with model.join():
            for _ in range(self.steps - self._short):
                loss = self._trainer.step()
        return loss

    def close(self) -> None:
        """Nothing is left behind."""
