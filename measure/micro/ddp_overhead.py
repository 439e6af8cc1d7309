"""What DistributedDataParallel costs by itself: the same step bare and inside a DDP of one rank, in turn.

The model only makes its gradients, so what is left is hooks, copies into and out of buckets, and the host's work. All
ranks of a host do it at once, as they do in training.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from measure.paced import WIDTH, PacedLayer, PacedModel
from measure.sampling import Effort, Take, interleave
from measure.world import Team
from simcore.profile.schema import OverheadSample

PIECE_S = 4e-3
"""Each gradient takes this long to come, so that caches and cores are as cold, and as free, as between real layers."""

SHAPES = ((4, 1024), (32, 1024), (8, 500_000))
"""Tensors and elements of each: few and small, many and small, few and large tell step, tensor and byte apart."""


def measure_overhead(
    team: Team, own_group: dist.ProcessGroup, tensors: int, elements: int, effort: Effort
) -> OverheadSample:
    """Samples of a step over ``tensors`` parameters of ``elements`` each, bare and in DDP over ``own_group``."""
    team.world.beat.move(f"DDP of one rank over {tensors} tensors of {elements} elements")
    layers = tuple(PacedLayer(0.0, PIECE_S, (elements,)) for _ in range(tensors))
    plain = PacedModel(layers, team.world.device)
    wrapped = DistributedDataParallel(PacedModel(layers, team.world.device), process_group=own_group)
    timings = interleave(team, {"plain": _step(team, plain), "wrapped": _step(team, wrapped)}, effort)
    return OverheadSample(of="ddp", parameter_bytes=4 * tensors * elements, tensors=tensors, **timings)


def _step(team: Team, model: nn.Module) -> Take:
    signal = torch.ones(1, 1, WIDTH, device=team.world.device)
    clock = team.world.clock

    def take() -> float:
        begun = time.perf_counter()
        model.zero_grad(set_to_none=True)
        model(signal).sum().backward()
        clock.settle()
        return time.perf_counter() - begun

    return take
