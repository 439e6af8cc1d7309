"""What a call of a parameter server costs: as many bytes there as back, over rpc, one call alone and two at once."""

from __future__ import annotations

import time

import torch
from torch.distributed import rpc

from measure.micro.collectives import SETTLE_S
from measure.sampling import Effort, Take, alone
from measure.train.server import join_rpc, leave_rpc, name_of
from measure.world import World
from simcore.profile.schema import CollectiveSample
from simcore.units import KIB, MIB

SIZES = (KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB)


def measure_exchange(world: World, effort: Effort) -> list[CollectiveSample]:
    """Samples from rank 0 to the last rank; every rank of the world must come here."""
    world.beat.move("joining rpc")
    join_rpc(world)
    found: list[CollectiveSample] = []
    if world.leads:
        for size_bytes in SIZES:
            for together in (1, 2):
                world.beat.move(f"{together} at once of an exchange of {size_bytes // KIB} KiB with a server")
                timing = alone(_take(world, size_bytes, together), effort)
                found.append(CollectiveSample(collective="exchange", ranks=2, hosts=min(2, len(world.hosts)),
                                              size_bytes=size_bytes, in_flight=together, timing=timing))  # fmt: skip
    world.assemble()
    world.beat.move("leaving rpc")
    leave_rpc()
    return found


def _take(world: World, size_bytes: int, together: int) -> Take:
    server, sent = name_of(world.size - 1), torch.ones(size_bytes // 4)

    def take() -> float:
        time.sleep(SETTLE_S)
        begun = time.perf_counter()
        calls = [rpc.rpc_async(server, _serve, (sent,)) for _ in range(together)]
        for call in calls:
            call.wait()
        return time.perf_counter() - begun

    return take


def _serve(gradients: torch.Tensor) -> torch.Tensor:
    """What a server does with gradients: add them to its parameters, and answer with a copy of these."""
    return gradients.add(gradients, alpha=-1.0)
