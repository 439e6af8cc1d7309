"""The world of ranks: joined through torch's process group, knowing which ranks share a host.

A host is one torchrun agent, so that hosts in one machine's network namespaces count as what they stand for.
"""

from __future__ import annotations

import os
import platform
import socket
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from measure.clock import Clock, clock_for
from measure.pulse import Beat
from simcore.errors import InputError
from simcore.profile.schema import Host, Machine

GROUP_SLACK_S = 15.0
"""How much longer a collective may take than the launcher's patience, so that the launcher names the rank first."""

LOBBY_PATIENCE = timedelta(hours=1)
"""How long idle ranks wait for those at work; who hangs there is ended by the launcher, or by torchrun."""


@dataclass(frozen=True)
class World:
    """One rank's view of the world: its place, its device and the hosts of all."""

    rank: int
    size: int
    device: torch.device
    hosts: tuple[Host, ...]
    beat: Beat = field(repr=False)
    lobby: dist.ProcessGroup = field(repr=False)

    @property
    def leads(self) -> bool:
        """Whether this rank gathers results and writes."""
        return self.rank == 0

    @property
    def clock(self) -> Clock:
        """The clock of this rank's device."""
        return clock_for(self.device)

    @property
    def ranks_of_first_host(self) -> tuple[int, ...]:
        """The ranks that share rank 0's host."""
        return self.hosts[0].ranks

    def hosts_of(self, ranks: int) -> int:
        """How many hosts the first ``ranks`` ranks lie on."""
        return sum(host.ranks[0] < ranks for host in self.hosts)

    @property
    def everyone(self) -> Team:
        """All ranks."""
        return Team(self, None, self.size)

    def assemble(self) -> None:
        """Wait for every rank, for as long as the others are at work."""
        dist.barrier(group=self.lobby)

    def team(self, size: int) -> Team | None:
        """The first ``size`` ranks, or None on a rank outside; every rank of the world must ask alike."""
        if size == self.size:
            return self.everyone
        group = dist.new_group(list(range(size)))
        return Team(self, group, size) if self.rank < size else None

    def own_group(self) -> dist.ProcessGroup:
        """A group of this rank alone; every rank of the world must ask alike."""
        groups: list[dist.ProcessGroup] = [dist.new_group([rank]) for rank in range(self.size)]
        return groups[self.rank]

    def machine(self) -> Machine:
        """Where this world runs, as a profile records it."""
        on_gpu = self.device.type == "cuda"
        return Machine(
            device=_device_name(self.device),
            device_count=torch.cuda.device_count() if on_gpu else os.cpu_count() or 1,
            backend="nccl" if on_gpu else "gloo",
            world_size=self.size,
            hosts=self.hosts,
            threads_per_rank=torch.get_num_threads(),
            cpu=_cpu_model(),
            cores=os.cpu_count() or 1,
            platform=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            torch=torch.__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )


@dataclass(frozen=True)
class Team:
    """The first ``size`` ranks of the world, who measure something together; rank 0 is always among them."""

    world: World
    group: dist.ProcessGroup | None
    size: int

    def gather(self, value: Any) -> list[Any]:
        """Every member's ``value``, in rank order, on every member."""
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def from_leader(self, value: Any) -> Any:
        """Rank 0's ``value`` on every member."""
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.group)
        return box[0]

    def barrier(self) -> None:
        """Wait for every member."""
        dist.barrier(group=self.group)


def join_world(device_type: str, timeout_s: float, beat: Beat) -> World:
    """Join the world that the environment describes (torchrun's variables). Leave it with ``leave_world``.

    Raises ``InputError`` where the ranks differ in torch or device: what they measured would not mix.
    """
    beat.move("joining the process group")
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", _visible_gpu(local_rank)) if device_type == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(_threads_per_rank())
        torch.set_flush_denormal(True)  # a model that soon knows its one batch by heart would slow tenfold
    dist.init_process_group(
        "nccl" if device.type == "cuda" else "gloo",
        timeout=timedelta(seconds=timeout_s + GROUP_SLACK_S),
        device_id=device if device.type == "cuda" else None,
    )
    size = dist.get_world_size()
    found: list[Any] = [None] * size
    place = (int(os.environ.get("GROUP_RANK") or 0), socket.gethostname())
    dist.all_gather_object(found, (place, f"torch {torch.__version__} on {_device_name(device)}"))
    for other, (_, kind) in enumerate(found):
        if kind != found[0][1]:
            raise InputError(
                f"rank {other} has {kind}, rank 0 has {found[0][1]}; ranks that differ cannot be measured together"
            )
    lobby = dist.new_group(timeout=LOBBY_PATIENCE)
    return World(rank, size, device, _hosts([place for place, _ in found]), beat, lobby)


def leave_world() -> None:
    """End the process group, if there is one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _hosts(places: list[tuple[int, str]]) -> tuple[Host, ...]:
    """The hosts in rank order, from each rank's (agent, host name); agents that share a name are numbered."""
    agents = list(dict.fromkeys(places))
    names = [name for _, name in agents]
    return tuple(
        Host(
            name=name if names.count(name) == 1 else f"{name} #{agent}",
            ranks=tuple(rank for rank, place in enumerate(places) if place == (agent, name)),
        )
        for agent, name in agents
    )


def _device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def _visible_gpu(local_rank: int) -> int:
    chosen = os.environ.get("SIMSCALE_GPUS")
    return int(chosen.split(",")[local_rank]) if chosen else local_rank


def _threads_per_rank() -> int:
    """Cores shared fairly by the ranks of this host; a user's own OMP_NUM_THREADS wins."""
    if (chosen := os.environ.get("OMP_NUM_THREADS", "")).isdigit():
        return int(chosen)
    return max(1, (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE") or 1))


def _cpu_model() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"
