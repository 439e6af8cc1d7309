"""Tensor, sequence, context and expert parallelism: what they divide of a layer, and what that costs on the way.

Sources: Shoeybi et al. 2019 (Megatron-LM: a column and a row, one all-reduce each way), Korthikanti et al. 2022
(sequence parallelism: the all-reduce as all-gather and reduce-scatter), Liu et al. 2023 (ring attention), Lepikhin et
al. 2020 (GShard: two all-to-alls a layer). The collectives stand in the compute stream: the next operation needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from simcore.graph.tasks import Axis, Transfer
from simcore.profile.fitted import Collective
from simcore.scenario.strategy import StrategyTable
from simcore.workload.layer import Role
from simcore.workload.step import LayerShape, Piece, StepShape, with_tied_twice

DIVIDED: tuple[Role, ...] = ("inside", "column", "row", "pair")
PART_OF_PAIR: dict[Role, float] = {"column": 0.5, "row": 0.5, "pair": 1.0}


@lru_cache(maxsize=256)
def divide(shape: StepShape, strategy: StrategyTable) -> StepShape:
    """What one rank computes of each layer, and holds of each parameter."""
    ranks = strategy.tensor_parallel

    def share(role: Role) -> float:
        divided = role in DIVIDED or (role == "sequence" and strategy.sequence_parallel)
        imbalance = strategy.expert_imbalance if role == "pair" else 1.0
        return imbalance / (ranks if divided else 1) / strategy.context_parallel

    if strategy.tied_weights_twice:
        shape = with_tied_twice(shape)
    elements = list(shape.elements)
    for piece in shape.backward:
        if piece.role in DIVIDED:
            experts = strategy.expert_parallel if piece.role == "pair" else 1
            for tensor in piece.tensors:
                elements[tensor] = max(1, elements[tensor] // (ranks * experts))
    forward = tuple(replace(layer, share=share(layer.role)) for layer in shape.forward)
    backward = tuple(replace(piece, share=share(piece.role)) for piece in shape.backward)
    return replace(shape, forward=forward, backward=backward, elements=tuple(elements))


@dataclass(frozen=True, slots=True)
class Around:
    """Collectives before and after one layer or piece, and those that run beside it; what part it is of a divided pair
    of layers, a column and a row, and the bytes of one sample that then go through DTensor."""

    before: tuple[Transfer, ...] = ()
    after: tuple[Transfer, ...] = ()
    beside: tuple[Transfer, ...] = ()
    divided: float = 0.0
    divided_bytes: float = 0.0


def around_layer(layer: LayerShape, strategy: StrategyTable, width: int) -> Around:
    """What one forward layer communicates inside a copy of the model: it enters a column and leaves a row."""
    return _around(layer, strategy, width, "column", layer.inputs, "row", layer.outputs, ring_passes=1)


def around_piece(piece: Piece, strategy: StrategyTable, width: int) -> Around:
    """The same of a piece of backward, which enters a row and leaves a column. Gradients go round the ring, too."""
    return _around(piece, strategy, width, "row", piece.outputs, "column", piece.inputs, ring_passes=2)


def _around(
    part: LayerShape | Piece,
    strategy: StrategyTable,
    width: int,
    enters: Role,
    entering: float,
    leaves: Role,
    leaving: float,
    ring_passes: int,
) -> Around:
    """Collectives round a layer or piece that gets ``entering`` elements for a sample and hands on ``leaving``."""
    if strategy.expert_parallel > 1 and part.role == "pair":
        exchange = (_exchange(part.inputs, strategy, width),)
        return Around(exchange, exchange)
    before, after = _collectives(strategy)
    divided = PART_OF_PAIR.get(part.role, 0.0) if strategy.tensor_parallel > 1 else 0.0
    statistics = _statistics(part.batch_channels, strategy)
    return Around(
        before=_tensor(before, entering, strategy, width) if part.role in (enters, "pair") else (),
        after=(*(_tensor(after, leaving, strategy, width) if part.role in (leaves, "pair") else ()), *statistics),
        beside=_ring(part.inputs, strategy, width, ring_passes) if part.role == "inside" else (),
        divided=divided,
        divided_bytes=divided * max(entering, leaving) * width,
    )


def _collectives(strategy: StrategyTable) -> tuple[Collective | None, Collective]:
    """What stands where the signal enters the divided part, and where it leaves it."""
    return ("all_gather", "reduce_scatter") if strategy.sequence_parallel else (None, "all_reduce")


def _tensor(
    collective: Collective | None, elements: float, strategy: StrategyTable, width: int
) -> tuple[Transfer, ...]:
    if strategy.tensor_parallel == 1 or collective is None:
        return ()
    return (_whole(collective, elements * width / strategy.context_parallel, "tensor"),)


def _exchange(elements: float, strategy: StrategyTable, width: int) -> Transfer:
    return _whole("all_to_all", elements * width * strategy.expert_imbalance, "expert")


def _ring(qkv_elements: float, strategy: StrategyTable, width: int, passes: int) -> tuple[Transfer, ...]:
    """Keys and values of one rank's part of the sequence, handed round to each of the others."""
    ranks = strategy.context_parallel
    if ranks == 1:
        return ()
    held = qkv_elements * 2 / 3 * width / (ranks * strategy.tensor_parallel)
    return (_whole("send_recv", held, "context", times=passes * (ranks - 1)),)


def _statistics(channels: int, strategy: StrategyTable) -> tuple[Transfer, ...]:
    """SyncBatchNorm: mean and variance of each channel, and the count, over all copies; of gradients likewise."""
    if not channels or not strategy.sync_batchnorm:
        return ()
    return (Transfer("all_reduce", 4 * (2 * channels + 1), "all", "copies"),)


def _whole(collective: Collective, size_bytes: float, axis: Axis, times: float = 1.0) -> Transfer:
    return Transfer(collective, size_bytes, "all", axis, activations=True, times=times)
