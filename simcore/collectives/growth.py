"""How a measured collective grows with the count of its ranks: from a few counts to one that was not measured.

With the part that each rank holds kept equal, a ring (and a round of all peers) takes a launch and one hop for every
further rank: its time is linear in the ranks. A tree over nodes takes one more hop for every doubling of the nodes: at
a kept size its time is linear in their logarithm. NCCL takes what is faster, so does the prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from simcore.collectives.curve import Curve
from simcore.collectives.moved import moved_factor
from simcore.profile.fitted import Collective

LATEST = 3
"""Counts that the lines go through: the largest, as small ones may take another path altogether."""

BusRate = Callable[[int, int], float]
"""The bus bandwidth in bytes/s that the wires have for large buffers, at so many ranks on so many nodes."""


@dataclass(frozen=True, slots=True)
class Scale:
    """What was measured at one count of ranks: the curves of one or several runs."""

    ranks: int
    nodes: int
    curves: tuple[Curve, ...]

    def time_s(self, size_bytes: float) -> float:
        """Seconds at a size: the median over the runs."""
        return median(curve.time_s(size_bytes) for curve in self.curves)


@dataclass(frozen=True)
class Growth:
    """One collective on one system, measured at several counts of ranks.

    ``bus_rate``, where the topology is known, tells how fast its wires are at each count: what differs between counts
    for that reason is taken out before lines are drawn, and put back.
    """

    collective: Collective
    scales: tuple[Scale, ...]
    bus_rate: BusRate | None = None

    def time_s(self, size_bytes: float, ranks: int, nodes: int) -> float:
        """Seconds of a buffer of ``size_bytes`` on ``ranks`` ranks over ``nodes`` nodes."""
        latest = sorted(self.scales, key=lambda scale: scale.ranks)[-LATEST:]
        if len(latest) == 1 or self.collective == "send_recv":
            return self._on_wires_of(ranks, nodes, latest[-1], size_bytes)
        part = size_bytes / ranks
        parts_s = [self._on_wires_of(ranks, nodes, scale, part * scale.ranks) for scale in latest]
        ring = _line([scale.ranks - 1.0 for scale in latest], parts_s, ranks - 1.0)
        if self.collective != "all_reduce" or nodes == 1:
            return ring
        wholes_s = [self._on_wires_of(ranks, nodes, scale, size_bytes) for scale in latest]
        tree = _line([math.log2(scale.nodes) for scale in latest], wholes_s, math.log2(nodes))
        return min(ring, tree)

    def _on_wires_of(self, ranks: int, nodes: int, scale: Scale, size_bytes: float) -> float:
        """The time at a measured scale, had it had the wires of another."""
        time_s = scale.time_s(size_bytes)
        if self.bus_rate is None:
            return time_s
        there, here = self.bus_rate(scale.ranks, scale.nodes), self.bus_rate(ranks, nodes)
        on_wires_s = min(time_s, moved_factor(self.collective, scale.ranks) * size_bytes / there)
        return time_s + on_wires_s * (there / here - 1)


def _line(at: Sequence[float], times_s: Sequence[float], wanted: float) -> float:
    """A line of least relative squares through the points, with no negative part, read at ``wanted``.

    A line that would fall is level instead, and one that would start below nothing starts at nothing.
    """
    weights = [1 / time_s**2 for time_s in times_s]
    mean_at, mean_s = fmean(at, weights), fmean(times_s, weights)
    leans = [(x - mean_at) * weight for x, weight in zip(at, weights, strict=True)]
    spread = sum(lean * (x - mean_at) for lean, x in zip(leans, at, strict=True))
    slope = sum(lean * time_s for lean, time_s in zip(leans, times_s, strict=True)) / spread if spread else 0.0
    if slope <= 0:
        return mean_s
    if mean_s >= slope * mean_at:
        return mean_s + slope * (wanted - mean_at)
    ratios = [x / time_s for x, time_s in zip(at, times_s, strict=True)]
    return wanted * sum(ratios) / sum(ratio**2 for ratio in ratios)
