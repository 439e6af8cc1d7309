"""Compute costs: seconds of each forward layer, backward piece and optimizer step of one rank, as lines in the batch.

Three sources, one result. Layers spelled out carry their times; a model measured in a profile carries a line per layer;
anything else is the sum of what its kind of layer costs per call, FLOP and byte on the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

from simcore.costs.spread import Assumption
from simcore.profile.fitted import LinearTime, ModelFit
from simcore.scenario.schema import Optimizer, WorkloadTable
from simcore.units import KIB, MS
from simcore.workload.layer import Layer, Role
from simcore.workload.models import MODELS, build_model
from simcore.workload.step import STEM, LayerShape, Piece, StepShape, number_blocks, shape_of

Array = NDArray[np.float64]

OPTIMIZER_BYTES = {"sgd": 12, "sgd-momentum": 20, "adam": 28, "adamw": 28}
"""Bytes an optimizer reads and writes per fp32 parameter: weight, gradient and its state, each read and written."""

ACTIVATION_BYTES = 4
"""Bytes of an element of what spelled-out layers hand on: fp32."""

REST = "rest"
"""The part of a measured forward that no module accounts for."""

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
    """What one pass of one rank costs, alone on its device: ``forward [layers]``, ``backward [pieces]``, optimizer."""

    shape: StepShape
    forward: Lines
    backward: Lines
    optimizer_s: float
    assumption: Assumption

    def pass_s(self, batch: int) -> float:
        """Seconds of one forward and backward over ``batch`` samples."""
        return float(self.forward.at(batch).sum() + self.backward.at(batch).sum())


@lru_cache(maxsize=64)
def given_costs(workload: WorkloadTable) -> ComputeCosts:
    """Costs of ``[[workload.layers]]``: each repeat is a layer of its own, with its parameters as one tensor.

    The times hold as stated at ``timed_at_batch`` samples and grow in proportion to the batch.
    """
    assert workload.layers is not None and workload.timed_at_batch is not None
    layers = tuple(layer for layer in workload.layers for _ in range(layer.repeat))
    handed_on = [layer.activation_kib * KIB / ACTIVATION_BYTES for layer in layers]
    forward = tuple(
        LayerShape(f"{layer.name} {index}", index, "pair", handed_on[index], handed_on[index])
        for index, layer in enumerate(layers)
    )
    learning = [index for index, layer in enumerate(layers) if layer.parameters]
    place = {index: (tensor,) for tensor, index in enumerate(learning)}
    backward = tuple(
        Piece(layer.name, place.get(layer.block, ()), layer.block, "pair", layer.inputs, layer.outputs)
        for layer in reversed(forward)
    )
    scale = MS / workload.timed_at_batch
    none = np.zeros(len(layers))
    return ComputeCosts(
        shape=StepShape(forward, backward, tuple(layers[index].parameters for index in learning), len(layers)),
        forward=Lines(none, np.array([layer.forward_ms for layer in layers]) * scale),
        backward=Lines(none, np.array([layer.backward_ms for layer in reversed(layers)]) * scale),
        optimizer_s=(workload.optimizer_ms or 0.0) * MS,
        assumption=Assumption("compute", "given", 0.002, "forward_ms and backward_ms of the scenario"),
    )


def measured_costs(fit: ModelFit, optimizer: Optimizer, source: str, batch: int) -> ComputeCosts:
    """Costs of a measured model; a batch outside the measured ones is a guess that widens with its distance.

    Another optimizer than the measured one takes as much longer as it moves more bytes.
    """
    outside = max(1.0, batch / max(fit.batches), min(fit.batches) / batch)
    spread = float(np.hypot(fit.spread, 0.1 * np.log(outside)))
    batches = ", ".join(map(str, fit.batches))
    shape, forward = _measured_shape(fit)
    return ComputeCosts(
        shape=shape,
        forward=forward,
        backward=_lines(fit.backward),
        optimizer_s=fit.optimizer_s * OPTIMIZER_BYTES[optimizer] / OPTIMIZER_BYTES[fit.optimizer_name],
        assumption=Assumption("compute", "measured", spread, f"{source}: {fit.model} at batch {batches}"),
    )


@cache
def _measured_shape(fit: ModelFit) -> tuple[StepShape, Lines]:
    """The shape of a measured model, and its forward layers' times.

    Its modules are timed, but not what stands between them (a sum, attention as a function): that ``rest`` is spread
    over the modules in proportion to their time. What they hand on, a catalogue model of that name knows.
    """
    known = {layer.name: layer for layer in build_model(fit.model).layers} if fit.model in MODELS else {}
    modules = [line for line in fit.forward if line.name != REST]
    blocks, count = number_blocks([line.name for line in modules])
    forward = tuple(
        LayerShape(line.name, block, *_traits(known.get(line.name)))
        for line, block in zip(modules, blocks, strict=True)
    )
    block_at = {line.name: block for line, block in zip(modules, blocks, strict=True)}
    backward = tuple(_measured_piece(piece.name, piece.tensors, block_at, known) for piece in fit.backward)
    shape = StepShape(forward, backward, fit.elements, count)
    return shape, _with_rest(_lines(modules), _lines([line for line in fit.forward if line.name == REST]))


def _with_rest(lines: Lines, rest: Lines) -> Lines:
    """Times of layers with what stands between them spread over them."""

    def spread(times: Array, left: float) -> Array:
        total = float(times.sum())
        return times + (left * times / total if total else left / max(1, len(times)))

    return Lines(
        spread(lines.fixed_s, float(rest.fixed_s.sum())), spread(lines.per_sample_s, float(rest.per_sample_s.sum()))
    )


def _measured_piece(name: str, tensors: tuple[int, ...], block_at: dict[str, int], known: dict[str, Layer]) -> Piece:
    """A piece of a measured backward: it ends with a parameter's gradient, and its layer's role goes to the weight."""
    module, _, parameter = name.rpartition(".")
    role, inputs, outputs, channels = _traits(known.get(module) if parameter == "weight" else None)
    if parameter != "weight" and module in known and known[module].role != "whole":
        role = "inside"
    return Piece(name, tensors, block_at.get(module, STEM), role, inputs, outputs, channels)


def _traits(layer: Layer | None) -> tuple[Role, float, float, int]:
    if layer is None:
        return ("whole", 0.0, 0.0, 0)
    return (layer.role, layer.input_elements, layer.output_elements, layer.batch_channels)


def _lines(lines: Sequence[LinearTime]) -> Lines:
    return Lines(np.array([line.fixed_s for line in lines]), np.array([line.per_sample_s for line in lines]))


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What a device does: per kind of layer (call seconds, FLOPs a second, bytes a second), and two ratios."""

    kinds: tuple[tuple[str, tuple[float, float, float]], ...]
    backward_ratio: float
    optimizer_bytes_per_s: float


@lru_cache(maxsize=64)
def rated_costs(
    model_name: str,
    tokens: int | None,
    rates: DeviceRates,
    optimizer: Optimizer,
    bytes_per_element: int,
    assumption: Assumption,
) -> ComputeCosts:
    """Costs of a catalogue model on a device known by its rates; of samples of so many ``tokens`` where it has any.

    A layer takes ``call + FLOPs / rate + bytes moved / bandwidth``; its backward ``backward_ratio`` times as long.
    Raises ``ValueError`` where the model takes no such sequence.
    """
    model = build_model(model_name, tokens)
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
        assumption=assumption,
    )
