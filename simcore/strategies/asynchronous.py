"""Training without a barrier on the task graph: one worker's cycle, and the server that all of them keep busy.

A step of ``n`` workers is the time in which they take ``n`` steps. It is a worker's own cycle, or what the server needs
for all of them, whichever is longer (the asymptotic bounds of a closed queueing network, Denning and Buzen 1978); both
are on the graph. What queueing adds to the longer one, the event loop finds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simcore.costs.charge import At, Charges
from simcore.costs.resolve import Costs
from simcore.graph.tasks import Compute, Kind, Overhead, Task, TaskGraph, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.event_loop import Steady, Workers, settle
from simcore.strategies.inside import Passes
from simcore.strategies.rank import Rank
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape

Array = NDArray[np.float64]

SERVER = "server"
QUEUE = "queue"
EXCHANGE = "send gradients, get parameters"


def build_parameter_server(shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths) -> TaskGraph:
    """The graph of a worker's cycle, beside what the busiest server needs for all workers."""
    graph = TaskGraph()
    rank = Rank(graph, backend)
    Passes(rank, shape, strategy, widths).whole()
    size_bytes = shape.parameter_elements * widths.parameter
    rank.run("pack and unpack", Kind.HOST, (Overhead(steps=1, size_bytes=size_bytes, of="rpc"),))
    rank.block_on(EXCHANGE, (Transfer("exchange", size_bytes, "all", "server"),))
    rank.run(QUEUE, Kind.COMMUNICATION, ())
    served = Transfer("exchange", size_bytes / strategy.servers, "wire", "server", per="copies")
    graph.add(Task("serve every worker", Kind.COMMUNICATION, SERVER, (served,)))
    return graph


def build_hogwild(shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths) -> TaskGraph:
    """The graph of a worker's step: it shares the parameters' memory, so nothing is sent."""
    graph = TaskGraph()
    rank = Rank(graph, backend)
    Passes(rank, shape, strategy, widths).whole()
    rank.run("optimizer", Kind.OPTIMIZER, (Compute("optimizer"),))
    rank.run(QUEUE, Kind.COMMUNICATION, ())
    return graph


def queue_up(
    charges: Charges, durations: Array, costs: Costs, points: Sequence[At], strategy: StrategyTable
) -> tuple[Array, list[Steady]]:
    """``durations`` with what queueing and stragglers add to the cycle, and what each column settles into."""
    served = np.array([task.resource == SERVER for task in charges.graph.tasks])
    queue = int(np.flatnonzero(~served)[-1])
    cycle_s, serving_s = durations[~served].sum(axis=0), durations[served].sum(axis=0)
    settled = [
        settle(
            _workers(costs, points[column % len(points)], strategy, float(cycle_s[column]), float(serving_s[column]))
        )
        for column in range(durations.shape[1])
    ]
    queued = durations.copy()
    longer = np.array([steady.cycle_s for steady in settled]) - np.maximum(cycle_s, serving_s)
    queued[queue] += np.maximum(longer, 0.0)
    return queued, settled


def _workers(costs: Costs, point: At, strategy: StrategyTable, cycle_s: float, serving_s: float) -> Workers:
    """The workers of one column: each one's own time between two transfers, and a transfer of one."""
    slow = min(costs.stragglers, point.gpus - 1)
    transfer_s = serving_s / point.gpus
    own_s = max(0.0, cycle_s - 2 * transfer_s)
    work_s = (own_s,) * (point.gpus - slow) + (own_s * costs.straggler_slowdown,) * slow
    return Workers(work_s, transfer_s, strategy.staleness, costs.jitter)
