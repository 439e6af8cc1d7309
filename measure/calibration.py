"""Calibrating a world: the list of measurements, taken one by one, each kept as soon as it is there.

Every rank walks the same list in step; rank 0 keeps what was found and hands it on, so that an interrupted calibration
can be resumed where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure.micro import collectives, ddp_overhead, device, overlap
from measure.micro.model_pass import measure_model
from measure.models.table import find_model
from measure.pulse import WAITING
from measure.sampling import Effort
from measure.world import Team, World
from simcore.errors import InputError
from simcore.files import Table, parse, read_json, write_whole
from simcore.profile.schema import FIT_VERSION, PROFILE_VERSION, Collective, Fit, Machine, Profile, Samples
from simcore.units import KIB, MIB

REFERENCE_MODELS = {"mlp": (32, 128), "cnn": (16, 64), "gpt-mini": (2, 8)}
"""Models of different shape that every calibration takes apart, each at these batch sizes."""

OTHER_COLLECTIVES: tuple[Collective, ...] = ("reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv")


@dataclass(frozen=True, slots=True)
class Plan:
    """How thorough to be: sizes, batches and seconds for each kind of measurement."""

    quick: bool
    model: str | None = None
    model_batches: tuple[int, ...] = (4, 16)

    @property
    def reference_batches(self) -> dict[str, tuple[int, ...]]:
        """Models to take apart, and their batches: the user's own last."""
        models = {name: batches if self.quick else (*batches, 2 * batches[-1]) for name, batches in REFERENCE_MODELS.items()}
        return models | ({self.model: self.model_batches} if self.model else {})

    def effort(self, budget_s: float, least: int = 3, most: int = 30, warmups: int = 1) -> Effort:
        """An effort of ``budget_s`` in a quick run, and several times that in a full one."""
        return Effort(budget_s if self.quick else 5 * budget_s, least, most if self.quick else 3 * most, warmups)


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement: its key, the kind of samples it yields, and what takes them (a list, on rank 0 at least)."""

    key: str
    kind: str
    take: Callable[[], Iterable[Table]]


class Kept(Table):
    """What an interrupted calibration leaves behind: the machine, the items done, and their samples."""

    format: str = "simscale-partial-profile"
    machine: Machine
    done: tuple[str, ...]
    samples: Samples


def calibrate(world: World, plan: Plan, keep_at: str, resume: bool) -> dict[str, Any] | None:
    """Walk the whole plan; returns the profile as a plain table on rank 0, None elsewhere.

    After each item rank 0 writes what it has to ``keep_at``; with ``resume`` the items already there are not taken
    again. Raises ``InputError`` where they come from another machine, device or torch.
    """
    machine = world.machine()
    kept = world.everyone.from_leader(_resume(Path(keep_at), machine) if resume and world.leads else None)
    samples: dict[str, list[Table]] = {kind: list(getattr(kept.samples, kind)) if kept else [] for kind in Samples.model_fields}
    done: list[str] = list(kept.done) if kept else []
    items = list(_items(world, plan))
    for position, item in enumerate(items):
        if item.key not in done:
            world.beat.move(WAITING if not world.leads else item.key, position / len(items))
            samples[item.kind] += item.take()
            done.append(item.key)
            if world.leads:
                state = Kept(machine=machine, done=tuple(done), samples=Samples(**{k: tuple(v) for k, v in samples.items()}))
                write_whole(Path(keep_at), state.model_dump_json())
        world.everyone.barrier()
    if not world.leads:
        return None
    profile = Profile(
        format="simscale-profile",
        version=PROFILE_VERSION,
        complete=True,
        machine=machine,
        samples=Samples(**{kind: tuple(found) for kind, found in samples.items()}),
        fit=Fit(version=FIT_VERSION),
    )
    return profile.model_dump(mode="json")


def _resume(path: Path, machine: Machine) -> Kept | None:
    """What an earlier run left at ``path``, if it was this machine with these ranks, devices and torch."""
    if not path.exists():
        return None
    kept = parse(Kept, read_json(path), path, from_json=True)
    for key in Machine.model_fields:
        found, needed = getattr(kept.machine, key), getattr(machine, key)
        if key != "created" and found != needed:
            raise InputError(f"{path}: machine.{key}: holds samples of {found!r}, this run is on {needed!r}; samples of "
                             "different machines do not mix: calibrate without --resume")  # fmt: skip
    return kept


def _items(world: World, plan: Plan) -> Iterator[Item]:
    """The whole list, cheapest first, so that an interrupted run has kept something of use."""
    yield from _device_items(world, plan)
    yield from _collective_items(world, plan)
    everyone, own_group = world.everyone, world.own_group()
    for tensors, elements in ddp_overhead.SHAPES:
        yield Item(
            f"ddp overhead {tensors}x{elements}",
            "overhead",
            lambda tensors=tensors, elements=elements: [
                ddp_overhead.measure_overhead(everyone, own_group, tensors, elements, plan.effort(0.6, most=40, warmups=3))
            ],
        )
    yield from _overlap_items(world, plan)
    yield from _model_items(world, plan)


def _device_items(world: World, plan: Plan) -> Iterator[Item]:
    """Rank 0 alone: what its device does by itself."""
    place, clock = world.device, world.clock
    effort = plan.effort(0.15, least=5)
    largest = 13 if place.type == "cuda" else 10
    dtypes = ("float32", "bfloat16", "float16") if place.type == "cuda" else ("float32",) if plan.quick else ("float32", "bfloat16")
    for dtype in dtypes:
        for power in range(6, largest + 1, 2 if plan.quick else 1):
            side = 2**power
            yield Item(f"matmul {dtype} {side}", "matmul", _leader(world, lambda dtype=dtype, side=side: device.matmul(
                place, clock, dtype, side, side, side, effort)))  # fmt: skip
    for power in range(0, 11 if place.type == "cpu" else 15, 2):
        size = 64 * KIB * 2**power
        yield Item(f"copy of {size // KIB} KiB", "memory", _leader(world, lambda size=size: device.memory(place, clock, size, effort)))
    yield Item("launch", "launch", _leader(world, lambda: device.launch(place, clock, effort)))


def _collective_items(world: World, plan: Plan) -> Iterator[Item]:
    """All-reduce densely, the rest sparsely, over teams of rising size."""
    on_gpu = world.device.type == "cuda"
    dense = collectives.GPU_SIZES if on_gpu else collectives.QUICK_SIZES if plan.quick else collectives.FULL_SIZES
    for size in collectives.team_sizes(world, plan.quick):
        team = world.team(size)
        for collective in ("all_reduce", *OTHER_COLLECTIVES):
            reduces = collective == "all_reduce"
            sizes = dense if reduces or not plan.quick else collectives.SPARSE_SIZES
            in_flight = (1, 2) if reduces or not plan.quick else (1,)
            effort = plan.effort(0.5 if reduces else 0.15, most=20)
            longest_s = (0.3 if reduces else 0.1) * (1 if plan.quick else 5)

            def take(team: Team, c=collective, s=sizes, f=in_flight, e=effort, longest=longest_s) -> list[Table]:
                return list(collectives.sweep(team, c, s, f, e, longest))

            yield Item(f"{collective} over {size}", "collectives", _members(team, take))


def _overlap_items(world: World, plan: Plan) -> Iterator[Item]:
    """Compute beside an all-reduce, among the ranks of one host (of all, where each host has but one)."""
    ranks = len(world.ranks_of_first_host) if len(world.ranks_of_first_host) > 1 else world.size
    team = world.team(ranks)
    if ranks > 1:
        yield Item(f"overlap over {ranks}", "overlap", _members(team, lambda team: [
            overlap.measure_overlap(team, 8 * MIB, plan.effort(1.5, most=20))]))  # fmt: skip


def _model_items(world: World, plan: Plan) -> Iterator[Item]:
    """Models taken apart, on the ranks of rank 0's host."""
    team = world.team(len(world.ranks_of_first_host))
    for name, batches in plan.reference_batches.items():
        for batch in batches:
            effort = plan.effort(1.5, least=4, warmups=2)
            yield Item(f"{name} at batch {batch}", "models", _members(team, lambda team, n=name, b=batch, e=effort: measure_model(
                team, n, find_model(n), b, e)))  # fmt: skip


def _leader(world: World, take: Callable[[], Table]) -> Callable[[], list[Table]]:
    """Only rank 0 takes it; the others wait."""
    return lambda: [take()] if world.leads else []


def _members(team: Team | None, take: Callable[[Team], Iterable[Table]]) -> Callable[[], Iterable[Table]]:
    """Only the team takes it; the others wait."""
    return lambda: take(team) if team is not None else []
