"""Running a scenario's training and timing its steps, at several counts in turn.

Counts are interleaved block by block, so that a noisy machine is noisy for all; how far the blocks of one count differ
is the measurement's own repeatability. No barrier stands between steps: the strategy's own synchronisation is part of
what is measured.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from measure.clock import sharpen_sleep
from measure.models.table import find_model
from measure.pulse import WAITING
from measure.sampling import Effort, interleave, over_ranks
from measure.train.job import Job, PacedWork, paced_job, real_job
from measure.train.table import TRAINERS, Trainer
from measure.world import Team, World
from simcore.profile.measured import MeasuredFile, MeasuredPoint, Quantiles
from simcore.profile.schema import StepSample
from simcore.scenario.schema import Scenario, StrategyTable

WARMUP_STEPS = 3
"""Steps before the first sample: DDP rebuilds its buckets after the first, allocators settle in the second."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How long to measure: blocks of steps per count, and about how many seconds a block may take."""

    blocks: int = 3
    block_s: float = 3.0
    least_steps: int = 4
    most_steps: int = 50


def measure_scenario(
    world: World, scenario: Scenario, counts: list[int], paced: dict[int, PacedWork] | None, extent: Extent
) -> dict[str, Any] | None:
    """Train at each count in turn; returns a measured file as a plain table on rank 0, None elsewhere.

    With ``paced`` (the work at each count) layers wait instead of computing.
    """
    sharpen_sleep()
    runs = [(count, _prepare(world, world.team(count), scenario, count, paced)) for count in counts]
    times: dict[int, list[list[list[float]]]] = {count: [] for count in counts}
    for block in range(extent.blocks):
        for index, (count, run) in enumerate(runs):
            world.beat.move(f"training on {count} ranks, block {block + 1} of {extent.blocks}",
                            (block * len(runs) + index) / (extent.blocks * len(runs)))  # fmt: skip
            if run is not None:
                times[count].append(run.block(extent))
            else:
                world.beat.move(WAITING)
            world.assemble()
    if not world.leads:
        return None
    points = tuple(_point(count, times[count]) for count in counts)
    measured = MeasuredFile(
        format="simscale-measured", version=1, title=scenario.title, paced=paced is not None,
        machine=world.machine(), points=points,
    )  # fmt: skip
    return measured.model_dump(mode="json")


@dataclass
class _Run:
    """Training at one count, on a rank that takes part."""

    team: Team
    trainer: Trainer
    steps_per_block: int = 0

    def block(self, extent: Extent) -> list[list[float]]:
        """Seconds of each step of one block, by rank. The first block also decides how many steps a block has."""
        if not self.steps_per_block:
            self.times(WARMUP_STEPS)
            step_s = statistics.median(self.times(2))
            steps = max(extent.least_steps, min(extent.most_steps, round(extent.block_s / max(step_s, 1e-6))))
            self.steps_per_block = self.team.from_leader(steps)
        self.times(1)
        taken: list[list[float]] = self.team.gather(self.times(self.steps_per_block))
        return taken

    def times(self, steps: int) -> list[float]:
        """Seconds of each of so many steps, from start to start, on this rank."""
        clock = self.team.world.clock
        marks = [clock.mark()]
        for _ in range(steps):
            self.trainer.step()
            marks.append(clock.mark())
            self.team.world.beat.move(self.team.world.beat.label)
        clock.settle()
        return [clock.between(marks[index], marks[index + 1]) for index in range(steps)]


def measure_steps(team: Team, model: str, batch: int, effort: Effort) -> list[StepSample]:
    """Real DDP steps of a model by torch's defaults, the slowest rank of each; on rank 0, an empty list elsewhere."""
    world = team.world
    world.beat.move(f"training {model} for real on {team.size} ranks")
    job = real_job(find_model(model), batch, "fp32", "sgd-momentum", world.device)
    trainer = TRAINERS["ddp"](job, StrategyTable(), team.group)
    run = _Run(team, trainer)
    timing = interleave(team, {"step": lambda: run.times(1)[0]}, effort)["step"]
    slowest = over_ranks(team, timing, max)
    step = StepSample(model=model, batch=batch, ranks=team.size, strategy="ddp", timing=slowest)
    return [step] if world.leads else []


def _prepare(
    world: World, team: Team | None, scenario: Scenario, count: int, paced: dict[int, PacedWork] | None
) -> _Run | None:  # fmt: skip
    if team is None:
        return None
    job = _job(world, scenario, count, paced)
    return _Run(team, TRAINERS[scenario.strategy.data](job, scenario.strategy, team.group))


def _job(world: World, scenario: Scenario, count: int, paced: dict[int, PacedWork] | None) -> Job:
    if paced is not None:
        return paced_job(paced[count], world.device)
    workload = scenario.workload
    assert workload.model is not None
    batch = scenario.local_batch(count)
    return real_job(find_model(workload.model), batch, workload.precision, workload.optimizer, world.device)


def _point(count: int, blocks: list[list[list[float]]]) -> MeasuredPoint:
    """The slowest rank of each step, over all blocks, and how far the blocks' medians lie apart."""
    slowest = [[max(step) for step in zip(*by_rank, strict=True)] for by_rank in blocks]
    samples = sorted(sample for block in slowest for sample in block)
    medians = [statistics.median(block) for block in slowest]
    middle = statistics.median(samples)
    apart = (max(medians) - min(medians)) / 2 / middle if len(medians) > 1 else 0.0
    return MeasuredPoint(
        gpus=count,
        step_time_s=Quantiles(p10=_quantile(samples, 0.1), p50=middle, p90=_quantile(samples, 0.9)),
        samples_s=tuple(sample for block in slowest for sample in block),
        samples_by_rank_s=tuple(tuple(step for block in blocks for step in block[rank]) for rank in range(count)),
        repeatability=apart,
    )


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
