"""A model made of waiting: real parameters, real gradients, real hooks, and compute that only takes its costed time.

It rehearses a network without its GPUs: wrapped in DistributedDataParallel, everything but the arithmetic is real.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from measure.clock import Pacer


@dataclass(frozen=True, slots=True)
class PacedLayer:
    """One layer of a plain workload: its seconds forward and backward, and the elements of each of its parameters."""

    forward_s: float
    backward_s: float
    parameters: tuple[int, ...] = ()


class PacedModel(nn.Module):
    """Layers that wait. Each learns the parameters it is given; its gradients are written anew in every backward."""

    def __init__(self, layers: tuple[PacedLayer, ...], device: torch.device) -> None:
        super().__init__()
        self.pacer = Pacer()
        self.timed = layers
        self.parameter_lists = nn.ModuleList(
            nn.ParameterList(nn.Parameter(torch.zeros(size, device=device)) for size in layer.parameters)
            for layer in layers
        )

    def forward(self, signal: torch.Tensor) -> torch.Tensor:
        """Pass ``signal`` (any shape, requiring a gradient) through the layers; returns it unchanged."""
        self.pacer.start_forward()
        for layer, parameters in zip(self.timed, self.parameter_lists, strict=True):
            signal = _Wait.apply(signal, layer, self.pacer, *parameters.parameters())  # type: ignore[no-untyped-call]
        turned: torch.Tensor = _Turn.apply(signal, self.pacer)  # type: ignore[no-untyped-call]
        return turned


class _Turn(torch.autograd.Function):
    """Where forward ends and backward begins: a new chain of pieces."""

    @staticmethod
    def forward(ctx: Any, signal: torch.Tensor, pacer: Pacer) -> torch.Tensor:
        ctx.pacer = pacer
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ctx.pacer.start_backward()
        return gradients[0], None


class _Wait(torch.autograd.Function):
    """A layer that waits: forward for its forward time, backward for its backward time, then hands out gradients."""

    @staticmethod
    def forward(
        ctx: Any, signal: torch.Tensor, layer: PacedLayer, pacer: Pacer, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.layer, ctx.pacer, ctx.like = layer, pacer, parameters
        pacer.forward(layer.forward_s)
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        deadline = ctx.pacer.backward_deadline(ctx.layer.backward_s)
        learned = tuple(torch.full_like(parameter, 1e-3) for parameter in ctx.like)
        ctx.pacer.wait_until(deadline)
        return (gradients[0], None, None, *learned)
