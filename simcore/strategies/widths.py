"""Bytes of an element: what a precision makes of parameters, gradients and activations."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.scenario.schema import Precision


@dataclass(frozen=True, slots=True)
class Widths:
    """Bytes of an element of the parameters (and their gradients), of activations, and of gathered parameters."""

    parameter: int
    activation: int
    gathered: int


REDUCED_WIDTH = {"fp16": 2, "bf16": 2}
"""Bytes of an element of gradients on the way, where a compression casts them."""


def widths_of(precision: Precision) -> Widths:
    """The widths of a precision: autocast keeps parameters in fp32, and FSDP's mixed precision gathers them in half."""
    match precision:
        case "fp32" | "tf32":
            return Widths(4, 4, 4)
        case "amp-fp16" | "amp-bf16":
            return Widths(4, 2, 2)
        case "fp16" | "bf16":
            return Widths(2, 2, 2)
