"""DistributedDataParallel on the task graph: buckets all-reduced beside backward, in order, then copied out.

Sources: torch's Reducer (bucket order, launch in order, copy into and out of buckets) and its process groups: NCCL runs
collectives one after the other on a stream, gloo hands them to two worker threads, so two may share the link.
"""

from __future__ import annotations

from simcore.graph.tasks import Compute, Kind, Overhead, Task, TaskGraph, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.buckets import Bucket, ddp_buckets
from simcore.workload.step import StepShape

COMPUTE = "compute stream"
LINK = "link"
COLLECTIVES_IN_FLIGHT = {"nccl": 1, "gloo": 2}
GRADIENT_BYTES = 4  # fp32 parameters, also under autocast
WIRE_BYTES = {"none": 4, "fp16": 2, "bf16": 2}

# Copies, in units of a gradient copied into its bucket and out again (two reads and two writes of each byte).
BUCKET_COPY = 0.5  # in before the all-reduce, or out after it; none where gradients are views of the bucket
CAST_COPY = 0.375  # a compression hook casts the bucket to half the size before, and back after
ACCUMULATE_COPY = 0.75  # a pass whose gradients are added to earlier ones: two reads and a write


def build_ddp(shape: StepShape, strategy: StrategyTable, backend: str) -> TaskGraph:
    """The graph of one DDP step of one rank: all ranks are equal, so one stands for all of them."""
    rebuilt = strategy.static_graph or not strategy.find_unused_parameters
    buckets = ddp_buckets(shape, GRADIENT_BYTES, strategy.bucket_cap_mb, rebuilt=rebuilt)
    graph = TaskGraph()
    graph.add(Task("ddp host", Kind.HOST, COMPUTE, (Overhead(steps=1),)))
    _add_accumulated_passes(graph, shape, strategy.gradient_accumulation - 1)
    for index, layer in enumerate(shape.forward):
        graph.add(Task(layer, Kind.FORWARD, COMPUTE, (Compute("forward", index),)))
    reduced = _add_backward(graph, shape, buckets, strategy, COLLECTIVES_IN_FLIGHT[backend])
    _add_finish(graph, buckets, reduced, strategy)
    return graph


def _add_accumulated_passes(graph: TaskGraph, shape: StepShape, passes: int) -> None:
    """The passes under ``no_sync``: no communication, so each is two tasks that nothing joins.

    All passes but the first of the step add their gradients to those that are there: one fewer than there are, and the
    pass that synchronises.
    """
    if passes:
        added = Overhead(size_bytes=passes * ACCUMULATE_COPY * shape.parameter_elements * GRADIENT_BYTES)
        forward, backward = Compute("forward", times=passes), Compute("backward", times=passes)
        graph.add(Task(f"forward x{passes} (no_sync)", Kind.FORWARD, COMPUTE, (forward,)))
        graph.add(Task(f"backward x{passes} (no_sync)", Kind.BACKWARD, COMPUTE, (backward, added)))


def _copies(strategy: StrategyTable) -> float:
    """What is copied on either side of a bucket's all-reduce, per byte of gradient."""
    bucket = 0.0 if strategy.gradient_as_bucket_view else BUCKET_COPY
    return bucket + (0.0 if strategy.compression == "none" else CAST_COPY)


def _add_backward(
    graph: TaskGraph, shape: StepShape, buckets: tuple[Bucket, ...], strategy: StrategyTable, in_flight: int
) -> list[int]:
    """Backward pieces, and each bucket's all-reduce as soon as it and every earlier bucket are complete.

    Returns the task that ends each bucket's all-reduce.
    """
    copies = _copies(strategy)
    reduced: list[int] = []
    for index, piece in enumerate(shape.backward):
        elements = sum(shape.elements[tensor] for tensor in piece.tensors)
        hooks = Overhead(tensors=len(piece.tensors), size_bytes=copies * elements * GRADIENT_BYTES)
        task = Task(piece.name, Kind.BACKWARD, COMPUTE, (Compute("backward", index), hooks))
        ready = graph.add(task)
        while len(reduced) < len(buckets) and buckets[len(reduced)].ready_after <= index:
            size_bytes = buckets[len(reduced)].elements * WIRE_BYTES[strategy.compression]
            reduced.append(_add_all_reduce(graph, size_bytes, f"bucket {len(reduced)}", ready, reduced, in_flight))
    if strategy.find_unused_parameters and not strategy.static_graph:
        used_map_bytes = 4 * len(shape.elements)  # one int32 a parameter: which of them any rank used
        reduced.append(_add_all_reduce(graph, used_map_bytes, "used-parameter map", ready, reduced, in_flight))
    return reduced


def _add_all_reduce(
    graph: TaskGraph, size_bytes: float, name: str, ready: int, earlier: list[int], in_flight: int
) -> int:
    """One all-reduce: its latency on a worker of the process group, then its bytes on the link."""
    worker = f"collective worker {len(earlier) % in_flight}"
    after = [ready, earlier[-in_flight]] if len(earlier) >= in_flight else [ready]
    latency = Task(f"{name} latency", Kind.COMMUNICATION, worker, (Transfer("all_reduce", size_bytes, "latency"),))
    wire = Task(name, Kind.COMMUNICATION, LINK, (Transfer("all_reduce", size_bytes, "wire"),))
    return graph.add(wire, after=[graph.add(latency, after=after)])


def _add_finish(graph: TaskGraph, buckets: tuple[Bucket, ...], reduced: list[int], strategy: StrategyTable) -> None:
    """Wait for the buckets in order, copy each back to its gradients, then step the optimizer."""
    for index, last in enumerate(reduced):
        elements = buckets[index].elements if index < len(buckets) else 0
        copy = Overhead(size_bytes=_copies(strategy) * elements * GRADIENT_BYTES)
        graph.add(Task(f"finish bucket {index}", Kind.HOST, COMPUTE, (copy,)), after=[last])
    graph.add(Task("optimizer", Kind.OPTIMIZER, COMPUTE, (Compute("optimizer"),)))
