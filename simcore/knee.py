"""The knee: the GPU count past which adding GPUs stops paying, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

PAYING = 0.5
"""An added GPU pays while it brings at least this part of what the first one brought."""


@dataclass(frozen=True, slots=True)
class Knee:
    """The last count up to which every added GPU paid; None where it pays through the whole sweep."""

    gpus: int | None
    why: str


def find_knee(gpus: Sequence[int], throughput: Sequence[float], bottlenecks: Sequence[str]) -> Knee:
    """The knee of a curve: counts rising, median throughputs, and what limits each point."""
    if len(gpus) < 2:
        return Knee(None, "one point makes no curve")
    per_gpu = throughput[0] / gpus[0]
    for left in range(len(gpus) - 1):
        gained = (throughput[left + 1] - throughput[left]) / (gpus[left + 1] - gpus[left])
        if gained < PAYING * per_gpu:
            return Knee(
                gpus[left],
                f"from {gpus[left]} to {gpus[left + 1]} GPUs an added one brings {max(gained, 0) / per_gpu:.0%} of the "
                f"first; the step is then limited by {bottlenecks[left + 1]}",
            )
    return Knee(None, f"an added GPU still brings at least {PAYING:.0%} of the first at {gpus[-1]}")
