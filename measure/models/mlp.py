"""Multi-layer perceptrons in torch."""

from __future__ import annotations

from itertools import pairwise

from torch import nn

from measure.models.chain import Chain


class Mlp(Chain):
    """Linear layers with ReLU between."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(left, right) for left, right in pairwise(widths))
        self.relu = nn.ModuleList(nn.ReLU() for _ in widths[2:])

    def blocks(self) -> list[nn.Module]:
        """Layers and what rectifies between them, in turn."""
        between = zip(self.layers, self.relu, strict=False)
        return [*(module for pair in between for module in pair), self.layers[-1]]
