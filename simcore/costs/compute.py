"""Compute costs: seconds of each forward layer, backward piece and optimizer step of one rank, at a batch.

Three sources, one result. Layers spelled out carry their times; a model measured in a profile carries a line in the
batch; anything else is the sum of what its kind of layer costs per call, FLOP and byte on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simcore.costs.spread import Assumption
from simcore.profile.schema import BackwardPiece, LinearTime, ModelFit
from simcore.scenario.schema import LayerTable, Optimizer, WorkloadTable
from simcore.units import KIB, MS
from simcore.workload.layer import Layer, Model
from simcore.workload.step import Piece, StepShape, shape_of

Array = NDArray[np.float64]

OPTIMIZER_BYTES = {"sgd": 12, "sgd-momentum": 20, "adam": 28, "adamw": 28}
"""Bytes an optimizer reads and writes per fp32 parameter: weight, gradient and its state, each read and written."""

STATE_BYTES = {"sgd": 0, "sgd-momentum": 4, "adam": 8, "adamw": 8}
"""Bytes of optimizer state kept per fp32 parameter."""


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """Seconds of one pass: ``forward [layers]``, ``backward [pieces]`` and the optimizer step."""

    forward: Array
    backward: Array
    optimizer: float


class ComputeCosts(Protocol):
    """What every source of compute costs offers."""

    @property
    def shape(self) -> StepShape:
        """The layers, pieces and parameters that the seconds belong to."""

    @property
    def assumption(self) -> Assumption:
        """Where the seconds come from and how far they may be off."""

    @property
    def activation_bytes_per_sample(self) -> float:
        """Bytes kept from forward to backward for one sample; 0 where unknown."""

    def seconds(self, batch: int) -> StepSeconds:
        """The seconds of one pass over ``batch`` samples, alone on its device."""


@dataclass(frozen=True)
class GivenCosts:
    """Layers spelled out in the scenario: their times hold as stated and grow in proportion to the batch."""

    layers: tuple[LayerTable, ...]
    timed_at_batch: int
    optimizer_s: float
    shape: StepShape
    forward: Array
    backward: Array
    activation_bytes_per_sample: float

    assumption = Assumption("compute", "given", 0.002, "forward_ms and backward_ms of the scenario")

    def seconds(self, batch: int) -> StepSeconds:
        """The stated times, scaled from the batch that they were stated for."""
        scale = batch / self.timed_at_batch
        return StepSeconds(self.forward * scale, self.backward * scale, self.optimizer_s)


def given_costs(workload: WorkloadTable) -> GivenCosts:
    """Costs of ``[[workload.layers]]``: each repeat is a layer of its own, with its parameters as one tensor."""
    assert workload.layers is not None and workload.timed_at_batch is not None
    layers = tuple(layer for layer in workload.layers for _ in range(layer.repeat))
    names = tuple(f"{layer.name} {index}" for index, layer in enumerate(layers))
    place: dict[int, int] = {}
    for index, layer in enumerate(layers):
        if layer.parameters:
            place[index] = len(place)
    pieces = tuple(
        Piece(names[index], (place[index],) if index in place else ()) for index in reversed(range(len(layers)))
    )
    shape = StepShape(names, pieces, tuple(layer.parameters for layer in layers if layer.parameters))
    return GivenCosts(
        layers=layers,
        timed_at_batch=workload.timed_at_batch,
        optimizer_s=(workload.optimizer_ms or 0.0) * MS,
        shape=shape,
        forward=np.array([layer.forward_ms * MS for layer in layers]),
        backward=np.array([layer.backward_ms * MS for layer in reversed(layers)]),
        activation_bytes_per_sample=sum(layer.activation_kib * KIB for layer in layers),
    )


@dataclass(frozen=True)
class MeasuredCosts:
    """A model measured in a profile: each forward layer and backward piece is a line in the batch."""

    fit: ModelFit
    shape: StepShape
    optimizer_s: float
    assumption: Assumption
    activation_bytes_per_sample: float = 0.0

    def seconds(self, batch: int) -> StepSeconds:
        """The measured lines at ``batch``."""
        return StepSeconds(_at(self.fit.forward, batch), _at(self.fit.backward, batch), self.optimizer_s)


def measured_costs(fit: ModelFit, optimizer: Optimizer, source: str, batch: int) -> MeasuredCosts:
    """Costs of a measured model; a batch outside the measured ones is a guess that widens with its distance.

    Another optimizer than the measured one takes as much longer as it moves more bytes.
    """
    shape = StepShape(
        forward=tuple(line.name for line in fit.forward),
        backward=tuple(Piece(piece.name, piece.tensors) for piece in fit.backward),
        elements=fit.elements,
    )
    outside = max(1.0, batch / max(fit.batches), min(fit.batches) / batch)
    spread = float(np.hypot(fit.spread, 0.1 * np.log(outside)))
    batches = ", ".join(map(str, fit.batches))
    optimizer_s = fit.optimizer_s * OPTIMIZER_BYTES[optimizer] / OPTIMIZER_BYTES[fit.optimizer_name]
    assumption = Assumption("compute", "measured", spread, f"{source}: {fit.model} at batch {batches}")
    return MeasuredCosts(fit, shape, optimizer_s, assumption)


def _at(lines: tuple[LinearTime, ...] | tuple[BackwardPiece, ...], batch: int) -> Array:
    return np.array([line.fixed_s + line.per_sample_s * batch for line in lines])


@dataclass(frozen=True, slots=True)
class DeviceRate:
    """What one kind of layer costs on a device: seconds a call, FLOPs a second, bytes a second."""

    call_s: float
    flops_per_s: float
    bytes_per_s: float


@dataclass(frozen=True)
class RatedCosts:
    """A catalogue model on a device known by its rates: per layer, calls + FLOPs / rate + bytes / bandwidth."""

    model: Model
    shape: StepShape
    rates: dict[str, DeviceRate]
    backward_ratio: float
    bytes_per_element: int
    optimizer_s: float
    assumption: Assumption

    @property
    def activation_bytes_per_sample(self) -> float:
        """Every layer's output is kept until its backward."""
        return sum(layer.output_elements for layer in self.model.layers) * self.bytes_per_element

    def seconds(self, batch: int) -> StepSeconds:
        """The layers' costs at ``batch``; backward takes ``backward_ratio`` times forward, layer by layer."""
        forward = np.array([self._layer_s(layer, batch) for layer in self.model.layers])
        return StepSeconds(forward, forward[::-1] * self.backward_ratio, self.optimizer_s)

    def _layer_s(self, layer: Layer, batch: int) -> float:
        rate = self.rates[layer.kind]
        moved = (layer.input_elements + layer.output_elements) * batch + layer.parameter_elements
        return rate.call_s + layer.forward_flops * batch / rate.flops_per_s + moved * self.bytes_per_element / rate.bytes_per_s


def rated_costs(
    model: Model,
    rates: dict[str, DeviceRate],
    workload: WorkloadTable,
    optimizer_bytes_per_s: float,
    backward_ratio: float,
    bytes_per_element: int,
    assumption: Assumption,
) -> RatedCosts:
    """Costs of a catalogue model from a device's rates by kind of layer."""
    shape = shape_of(model)
    optimizer_s = shape.parameter_elements * OPTIMIZER_BYTES[workload.optimizer] / optimizer_bytes_per_s
    return RatedCosts(model, shape, rates, backward_ratio, bytes_per_element, optimizer_s, assumption)
