"""Charging costs to tasks: a graph's charges as one matrix, so that durations are a product and a few collectives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from simcore.costs.network import Group, TransferCost
from simcore.costs.resolve import Costs
from simcore.costs.spread import Uncertain
from simcore.graph.compiled import CompiledGraph, fold
from simcore.graph.tasks import COMMUNICATES, LINK, Axis, Charge, Compute, Kind, Overhead, Task, Transfer
from simcore.profile.fitted import Framework

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

COMPUTE_KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.HOST)
OVERLAP_PASSES = 2
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)
FOLDED = 20_000
"""Tasks up to which folding pays: graphs beyond are pipelines of few chains."""

SHARED_BY: tuple[Axis | None, ...] = (None, "shard", "copies")
"""Who may share an optimizer step."""
QUANTITIES = 4
"""Of each part of the framework: what a step, a tensor, a byte and an activation's byte (for every sample) take."""
OVERHEADS = QUANTITIES * len(FRAMEWORKS)


@dataclass(frozen=True, slots=True)
class At:
    """A point to charge for: the samples computed at once, the GPUs, and the group of ranks along each axis."""

    batch: int
    gpus: int
    groups: Mapping[Axis, Group]


@dataclass(frozen=True, eq=False)
class Charges:
    """The charges of one graph.

    Many tasks are charged alike, so the distinct ``bundles`` of charges are priced and handed out: task ``t`` costs
    what row ``bundle_of[t]`` does. ``work [bundles, quantities]`` times the quantities gives compute and framework
    seconds (forward layers, backward pieces, optimizer whole and shared, then step, tensor and byte of each framework);
    ``transfers`` are collectives, by bundle. ``uncertain`` names the source of each task's uncertainty; ``compute`` and
    ``wires`` are the tasks that slow each other while they overlap.
    """

    graph: CompiledGraph
    bundle_of: Indices
    work: Array
    transfers: tuple[tuple[int, Transfer], ...]
    uncertain: Indices
    compute: Indices
    wires: Indices

    def durations(self, costs: Costs, points: Sequence[At], factors: Sequence[float] = (1.0,)) -> Array:
        """Seconds of each task at each point, ``[tasks, factors · points]``, with what overlaps slowed.

        The points are repeated for each of ``factors`` on compute.
        """
        compute = np.stack([_compute_quantities(costs, point) for point in points], axis=1)
        straggling = np.array([costs.straggling_at(point.gpus) for point in points])
        computed = self.work[:, :-OVERHEADS] @ compute
        framework = self.work[:, -OVERHEADS:] @ _framework_quantities(costs, points)
        bundles = np.concatenate([(computed * factor + framework) * straggling for factor in factors], axis=1)
        for bundle, transfer in self.transfers:
            bundles[bundle] += np.tile([_transfer_seconds(costs, transfer, point) for point in points], len(factors))
        return self._slow_down_overlaps(bundles[self.bundle_of], costs)

    def framework_spread(self, costs: Costs, points: Sequence[At], durations: Array) -> Array:
        """How unsure the compute streams' time is for what the framework spends in it, ``[points]``.

        A log-normal sigma, to which each part of the framework counts by its share of that time.
        """
        charged = self.work[self.bundle_of[self.compute], -OVERHEADS:].sum(axis=0)
        seconds = charged[:, None] * _framework_quantities(costs, points)
        by_part = seconds.reshape(len(FRAMEWORKS), QUANTITIES, -1).sum(axis=1)
        doubt = by_part * np.array([costs.overheads[part].spread for part in FRAMEWORKS])[:, None]
        spread: Array = np.hypot.reduce(doubt, axis=0) / np.maximum(durations[self.compute].sum(axis=0), 1e-12)
        return spread

    def widest_framework_spread(self, costs: Costs) -> float:
        """The log-normal sigma of the least known part of the framework that this graph is charged for."""
        used = self.work[:, -OVERHEADS:].sum(axis=0).reshape(len(FRAMEWORKS), -1).any(axis=1)
        return max((costs.overheads[part].spread for part, is_used in zip(FRAMEWORKS, used, strict=True) if is_used),
                   default=0.0)  # fmt: skip

    def _slow_down_overlaps(self, durations: Array, costs: Costs) -> Array:
        """Compute slowed by the collectives beside it, and they by it: a fixed point of a few passes.

        A task slows in proportion to the part of it that overlaps.
        """
        beside_compute = costs.overlap.compute_slowdown - 1.0
        beside_collective = costs.overlap.collective_slowdown - 1.0
        if not len(self.wires) or (not beside_compute and not beside_collective):
            return durations
        slowed = durations.copy()
        for _ in range(OVERLAP_PASSES):
            timeline = self.graph.evaluate(slowed)
            if beside_compute:
                share = timeline.overlap_share(self.compute, self.wires)
                slowed[self.compute] = durations[self.compute] * (1.0 + beside_compute * share)
            if beside_collective:
                share = timeline.overlap_share(self.wires, self.compute)
                slowed[self.wires] = durations[self.wires] * (1.0 + beside_collective * share)
        return slowed


def cost_of(costs: Costs, transfer: Transfer, point: At) -> TransferCost:
    """The whole collective that ``transfer`` is a part of."""
    size_bytes = transfer.size_bytes * (point.batch if transfer.activations else 1)
    return costs.network.transfer(transfer.collective, size_bytes, point.groups[transfer.axis])


def _transfer_seconds(costs: Costs, transfer: Transfer, point: At) -> float:
    cost = cost_of(costs, transfer, point)
    seconds = {"latency": cost.latency_s, "wire": cost.wire_s, "all": cost.total_s}
    ranks = 1 if transfer.per is None else point.groups[transfer.per].ranks
    return seconds[transfer.part] * transfer.times * ranks


def largest_transfer(task: Task) -> Transfer | None:
    """The largest collective that a task is charged for."""
    transfers = [charge for charge in task.charges if isinstance(charge, Transfer)]
    return max(transfers, key=lambda transfer: transfer.size_bytes, default=None)


def uncertain_of(task: Task) -> Uncertain:
    """Which source of uncertainty a task's seconds share."""
    if task.kind in COMMUNICATES:
        transfer = largest_transfer(task)
        return Uncertain.LATENCY if transfer is not None and transfer.part == "latency" else Uncertain.WIRE
    return Uncertain.OVERHEAD if task.kind is Kind.HOST else Uncertain.COMPUTE


def charge(graph: CompiledGraph, layers: int, pieces: int) -> tuple[Charges, Charges]:
    """The charges of a graph over so many forward layers and backward pieces: on the whole of it, and on it folded."""
    whole = _charges(graph, [task.charges for task in graph.tasks], layers, pieces)
    if len(graph.tasks) > FOLDED:
        return whole, whole
    folding = fold(graph)
    ends = [*folding.first[1:], len(graph.tasks)]
    bundles = [
        sum((task.charges for task in graph.tasks[first:end]), start=())
        for first, end in zip(folding.first, ends, strict=True)
    ]
    return whole, _charges(folding.graph, bundles, layers, pieces)


def _charges(graph: CompiledGraph, bundles: list[tuple[Charge, ...]], layers: int, pieces: int) -> Charges:
    """Charges of a graph whose tasks carry ``bundles``."""
    distinct = list(dict.fromkeys(bundles))
    place = {bundle: number for number, bundle in enumerate(distinct)}
    bundle_of = [place[bundle] for bundle in bundles]
    work, transfers = _matrix(distinct, layers, pieces)
    uncertain: dict[tuple[Kind, int], Uncertain] = {}
    for task, bundle in zip(graph.tasks, bundle_of, strict=True):
        if (task.kind, bundle) not in uncertain:
            uncertain[task.kind, bundle] = uncertain_of(task)
    sources = [uncertain[task.kind, bundle] for task, bundle in zip(graph.tasks, bundle_of, strict=True)]
    beside = [
        number
        for number, (task, source) in enumerate(zip(graph.tasks, sources, strict=True))
        if task.kind is Kind.COMMUNICATION and task.resource == LINK and source is Uncertain.WIRE
    ]
    return Charges(
        graph=graph,
        bundle_of=np.array(bundle_of, dtype=np.intp),
        work=work,
        transfers=transfers,
        uncertain=np.array(sources, dtype=np.intp),
        compute=graph.numbers(*COMPUTE_KINDS),
        wires=np.array(beside, dtype=np.intp),
    )


def _matrix(
    bundles: list[tuple[Charge, ...]], layers: int, pieces: int
) -> tuple[Array, tuple[tuple[int, Transfer], ...]]:
    """Bundles of charges as ``work`` and ``transfers``."""
    first_of = {"forward": 0, "backward": layers}
    overheads = layers + pieces + len(SHARED_BY)
    work = np.zeros((len(bundles), overheads + OVERHEADS))
    transfers: list[tuple[int, Transfer]] = []
    for row, bundle in enumerate(bundles):
        for charge in bundle:
            match charge:
                case Compute("optimizer", _, times, shared_by):
                    work[row, layers + pieces + SHARED_BY.index(shared_by)] += times
                case Compute(phase, index, times):
                    work[row, first_of[phase] + index] += times
                case Overhead(steps, tensors, size_bytes, part, activation_bytes):
                    first = overheads + QUANTITIES * FRAMEWORKS.index(part)
                    work[row, first : first + QUANTITIES] += (steps, tensors, size_bytes, activation_bytes)
                case Transfer():
                    transfers.append((row, charge))
    return work, tuple(transfers)


def _framework_quantities(costs: Costs, points: Sequence[At]) -> Array:
    """Seconds of each of the framework's quantities at each point, ``[quantities, points]``."""
    batches = np.array([float(point.batch) for point in points])
    rates = np.array([costs.overhead_of(part) for part in FRAMEWORKS])
    quantities = np.empty((len(FRAMEWORKS), QUANTITIES, len(points)))
    quantities[:, :-1] = rates[:, :, None]
    quantities[:, -1] = rates[:, -1:] * batches
    return quantities.reshape(OVERHEADS, len(points))


def _compute_quantities(costs: Costs, point: At) -> Array:
    """Seconds of forward layers, backward pieces and the optimizer, with all ranks of the node at work."""
    compute = costs.compute
    passes, optimizer = costs.contention_at(point.gpus)
    sharers = [1 if axis is None else point.groups[axis].ranks for axis in SHARED_BY]
    seconds = (
        compute.forward.at(point.batch) * passes,
        compute.backward.at(point.batch) * passes,
        compute.optimizer_s * optimizer / np.array(sharers),
    )
    quantities: Array = np.concatenate(seconds) * costs.anchor
    return quantities
