"""Charging costs to tasks: a graph's charges as one matrix, so that durations are a product and a few collectives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simcore.costs.compute import StepSeconds
from simcore.costs.network import TransferCost
from simcore.costs.resolve import Costs
from simcore.costs.spread import Uncertain
from simcore.graph.compiled import CompiledGraph, FoldedGraph, compile_graph, fold
from simcore.graph.tasks import Compute, Kind, Overhead, Task, Transfer
from simcore.scenario.schema import StrategyTable
from simcore.strategies.table import STRATEGIES
from simcore.workload.step import StepShape

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

COMPUTE_KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.OPTIMIZER, Kind.HOST)
OVERLAP_PASSES = 3


@dataclass(frozen=True)
class StepPlan:
    """A compiled step: its whole graph for those who look at it, its folded one for those who want its time.

    ``work [tasks, quantities]`` times the quantities (forward layers, backward pieces, optimizer, a step's, a tensor's
    and a byte's overhead, all in seconds) gives the tasks' seconds, but for ``transfers``, which are collectives.
    """

    graph: CompiledGraph
    folded: FoldedGraph
    work: Array
    transfers: tuple[tuple[int, Transfer], ...]

    def durations(self, costs: Costs, batches: list[int], ranks: list[int]) -> Array:
        """Seconds of each task of the whole graph at each point, ``[tasks, points]``; overlap slows nothing yet."""
        return self._durations(self.work, dict(self.transfers), costs, batches, ranks)

    def folded_durations(self, costs: Costs, batches: list[int], ranks: list[int]) -> Array:
        """The same for the folded graph, ``[folded, points]``."""
        place = {int(first): folded for folded, first in enumerate(self.folded.first)}
        transfers = {place[task]: transfer for task, transfer in self.transfers}
        return self._durations(self.folded.sum(self.work), transfers, costs, batches, ranks)

    @staticmethod
    def _durations(
        work: Array, transfers: dict[int, Transfer], costs: Costs, batches: list[int], ranks: list[int]
    ) -> Array:
        seconds = {batch: _quantities(costs.compute.seconds(batch), costs) for batch in set(batches)}
        quantities = np.stack([seconds[batch] for batch in batches], axis=1)
        slowdown = np.array([costs.contention_at(count) * costs.straggling_at(count) for count in ranks])
        durations: Array = (work @ quantities) * slowdown
        for point, count in enumerate(ranks):
            for task, transfer in transfers.items():
                durations[task, point] = part_seconds(cost_of(costs, transfer, count), transfer)
        return durations


def cost_of(costs: Costs, transfer: Transfer, ranks: int) -> TransferCost:
    """The whole collective that ``transfer`` is a part of."""
    return costs.network.transfer(transfer.collective, transfer.size_bytes, ranks)


def part_seconds(cost: TransferCost, transfer: Transfer) -> float:
    """The seconds of one part of a collective."""
    return cost.latency_s if transfer.part == "latency" else cost.wire_s


def slow_down_overlaps(graph: CompiledGraph, durations: Array, costs: Costs) -> Array:
    """Durations with compute slowed by the collectives beside it, and they by it: a fixed point of a few passes.

    Both shapes ``[tasks, points]``. A task slows in proportion to the part of it that overlaps.
    """
    beside_compute = costs.overlap.compute_slowdown - 1.0
    beside_collective = costs.overlap.collective_slowdown - 1.0
    if not beside_compute and not beside_collective:
        return durations
    compute = graph.numbers(*COMPUTE_KINDS)
    wires = np.array([n for n in graph.numbers(Kind.COMMUNICATION) if uncertain_of(graph.tasks[n]) is Uncertain.WIRE], dtype=np.intp)
    slowed = durations.copy()
    for _ in range(OVERLAP_PASSES):
        timeline = graph.evaluate(slowed)
        slowed[compute] = durations[compute] * (1.0 + beside_compute * timeline.overlap_share(compute, wires))
        slowed[wires] = durations[wires] * (1.0 + beside_collective * timeline.overlap_share(wires, compute))
    return slowed


def uncertain_of(task: Task) -> Uncertain:
    """Which source of uncertainty a task's seconds share."""
    if task.kind is Kind.COMMUNICATION:
        transfer = task.charges[0]
        assert isinstance(transfer, Transfer)
        return Uncertain.LATENCY if transfer.part == "latency" else Uncertain.WIRE
    return Uncertain.OVERHEAD if task.kind is Kind.HOST else Uncertain.COMPUTE


@lru_cache(maxsize=256)
def plan_step(shape: StepShape, strategy: StrategyTable, backend: str) -> StepPlan:
    """The plan of a strategy on a workload's shape; the same arguments give the same plan, built once."""
    graph = compile_graph(STRATEGIES[strategy.data](shape, strategy, backend))
    layers, pieces = len(shape.forward), len(shape.backward)
    columns = {"forward": (0, layers), "backward": (layers, pieces), "optimizer": (layers + pieces, 1)}
    overheads = layers + pieces + 1
    work = np.zeros((len(graph.tasks), overheads + 3))
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
    return StepPlan(graph, fold(graph), work, tuple(transfers))


def _quantities(seconds: StepSeconds, costs: Costs) -> Array:
    overhead = (costs.overhead.step_s, costs.overhead.tensor_s, costs.overhead.byte_s)
    compute = np.concatenate([seconds.forward, seconds.backward, [seconds.optimizer]]) * costs.anchor
    return np.concatenate([compute, overhead])
