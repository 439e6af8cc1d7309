"""One pass of a run of blocks on one rank: its layers, what they communicate inside the copy, and recomputation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simcore.graph.tasks import Charge, Compute, Kind, Overhead, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.rank import Rank
from simcore.strategies.tensor import Around, around_layer, around_piece
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Several layers or pieces as one: their charges, what they communicate in turn, and what beside."""

    charges: tuple[Charge, ...]
    transfers: tuple[Transfer, ...]
    beside: tuple[Transfer, ...]


class Passes:
    """Lays forward layers and backward pieces on a rank's compute stream."""

    def __init__(self, rank: Rank, shape: StepShape, strategy: StrategyTable, widths: Widths) -> None:
        self.rank, self.shape = rank, shape
        width = widths.activation
        self._layers = [around_layer(layer, strategy, width) for layer in shape.forward]
        self._pieces = [around_piece(piece, strategy, width) for piece in shape.backward]
        self._recomputes = strategy.activation_checkpointing == "full"
        self._chunks: dict[tuple[str, float, tuple[int, ...]], _Chunk] = {}

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

    def whole(self) -> None:
        """One pass of the whole model, forward and backward."""
        self.forward(range(len(self.shape.forward)))
        self.recompute(self.shape.all_blocks)
        for index in range(len(self.shape.backward)):
            self.piece(index)

    def chunk_forward(
        self, layers: Iterable[int], name: str, kind: Kind, extra: tuple[Charge, ...] = (), after: Iterable[int] = ()
    ) -> int:
        """Layers as one task, and what they communicate as another; returns the last."""
        return self._chunk(name, kind, self._forward_chunk(tuple(layers)), extra, after)

    def chunk_backward(
        self, pieces: Iterable[int], name: str, part: float, extra: tuple[Charge, ...] = (), after: Iterable[int] = ()
    ) -> int:
        """A ``part`` of the pieces' work as one task, and what they communicate as another; returns the last."""
        return self._chunk(name, Kind.BACKWARD, self._backward_chunk(tuple(pieces), part), extra, after)

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

    def _chunk(self, name: str, kind: Kind, chunk: _Chunk, extra: tuple[Charge, ...], after: Iterable[int]) -> int:
        ring = self._start_ring(name, chunk.beside)
        last = self.rank.run(name, kind, chunk.charges + extra, after)
        if ring is not None:
            last = self.rank.run(f"{name}: joined", kind, (), after=[ring])
        return self.rank.block_on(f"{name}: inside", chunk.transfers) if chunk.transfers else last

    # Every microbatch of a stage is charged alike, so what it is charged is put together once.

    def _forward_chunk(self, layers: tuple[int, ...]) -> _Chunk:
        key = ("forward", 1.0, layers)
        if key not in self._chunks:
            charges = [Compute("forward", index, self.shape.forward[index].share) for index in layers]
            self._chunks[key] = _put_together(charges, [self._layers[index] for index in layers])
        return self._chunks[key]

    def _backward_chunk(self, pieces: tuple[int, ...], part: float) -> _Chunk:
        key = ("backward", part, pieces)
        if key not in self._chunks:
            charges = [Compute("backward", index, self.shape.backward[index].share * part) for index in pieces]
            self._chunks[key] = _put_together(charges, [self._pieces[index] for index in pieces])
        return self._chunks[key]

    def _start_ring(self, name: str, transfers: tuple[Transfer, ...]) -> int | None:
        """Transfers beside the task: ring attention computes on one part while it passes on another."""
        if not transfers:
            return None
        before = self.rank.run(f"{name}: ring", Kind.HOST, ())
        return self.rank.beside(f"{name}: ring", transfers, [before])


def _put_together(charges: Sequence[Charge], around: Sequence[Around]) -> _Chunk:
    return _Chunk(
        charges=(*charges, *_dispatch(around)),
        transfers=sum((one.before + one.after for one in around), start=()),
        beside=sum((one.beside for one in around), start=()),
    )


def _dispatch(around: Iterable[Around]) -> tuple[Charge, ...]:
    """What DTensor spends on the way into and out of a divided part."""
    around = list(around)
    parts = sum(one.divided for one in around)
    copied = sum(one.divided_bytes for one in around)
    return (Overhead(tensors=parts, activation_bytes=copied, of="tensor"),) if parts else ()
