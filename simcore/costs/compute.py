"""Compute costs: seconds of each forward layer, backward piece and optimizer step of one rank, as lines in the batch.

Three sources, one result. Layers spelled out carry their times; a model measured in a profile carries a line per layer;
anything else is the sum of what its kind of layer costs per call, FLOP and byte on the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simcore.costs.spread import Assumption
from simcore.profile.fitted import LinearTime, ModelFit
from simcore.scenario.schema import Optimizer, WorkloadTable
from simcore.units import KIB, MS
from simcore.workload.models import build_model
from simcore.workload.step import Piece, StepShape, shape_of

Array = NDArray[np.float64]

OPTIMIZER_BYTES = {"sgd": 12, "sgd-momentum": 20, "adam": 28, "adamw": 28}
"""Bytes an optimizer reads and writes per fp32 parameter: weight, gradient and its state, each read and written."""

STATE_BYTES = {"sgd": 0, "sgd-momentum": 4, "adam": 8, "adamw": 8}
"""Bytes of optimizer state kept per fp32 parameter."""


@dataclass(frozen=True, slots=True)
class Lines:
    """Times that grow with the batch: ``fixed_s + per_sample_s · batch``, both ``[layers]`` in seconds."""

    fixed_s: Array
    per_sample_s: Array

    def at(self, batch: int) -> Array:
        """Seconds of each layer at ``batch``."""
        return self.fixed_s + self.per_sample_s * batch


@dataclass(frozen=True, eq=False)
class ComputeCosts:
    """What one pass of one rank costs, alone on its device: ``forward [layers]``, ``backward [pieces]``, optimizer.

    ``activation_bytes_per_sample`` is kept from forward to backward; 0 where unknown.
    """

    shape: StepShape
    forward: Lines
    backward: Lines
    optimizer_s: float
    activation_bytes_per_sample: float
    assumption: Assumption


def given_costs(workload: WorkloadTable) -> ComputeCosts:
    """Costs of ``[[workload.layers]]``: each repeat is a layer of its own, with its parameters as one tensor.

    The times hold as stated at ``timed_at_batch`` samples and grow in proportion to the batch.
    """
    assert workload.layers is not None and workload.timed_at_batch is not None
    layers = tuple(layer for layer in workload.layers for _ in range(layer.repeat))
    names = tuple(f"{layer.name} {index}" for index, layer in enumerate(layers))
    learning = [index for index, layer in enumerate(layers) if layer.parameters]
    place = {index: (tensor,) for tensor, index in enumerate(learning)}
    pieces = tuple(Piece(names[index], place.get(index, ())) for index in reversed(range(len(layers))))
    scale = MS / workload.timed_at_batch
    none = np.zeros(len(layers))
    return ComputeCosts(
        shape=StepShape(names, pieces, tuple(layers[index].parameters for index in learning)),
        forward=Lines(none, np.array([layer.forward_ms for layer in layers]) * scale),
        backward=Lines(none, np.array([layer.backward_ms for layer in reversed(layers)]) * scale),
        optimizer_s=(workload.optimizer_ms or 0.0) * MS,
        activation_bytes_per_sample=sum(layer.activation_kib * KIB for layer in layers),
        assumption=Assumption("compute", "given", 0.002, "forward_ms and backward_ms of the scenario"),
    )


def measured_costs(fit: ModelFit, optimizer: Optimizer, source: str, batch: int) -> ComputeCosts:
    """Costs of a measured model; a batch outside the measured ones is a guess that widens with its distance.

    Another optimizer than the measured one takes as much longer as it moves more bytes.
    """
    outside = max(1.0, batch / max(fit.batches), min(fit.batches) / batch)
    spread = float(np.hypot(fit.spread, 0.1 * np.log(outside)))
    batches = ", ".join(map(str, fit.batches))
    return ComputeCosts(
        shape=StepShape(
            forward=tuple(line.name for line in fit.forward),
            backward=tuple(Piece(piece.name, piece.tensors) for piece in fit.backward),
            elements=fit.elements,
        ),
        forward=_lines(fit.forward),
        backward=_lines(fit.backward),
        optimizer_s=fit.optimizer_s * OPTIMIZER_BYTES[optimizer] / OPTIMIZER_BYTES[fit.optimizer_name],
        activation_bytes_per_sample=0.0,
        assumption=Assumption("compute", "measured", spread, f"{source}: {fit.model} at batch {batches}"),
    )


def _lines(lines: tuple[LinearTime, ...]) -> Lines:
    return Lines(np.array([line.fixed_s for line in lines]), np.array([line.per_sample_s for line in lines]))


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What a device does: per kind of layer (call seconds, FLOPs a second, bytes a second), and two ratios."""

    kinds: tuple[tuple[str, tuple[float, float, float]], ...]
    backward_ratio: float
    optimizer_bytes_per_s: float


@lru_cache(maxsize=64)
def rated_costs(
    model_name: str, rates: DeviceRates, optimizer: Optimizer, bytes_per_element: int, assumption: Assumption
) -> ComputeCosts:
    """Costs of a catalogue model on a device known by its rates.

    A layer takes ``call + FLOPs / rate + bytes moved / bandwidth``; its backward ``backward_ratio`` times as long.
    """
    model = build_model(model_name)
    kinds = dict(rates.kinds)
    calls, flop_rates, byte_rates = np.array([kinds[layer.kind] for layer in model.layers]).T
    flops = np.array([layer.forward_flops for layer in model.layers])
    activations = np.array([layer.input_elements + layer.output_elements for layer in model.layers])
    weights = np.array([layer.parameter_elements for layer in model.layers])
    fixed_s = calls + weights * bytes_per_element / byte_rates
    per_sample_s = flops / flop_rates + activations * bytes_per_element / byte_rates
    shape = shape_of(model)
    return ComputeCosts(
        shape=shape,
        forward=Lines(fixed_s, per_sample_s),
        backward=Lines(fixed_s[::-1] * rates.backward_ratio, per_sample_s[::-1] * rates.backward_ratio),
        optimizer_s=shape.parameter_elements * OPTIMIZER_BYTES[optimizer] / rates.optimizer_bytes_per_s,
        activation_bytes_per_sample=sum(layer.output_elements for layer in model.layers) * bytes_per_element,
        assumption=assumption,
    )
