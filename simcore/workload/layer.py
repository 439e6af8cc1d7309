"""A layer as the cost models see it: what it computes, moves, keeps and learns, per sample.

Everything is counted in floating point operations and elements, never in seconds or bytes: time belongs to a
device and bytes to a precision, and a workload knows neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

LayerKind = Literal["linear", "conv", "attention", "norm", "elementwise", "embedding"]
Role = Literal["whole", "sequence", "inside", "column", "row", "pair"]
"""What tensor parallelism does with a layer: nothing; divides its tokens where it is sequence parallel; divides it
without communication; as a column (its input's gradient is reduced), as a row (its output is); or as such a pair."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One trainable tensor: its qualified name, as ``named_parameters()`` gives it, and its size in elements."""

    name: str
    elements: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer in forward order.

    ``forward_flops`` counts a multiply and an add as two, for one sample, as torch's ``FlopCounterMode`` does;
    ``input_elements`` and ``output_elements`` are read and written by the forward pass for one sample;
    ``parameters`` are in registration order. A tied tensor belongs to the layer whose backward finishes it; the other
    names it as what it is ``tied_to``. ``batch_channels`` are those of a batch normalisation.
    """

    name: str
    kind: LayerKind
    forward_flops: float
    input_elements: float
    output_elements: float
    parameters: tuple[Parameter, ...] = ()
    role: Role = "whole"
    tied_to: str | None = None
    batch_channels: int = 0

    @property
    def parameter_elements(self) -> int:
        """Trainable elements of this layer."""
        return sum(parameter.elements for parameter in self.parameters)


@dataclass(frozen=True, slots=True)
class Model:
    """A model: its layers in forward order, and the word for what one sample is (``img``, ``seq``)."""

    name: str
    layers: tuple[Layer, ...]
    sample_unit: str

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every trainable tensor in registration order."""
        return tuple(parameter for layer in self.layers for parameter in layer.parameters)

    @property
    def parameter_elements(self) -> int:
        """Trainable elements of the whole model."""
        return sum(layer.parameter_elements for layer in self.layers)
