"""Predicting a scenario: its curve with a band, and what each point is made of.

``predict`` is the public function: a scenario in, a ``Prediction`` out, no files, no torch, no scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.accuracy import Accuracy, Scored, score
from simcore.costs.charge import At, cost_of, largest_transfer
from simcore.costs.resolve import Costs, resolve_costs
from simcore.costs.spread import (
    OTHER_STRUCTURE_SPREAD,
    SAMPLES,
    STRUCTURE_SPREAD,
    Assumption,
    Uncertain,
    normal_samples,
)
from simcore.evidence import posterior_factor
from simcore.graph.compiled import Timeline
from simcore.graph.tasks import COMMUNICATES
from simcore.knee import Knee, find_knee
from simcore.memory import memory_bytes
from simcore.scenario.schema import Scenario
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.event_loop import Steady
from simcore.strategies.plan import StepPlan, plan_for, points_of
from simcore.units import GIB, MS
from simcore.workload.models import MODELS, build_model

if TYPE_CHECKING:
    from simcore.profile.schema import Profile

Array = NDArray[np.float64]

SAMPLED_TASKS = 20_000_000
FEW_SAMPLES = 31
"""Samples are fewer where the graph is so large that all of them would be more than this many task ends."""

SMALL_SHARE = 0.02
"""Exposed communication below this part of the step is not called a bottleneck."""

OVERLAP_DOUBT = 0.5
"""How much of the slowdown of what overlaps, in log space, may be otherwise in another model: a prior."""


@dataclass(frozen=True, slots=True)
class Band:
    """A quantity's median and its 80 % band."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A measured point: a step time in seconds, who says so, and whether it calibrated the prediction."""

    gpus: int
    step_time_s: float
    source: str
    calibrate: bool


@dataclass(frozen=True, slots=True)
class Point:
    """One GPU count: the predicted step and throughput, what the step is made of (sums to p50), and memory by use.

    The band of the efficiency is narrower than the step's: what is unsure of one GPU alike cancels. ``staleness`` is
    that of asynchronous updates: by how many others' each is late.
    """

    gpus: int
    step_time_s: Band
    throughput: Band
    efficiency: float
    efficiency_band: Band
    breakdown_s: dict[str, float]
    memory_bytes: dict[str, float]
    fits: bool | None
    bottleneck: str
    measured_step_time_s: float | None
    calibrated: bool
    staleness: Band | None = None

    @property
    def memory_gib(self) -> float:
        """Peak memory of one rank."""
        return sum(self.memory_bytes.values()) / GIB

    @property
    def error(self) -> float | None:
        """Predicted / measured - 1 of the step time, where it was measured."""
        return None if self.measured_step_time_s is None else self.step_time_s.p50 / self.measured_step_time_s - 1


@dataclass(frozen=True)
class Prediction:
    """The answer to a scenario."""

    scenario: Scenario
    points: tuple[Point, ...]
    unit: str
    knee: Knee
    accuracy: Accuracy
    assumptions: tuple[Assumption, ...]


def predict(
    scenario: Scenario,
    profile: Profile | None = None,
    measured: Sequence[Measured] = (),
    where: str = "scenario",
    evidence: Scenario | None = None,
) -> Prediction:
    """The curve of ``scenario`` with costs of ``profile`` where given, else of the catalogue.

    ``measured`` adds to the scenario's own measured points; those marked calibrate anchor the compute costs and are
    not scored. An edited scenario, whose points no longer hold, names as ``evidence`` the one they were measured on.
    ``where`` names the scenario in faults. Raises ``InputError`` where something needed is missing.
    """
    known = (*_own_measured(scenario), *measured)
    if evidence is None:
        costs = _anchored_costs(scenario, profile, _calibrating(known), where)
    else:
        seen = _anchored_costs(evidence, profile, _calibrating(_own_measured(evidence)), where)
        costs = resolve_costs(scenario, profile, where).anchored(seen.anchor, seen.compute_spread)
    asked = sorted({*scenario.sweep.gpus, *(point.gpus for point in known if not point.calibrate)})
    base = _base_count(scenario, asked)
    steps = _evaluate_all(scenario, costs, sorted({base, *asked}), base, where)
    measured_at = {point.gpus: point for point in known}
    points = tuple(_point(steps[gpus], gpus, measured_at.get(gpus)) for gpus in asked)
    curve = ([p.gpus for p in points], [p.throughput.p50 for p in points], [p.bottleneck for p in points])
    return Prediction(
        scenario=scenario,
        points=points,
        unit=f"{_sample_unit(scenario)}/s",
        knee=find_knee(*curve),
        accuracy=_score(scenario, points, known),
        assumptions=costs.assumptions(asked[-1]),
    )


def step_timeline(scenario: Scenario, gpus: int, profile: Profile | None = None, where: str = "scenario") -> Timeline:
    """Every task of the predicted step at one count, at the median of every cost (one column)."""
    costs = _anchored_costs(scenario, profile, _calibrating(_own_measured(scenario)), where)
    plan = plan_for(scenario, costs, gpus, where)
    return plan.whole.graph.evaluate(plan.durations(plan.whole, costs, points_of(scenario, [gpus])))


@lru_cache(maxsize=64)
def _anchored_costs(scenario: Scenario, profile: Profile | None, points: tuple[Measured, ...], where: str) -> Costs:
    """A scenario's costs, with compute pulled towards the points marked calibrate."""
    costs = resolve_costs(scenario, profile, where)
    if not points:
        return costs

    def step_times(factors: Sequence[float]) -> list[list[float]]:
        by_point = [_step_times_at(scenario, costs, point.gpus, factors, where) for point in points]
        return [list(times) for times in zip(*by_point, strict=True)]

    factor, spread = posterior_factor(step_times, [point.step_time_s for point in points], costs.compute_spread)
    return costs.anchored(factor, spread)


def _step_times_at(scenario: Scenario, costs: Costs, gpus: int, factors: Sequence[float], where: str) -> list[float]:
    """The step at one count with compute scaled by each of ``factors``."""
    plan = plan_for(scenario, costs, gpus, where)
    durations = plan.durations(plan.folded, costs, points_of(scenario, [gpus]), factors)
    times: list[float] = plan.folded.graph.ends(durations).max(axis=0).tolist()
    return times


def _calibrating(points: Sequence[Measured]) -> tuple[Measured, ...]:
    return tuple(point for point in points if point.calibrate)


def _own_measured(scenario: Scenario) -> tuple[Measured, ...]:
    return tuple(
        Measured(
            gpus=point.gpus,
            step_time_s=point.step_time_ms * MS
            if point.step_time_ms is not None
            else scenario.samples_per_step(point.gpus) / (point.throughput or 1.0),
            source=point.source,
            calibrate=point.use == "calibrate",
        )
        for point in scenario.measured
    )


def _base_count(scenario: Scenario, counts: list[int]) -> int:
    """What efficiency is relative to: one copy of the model, or the fewest GPUs asked for where it cannot be that."""
    one_copy = scenario.strategy.gpus_per_copy
    try:
        scenario.local_batch(one_copy)
    except ValueError:
        return counts[0]
    return one_copy


@dataclass(frozen=True)
class _Step:
    """A step evaluated at several counts: the folded timeline at the medians of all costs, and samples of its length.

    ``samples`` and ``efficiencies`` ``[counts, samples]`` are sorted, in seconds and as parts of the throughput of each
    of ``base`` GPUs; ``breakdown [counts]`` are parts of one; ``settled [counts]`` is there without a barrier.
    """

    scenario: Scenario
    costs: Costs
    counts: list[int]
    timeline: Timeline
    breakdown: list[dict[str, float]]
    samples: Array
    efficiencies: Array
    settled: list[Steady]


def _band(sorted_samples: Array) -> Band:
    """The median and the 80 % band of samples in rising order."""
    last = len(sorted_samples) - 1
    low, middle, high = (float(sorted_samples[round(share * last)]) for share in (0.1, 0.5, 0.9))
    return Band(low, middle, high)


def _evaluate_all(scenario: Scenario, costs: Costs, counts: list[int], base: int, where: str) -> dict[int, _Step]:
    """The step at every count, by count; counts that share a graph are evaluated at once."""
    by_plan: dict[StepPlan, list[int]] = {}
    for count in counts:
        by_plan.setdefault(plan_for(scenario, costs, count, where), []).append(count)
    by_count: dict[int, _Step] = {}
    per_gpu: Array | None = None
    for plan, alike in sorted(by_plan.items(), key=lambda entry: base not in entry[1]):
        step, rates = _evaluate(scenario, plan, costs, alike)
        per_gpu = rates[alike.index(base)] if per_gpu is None else per_gpu
        step = replace(step, efficiencies=np.sort(rates / per_gpu, axis=1))
        by_count |= dict.fromkeys(alike, step)
    return by_count


def _evaluate(scenario: Scenario, plan: StepPlan, costs: Costs, counts: list[int]) -> tuple[_Step, Array]:
    """A plan's step at some counts, and samples of each GPU's throughput there, ``[counts, samples]``."""
    charges, graph = plan.folded, plan.folded.graph
    points = points_of(scenario, counts)
    durations, settled = plan.settled(charges, costs, points)
    timeline = graph.evaluate(durations)
    normals = normal_samples(_sample_count(len(graph.tasks), len(counts)))
    factors = np.exp(_spreads(costs, points, plan, timeline)[:, :, None] * normals[:, None, :])
    sampled = durations[:, :, None] * factors[charges.uncertain]
    ends = graph.ends(sampled.reshape(len(durations), -1)).max(axis=0).reshape(len(counts), -1)
    samples = ends * factors[Uncertain.STRUCTURE]
    per_gpu = np.array([[scenario.samples_per_step(count) / count] for count in counts]) / samples
    step = _Step(
        scenario, costs, counts, timeline, _breakdown(plan, timeline), np.sort(samples, axis=1), per_gpu, settled
    )
    return step, per_gpu


def _sample_count(tasks: int, points: int) -> int:
    """As many samples as the size of the graph allows: thousands of tasks average their own uncertainty away."""
    affordable = SAMPLED_TASKS // (tasks * points)
    return SAMPLES if affordable >= SAMPLES else FEW_SAMPLES


def _breakdown(plan: StepPlan, timeline: Timeline) -> list[dict[str, float]]:
    """What each point's step is made of, as its busiest rank sees it; parts of one."""
    lengths = (timeline.end - timeline.start).sum(axis=1)
    busy = dict.fromkeys(plan.lanes, 0.0)
    for task, seconds in zip(timeline.graph.tasks, lengths.tolist(), strict=True):
        if task.resource in busy:
            busy[task.resource] += seconds
    parts = timeline.breakdown(max(busy, key=busy.__getitem__))
    shares = (np.stack(list(parts.values())) / timeline.step_time).T.tolist()
    return [dict(zip(parts, row, strict=True)) for row in shares]


def structure_spread(strategy: StrategyTable) -> float:
    """What the graph leaves out of a step even where every cost is known, as a log-normal sigma."""
    plain = strategy.data == "ddp" and strategy.gpus_per_copy * strategy.expert_parallel == 1
    return STRUCTURE_SPREAD if plain else OTHER_STRUCTURE_SPREAD


def _spreads(costs: Costs, points: Sequence[At], plan: StepPlan, timeline: Timeline) -> Array:
    """Log-normal sigmas ``[uncertain, points]``; a network's are those of its largest collective."""
    spreads = np.zeros((len(Uncertain), len(points)))
    spreads[Uncertain.COMPUTE] = _compute_spreads(costs, points, plan, timeline)
    spreads[Uncertain.OVERHEAD] = plan.folded.widest_framework_spread(costs)
    spreads[Uncertain.STRUCTURE] = structure_spread(plan.strategy)
    transfers = [transfer for _, transfer in plan.folded.transfers]
    if transfers:
        largest = max(transfers, key=lambda transfer: transfer.size_bytes)
        found = [cost_of(costs, largest, point) for point in points]
        spreads[Uncertain.LATENCY] = [cost.latency_spread for cost in found]
        beside_compute = OVERLAP_DOUBT * math.log(costs.overlap.collective_slowdown)
        spreads[Uncertain.WIRE] = [math.hypot(cost.wire_spread, beside_compute) for cost in found]
    return spreads


def _compute_spreads(costs: Costs, points: Sequence[At], plan: StepPlan, timeline: Timeline) -> Array:
    """Log-normal sigmas of compute ``[points]``: its own, contention's, the framework's, and its slowdown's beside
    collectives."""
    charges = plan.folded
    beside_collectives: Array = np.zeros(len(points))
    if len(charges.wires) and costs.overlap.compute_slowdown > 1.0:
        seconds = (timeline.end - timeline.start)[charges.compute]
        overlapping = (timeline.overlap_share(charges.compute, charges.wires) * seconds).sum(axis=0)
        doubt = OVERLAP_DOUBT * math.log(costs.overlap.compute_slowdown)
        beside_collectives = doubt * overlapping / seconds.sum(axis=0)
    contention = np.array([costs.contention_spread_at(point.gpus) for point in points])
    framework = charges.framework_spread(costs, points, timeline.end - timeline.start)
    spreads: Array = np.sqrt(costs.compute_spread**2 + contention**2 + framework**2 + beside_collectives**2)
    return spreads


def _point(step: _Step, gpus: int, seen: Measured | None) -> Point:
    """Everything about one count."""
    scenario, costs, row = step.scenario, step.costs, step.counts.index(gpus)
    band, efficiency = _band(step.samples[row]), _band(step.efficiencies[row])
    batch = scenario.samples_per_step(gpus)
    memory = memory_bytes(scenario, costs.compute.shape, gpus, on_gpu=costs.memory_gib is not None)
    stale = np.array(step.settled[row].staleness, dtype=float) if step.settled else None
    return Point(
        gpus=gpus,
        step_time_s=band,
        throughput=Band(batch / band.p90, batch / band.p50, batch / band.p10),
        efficiency=efficiency.p50,
        efficiency_band=efficiency,
        breakdown_s={name: share * band.p50 for name, share in step.breakdown[row].items()},
        memory_bytes=memory,
        fits=None if costs.memory_gib is None else sum(memory.values()) <= costs.memory_gib * GIB,
        bottleneck=_bottleneck(step, gpus),
        measured_step_time_s=seen.step_time_s if seen else None,
        calibrated=seen.calibrate if seen else False,
        staleness=None if stale is None else _band(stale),
    )


def _bottleneck(step: _Step, gpus: int) -> str:
    """What the step must lose to become shorter: compute, a stage it waits for, or a part of the network."""
    column, timeline = step.counts.index(gpus), step.timeline
    shares = step.breakdown[column]
    if max(shares["exposed_communication"], shares["bubble"]) < SMALL_SHARE:
        return "compute"
    if shares["bubble"] > max(shares["exposed_communication"], 0.5):
        return "pipeline bubble"
    spent: dict[str, float] = {}
    (point,) = points_of(step.scenario, [gpus])
    for number in timeline.critical_path(column):
        task = timeline.graph.tasks[number]
        transfer = largest_transfer(task) if task.kind in COMMUNICATES else None
        name = "compute"
        if transfer is not None:
            link = cost_of(step.costs, transfer, point).link
            name = f"latency of {link}" if transfer.part == "latency" else link
        seconds = float(timeline.end[number, column] - timeline.start[number, column])
        spent[name] = spent.get(name, 0.0) + seconds
    return max(spent, key=spent.__getitem__)


def _score(scenario: Scenario, points: Sequence[Point], known: Sequence[Measured]) -> Accuracy:
    """Accuracy over the measured points that calibrated nothing; naive scaling starts from the smallest known count."""
    first = min(known, key=lambda point: (not point.calibrate, point.gpus), default=None)
    scored = []
    for point in points:
        if point.measured_step_time_s is None or point.calibrated:
            continue
        naive = None
        if first is not None and first.gpus != point.gpus:
            rate = scenario.samples_per_step(first.gpus) / first.step_time_s / first.gpus
            naive = scenario.samples_per_step(point.gpus) / (rate * point.gpus)
        band = point.step_time_s
        scored.append(Scored(band.p10, band.p50, band.p90, point.measured_step_time_s, naive))
    return score(scored)


def _sample_unit(scenario: Scenario) -> str:
    model = scenario.workload.model
    return build_model(model).sample_unit if model in MODELS else "sample"
