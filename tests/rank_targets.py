"""What ranks run in tests of the launcher: one works, one fails, one is killed, one hangs, one stops."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist

from measure.world import World


def work(world: World, value: int) -> dict[str, object]:
    """Sum the ranks' values."""
    total = torch.tensor([float(value + world.rank)])
    dist.all_reduce(total)
    return {"total": total.item(), "size": world.size, "hosts": len(world.hosts)}


def fail(world: World, rank: int) -> None:
    """One rank raises, the others wait for it."""
    world.beat.move("dividing")
    if world.rank == rank:
        raise ZeroDivisionError("division by zero in the test")
    dist.barrier()


def be_killed(world: World, rank: int) -> None:
    """One rank is killed, the others wait for it."""
    world.beat.move("working hard")
    if world.rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def hang(world: World, rank: int) -> None:
    """One rank sleeps for ever, the others wait for it."""
    if world.rank == rank:
        world.beat.move("sleeping")
        time.sleep(3600)
    world.beat.move("sleeping")
    world.beat.move("meeting the others")
    dist.barrier()


def stop(world: World, rank: int) -> None:
    """One rank is stopped, as by a debugger; the others wait for it."""
    world.beat.move("about to stop")
    if world.rank == rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.barrier()
