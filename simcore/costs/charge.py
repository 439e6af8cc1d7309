"""Charging costs to tasks: a graph's charges as one matrix, so that durations are a product and a few collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simcore.costs.network import TransferCost
from simcore.costs.resolve import Costs
from simcore.costs.spread import Uncertain
from simcore.graph.compiled import CompiledGraph, fold
from simcore.graph.tasks import Compute, Kind, Overhead, Task, Transfer

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

COMPUTE_KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.HOST)
OVERLAP_PASSES = 2
OVERHEADS = 3
"""The quantities that are the framework's: of a step, a tensor and a byte."""


@dataclass(frozen=True, eq=False)
class Charges:
    """The charges of one graph. ``work [tasks, quantities]`` times the quantities gives the tasks' seconds.

    The quantities are forward layers, backward pieces, optimizer, and a step's, a tensor's and a byte's overhead. The
    ``transfers`` are collectives, by task. ``uncertain`` names the source of each task's uncertainty; ``compute`` and
    ``wires`` are the tasks that slow each other while they overlap.
    """

    graph: CompiledGraph
    work: Array
    transfers: tuple[tuple[int, Transfer], ...]
    uncertain: Indices
    compute: Indices
    wires: Indices

    def durations(
        self, costs: Costs, batches: Sequence[int], ranks: Sequence[int], factors: Sequence[float] = (1.0,)
    ) -> Array:
        """Seconds of each task at each point, ``[tasks, factors · points]``, with what overlaps slowed.

        The points are repeated for each of ``factors`` on compute.
        """
        points = zip(batches, ranks, strict=True)
        compute = np.stack([_compute_quantities(costs, batch, count) for batch, count in points], axis=1)
        overhead = np.array([costs.overhead.step_s, costs.overhead.tensor_s, costs.overhead.byte_s])
        straggling = np.array([costs.straggling_at(count) for count in ranks])
        computed = self.work[:, :-OVERHEADS] @ compute
        framework = (self.work[:, -OVERHEADS:] @ overhead)[:, None]
        durations = np.concatenate([(computed * factor + framework) * straggling for factor in factors], axis=1)
        if self.transfers:
            tasks = [task for task, _ in self.transfers]
            seconds = [[part_seconds(cost_of(costs, t, count), t) for count in ranks] for _, t in self.transfers]
            durations[tasks] = np.tile(seconds, len(factors))
        return self._slow_down_overlaps(durations, costs)

    def _slow_down_overlaps(self, durations: Array, costs: Costs) -> Array:
        """Compute slowed by the collectives beside it, and they by it: a fixed point of a few passes.

        A task slows in proportion to the part of it that overlaps.
        """
        beside_compute = costs.overlap.compute_slowdown - 1.0
        beside_collective = costs.overlap.collective_slowdown - 1.0
        if not beside_compute and not beside_collective:
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


def cost_of(costs: Costs, transfer: Transfer, ranks: int) -> TransferCost:
    """The whole collective that ``transfer`` is a part of."""
    return costs.network.transfer(transfer.collective, transfer.size_bytes, ranks)


def part_seconds(cost: TransferCost, transfer: Transfer) -> float:
    """The seconds of one part of a collective."""
    return cost.latency_s if transfer.part == "latency" else cost.wire_s


def uncertain_of(task: Task) -> Uncertain:
    """Which source of uncertainty a task's seconds share."""
    if task.kind is Kind.COMMUNICATION:
        transfer = task.charges[0]
        assert isinstance(transfer, Transfer)
        return Uncertain.LATENCY if transfer.part == "latency" else Uncertain.WIRE
    return Uncertain.OVERHEAD if task.kind is Kind.HOST else Uncertain.COMPUTE


def charge(graph: CompiledGraph, layers: int, pieces: int) -> tuple[Charges, Charges]:
    """The charges of a graph over so many forward layers and backward pieces: on the whole of it, and on it folded."""
    work, transfers = _matrix(graph, layers, pieces)
    folding = fold(graph)
    place = {int(first): folded for folded, first in enumerate(folding.first)}
    folded_transfers = tuple((place[task], transfer) for task, transfer in transfers)
    return _charges(graph, work, transfers), _charges(folding.graph, folding.sum(work), folded_transfers)


def _charges(graph: CompiledGraph, work: Array, transfers: tuple[tuple[int, Transfer], ...]) -> Charges:
    wires = [task for task, transfer in transfers if transfer.part == "wire"]
    return Charges(
        graph=graph,
        work=work,
        transfers=transfers,
        uncertain=np.array([uncertain_of(task) for task in graph.tasks], dtype=np.intp),
        compute=graph.numbers(*COMPUTE_KINDS),
        wires=np.array(wires, dtype=np.intp),
    )


def _matrix(graph: CompiledGraph, layers: int, pieces: int) -> tuple[Array, tuple[tuple[int, Transfer], ...]]:
    """The graph's charges as ``work`` and ``transfers``."""
    columns = {"forward": (0, layers), "backward": (layers, pieces), "optimizer": (layers + pieces, 1)}
    overheads = layers + pieces + 1
    work = np.zeros((len(graph.tasks), overheads + OVERHEADS))
    transfers: list[tuple[int, Transfer]] = []
    for number, task in enumerate(graph.tasks):
        for charge in task.charges:
            match charge:
                case Compute(phase, index, times):
                    start, length = columns[phase]
                    where = slice(start, start + length) if index is None else start + index
                    work[number, where] += times
                case Overhead(steps, tensors, size_bytes):
                    work[number, overheads:] += (steps, tensors, size_bytes)
                case Transfer():
                    transfers.append((number, charge))
    return work, tuple(transfers)


def _compute_quantities(costs: Costs, batch: int, ranks: int) -> Array:
    """Seconds of forward layers, backward pieces and the optimizer, with all ranks of the node at work."""
    compute = costs.compute
    passes, optimizer = costs.contention_at(ranks)
    seconds = (
        compute.forward.at(batch) * passes,
        compute.backward.at(batch) * passes,
        np.array([compute.optimizer_s * optimizer]),
    )
    quantities: Array = np.concatenate(seconds) * costs.anchor
    return quantities
