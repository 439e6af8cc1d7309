"""What is wrong with a sweep, as far as it shows: a link that is not used, interference, a collapse at large sizes."""

from __future__ import annotations

import math
from itertools import pairwise

from simcore.collectives.moved import moved_factor
from simcore.collectives.sweep import Sweep
from simcore.units import GB, MIB

SLOW = 1 / 3
"""Below this part of what its links are known to keep, a sweep ran over something else."""

COLLAPSE = 2.0
"""A best bandwidth this many times the last one."""

FALLS, FALL = 0.15, 0.85
"""No more than this part of the steps to a larger size may take less than so much of the time before."""

ZIGZAG, ZIGZAG_FROM, OFF = 0.55, 4 * MIB, 0.1
"""No more than this part of large sizes may lie off their neighbours' line by so much, on alternating sides."""


def complaints(sweep: Sweep, expected_s: float | None = None) -> list[str]:
    """One line for each thing that a healthy sweep does not show; none where all is well.

    ``expected_s`` is what the catalogue expects at the largest size, where it knows the machine.
    """
    found = [_slow(sweep, expected_s), _collapse(sweep), _falls(sweep), _zigzag(sweep)]
    return [line for line in found if line]


def _slow(sweep: Sweep, expected_s: float | None) -> str:
    if expected_s is None or expected_s > SLOW * sweep.times_s[-1]:
        return ""
    moved = moved_factor(sweep.collective, sweep.ranks) * sweep.sizes[-1] / GB
    found, wanted = moved / sweep.times_s[-1], moved / expected_s
    where = "NVLink or peer access is not used (NCCL_P2P_DISABLE, ACS)" if sweep.nodes == 1 else (
        "the NICs are not reached directly (sockets instead of RDMA, ACS or ATS in a VM, a sick NIC)")  # fmt: skip
    return f"bus bandwidth {found:.3g} GB/s, {found / wanted:.0%} of the {wanted:.3g} that its links keep: {where}"


def _collapse(sweep: Sweep) -> str:
    rates = [size / time_s for size, time_s in zip(sweep.sizes, sweep.times_s, strict=True)]
    best = max(range(len(rates)), key=rates.__getitem__)
    if rates[best] < COLLAPSE * rates[-1]:
        return ""
    return (f"collapses past {sweep.sizes[best] / MIB:.3g} MiB: the largest size runs at {rates[-1] / rates[best]:.0%} "
            "of the best rate (congestion, lost packets)")  # fmt: skip


def _falls(sweep: Sweep) -> str:
    steps = [
        (before, after)
        for (small, before), (large, after) in pairwise(zip(sweep.sizes, sweep.times_s, strict=True))
        if large >= 1.5 * small
    ]
    falling = sum(after < FALL * before for before, after in steps)
    if len(steps) < 6 or falling <= FALLS * len(steps):
        return ""
    return f"{falling} of {len(steps)} larger sizes take clearly less time than the one before: something else ran"


def _zigzag(sweep: Sweep) -> str:
    large = [point for point in zip(sweep.sizes, sweep.times_s, strict=True) if point[0] >= ZIGZAG_FROM]
    off = [
        math.log(time_s) - math.log(before) - math.log(after / before) * math.log(size / left) / math.log(right / left)
        for (left, before), (size, time_s), (right, after) in zip(large, large[1:], large[2:], strict=False)
        if right <= 6 * left
    ]
    turns = sum(one * other < 0 and min(abs(one), abs(other)) > OFF for one, other in pairwise(off))
    if len(off) < 5 or turns <= ZIGZAG * (len(off) - 1):
        return ""
    return (
        f"{turns} of {len(off) - 1} steps between large sizes turn sharply: an unstable choice of algorithm or a link"
    )
