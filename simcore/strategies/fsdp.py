"""Fully sharded data parallelism on the task graph: gathers before use, scatters after, block by block.

Source: torch's ``fully_shard``. On NCCL, gathers and scatters run on streams of their own, one communicator in order; a
gather of the next block starts once the block before the one in use (forward), or that one itself (backward), has been
copied out of its buffer; ``prefetch`` sets how many blocks ahead, and thereby bounds what is whole at once (the rate
limit of the older FSDP). On gloo every collective blocks the rank: nothing overlaps, and prefetching brings nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from simcore.graph.tasks import Charge, Kind, Overhead, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.rank import Rank
from simcore.strategies.widths import REDUCED_WIDTH, Widths
from simcore.workload.step import STEM, StepShape

ROOT = STEM
"""The group of everything outside the blocks: gathered first, kept to the end of backward."""

GATHER_COPY = 0.5  # out of the gathered buffer into the parameters: a read and a write of each byte
REDUCE_COPY = 0.5  # gradients into the buffer that is scattered: likewise


class FsdpSync:
    """How the shards of one stage are gathered and scattered; ``blocks`` are those of the stage."""

    def __init__(
        self, rank: Rank, shape: StepShape, blocks: Sequence[int], strategy: StrategyTable, widths: Widths
    ) -> None:
        self._rank, self._shape, self._strategy, self._widths = rank, shape, strategy, widths
        ends = (STEM, shape.blocks)
        self._root = [block for block in blocks if block in ends]
        self._blocks = [block for block in blocks if block not in ends]
        self._held: set[int] = set()
        self._copied_out: list[int] = []
        self._gathered: dict[int, int] = {}
        self._reduced: list[int] = []

    def open(self) -> None:
        """Gather what lies outside the blocks."""
        self._rank.run("fsdp host", Kind.HOST, (Overhead(steps=1, of="fsdp"),))
        self._held.clear()
        self._take(ROOT, [])

    def before_forward(self, block: int, order: Sequence[int]) -> None:
        """Have a block's parameters whole; ``order`` is that of the blocks. Those ahead are gathered meanwhile, as soon
        as the block before this one has been copied out."""
        self._gather_ahead(block, order)
        self._use(block)

    def before_backward(self, block: int, order: Sequence[int]) -> None:
        """The same in backward, where gathering ahead waits until this block has been copied out."""
        self._use(block)
        self._gather_ahead(block, order)

    def _gather_ahead(self, block: int, order: Sequence[int]) -> None:
        if not self._overlaps:
            return
        place = order.index(block)
        for ahead in order[place : place + 1 + max(1, self._strategy.prefetch)]:
            if ahead not in self._root and ahead not in self._held and ahead not in self._gathered:
                self._gathered[ahead] = self._gather(ahead, self._copied_out[-1:])

    def _use(self, block: int) -> None:
        if block not in self._root and block not in self._held:
            self._take(block, [self._gathered.pop(block)] if block in self._gathered else [])

    def after_forward(self, block: int) -> None:
        """Give a block's parameters back, where they are to be gathered again for backward."""
        if self._strategy.data == "fsdp" and block not in self._root:
            self._held.discard(block)

    def after_backward(self, block: int, last: int, synchronise: bool) -> None:
        """Give a block back, and scatter its gradients. A pipeline keeps it: torch gives up nothing before the last
        microbatch's backward is done."""
        if block in self._root:
            return
        if self._strategy.pipeline_parallel == 1:
            self._held.discard(block)
        if synchronise:
            self._scatter(block, last)

    def finish(self, last: int) -> None:
        """Scatter what lies outside the blocks, and wait for every scatter."""
        self._scatter(ROOT, last)
        for reduced in self._reduced:
            self._rank.run("finish scatter", Kind.HOST, (), after=[reduced])
        self._reduced.clear()
        self._held.discard(ROOT)

    def scatter_all(self, last: int) -> None:
        """Scatter every block at once, as a pipeline does after its last microbatch."""
        for block in self._blocks:
            self._scatter(block, last)

    def _take(self, block: int, gathered: list[int]) -> None:
        """Copy a block's parameters out of their gathered buffer, gathering it now where nothing did before."""
        self._held.add(block)
        elements = self._elements(block)
        if not elements:
            return
        if not gathered:
            transfer = Transfer("all_gather", elements * self._widths.gathered, "all", "shard")
            if self._overlaps:
                gathered = [self._gather(block, self._copied_out[-1:])]
            else:
                self._rank.block_on(f"gather {self._name(block)}", (transfer,))
        copy = Overhead(tensors=1, size_bytes=GATHER_COPY * elements * self._widths.gathered, of="fsdp")
        self._copied_out.append(self._rank.run(f"copy out {self._name(block)}", Kind.HOST, (copy,), after=gathered))

    def _gather(self, block: int, after: list[int]) -> int:
        size_bytes = self._elements(block) * self._widths.gathered
        return self._rank.start(f"gather {self._name(block)}", "all_gather", size_bytes, after, "shard")

    def _scatter(self, block: int, last: int) -> None:
        """Reduce-scatter a block's gradients over the shards; all-reduce each shard over its replicates."""
        elements = self._elements(block)
        if not elements:
            return
        width = REDUCED_WIDTH.get(self._strategy.compression, self._widths.parameter)
        size_bytes, name = elements * width, self._name(block)
        copy: tuple[Charge, ...] = (Overhead(tensors=1, size_bytes=REDUCE_COPY * size_bytes, of="fsdp"),)
        copied = self._rank.run(f"copy in {name}", Kind.HOST, copy, after=[last])
        whole = Transfer("reduce_scatter", size_bytes, "all", "shard")
        shard_bytes = size_bytes / (self._strategy.shard_size or 1)
        hybrid = self._strategy.shard_size is not None
        if not self._overlaps:
            self._rank.block_on(f"scatter {name}", (whole,))
            if hybrid:
                self._rank.block_on(f"reduce {name}", (Transfer("all_reduce", shard_bytes, "all", "replicate"),))
            return
        reduced = self._rank.start(f"scatter {name}", "reduce_scatter", size_bytes, [copied], "shard")
        if hybrid:
            reduced = self._rank.start(f"reduce {name}", "all_reduce", shard_bytes, [reduced], "replicate")
        self._reduced.append(reduced)

    def _elements(self, block: int) -> int:
        return self._shape.elements_in(self._root if block == ROOT else [block])

    def _name(self, block: int) -> str:
        return "root" if block == ROOT else f"block {block}"

    @property
    def _overlaps(self) -> bool:
        return self._rank.backend == "nccl"
