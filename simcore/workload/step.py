"""The shape of one training pass: what strategies lay on the graph, whatever the source of its seconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from simcore.workload.layer import Model, Role

STEM = -1
"""The block number of what comes before the first block; the head's is the number of blocks."""


@dataclass(frozen=True, slots=True)
class LayerShape:
    """A forward layer: the block it lies in, its role under tensor parallelism, and the elements that it reads and
    hands on for one sample (0 where unknown). This rank computes ``share`` of it."""

    name: str
    block: int = STEM
    role: Role = "whole"
    inputs: float = 0.0
    outputs: float = 0.0
    batch_channels: int = 0
    share: float = 1.0


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of backward, and the gradients that become ready as it ends (their places in registration order).

    ``outputs`` are the elements of the gradient that it gets for one sample, ``inputs`` those that it hands on.
    """

    name: str
    tensors: tuple[int, ...]
    block: int = STEM
    role: Role = "whole"
    inputs: float = 0.0
    outputs: float = 0.0
    batch_channels: int = 0
    share: float = 1.0


@dataclass(frozen=True)
class StepShape:
    """One pass of one rank: forward layers and backward pieces in order, and every parameter's size in elements.

    ``elements`` is in registration order; each of its places appears in exactly one piece. ``blocks`` is how many
    blocks the model is a chain of, ``whole_elements`` how many elements it learns in all, where a rank holds fewer, and
    ``tied`` the parameter that two layers share.
    """

    forward: tuple[LayerShape, ...]
    backward: tuple[Piece, ...]
    elements: tuple[int, ...]
    blocks: int = 0
    whole_elements: int = 0
    tied: int | None = None
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A shape is a cache key, looked up at every prediction.
        object.__setattr__(self, "whole_elements", self.whole_elements or sum(self.elements))
        object.__setattr__(self, "_hash", hash((self.forward, self.backward, self.elements)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def parameter_elements(self) -> int:
        """Trainable elements of the model."""
        return sum(self.elements)

    def layers_in(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """The numbers of the forward layers of some blocks, in forward order."""
        return tuple(sorted(index for block in set(blocks) for index in self._layers_of.get(block, ())))

    def pieces_in(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """The numbers of the backward pieces of some blocks, in backward order."""
        return tuple(sorted(index for block in set(blocks) for index in self._pieces_of.get(block, ())))

    @cached_property
    def _layers_of(self) -> dict[int, list[int]]:
        return _by_block(self.forward)

    @cached_property
    def _pieces_of(self) -> dict[int, list[int]]:
        return _by_block(self.backward)

    def tensors_in(self, blocks: Iterable[int]) -> tuple[int, ...]:
        """The parameters whose gradients the pieces of some blocks finish, in the order in which they become ready."""
        return tuple(tensor for index in self.pieces_in(blocks) for tensor in self.backward[index].tensors)

    def elements_in(self, blocks: Iterable[int]) -> int:
        """Trainable elements of some blocks."""
        return sum(self.elements[tensor] for tensor in self.tensors_in(blocks))

    def handed_on(self, block: int) -> float:
        """Elements that a block hands to the next for one sample: its last layer's output, 0 where unknown."""
        layers = self._layers_of.get(block)
        return self.forward[layers[-1]].outputs if layers else 0.0

    @property
    def all_blocks(self) -> range:
        """Every block number, the stem's and the head's included."""
        return range(STEM, self.blocks + 1)


def _by_block(parts: Iterable[LayerShape | Piece]) -> dict[int, list[int]]:
    """The places of layers or pieces by the block that they lie in."""
    found: dict[int, list[int]] = {}
    for index, part in enumerate(parts):
        found.setdefault(part.block, []).append(index)
    return found


def shape_of(model: Model) -> StepShape:
    """The shape of a catalogue model's pass: backward visits the layers in reverse, a layer's gradients at its end."""
    first: dict[str, int] = {}
    count = 0
    for layer in model.layers:
        first[layer.name] = count
        count += len(layer.parameters)
    blocks, count = number_blocks([layer.name for layer in model.layers])
    forward = tuple(
        LayerShape(layer.name, block, layer.role, layer.input_elements, layer.output_elements, layer.batch_channels)
        for layer, block in zip(model.layers, blocks, strict=True)
    )
    backward = tuple(
        Piece(
            layer.name,
            tuple(range(first[layer.name], first[layer.name] + len(layer.parameters)))[::-1],
            block,
            layer.role,
            layer.input_elements,
            layer.output_elements,
            layer.batch_channels,
        )
        for layer, block in zip(reversed(model.layers), reversed(blocks), strict=True)
    )
    elements = tuple(parameter.elements for parameter in model.parameters)
    names = [parameter.name for parameter in model.parameters]
    tied = next((names.index(layer.tied_to) for layer in model.layers if layer.tied_to), None)
    return StepShape(forward, backward, elements, count, tied=tied)


def with_tied_twice(shape: StepShape) -> StepShape:
    """The shape with its tied parameter registered once more, last, and ready when the first is."""
    if shape.tied is None:
        return shape
    again = len(shape.elements)
    backward = tuple(
        replace(piece, tensors=(*piece.tensors, again)) if shape.tied in piece.tensors else piece
        for piece in shape.backward
    )
    return replace(shape, backward=backward, elements=(*shape.elements, shape.elements[shape.tied]))


def number_blocks(names: Sequence[str]) -> tuple[list[int], int]:
    """The block of each layer, and how many there are, from qualified names: ``h.0.ln_1`` lies in block ``h.0``.

    What comes before the first block is the stem; what stands outside blocks later on belongs to the head.
    """
    keys = [block_of(name) for name in names]
    known = list(dict.fromkeys(key for key in keys if key is not None))
    first = next((index for index, key in enumerate(keys) if key is not None), 0)
    outside = [STEM if index < first else len(known) for index in range(len(names))]
    return [known.index(key) if key is not None else out for key, out in zip(keys, outside, strict=True)], len(known)


def block_of(name: str) -> str | None:
    """The block that a qualified name lies in: its parts up to the first number; None where there is none."""
    parts = name.split(".")
    for index, part in enumerate(parts):
        if part.isdigit():
            return ".".join(parts[: index + 1])
    return None
