"""Compute beside a collective: how much each slows while the other runs."""

from __future__ import annotations

import time
from statistics import fmean

import torch
import torch.distributed as dist

from measure.sampling import Effort, interleave, over_ranks
from measure.world import Team
from simcore.profile.schema import OverlapSample, Timing
from simcore.units import MIB

COMPUTE_SHARE = 1.5
"""How long the compute lasts, as a multiple of the collective alone: it must outlast it, also where that slows."""


def measure_overlap(team: Team, size_bytes: int, effort: Effort) -> OverlapSample:
    """An all-reduce of ``size_bytes`` and matrix products, each alone and both at once, in turn."""
    world, clock = team.world, team.world.clock
    world.beat.move(f"compute beside an all_reduce of {size_bytes // MIB} MiB over {team.size} ranks")
    gradients = torch.ones(size_bytes // 4, device=world.device)
    side = 256
    left, right = torch.randn(side, side, device=world.device), torch.randn(side, side, device=world.device)
    seen: dict[str, list[float]] = {"compute_beside": [], "collective_beside": []}

    def products(times: int) -> None:
        for _ in range(times):
            torch.mm(left, right)

    def timed(times: int) -> float:
        begun = clock.mark()
        products(times)
        ended = clock.mark()
        clock.settle()
        return clock.between(begun, ended)

    def collective_alone() -> float:
        begun = time.perf_counter()
        dist.all_reduce(gradients, group=team.group)
        clock.settle()
        return time.perf_counter() - begun

    timed(20)
    collective_alone()
    collective_s = min(collective_alone() for _ in range(3))
    times = team.from_leader(max(1, round(COMPUTE_SHARE * collective_s / (timed(50) / 50))))

    def compute_alone() -> float:
        team.barrier()
        return timed(times)

    def both() -> float:
        """Compute until the collective has ended; both are timed over that stretch."""
        team.barrier()
        begun = time.perf_counter()
        work = dist.all_reduce(gradients, group=team.group, async_op=True)
        done = 0
        while not work.is_completed() and done < 20 * times:
            products(1)
            done += 1
        clock.settle()
        ended = time.perf_counter() - begun
        work.wait()
        seen["compute_beside"].append(ended / max(done, 1) * times)
        seen["collective_beside"].append(time.perf_counter() - begun)
        return ended

    timings = interleave(
        team, {"compute_alone": compute_alone, "collective_alone": collective_alone, "both": both}, effort
    )
    kept = {name: Timing(samples_s=tuple(taken[effort.warmups :])) for name, taken in seen.items()}
    return OverlapSample(
        ranks=team.size,
        size_bytes=size_bytes,
        compute_alone=timings["compute_alone"],
        compute_beside=kept["compute_beside"],
        collective_alone=over_ranks(team, timings["collective_alone"], fmean),
        collective_beside=over_ranks(team, kept["collective_beside"], fmean),
    )
