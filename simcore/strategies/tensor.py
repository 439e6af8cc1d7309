"""Tensor, sequence, context and expert parallelism: what they divide of a layer, and what that costs on the way.

Sources: Shoeybi et al. 2019 (Megatron-LM: a column and a row, one all-reduce each way), Korthikanti et al. 2022
(sequence parallelism: the all-reduce as all-gather and reduce-scatter), Liu et al. 2023 (ring attention), Lepikhin et
al. 2020 (GShard: two all-to-alls a layer). The collectives stand in the compute stream: the next operation needs them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simcore.graph.tasks import Axis, Transfer
from simcore.profile.fitted import Collective
from simcore.scenario.strategy import StrategyTable
from simcore.workload.layer import Role
from simcore.workload.step import StepShape, with_tied_twice

DIVIDED: tuple[Role, ...] = ("inside", "column", "row", "pair")
PART_OF_PAIR: dict[Role, float] = {"column": 0.5, "row": 0.5, "pair": 1.0}
RING_PASSES = {"forward": 1, "backward": 2}
"""Keys and values go round once in forward; in backward their gradients go with them."""


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
    of layers, a column and a row."""

    before: tuple[Transfer, ...] = ()
    after: tuple[Transfer, ...] = ()
    beside: tuple[Transfer, ...] = ()
    divided: float = 0.0

    def then(self, more: tuple[Transfer, ...]) -> Around:
        """The same, with more collectives at the end."""
        return replace(self, after=(*self.after, *more)) if more else self


def around_layer(shape: StepShape, index: int, strategy: StrategyTable, width: int) -> Around:
    """What one forward layer communicates inside a copy of the model."""
    layer = shape.forward[index]
    if strategy.expert_parallel > 1 and layer.role == "pair":
        exchange = (_exchange(layer.inputs, strategy, width),)
        return Around(exchange, exchange)
    before, after = _collectives(strategy)
    entry = layer.role in ("column", "pair") and before is not None
    return Around(
        before=_tensor(before, layer.inputs, strategy, width) if entry else (),
        after=_tensor(after, layer.outputs, strategy, width) if layer.role in ("row", "pair") else (),
        beside=_ring(layer.inputs, strategy, width, RING_PASSES["forward"]) if layer.role == "inside" else (),
        divided=PART_OF_PAIR.get(layer.role, 0.0) if strategy.tensor_parallel > 1 else 0.0,
    ).then(_statistics(layer.batch_channels, strategy))


def around_piece(shape: StepShape, index: int, strategy: StrategyTable, width: int) -> Around:
    """What one piece of backward communicates inside a copy of the model."""
    piece = shape.backward[index]
    if strategy.expert_parallel > 1 and piece.role == "pair":
        exchange = (_exchange(piece.inputs, strategy, width),)
        return Around(exchange, exchange)
    before, after = _collectives(strategy)
    entry = piece.role in ("row", "pair") and before is not None
    return Around(
        before=_tensor(before, piece.outputs, strategy, width) if entry else (),
        after=_tensor(after, piece.inputs, strategy, width) if piece.role in ("column", "pair") else (),
        beside=_ring(piece.inputs, strategy, width, RING_PASSES["backward"]) if piece.role == "inside" else (),
        divided=PART_OF_PAIR.get(piece.role, 0.0) if strategy.tensor_parallel > 1 else 0.0,
    ).then(_statistics(piece.batch_channels, strategy))


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
