"""Multi-layer perceptrons in torch."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn


class Mlp(nn.Module):
    """Linear layers with ReLU between."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(left, right) for left, right in pairwise(widths))
        self.relu = nn.ReLU()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[batch, widths[0]]`` to ``[batch, widths[-1]]``."""
        for layer in list(self.layers)[:-1]:
            inputs = self.relu(layer(inputs))
        outputs: torch.Tensor = self.layers[-1](inputs)
        return outputs
