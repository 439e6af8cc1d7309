"""Running a scenario's training and timing its steps, at several counts in turn.

Counts are interleaved block by block, so that a noisy machine is noisy for all; how far the blocks of one count differ
is the measurement's own repeatability. No barrier stands between steps: the strategy's own synchronisation is part of
what is measured.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field, replace
from typing import Any

from measure.clock import sharpen_sleep
from measure.models.table import find_model
from measure.pulse import WAITING
from measure.sampling import Effort, interleave, over_ranks
from measure.train.asynchronous import AsynchronousTrainer
from measure.train.job import Job, PacedWork, paced_job, real_job
from measure.train.mesh import mesh_of
from measure.train.server import join_rpc, leave_rpc
from measure.train.table import TRAINERS, Trainer
from measure.world import Team, World
from simcore.errors import InputError
from simcore.profile.measured import MeasuredFile, MeasuredPoint, Quantiles, Staleness
from simcore.profile.schema import StepSample
from simcore.scenario.schema import Scenario
from simcore.scenario.strategy import StrategyTable

WARMUP_STEPS = 3
"""Steps before the first sample: DDP rebuilds its buckets after the first, allocators settle in the second."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How long to measure: blocks of steps per count, and about how many seconds a block may take."""

    blocks: int = 3
    block_s: float = 3.0
    least_steps: int = 4
    most_steps: int = 50


@dataclass(frozen=True, slots=True)
class Block:
    """One block of one count: seconds of each step, and the staleness of each where there is such a thing, by rank."""

    step_s: list[list[float]]
    staleness: list[list[int]] = field(default_factory=list)


def measure_scenario(
    world: World, scenario: Scenario, counts: list[int], paced: dict[int, PacedWork] | None, extent: Extent
) -> dict[str, Any] | None:
    """Train at each count in turn; returns a measured file as a plain table on rank 0, None elsewhere.

    With ``paced`` (the work at each count) layers wait instead of computing. Raises ``InputError`` where these devices
    cannot run the strategy.
    """
    sharpen_sleep()
    _check_runs(scenario.strategy, world)
    served = scenario.strategy.data == "async-ps"
    if served:
        join_rpc(world)
    runs = [(count, _prepare(world, scenario, count, paced)) for count in counts]
    blocks: dict[int, list[Block]] = {count: [] for count in counts}
    for number in range(extent.blocks):
        for index, (count, run) in enumerate(runs):
            world.beat.move(f"training on {count} ranks, block {number + 1} of {extent.blocks}",
                            (number * len(runs) + index) / (extent.blocks * len(runs)))  # fmt: skip
            if run is not None:
                blocks[count].append(run.block(extent))
            else:
                world.beat.move(WAITING)
            world.assemble()
    for _, run in runs:
        if run is not None:
            run.trainer.close()
    if served:
        leave_rpc()
    if not world.leads:
        return None
    point = _point if scenario.strategy.synchronous else _asynchronous_point
    measured = MeasuredFile(
        format="simscale-measured", version=1, title=scenario.title, paced=paced is not None,
        machine=world.machine(), points=tuple(point(count, blocks[count]) for count in counts),
    )  # fmt: skip
    return measured.model_dump(mode="json")


@dataclass
class _Run:
    """Training at one count, on a rank that takes part."""

    team: Team
    trainer: Trainer
    calls_per_block: int = 0

    def block(self, extent: Extent) -> Block:
        """One block of steps, in step with the others or, where nothing joins them, for as long as they."""
        if isinstance(self.trainer, AsynchronousTrainer):
            return self._free_block(self.trainer, extent)
        if not self.calls_per_block:
            self.times(WARMUP_STEPS)
            call_s = statistics.median(self.times(2)) * self.trainer.steps
            least = -(-extent.least_steps // self.trainer.steps)
            calls = max(least, min(extent.most_steps, round(extent.block_s / max(call_s, 1e-6))))
            self.calls_per_block = self.team.from_leader(calls)
        self.times(1)
        return Block(self.team.gather(self.times(self.calls_per_block)))

    def times(self, calls: int) -> list[float]:
        """Seconds a step in each of so many calls of the trainer, from start to start, on this rank."""
        clock = self.team.world.clock
        marks = [clock.mark()]
        for _ in range(calls):
            self.trainer.step()
            marks.append(clock.mark())
            self.team.world.beat.move(self.team.world.beat.label)
        clock.settle()
        return [clock.between(*marks[index : index + 2]) / self.trainer.steps for index in range(calls)]

    def _free_block(self, trainer: AsynchronousTrainer, extent: Extent) -> Block:
        trainer.enter()
        self.team.barrier()
        self.times(WARMUP_STEPS)
        trainer.staleness.clear()
        until = time.monotonic() + extent.block_s
        taken = []
        while time.monotonic() < until:
            taken += self.times(1)
        trainer.leave()
        return Block(self.team.gather(taken), self.team.gather(list(trainer.staleness)))


def measure_steps(team: Team, model: str, batch: int, effort: Effort) -> list[StepSample]:
    """Real DDP steps of a model by torch's defaults, the slowest rank of each; on rank 0, an empty list elsewhere.

    The team must be everyone.
    """
    world = team.world
    world.beat.move(f"training {model} for real on {team.size} ranks")
    job = real_job(find_model(model), batch, "fp32", "sgd-momentum", world.device)
    mesh = mesh_of(team, team.size, StrategyTable(), world.device.type)
    assert mesh is not None
    run = _Run(team, TRAINERS["ddp"](job, StrategyTable(), mesh))
    timing = interleave(team, {"step": lambda: run.times(1)[0]}, effort)["step"]
    slowest = over_ranks(team, timing, max)
    step = StepSample(model=model, batch=batch, ranks=team.size, strategy="ddp", timing=slowest)
    return [step] if world.leads else []


def _check_runs(strategy: StrategyTable, world: World) -> None:
    """Refuse what these devices cannot run, by name and with the reason."""
    on_cpu = world.device.type == "cpu"
    if on_cpu and strategy.sync_batchnorm:
        raise InputError("strategy.sync_batchnorm: torch's SyncBatchNorm runs on GPUs only, and these are CPU ranks")
    if on_cpu and strategy.context_parallel > 1:
        raise InputError("strategy.context_parallel: torch's ring attention has no kernel for the CPU, and these are "
                         "CPU ranks; predict it instead")  # fmt: skip
    if strategy.data in ("dp", "hogwild") and len(world.hosts) > 1:
        raise InputError(f'strategy.data: "{strategy.data}" trains inside one host, and these ranks lie on '
                         f"{len(world.hosts)}")  # fmt: skip


def _prepare(world: World, scenario: Scenario, count: int, paced: dict[int, PacedWork] | None) -> _Run | None:
    """Every rank of the world must come here alike; those outside the team get None."""
    team = world.team(count)
    mesh = mesh_of(team, count, scenario.strategy, world.device.type)
    if team is None or mesh is None:
        return None
    job = _job(world, scenario, count, paced)
    return _Run(team, TRAINERS[scenario.strategy.data](job, scenario.strategy, mesh))


def _job(world: World, scenario: Scenario, count: int, paced: dict[int, PacedWork] | None) -> Job:
    batch = scenario.local_batch(count)
    if paced is not None:
        cluster = scenario.cluster
        straggles = count - min(cluster.stragglers, count - 1) <= world.rank < count
        slowdown = cluster.straggler_slowdown if straggles else 1.0
        work = replace(paced[count], layers=tuple(layer.slowed(slowdown) for layer in paced[count].layers))
        return paced_job(work, batch, world.device, scenario.strategy)
    workload = scenario.workload
    assert workload.model is not None
    reference = find_model(workload.model).of_tokens(workload.sequence_length)
    return real_job(reference, batch, workload.precision, workload.optimizer, world.device)


def _point(count: int, blocks: list[Block]) -> MeasuredPoint:
    """The slowest rank of each step, over all blocks, and how far the blocks' medians lie apart."""
    slowest = [[max(step) for step in zip(*block.step_s, strict=True)] for block in blocks]
    samples = [sample for block in slowest for sample in block]
    by_rank = tuple(tuple(step for block in blocks for step in block.step_s[rank]) for rank in range(count))
    return _point_of(count, samples, by_rank, [statistics.median(block) for block in slowest])


def _asynchronous_point(count: int, blocks: list[Block]) -> MeasuredPoint:
    """The time in which the workers together take as many steps as they are, block by block, and their staleness."""
    together = [count / sum(1 / statistics.fmean(worker) for worker in block.step_s) for block in blocks]
    by_rank = tuple(tuple(step for block in blocks for step in block.step_s[rank]) for rank in range(count))
    stale = sorted(updates for block in blocks for worker in block.staleness for updates in worker)
    staleness = Staleness(mean=statistics.fmean(stale), p10=_quantile(stale, 0.1), p50=_quantile(stale, 0.5),
                          p90=_quantile(stale, 0.9), most=stale[-1])  # fmt: skip
    return _point_of(count, together, by_rank, together).model_copy(update={"staleness": staleness})


def _point_of(
    count: int, samples: list[float], by_rank: tuple[tuple[float, ...], ...], medians: list[float]
) -> MeasuredPoint:
    ordered = sorted(samples)
    middle = statistics.median(samples)
    apart = (max(medians) - min(medians)) / 2 / middle if len(medians) > 1 else 0.0
    return MeasuredPoint(
        gpus=count,
        step_time_s=Quantiles(p10=_quantile(ordered, 0.1), p50=middle, p90=_quantile(ordered, 0.9)),
        samples_s=tuple(samples),
        samples_by_rank_s=by_rank,
        repeatability=apart,
    )


def _quantile(ordered: list[Any], share: float) -> float:
    return float(ordered[round(share * (len(ordered) - 1))])
