"""A training job of one rank: a model, its data, its loss and its optimizer; paced or real, trainers cannot tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from measure.models.table import ReferenceModel
from measure.paced import PacedLayer, PacedModel
from simcore.errors import InputError
from simcore.scenario.schema import Optimizer, Precision

AUTOCAST = {"amp-fp16": torch.float16, "amp-bf16": torch.bfloat16}


@dataclass(frozen=True)
class PacedWork:
    """A plain workload to rehearse: its layers in forward order and the seconds of its optimizer step."""

    layers: tuple[PacedLayer, ...]
    optimizer_s: float


@dataclass
class Job:
    """What a trainer trains. ``loss`` runs one forward pass of the (wrapped) model over this rank's batch."""

    model: nn.Module
    device: torch.device
    loss: Callable[[nn.Module], torch.Tensor]
    optimizer: torch.optim.Optimizer


def real_job(
    reference: ReferenceModel, batch: int, precision: Precision, optimizer: Optimizer, device: torch.device
) -> Job:
    """A model that really computes, on random data. Raises ``InputError`` where torch has no way to run it so."""
    if precision not in ("fp32", "tf32", *AUTOCAST):
        raise InputError(f"workload.precision: found '{precision}'; measure runs fp32, tf32, amp-fp16 and amp-bf16")
    torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    model = reference.build().to(device)
    inputs, targets = reference.batch(batch, device)

    def loss(wrapped: nn.Module) -> torch.Tensor:
        with torch.autocast(device.type, AUTOCAST.get(precision), enabled=precision in AUTOCAST):
            return reference.loss(wrapped(inputs), targets)

    return Job(model, device, loss, _optimizer(optimizer, model))


def paced_job(work: PacedWork, device: torch.device) -> Job:
    """A model that waits its costed time; so does its optimizer."""
    model = PacedModel(work.layers, device)
    signal = torch.ones(1, device=device, requires_grad=True)
    return Job(model, device, lambda wrapped: wrapped(signal).sum(), _PacedOptimizer(model, work.optimizer_s))


def _optimizer(name: Optimizer, model: nn.Module) -> torch.optim.Optimizer:
    parameters = model.parameters()
    match name:
        case "sgd":
            return torch.optim.SGD(parameters, lr=1e-3)
        case "sgd-momentum":
            return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)
        case "adam":
            return torch.optim.Adam(parameters, lr=1e-4)
        case "adamw":
            return torch.optim.AdamW(parameters, lr=1e-4)


class _PacedOptimizer(torch.optim.SGD):
    """An optimizer step that only takes its costed time."""

    def __init__(self, model: PacedModel, step_s: float) -> None:
        super().__init__(model.parameters(), lr=0.0)
        self._pacer, self._step_s = model.pacer, step_s

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        """Wait."""
        self._pacer.wait_until(time.perf_counter() + self._step_s)
