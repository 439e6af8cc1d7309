"""A model made of waiting: real parameters, real gradients, real hooks, and compute that only takes its costed time.

It rehearses a network without its GPUs: divided by any strategy, everything but the arithmetic is real.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import nn

from measure.clock import Pacer
from measure.models.chain import Chain, TensorPlan

WIDTH = 64
"""Features of a token of the signal that paced layers hand on."""


@dataclass(frozen=True, slots=True)
class PacedLayer:
    """One layer of a plain workload: its seconds forward and backward for one sample, the elements of each of its
    parameters, and those of the activation that it hands on for one sample."""

    forward_s: float
    backward_s: float
    parameters: tuple[int, ...] = ()
    activation: int = 1

    def divided(self, tensor: int, experts: int) -> PacedLayer:
        """What one rank does of it: a part of the work of ``tensor`` ranks, and some of the ``experts``."""
        parameters = tuple(max(1, elements // (tensor * experts)) for elements in self.parameters)
        return replace(
            self, forward_s=self.forward_s / tensor, backward_s=self.backward_s / tensor, parameters=parameters
        )

    def slowed(self, factor: float) -> PacedLayer:
        """The same layer on a device that takes ``factor`` times as long."""
        return replace(self, forward_s=self.forward_s * factor, backward_s=self.backward_s * factor)


@dataclass(frozen=True, slots=True)
class Pace:
    """How the layers of one model wait.

    ``rejoins``: communication stands before each layer, so its time starts when it is reached rather than when the one
    before should have ended. ``splits``: the gradients of inputs and of weights can be asked for apart, half the time
    each.
    """

    rejoins: bool = False
    splits: bool = False


class PacedModel(Chain):
    """Layers that wait, as a chain; its inputs are ``signal(batch)``."""

    def __init__(self, layers: tuple[PacedLayer, ...], device: torch.device, pace: Pace | None = None) -> None:
        super().__init__()
        self.pacer = Pacer()
        self.tokens = max(1, -(-max(layer.activation for layer in layers) // WIDTH))
        self.layers = nn.ModuleList(PacedBlock(layer, self.pacer, device, pace or Pace()) for layer in layers)
        self.blocks()[0].opens = True  # type: ignore[assignment]

    def signal(self, batch: int, device: torch.device) -> torch.Tensor:
        """What the first layer gets of ``batch`` samples, ``[batch, tokens, WIDTH]``."""
        return torch.ones(batch, self.tokens, WIDTH, device=device)

    def make_splittable(self, ranks: int) -> None:
        """Give each layer a narrow pair of real projections, a column and a row, that tensor parallelism can split."""
        for block in self.layers:
            block.entry = nn.Linear(WIDTH, 4 * ranks, bias=False)
            block.exit = nn.Linear(4 * ranks, WIDTH, bias=False)
        self.tokens = -(-self.tokens // ranks) * ranks

    def stem(self, inputs: torch.Tensor) -> torch.Tensor:
        """The inputs, with a gradient of their own, so that every layer has a backward."""
        return inputs.detach().requires_grad_()

    def blocks(self) -> list[nn.Module]:
        """The layers."""
        return list(self.layers)

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """The place where forward turns into backward."""
        turned: torch.Tensor = _Turn.apply(states, self.pacer)  # type: ignore[no-untyped-call]
        return turned


class PacedBlock(nn.Module):
    """A layer that waits. Its gradients are written anew in every backward.

    ``entry`` and ``exit`` stand around the wait: where tensor or expert parallelism puts its real collectives.
    ``load`` is how many samples' worth of work it does, where that is not what the signal's batch says.
    """

    tensor_plan: ClassVar[TensorPlan] = {"entry": "column", "exit": "row"}

    def __init__(self, layer: PacedLayer, pacer: Pacer, device: torch.device, pace: Pace) -> None:
        super().__init__()
        self.layer, self.pacer, self.pace = layer, pacer, pace
        self.learned = nn.ParameterList(nn.Parameter(_zeros(size, device)) for size in layer.parameters)
        self.opens = False
        self.load: float | None = None
        self.entry: nn.Module = nn.Identity()
        self.exit: nn.Module = nn.Identity()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Pass the signal through; returns it unchanged."""
        if self.opens:
            self.pacer.start_forward()
        elif self.pace.rejoins:
            self.pacer.rejoin()
        states = self.entry(states)
        if self.pace.rejoins:
            self.pacer.rejoin()
        waited: torch.Tensor = self.exit(self._wait(states))
        return waited

    def _wait(self, states: torch.Tensor) -> Any:
        parameters = tuple(self.learned.parameters())
        samples = states.shape[0] if self.load is None else self.load
        if not self.pace.splits:
            return _Wait.apply(states, samples, self.layer, self.pacer, *parameters)  # type: ignore[no-untyped-call]
        half = replace(self.layer, backward_s=self.layer.backward_s / 2)
        # The later a node is made, the sooner autograd runs it: inputs' gradients first, then the weights'.
        weights = _Learn.apply(samples, half, self.pacer, *parameters) if parameters else None  # type: ignore[no-untyped-call]
        if weights is None:
            half = self.layer
        states = _Wait.apply(states, samples, half, self.pacer)  # type: ignore[no-untyped-call]
        return states if weights is None else _Join.apply(states, weights)  # type: ignore[no-untyped-call]


def _zeros(size: int, device: torch.device) -> torch.Tensor:
    """A parameter of ``size`` elements, as a matrix where it divides into one: some strategies treat vectors apart."""
    side = int(size**0.5)
    shape = (side, size // side) if side > 1 and size % side == 0 else (size,)
    return torch.zeros(shape, device=device)


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
        ctx: Any, signal: torch.Tensor, samples: float, layer: PacedLayer, pacer: Pacer, *parameters: torch.Tensor
    ) -> torch.Tensor:
        ctx.samples, ctx.layer, ctx.pacer, ctx.like = samples, layer, pacer, parameters
        ctx.save_for_backward(signal)  # so that recomputation finds something to recompute
        pacer.forward(layer.forward_s * ctx.samples)
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        assert ctx.saved_tensors
        deadline = ctx.pacer.backward_deadline(ctx.layer.backward_s * ctx.samples)
        learned = tuple(torch.full_like(parameter, 1e-3) for parameter in ctx.like)
        ctx.pacer.wait_until(deadline)
        return (gradients[0], None, None, None, *learned)


class _Learn(torch.autograd.Function):
    """The weights' part of a layer's backward, as a node of its own."""

    @staticmethod
    def forward(ctx: Any, samples: float, layer: PacedLayer, pacer: Pacer, *parameters: torch.Tensor) -> torch.Tensor:
        ctx.layer, ctx.pacer, ctx.like, ctx.samples = layer, pacer, parameters, samples
        return torch.zeros(1, device=parameters[0].device)

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        deadline = ctx.pacer.backward_deadline(ctx.layer.backward_s * ctx.samples)
        learned = tuple(torch.full_like(parameter, 1e-3) for parameter in ctx.like)
        ctx.pacer.wait_until(deadline)
        return (None, None, None, *learned)


class _Join(torch.autograd.Function):
    """Where the two parts of a layer's backward part."""

    @staticmethod
    def forward(ctx: Any, signal: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return signal.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return gradients[0], torch.ones(1, device=gradients[0].device)
