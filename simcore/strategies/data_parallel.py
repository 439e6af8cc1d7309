"""torch's DataParallel on the task graph: one process, a thread a replica, everything begins and ends on GPU 0.

Source: ``torch.nn.parallel.DataParallel``. Every step broadcasts the parameters from GPU 0, starts one thread a replica
(which the GIL serialises), gathers the outputs to GPU 0, and sums the gradients there once all of backward is done;
only GPU 0 steps its optimizer. With one GPU it calls the model and does nothing else. Autograd has one thread a device,
so that replicas on one CPU take turns in backward.
"""

from __future__ import annotations

from simcore.graph.tasks import Compute, Kind, Overhead, Task, TaskGraph, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.rank import Rank
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape

REPLICA = "compute stream of a replica"


def build_data_parallel(
    shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths, gpus: int
) -> TaskGraph:
    """The graph of one step: GPU 0, and one replica that stands for all others."""
    graph = TaskGraph()
    first = Rank(graph, backend)
    others = gpus - 1
    parameter_bytes = shape.parameter_elements * widths.parameter
    begun: list[int] = []
    if others:
        first.run("replicate", Kind.HOST, (Overhead(1, len(shape.elements) * gpus, parameter_bytes * gpus, "dp"),))
        begun = [first.block_on("broadcast parameters", (Transfer("broadcast", parameter_bytes, "all", "copies"),))]
    forward = [_pass(graph, stream, "forward", shape, begun) for stream in _streams(first, others)]
    if others:
        outputs = shape.forward[-1].outputs * widths.activation * others
        gathered = Transfer("send_recv", outputs, "all", "copies", activations=True)
        forward = [first.block_on("gather outputs", (gathered,), after=forward)]
    on_cpu = backend == "gloo"
    streams = [first.compute] * gpus if on_cpu else _streams(first, others)
    backward = [_pass(graph, stream, "backward", shape, forward) for stream in streams]
    if others:
        # A reduction moves what a broadcast does, the other way.
        first.block_on("reduce gradients", (Transfer("broadcast", parameter_bytes, "all", "copies"),), after=backward)
        first.run("sum gradients", Kind.HOST, (Overhead(size_bytes=parameter_bytes * gpus, of="dp"),))
    first.run("optimizer", Kind.OPTIMIZER, (Compute("optimizer"),))
    return graph


def _streams(first: Rank, others: int) -> list[str]:
    return [first.compute, REPLICA] if others else [first.compute]


def _pass(graph: TaskGraph, stream: str, phase: str, shape: StepShape, after: list[int]) -> int:
    """A whole pass of one replica; returns its last task."""
    last = -1
    if phase == "forward":
        for index, layer in enumerate(shape.forward):
            last = graph.add(Task(layer.name, Kind.FORWARD, stream, (Compute("forward", index),)), after)
            after = []
    else:
        for index, piece in enumerate(shape.backward):
            last = graph.add(Task(piece.name, Kind.BACKWARD, stream, (Compute("backward", index),)), after)
            after = []
    return last
