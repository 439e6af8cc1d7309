"""DistributedDataParallel on the task graph: buckets all-reduced beside backward, in order, then copied out.

Sources: torch's Reducer (bucket order, launch in order, copy into and out of buckets), its communication hooks, and
``DistributedDataParallel.join``.
"""

from __future__ import annotations

from simcore.graph.tasks import Charge, Compute, Kind, Overhead, Transfer
from simcore.scenario.strategy import UNEVEN_ROUND, StrategyTable
from simcore.strategies.buckets import Bucket, ddp_buckets
from simcore.strategies.powersgd import compressed
from simcore.strategies.rank import Rank
from simcore.strategies.widths import REDUCED_WIDTH, Widths
from simcore.workload.step import StepShape

# Copies, in units of a gradient copied into its bucket and out again (two reads and two writes of each byte).
BUCKET_COPY = 0.5  # in before the all-reduce, or out after it; none where gradients are views of the bucket
CAST_COPY = 0.375  # a compression hook casts the bucket to half the size before, and back after
ACCUMULATE_COPY = 0.75  # a pass whose gradients are added to earlier ones: two reads and a write


class DdpSync:
    """How the copies of one stage synchronise gradients: ``pieces`` are those of the stage, in backward order."""

    def __init__(
        self, rank: Rank, shape: StepShape, pieces: tuple[int, ...], strategy: StrategyTable, widths: Widths
    ) -> None:
        rebuilt = strategy.static_graph or not strategy.find_unused_parameters
        self._rank, self._shape, self._strategy, self._width = rank, shape, strategy, widths.parameter
        self._buckets = ddp_buckets(shape, pieces, widths.parameter, strategy.bucket_cap_mb, rebuilt=rebuilt)
        self._reduced: list[int] = []

    def open(self) -> None:
        """What DDP does before forward."""
        self._rank.run("ddp host", Kind.HOST, (Overhead(steps=1),))
        if self._strategy.uneven_inputs:
            # Each step every rank says whether it still has inputs; a round ends with the last one's model for all.
            part = 1 / UNEVEN_ROUND
            asked = Transfer("all_reduce", 4, "all", times=1 + part)
            model = Transfer("broadcast", self._shape.parameter_elements * self._width, "all", times=part)
            self._rank.block_on("join", (asked, model))

    def hooks(self, index: int) -> tuple[Charge, ...]:
        """What DDP's hooks add to a piece of a synchronised backward."""
        tensors = self._shape.backward[index].tensors
        size_bytes = self._width * sum(self._shape.elements[tensor] for tensor in tensors)
        if not tensors:
            return ()
        hooks = (Overhead(tensors=len(tensors), size_bytes=self._copies * size_bytes),)
        if self._strategy.compression != "powersgd":
            return hooks
        return (*hooks, Overhead(tensors=len(tensors), size_bytes=size_bytes, of="powersgd"))

    def ready(self, index: int, task: int) -> None:
        """A piece has ended: start the all-reduce of each bucket that it completes, unless an earlier one is open."""
        while len(self._reduced) < len(self._buckets) and self._buckets[len(self._reduced)].ready_after <= index:
            self._reduce(self._buckets[len(self._reduced)], f"bucket {len(self._reduced)}", task)

    def finish(self, last: int) -> int:
        """Wait for the buckets in order, and copy each back to its gradients; returns the last task."""
        if self._strategy.find_unused_parameters and not self._strategy.static_graph:
            used_map_bytes = 4 * len(self._shape.elements)  # one int32 a parameter: which of them any rank used
            self._reduced.append(self._rank.start("used-parameter map", "all_reduce", used_map_bytes, [last]))
        for index, reduced in enumerate(self._reduced):
            elements = self._buckets[index].elements if index < len(self._buckets) else 0
            copy = Overhead(size_bytes=self._copies * elements * self._width)
            last = self._rank.run(f"finish bucket {index}", Kind.HOST, (copy,), after=[reduced])
        return last

    def _reduce(self, bucket: Bucket, name: str, ready: int) -> None:
        if self._strategy.compression == "powersgd":
            self._reduced.append(self._reduce_by_power_iteration(bucket, name, ready))
        else:
            width = REDUCED_WIDTH.get(self._strategy.compression, self._width)
            self._reduced.append(self._rank.start(name, "all_reduce", bucket.elements * width, [ready]))

    def _reduce_by_power_iteration(self, bucket: Bucket, name: str, ready: int) -> int:
        """PowerSGD: what does not compress, then both factors, each needing the one before (Vogels et al. 2019)."""
        elements = [self._shape.elements[tensor] for tensor in bucket.tensors]
        whole, left, right = compressed(elements, self._strategy.powersgd_rank)
        for part, size in (("whole", whole), ("P", left), ("Q", right)):
            if size:
                ready = self._rank.start(f"{name} {part}", "all_reduce", size * self._width, [ready])
        return ready

    @property
    def _copies(self) -> float:
        """What is copied on either side of a bucket's all-reduce, per byte of gradient."""
        bucket = 0.0 if self._strategy.gradient_as_bucket_view else BUCKET_COPY
        return bucket + (0.0 if self._strategy.compression == "none" else CAST_COPY)


def lay_accumulated_passes(rank: Rank, shape: StepShape, strategy: StrategyTable, widths: Widths) -> None:
    """The passes under ``no_sync``: no communication between copies, so each is two tasks that nothing joins.

    All passes but the first of the step add their gradients to those that are there: one fewer than there are, and the
    pass that synchronises.
    """
    passes = strategy.gradient_accumulation - 1
    if passes:
        added = Overhead(size_bytes=passes * ACCUMULATE_COPY * shape.parameter_elements * widths.parameter)
        forward = tuple(Compute("forward", i, passes * layer.share) for i, layer in enumerate(shape.forward))
        backward = tuple(Compute("backward", i, passes * piece.share) for i, piece in enumerate(shape.backward))
        rank.run(f"forward x{passes} (no_sync)", Kind.FORWARD, forward)
        rank.run(f"backward x{passes} (no_sync)", Kind.BACKWARD, (*backward, added))
