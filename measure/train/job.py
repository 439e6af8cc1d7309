"""A training job of one rank: a model, its data, its loss and its optimizer; paced or real, trainers cannot tell."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from measure.clock import Pacer
from measure.models.table import ReferenceModel
from measure.paced import Pace, PacedLayer, PacedModel
from simcore.errors import InputError
from simcore.scenario.schema import Optimizer, Precision
from simcore.scenario.strategy import SHARDED, StrategyTable

AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}


@dataclass(frozen=True)
class PacedWork:
    """A plain workload to rehearse: its layers in forward order and the seconds of its optimizer step."""

    layers: tuple[PacedLayer, ...]
    optimizer_s: float


@dataclass(frozen=True)
class OptimizerChoice:
    """An optimizer that is not made yet: trainers say over which parameters."""

    kind: type[torch.optim.Optimizer]
    options: dict[str, Any]

    def over(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """The optimizer of ``parameters``."""
        return self.kind(parameters, **self.options)


@dataclass
class Job:
    """What a trainer trains: a model, one batch for one copy of it, and what makes a loss and a step of them."""

    model: nn.Module
    device: torch.device
    batch: int
    inputs: Any
    targets: Any
    criterion: Callable[[Any, Any], torch.Tensor]
    optimizer: OptimizerChoice
    autocast: torch.dtype | None = field(default=None)

    def loss(self, wrapped: nn.Module) -> torch.Tensor:
        """One forward pass of the (wrapped) model over the whole batch, and its loss."""
        with self.precision():
            return self.criterion(wrapped(self.inputs), self.targets)

    def precision(self) -> torch.autocast:
        """The context in which forward passes run."""
        return torch.autocast(self.device.type, self.autocast, enabled=self.autocast is not None)


def real_job(
    reference: ReferenceModel, batch: int, precision: Precision, optimizer: Optimizer, device: torch.device
) -> Job:
    """A model that really computes, on random data. Raises ``InputError`` where torch has no way to run it so."""
    if precision not in ("fp32", "tf32", *AUTOCAST):
        raise InputError(f"workload.precision: found '{precision}'; measure runs fp32, tf32, amp-fp16 and amp-bf16")
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    model = reference.build().to(device)
    inputs, targets = reference.batch(batch, device)
    return Job(model, device, batch, inputs, targets, reference.loss, OPTIMIZERS[optimizer], AUTOCAST.get(precision))


def paced_job(work: PacedWork, batch: int, device: torch.device, strategy: StrategyTable | None = None) -> Job:
    """A model that waits its costed time, divided as ``strategy`` says; so does its optimizer."""
    strategy = strategy or StrategyTable()
    divided = tuple(layer.divided(strategy.tensor_parallel, strategy.expert_parallel) for layer in work.layers)
    model = PacedModel(divided, device, _pace(strategy))
    elements = sum(element for layer in work.layers for element in layer.parameters)
    waits = {"pacer": model.pacer, "element_s": work.optimizer_s / max(1, elements)}
    if strategy.tensor_parallel > 1:
        model.make_splittable(strategy.tensor_parallel)
    optimizer = OptimizerChoice(PacedOptimizer, waits)
    targets = torch.zeros(batch, device=device)
    return Job(model, device, batch, model.signal(batch, device), targets, _mean_output, optimizer)


def _pace(strategy: StrategyTable) -> Pace:
    """How layers must wait under a strategy: it decides where communication stands, and what is asked of backward."""
    communicates = strategy.data in SHARDED or strategy.tensor_parallel > 1 or strategy.expert_parallel > 1
    splits = strategy.pipeline_parallel > 1 and strategy.schedule in ("zero-bubble", "zbv")
    return Pace(rejoins=communicates, splits=splits)


def _mean_output(outputs: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    return outputs.mean()


OPTIMIZERS: dict[str, OptimizerChoice] = {
    "sgd": OptimizerChoice(torch.optim.SGD, {"lr": 1e-3}),
    "sgd-momentum": OptimizerChoice(torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
    "adam": OptimizerChoice(torch.optim.Adam, {"lr": 1e-4}),
    "adamw": OptimizerChoice(torch.optim.AdamW, {"lr": 1e-4}),
}


class PacedOptimizer(torch.optim.SGD):
    """An optimizer step that only takes its costed time: so long for each element that this rank updates."""

    def __init__(self, parameters: Any, pacer: Pacer, element_s: float) -> None:
        super().__init__(parameters, lr=0.0)
        self._pacer, self._element_s = pacer, element_s

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Wait."""
        elements = sum(own_part(parameter).numel() for group in self.param_groups for parameter in group["params"])
        self._pacer.wait_until(time.perf_counter() + elements * self._element_s)


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    """The part of a distributed tensor that lies on this rank; any other tensor as it is."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
