"""One run of blocks on one rank through a step: its passes, its synchronisation with the copies, its optimizer.

A model that is not cut is one stage; a pipeline has several, of which a rank may hold more than one.
"""

from __future__ import annotations

from collections.abc import Sequence

from simcore.graph.tasks import Axis, Compute, Kind, Overhead
from simcore.scenario.strategy import DDP_BASED, SHARDED, StrategyTable
from simcore.strategies.ddp import ACCUMULATE_COPY, DdpSync
from simcore.strategies.fsdp import FsdpSync
from simcore.strategies.inside import Passes
from simcore.strategies.rank import Rank
from simcore.strategies.widths import Widths
from simcore.strategies.zero import hand_out
from simcore.workload.step import StepShape


class StageLayer:
    """Lays a stage's part of a step; ``blocks`` are its own, in forward order."""

    def __init__(
        self, rank: Rank, shape: StepShape, blocks: Sequence[int], strategy: StrategyTable, widths: Widths
    ) -> None:
        self._rank, self._shape, self._strategy, self._widths = rank, shape, strategy, widths
        self._blocks = list(blocks)
        self._layers = shape.layers_in(blocks)
        self._pieces = shape.pieces_in(blocks)
        self._passes = Passes(rank, shape, strategy, widths)
        self._ddp = DdpSync(rank, shape, self._pieces, strategy, widths) if strategy.data in DDP_BASED else None
        self._fsdp = FsdpSync(rank, shape, blocks, strategy, widths) if strategy.data in SHARDED else None
        self._elements = shape.elements_in(blocks)
        self._last = 0

    def open(self) -> None:
        """What the framework does before the first pass."""
        for sync in (self._ddp, self._fsdp):
            if sync is not None:
                sync.open()

    def forward(self, name: str, extra: Overhead, after: Sequence[int]) -> int:
        """A microbatch forward; returns its last task."""
        if self._fsdp is None:
            return self._passes.chunk_forward(self._layers, name, Kind.FORWARD, (extra,), after)
        begun = self._rank.run(f"{name} begins", Kind.HOST, (extra,), after)
        return self.forward_by_block() or begun

    def backward(self, name: str, extra: Overhead, part: float, first: bool, last: bool, after: Sequence[int]) -> int:
        """A ``part`` of a microbatch's backward; returns the last task.

        The ``last`` one synchronises with the copies, all but the ``first`` add to gradients that are there.
        """
        if not part:
            return self._rank.run(name, Kind.HOST, (extra,), after)
        added = 0.0 if first else ACCUMULATE_COPY * self._elements * self._widths.parameter
        host = (extra, Overhead(size_bytes=added))
        if self._fsdp is None and not last:
            self._passes.recompute(self._blocks, after)
            self._last = self._passes.chunk_backward(self._pieces, name, part, host, after)
            return self._last
        self._last = self._rank.run(f"{name} begins", Kind.HOST, host, after)
        if self._ddp is not None and part == 1.0:
            self._passes.recompute(self._blocks)
            self._backward_by_piece(self._ddp, self._pieces)
            # DDP waits for its buckets before backward returns, and only then is the gradient handed on.
            self._last = self._ddp.finish(self._last)
        elif self._fsdp is not None:
            self.backward_by_block(synchronise=False)
        else:
            self._last = self._passes.chunk_backward(self._pieces, name, part)
        return self._last

    def forward_by_block(self) -> int | None:
        """Forward, block by block, each with its parameters gathered where they are sharded; the last task."""
        last = None
        for block in self._blocks:
            layers = self._shape.layers_in([block])
            if self._fsdp is not None:
                self._fsdp.before_forward(block, self._blocks)
            last = self._passes.forward(layers) if layers else last
            if self._fsdp is not None:
                self._fsdp.after_forward(block)
        return last

    def backward_by_block(self, synchronise: bool) -> int | None:
        """Backward, block by block, gathered and, where it synchronises, scattered; the last task."""
        order = self._blocks[::-1]
        last = None
        for block in order:
            assert self._fsdp is not None
            self._fsdp.before_backward(block, order)
            self._passes.recompute([block])
            for index in self._shape.pieces_in([block]):
                last = self._passes.piece(index)
            if last is not None:
                self._fsdp.after_backward(block, last, synchronise)
        self._last = last if last is not None else self._last
        return last

    def synchronised_backward(self) -> None:
        """The backward of a model that is not cut, with its synchronisation."""
        if self._ddp is None:
            self.backward_by_block(synchronise=True)
            return
        for block in self._blocks[::-1]:
            self._passes.recompute([block])
            self._backward_by_piece(self._ddp, self._shape.pieces_in([block]))

    def _backward_by_piece(self, ddp: DdpSync, pieces: Sequence[int]) -> None:
        """Backward, piece by piece, its buckets reduced as they fill."""
        for index in pieces:
            self._last = self._passes.piece(index, ddp.hooks(index))
            ddp.ready(index, self._last)

    def finish(self) -> None:
        """Wait until gradients are those of all copies."""
        pipelined = self._strategy.pipeline_parallel > 1
        if self._ddp is not None and not pipelined:
            self._ddp.finish(self._last)
        elif self._fsdp is not None:
            if pipelined:
                self._fsdp.scatter_all(self._last)
            self._fsdp.finish(self._last)

    def update(self) -> None:
        """Step the optimizer over this rank's part of the parameters, and hand the result out where it is shared."""
        share = self._elements / max(1, self._shape.whole_elements)
        shared_by: Axis | None = "shard" if self._strategy.data in SHARDED else None
        shared_by = "copies" if self._strategy.data == "zero1" else shared_by
        self._rank.run("optimizer", Kind.OPTIMIZER, (Compute("optimizer", times=share, shared_by=shared_by),))
        if self._strategy.data == "zero1":
            hand_out(self._rank, self._shape, self._shape.tensors_in(self._blocks), self._widths)
