"""Factories for a user's own model, right and wrong, as ``--model tests.factories:NAME`` finds them."""

from __future__ import annotations

import torch
from torch import nn


def own_model() -> tuple[object, object, object]:
    """A model that no calibration knows: two branches of linear layers."""

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(512, 1536), nn.GELU(), nn.Linear(1536, 1536), nn.GELU(), nn.Linear(1536, 64))

    def batch(size: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(size, 512, device=device), torch.randn(size, 64, device=device)

    return build, batch, nn.functional.mse_loss


def failing() -> None:
    """A factory that fails."""
    raise RuntimeError("out of ideas")


def wrong() -> int:
    """A factory that returns something else."""
    return 3
