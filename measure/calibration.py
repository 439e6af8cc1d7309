"""Calibrating a world: the list of measurements, taken one by one, each kept as soon as it is there.

Every rank walks the same list in step; rank 0 keeps what was found and hands it on, so that an interrupted calibration
can be resumed where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from measure.clock import sharpen_sleep
from measure.micro import collectives, device
from measure.micro.collectives import sweep
from measure.micro.exchange import measure_exchange
from measure.micro.framework import ON_ONE_RANK, ON_TWO_RANKS, Trial, measure_alone, measure_together, name_of
from measure.micro.model_pass import measure_model
from measure.micro.overlap import measure_overlap
from measure.models.table import find_model
from measure.pulse import WAITING
from measure.sampling import Effort
from measure.train.run import measure_steps
from measure.world import Team, World
from simcore.errors import InputError
from simcore.files import Table, parse, read_json, write_whole
from simcore.profile.fitted import FIT_VERSION, Collective, Fit
from simcore.profile.schema import Machine, Profile, Samples
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
    def batches(self) -> dict[str, tuple[int, ...]]:
        """Models to take apart, and their batches: the user's own last."""
        grown = {
            name: batches if self.quick else (*batches, 2 * batches[-1]) for name, batches in REFERENCE_MODELS.items()
        }
        return grown | ({self.model: self.model_batches} if self.model else {})

    def effort(self, budget_s: float, least: int = 3, most: int = 30, warmups: int = 1) -> Effort:
        """An effort of ``budget_s`` in a quick run, and several times that in a full one."""
        return Effort(budget_s if self.quick else 5 * budget_s, least, most if self.quick else 3 * most, warmups)


@dataclass(frozen=True, slots=True)
class Item:
    """One measurement: its key, the kind of samples it yields, and what takes them on this rank (maybe nothing)."""

    key: str
    kind: str
    take: Callable[[], Sequence[Table]]


class Kept(Table):
    """What an interrupted calibration leaves behind: the machine, the items done, and their samples."""

    format: str = "simscale-partial-profile"
    machine: Machine
    done: tuple[str, ...] = ()
    samples: Samples = Samples()

    def with_item(self, item: Item, found: Sequence[Table]) -> Kept:
        """This and one more item."""
        known: tuple[Table, ...] = getattr(self.samples, item.kind)
        samples = self.samples.model_copy(update={item.kind: (*known, *found)})
        return self.model_copy(update={"done": (*self.done, item.key), "samples": samples})


def calibrate(world: World, plan: Plan, keep_at: str, resume: bool) -> dict[str, Any] | None:
    """Walk the whole plan; returns the profile as a plain table on rank 0, None elsewhere.

    After each item rank 0 writes what it has to ``keep_at``; with ``resume`` the items already there are not taken
    again. Raises ``InputError`` where they come from another machine, device or torch.
    """
    sharpen_sleep()
    kept = Kept(machine=world.machine())
    if resume:
        kept = world.everyone.from_leader(_resumed(Path(keep_at), kept) if world.leads else None)
    items = list(_items(world, plan))
    for position, item in enumerate(items):
        if item.key not in kept.done:
            world.beat.move(item.key if world.leads else WAITING, position / len(items))
            kept = kept.with_item(item, item.take())
            if world.leads:
                write_whole(Path(keep_at), kept.model_dump_json())
        world.assemble()
    if not world.leads:
        return None
    profile = Profile(
        format="simscale-profile",
        version=2,
        complete=True,
        machine=kept.machine,
        samples=kept.samples,
        fit=Fit(version=FIT_VERSION),
    )
    return profile.model_dump(mode="json")


def _resumed(path: Path, fresh: Kept) -> Kept:
    """What an earlier run left at ``path``, if it was this machine with these ranks, devices and torch."""
    if not path.exists():
        return fresh
    kept = parse(Kept, read_json(path), path, from_json=True)
    for key in Machine.model_fields:
        found, needed = getattr(kept.machine, key), getattr(fresh.machine, key)
        if key != "created" and found != needed:
            raise InputError(
                f"{path}: machine.{key}: holds samples of {found!r}, this run is on {needed!r}; samples of different "
                "machines do not mix: calibrate without --resume"
            )
    return kept


def _items(world: World, plan: Plan) -> Iterator[Item]:
    """The whole list, cheapest first, so that an interrupted run has kept something of use."""
    yield from _device_items(world, plan)
    yield from _collective_items(world, plan)
    yield from _ddp_items(world, plan)
    yield from _model_items(world, plan)
    yield from _step_items(world, plan)


def _device_items(world: World, plan: Plan) -> Iterator[Item]:
    """Rank 0 alone: what its device does by itself."""
    effort = plan.effort(0.15, least=5)
    on_gpu = world.device.type == "cuda"
    dtypes = ("float32", "bfloat16", "float16") if on_gpu else ("float32", "bfloat16")[: 1 if plan.quick else 2]
    for dtype in dtypes:
        for power in range(6, 14 if on_gpu else 11, 2 if plan.quick else 1):
            side = 2**power
            matmul = partial(device.matmul, world.device, world.clock, dtype, side, side, side, effort)
            yield Item(f"matmul {dtype} {side}", "matmul", _leader(world, matmul))
    for power in range(0, 15 if on_gpu else 11, 2):
        size = 64 * KIB * 2**power
        copy = partial(device.memory, world.device, world.clock, size, effort)
        yield Item(f"copy of {size // KIB} KiB", "memory", _leader(world, copy))
    yield Item("launch", "launch", _leader(world, partial(device.launch, world.device, world.clock, effort)))


def _collective_items(world: World, plan: Plan) -> Iterator[Item]:
    """All-reduce densely, one and two in flight; the rest sparsely when in a hurry; over teams of rising size."""
    on_gpu = world.device.type == "cuda"
    dense = collectives.GPU_SIZES if on_gpu else collectives.QUICK_SIZES if plan.quick else collectives.FULL_SIZES
    patience = 1 if plan.quick else 5
    for size in collectives.team_sizes(world, plan.quick):
        team = world.team(size)
        reduce = partial(
            sweep,
            collective="all_reduce",
            sizes=dense,
            in_flight=(1, 2),
            effort=plan.effort(0.5, most=20),
            longest_s=0.3 * patience,
        )
        yield Item(f"all_reduce over {size}", "collectives", _members(team, reduce))
        for collective in OTHER_COLLECTIVES:
            rest = partial(
                sweep,
                collective=collective,
                sizes=collectives.SPARSE_SIZES if plan.quick else dense,
                in_flight=(1,) if plan.quick else (1, 2),
                effort=plan.effort(0.15, most=20),
                longest_s=0.1 * patience,
            )
            yield Item(f"{collective} over {size}", "collectives", _members(team, rest))


def _ddp_items(world: World, plan: Plan) -> Iterator[Item]:
    """What torch adds, of itself and over two ranks; compute beside an all-reduce, inside a host if it can."""
    own_group = world.own_group()
    effort = plan.effort(1.0, warmups=3)
    for trial in ON_ONE_RANK:
        alone = partial(_overhead, own_group=own_group, trial=trial, effort=effort)
        yield Item(name_of(trial), "overhead", _members(world.everyone, alone))
    if world.size > 1:
        for trial in ON_TWO_RANKS:
            yield Item(name_of(trial), "overhead", partial(measure_together, world, trial, effort))
        if world.device.type == "cpu":
            exchange = partial(measure_exchange, world, plan.effort(0.3, most=10))
            yield Item("exchange with a server", "collectives", exchange)
    local = len(world.ranks_of_first_host)
    ranks = local if local > 1 else world.size
    if ranks > 1:
        beside = partial(_overlap, effort=plan.effort(1.5, most=20))
        yield Item(f"overlap over {ranks}", "overlap", _members(world.team(ranks), beside))


def _model_items(world: World, plan: Plan) -> Iterator[Item]:
    """Models taken apart, on the ranks of rank 0's host."""
    team = world.team(len(world.ranks_of_first_host))
    for name, batches in plan.batches.items():
        for batch in batches:
            take = partial(_model, name=name, batch=batch, effort=plan.effort(1.5, least=4, warmups=2))
            yield Item(f"{name} at batch {batch}", "models", _members(team, take))


def _step_items(world: World, plan: Plan) -> Iterator[Item]:
    """Short real runs on all ranks: what the calibration is checked against, and never fitted to."""
    for name, batches in plan.batches.items():
        batch = batches[0]
        take = partial(measure_steps, model=name, batch=batch, effort=plan.effort(1.0, most=12, warmups=3))
        yield Item(f"steps of {name} at batch {batch}", "steps", _members(world.everyone, take))


def _overhead(team: Team, own_group: dist.ProcessGroup, trial: Trial, effort: Effort) -> list[Table]:
    return [measure_alone(team, own_group, trial, effort)]


def _overlap(team: Team, effort: Effort) -> list[Table]:
    return [measure_overlap(team, 8 * MIB, effort)]


def _model(team: Team, name: str, batch: int, effort: Effort) -> Sequence[Table]:
    return measure_model(team, name, find_model(name), batch, effort)


def _leader(world: World, take: Callable[[], Table]) -> Callable[[], Sequence[Table]]:
    """Only rank 0 takes it; the others wait."""
    return lambda: [take()] if world.leads else []


def _members(team: Team | None, take: Callable[[Team], Sequence[Table]]) -> Callable[[], Sequence[Table]]:
    """Only the team takes it; the others wait."""
    return lambda: take(team) if team is not None else []
