"""A curve of time over size: power laws between the measured sizes."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Curve:
    """Seconds at rising sizes in bytes."""

    sizes: tuple[float, ...]
    times_s: tuple[float, ...]

    def time_s(self, size_bytes: float) -> float:
        """Seconds at a size: constant below the smallest, in proportion above the largest."""
        if size_bytes >= self.sizes[-1]:
            return self.times_s[-1] * size_bytes / self.sizes[-1]
        place = place_of(self.sizes, size_bytes)
        return self.times_s[0] if place is None else between(self.times_s, *place)


def place_of(sizes: Sequence[float], size_bytes: float) -> tuple[int, float] | None:
    """The index of the size just below, and how far it is from there to the next one in the logarithm.

    None at or below the smallest; at or above the largest, the caller must have answered.
    """
    if size_bytes <= sizes[0]:
        return None
    right = bisect_left(sizes, size_bytes)
    return right - 1, math.log(size_bytes / sizes[right - 1]) / math.log(sizes[right] / sizes[right - 1])


def between(times_s: Sequence[float], left: int, weight: float) -> float:
    """The power law from one measured time to the next: collectives change their slope slowly in the logarithm."""
    return math.exp(math.log(times_s[left]) * (1 - weight) + math.log(times_s[left + 1]) * weight)
