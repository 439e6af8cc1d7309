"""One pass of a run of blocks on one rank: its layers, what they communicate inside the copy, and recomputation."""

from __future__ import annotations

from collections.abc import Iterable

from simcore.graph.tasks import Charge, Compute, Kind, Overhead, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.rank import Rank
from simcore.strategies.tensor import Around, around_layer, around_piece
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape


class Passes:
    """Lays forward layers and backward pieces on a rank's compute stream."""

    def __init__(self, rank: Rank, shape: StepShape, strategy: StrategyTable, widths: Widths) -> None:
        self.rank, self.shape = rank, shape
        width = widths.activation
        self._layers = [around_layer(shape, index, strategy, width) for index in range(len(shape.forward))]
        self._pieces = [around_piece(shape, index, strategy, width) for index in range(len(shape.backward))]
        self._recomputes = strategy.activation_checkpointing == "full"

    def forward(self, layers: Iterable[int], after: Iterable[int] = ()) -> int | None:
        """Layers one by one; returns the last task, None where there is no layer."""
        last: int | None = None
        for index in layers:
            layer = self.shape.forward[index]
            charge = (Compute("forward", index, layer.share),)
            last = self._around(layer.name, Kind.FORWARD, charge, self._layers[index], after)
            after = ()
        return last

    def recompute(self, blocks: Iterable[int], after: Iterable[int] = ()) -> None:
        """Blocks forward again, where only their inputs were kept; stem and head are never recomputed."""
        inner = [block for block in blocks if 0 <= block < self.shape.blocks]
        if self._recomputes and inner:
            self.chunk_forward(self.shape.layers_in(inner), "recompute", Kind.BACKWARD, (), after)

    def piece(self, index: int, hooks: tuple[Charge, ...] = (), after: Iterable[int] = ()) -> int:
        """One piece of backward; returns the task after which its gradients are ready."""
        piece = self.shape.backward[index]
        charges = (Compute("backward", index, piece.share), *hooks)
        return self._around(piece.name, Kind.BACKWARD, charges, self._pieces[index], after)

    def chunk_forward(
        self, layers: Iterable[int], name: str, kind: Kind, extra: tuple[Charge, ...] = (), after: Iterable[int] = ()
    ) -> int:
        """Layers as one task, and what they communicate as another; returns the last."""
        layers = tuple(layers)
        charges = tuple(Compute("forward", index, self.shape.forward[index].share) for index in layers)
        return self._chunk(name, kind, (*charges, *extra), [self._layers[index] for index in layers], after)

    def chunk_backward(
        self, pieces: Iterable[int], name: str, part: float, extra: tuple[Charge, ...] = (), after: Iterable[int] = ()
    ) -> int:
        """A ``part`` of the pieces' work as one task, and what they communicate as another; returns the last."""
        pieces = tuple(pieces)
        charges = tuple(Compute("backward", index, self.shape.backward[index].share * part) for index in pieces)
        return self._chunk(name, Kind.BACKWARD, (*charges, *extra), [self._pieces[index] for index in pieces], after)

    def _around(self, name: str, kind: Kind, charges: tuple[Charge, ...], around: Around, after: Iterable[int]) -> int:
        """A task between the collectives around it."""
        if around.before:
            self.rank.block_on(f"{name}: before", around.before, after)
            after = ()
        ring = self._start_ring(name, around.beside)
        last = self.rank.run(name, kind, (*charges, *_dispatch([around])), after)
        if ring is not None:
            last = self.rank.run(f"{name}: joined", kind, (), after=[ring])
        return self.rank.block_on(f"{name}: after", around.after) if around.after else last

    def _chunk(
        self, name: str, kind: Kind, charges: tuple[Charge, ...], around: list[Around], after: Iterable[int]
    ) -> int:
        transfers = sum((one.before + one.after for one in around), start=())
        ring = self._start_ring(name, sum((one.beside for one in around), start=()))
        last = self.rank.run(name, kind, (*charges, *_dispatch(around)), after)
        if ring is not None:
            last = self.rank.run(f"{name}: joined", kind, (), after=[ring])
        return self.rank.block_on(f"{name}: inside", transfers) if transfers else last

    def _start_ring(self, name: str, transfers: tuple[Transfer, ...]) -> int | None:
        """Transfers beside the task: ring attention computes on one part while it passes on another."""
        if not transfers:
            return None
        before = self.rank.run(f"{name}: ring", Kind.HOST, ())
        return self.rank.beside(f"{name}: ring", transfers, [before])


def _dispatch(around: Iterable[Around]) -> tuple[Charge, ...]:
    """What DTensor spends on the way into and out of a divided part."""
    parts = sum(one.divided for one in around)
    return (Overhead(tensors=parts, of="tensor"),) if parts else ()
