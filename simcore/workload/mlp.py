"""Multi-layer perceptrons: linear layers with ReLU between."""

from __future__ import annotations

from itertools import pairwise

from simcore.workload.build import elementwise, linear
from simcore.workload.layer import Layer, Model


def mlp(name: str, widths: tuple[int, ...]) -> Model:
    """An MLP from ``widths[0]`` inputs to ``widths[-1]`` outputs."""
    layers: list[Layer] = []
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(linear(f"layers.{index}", inputs, outputs))
        if index < len(widths) - 2:
            layers.append(elementwise(f"relu.{index}", outputs))
    return Model(name, tuple(layers), "sample")
