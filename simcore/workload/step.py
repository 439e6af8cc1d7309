"""The shape of one training pass: what strategies lay on the graph, whatever the source of its seconds."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.workload.layer import Model


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of backward, and the gradients that become ready as it ends (their places in registration order)."""

    name: str
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StepShape:
    """One pass of one rank: forward layers and backward pieces in order, and every parameter's size in elements.

    ``elements`` is in registration order; each of its places appears in exactly one piece.
    """

    forward: tuple[str, ...]
    backward: tuple[Piece, ...]
    elements: tuple[int, ...]

    @property
    def parameter_elements(self) -> int:
        """Trainable elements of the model."""
        return sum(self.elements)


def shape_of(model: Model) -> StepShape:
    """The shape of a catalogue model's pass: backward visits the layers in reverse, a layer's gradients at its end."""
    first: dict[str, int] = {}
    count = 0
    for layer in model.layers:
        first[layer.name] = count
        count += len(layer.parameters)
    backward = tuple(
        Piece(layer.name, tuple(range(first[layer.name], first[layer.name] + len(layer.parameters)))[::-1])
        for layer in reversed(model.layers)
    )
    return StepShape(
        forward=tuple(layer.name for layer in model.layers),
        backward=backward,
        elements=tuple(parameter.elements for parameter in model.parameters),
    )
