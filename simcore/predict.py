"""Predicting a scenario: its curve with a band, and what each point is made of.

``predict`` is the public function: a scenario in, a ``Prediction`` out, no files, no torch, no scipy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simcore.accuracy import Accuracy, Scored, score
from simcore.costs.charge import cost_of
from simcore.costs.resolve import Costs, resolve_costs
from simcore.costs.spread import STRUCTURE_SPREAD, Assumption, Uncertain, normal_samples
from simcore.evidence import posterior_factor
from simcore.graph.compiled import Timeline
from simcore.graph.tasks import Kind, Transfer
from simcore.knee import Knee, find_knee
from simcore.memory import memory_bytes
from simcore.scenario.schema import Scenario
from simcore.strategies.ddp import COMPUTE
from simcore.strategies.plan import StepPlan, plan_step
from simcore.units import GIB, MS
from simcore.workload.models import MODELS, build_model

if TYPE_CHECKING:
    from simcore.profile.schema import Profile

Array = NDArray[np.float64]

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

    The band of the efficiency is narrower than the step's: what is unsure of one GPU alike cancels.
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
    plan = plan_step(costs.compute.shape, scenario.strategy, costs.backend)
    asked = sorted({*scenario.sweep.gpus, *(point.gpus for point in known if not point.calibrate)})
    base = _base_count(scenario, asked)
    step = _evaluate(scenario, plan, costs, sorted({base, *asked}), base)
    measured_at = {point.gpus: point for point in known}
    points = tuple(_point(step, gpus, measured_at.get(gpus)) for gpus in asked)
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
    plan = plan_step(costs.compute.shape, scenario.strategy, costs.backend)
    return plan.whole.graph.evaluate(plan.whole.durations(costs, [scenario.local_batch(gpus)], [gpus]))


@lru_cache(maxsize=64)
def _anchored_costs(scenario: Scenario, profile: Profile | None, points: tuple[Measured, ...], where: str) -> Costs:
    """A scenario's costs, with compute pulled towards the points marked calibrate."""
    costs = resolve_costs(scenario, profile, where)
    if not points:
        return costs
    plan = plan_step(costs.compute.shape, scenario.strategy, costs.backend).folded
    counts = [point.gpus for point in points]
    batches = [scenario.local_batch(count) for count in counts]

    def step_times(factors: Sequence[float]) -> list[list[float]]:
        ends = plan.graph.ends(plan.durations(costs, batches, counts, factors)).max(axis=0)
        times: list[list[float]] = ends.reshape(len(factors), -1).tolist()
        return times

    factor, spread = posterior_factor(step_times, [point.step_time_s for point in points], costs.compute_spread)
    return costs.anchored(factor, spread)


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
    """What efficiency is relative to: one GPU, or the fewest asked for where the batch does not fit on one."""
    try:
        scenario.local_batch(1)
    except ValueError:
        return counts[0]
    return 1


@dataclass(frozen=True)
class _Step:
    """A step evaluated at several counts: the folded timeline at the medians of all costs, and samples of its length.

    ``samples`` and ``efficiencies`` ``[counts, samples]`` are sorted, in seconds and as parts of the throughput of each
    of ``base`` GPUs; ``breakdown [counts]`` are parts of one.
    """

    scenario: Scenario
    costs: Costs
    counts: list[int]
    timeline: Timeline
    breakdown: list[dict[str, float]]
    samples: Array
    efficiencies: Array


def _band(sorted_samples: Array) -> Band:
    """The median and the 80 % band of samples in rising order."""
    last = len(sorted_samples) - 1
    low, middle, high = (float(sorted_samples[round(share * last)]) for share in (0.1, 0.5, 0.9))
    return Band(low, middle, high)


def _evaluate(scenario: Scenario, plan: StepPlan, costs: Costs, counts: list[int], base: int) -> _Step:
    graph = plan.folded.graph
    durations = plan.folded.durations(costs, [scenario.local_batch(count) for count in counts], counts)
    timeline = graph.evaluate(durations)
    factors = np.exp(_spreads(costs, counts, plan, timeline)[:, :, None] * normal_samples()[:, None, :])
    sampled = durations[:, :, None] * factors[plan.folded.uncertain]
    ends = graph.ends(sampled.reshape(len(durations), -1)).max(axis=0).reshape(len(counts), -1)
    parts = timeline.breakdown(COMPUTE)
    shares = (np.stack(list(parts.values())) / timeline.step_time).T.tolist()
    breakdown = [dict(zip(parts, row, strict=True)) for row in shares]
    samples = ends * factors[Uncertain.STRUCTURE]
    per_gpu = np.array([[scenario.samples_per_step(count) / count] for count in counts]) / samples
    efficiencies = np.sort(per_gpu / per_gpu[counts.index(base)], axis=1)
    return _Step(scenario, costs, counts, timeline, breakdown, np.sort(samples, axis=1), efficiencies)


def _spreads(costs: Costs, counts: list[int], plan: StepPlan, timeline: Timeline) -> Array:
    """Log-normal sigmas ``[uncertain, points]``; a network's are those of its largest collective."""
    largest = max((transfer for _, transfer in plan.folded.transfers), key=lambda transfer: transfer.size_bytes)
    transfers = [cost_of(costs, largest, count) for count in counts]
    spreads = np.empty((len(Uncertain), len(counts)))
    spreads[Uncertain.COMPUTE] = _compute_spreads(costs, counts, plan, timeline)
    spreads[Uncertain.OVERHEAD] = costs.overhead.spread
    spreads[Uncertain.LATENCY] = [cost.latency_spread for cost in transfers]
    beside_compute = OVERLAP_DOUBT * math.log(costs.overlap.collective_slowdown)
    spreads[Uncertain.WIRE] = [math.hypot(cost.wire_spread, beside_compute) for cost in transfers]
    spreads[Uncertain.STRUCTURE] = STRUCTURE_SPREAD
    return spreads


def _compute_spreads(costs: Costs, counts: list[int], plan: StepPlan, timeline: Timeline) -> Array:
    """Log-normal sigmas of compute ``[points]``: its own, contention's, and of its slowdown where it overlaps."""
    charges = plan.folded
    seconds = (timeline.end - timeline.start)[charges.compute]
    overlapped = (timeline.overlap_share(charges.compute, charges.wires) * seconds).sum(axis=0) / seconds.sum(axis=0)
    beside_collectives = OVERLAP_DOUBT * math.log(costs.overlap.compute_slowdown) * overlapped
    contention = np.array([costs.contention_spread_at(count) for count in counts])
    spreads: Array = np.sqrt(costs.compute_spread**2 + contention**2 + beside_collectives**2)
    return spreads


def _point(step: _Step, gpus: int, seen: Measured | None) -> Point:
    """Everything about one count."""
    scenario, costs, row = step.scenario, step.costs, step.counts.index(gpus)
    band, efficiency = _band(step.samples[row]), _band(step.efficiencies[row])
    batch = scenario.samples_per_step(gpus)
    memory = memory_bytes(scenario, costs.compute, gpus, on_gpu=costs.memory_gib is not None)
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
    )


def _bottleneck(step: _Step, gpus: int) -> str:
    """What the step must lose to become shorter: compute, or the part of the network that is exposed."""
    column, timeline = step.counts.index(gpus), step.timeline
    if step.breakdown[column]["exposed_communication"] < SMALL_SHARE:
        return "compute"
    spent: dict[str, float] = {}
    for number in timeline.critical_path(column):
        task = timeline.graph.tasks[number]
        name = "compute"
        if task.kind is Kind.COMMUNICATION:
            transfer = task.charges[0]
            assert isinstance(transfer, Transfer)
            link = cost_of(step.costs, transfer, gpus).link
            name = link if transfer.part == "wire" else f"latency of {link}"
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
