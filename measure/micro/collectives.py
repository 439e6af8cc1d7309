"""Collectives by size and group: one alone, and two started together, which tells what part of one holds the link.

A sample is the mean over the ranks: they start one as unevenly as they ended the one before, so what one rank waits for
another has gained, as it goes on in training. Of a send it is the later end, that of the receiver.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import fmean

import torch
import torch.distributed as dist

from measure.sampling import Effort, Take, interleave, over_ranks
from measure.world import Team, World
from simcore.profile.fitted import Collective
from simcore.profile.schema import CollectiveSample
from simcore.units import KIB

UNIT = 1300
"""Bytes that the sizes below are multiples of, off the powers of two on purpose: in parts of exactly 128 KiB, which is
the window that Linux gives a TCP connection at first, collectives wait for late acknowledgements and take ten times as
long as in parts a hundredth smaller or larger. Hardly a real bucket meets that; eight ranks sharing 1 MiB would."""

QUICK_SIZES = tuple(UNIT * times for times in (1, 16, 128, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536))
FULL_SIZES = tuple(UNIT * 2**power for power in range(17))
GPU_SIZES = tuple(UNIT * 2**power for power in range(21))
SPARSE_SIZES = tuple(UNIT * times for times in (1, 64, 256, 1024, 8192, 65536))

SETTLE_S = 0.005
"""Pause before each sample, so that it starts on an idle link, as a bucket does that compute has kept waiting."""

Start = Callable[[], list[dist.Work]]


def team_sizes(world: World, quick: bool) -> list[int]:
    """Counts of ranks to measure: from two to all, doubling when in a hurry; hosts are filled in order."""
    doubling = {2**power for power in range(1, world.size.bit_length())}
    every = set(range(2, world.size + 1))
    sizes = doubling | {len(world.ranks_of_first_host)} if quick or world.size > 8 else every
    return sorted(size for size in sizes | {world.size} if 1 < size <= world.size)


def sweep(
    team: Team,
    collective: Collective,
    sizes: tuple[int, ...],
    in_flight: tuple[int, ...],
    effort: Effort,
    longest_s: float,
) -> list[CollectiveSample]:
    """Samples by rising size, with so many started together, until one alone takes ``longest_s``."""
    found: list[CollectiveSample] = []
    for size_bytes in sizes:
        team.world.beat.move(f"{collective} of {size_bytes // KIB} KiB over {team.size} ranks")
        takes = {
            str(together): _take(team, [_starter(team, collective, size_bytes) for _ in range(together)])
            for together in in_flight
        }
        timings = interleave(team, takes, effort)
        found += [
            CollectiveSample(
                collective=collective,
                ranks=team.size,
                hosts=team.world.hosts_of(team.size),
                size_bytes=size_bytes,
                in_flight=int(together),
                timing=over_ranks(team, timing, max if collective == "send_recv" else fmean),
            )
            for together, timing in timings.items()
        ]
        if team.from_leader(min(timings["1"].samples_s) > longest_s):
            break
    return found


def _take(team: Team, starts: list[Start]) -> Take:
    clock = team.world.clock

    def take() -> float:
        time.sleep(SETTLE_S)
        begun = clock.mark()
        for work in [work for start in starts for work in start()]:
            work.wait()
        ended = clock.mark()
        clock.settle()
        return clock.between(begun, ended)

    return take


def _starter(team: Team, collective: Collective, size_bytes: int) -> Start:
    """Starts one collective over a buffer of ``size_bytes`` (rounded up to whole elements a rank)."""
    ranks, group, device = team.size, team.group, team.world.device
    part = torch.ones(max(1, -(-size_bytes // (4 * ranks))), device=device)
    whole = torch.ones(part.numel() * ranks, device=device)
    other = torch.empty_like(whole)
    rank = team.world.rank

    def start() -> list[dist.Work]:
        match collective:
            case "all_reduce":
                work = dist.all_reduce(whole, group=group, async_op=True)
            case "reduce_scatter":
                work = dist.reduce_scatter_tensor(part, whole, group=group, async_op=True)
            case "all_gather":
                work = dist.all_gather_into_tensor(whole, part, group=group, async_op=True)
            case "broadcast":
                work = dist.broadcast(whole, src=0, group=group, async_op=True)
            case "all_to_all":
                work = dist.all_to_all_single(other, whole, group=group, async_op=True)
            case "send_recv":  # one way: even ranks to the next, as an activation goes from stage to stage
                if rank % 2:
                    return dist.batch_isend_irecv([dist.P2POp(dist.irecv, other, rank - 1, group=group)])
                if rank + 1 < ranks:
                    return dist.batch_isend_irecv([dist.P2POp(dist.isend, whole, rank + 1, group=group)])
                return []
            case "exchange":
                raise ValueError("an exchange is measured by measure/micro/exchange.py")
        return [work]

    return start
