"""Memory of the fullest rank: parameters, gradients, optimizer state, buffers of the strategy, and activations.

Source: what each of torch's implementations keeps (DDP whole copies and buckets, ``ZeroRedundancyOptimizer`` shared
state, ``fully_shard`` shards and what is gathered at once, pipelines the microbatches in flight, ``DataParallel`` all
outputs on GPU 0).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from simcore.costs.compute import STATE_BYTES
from simcore.scenario.schema import Scenario
from simcore.scenario.strategy import DDP_BASED, SHARDED, StrategyTable
from simcore.strategies.pipeline import actions_of, placed_on, stage_blocks
from simcore.strategies.schedules import Pass
from simcore.strategies.tensor import divide
from simcore.strategies.widths import Widths, widths_of
from simcore.workload.step import STEM, StepShape

FRAMEWORK_BYTES = 0.8e9  # CUDA context, cuDNN/cuBLAS workspaces and fragmentation on a GPU: a prior


def memory_bytes(scenario: Scenario, shape: StepShape, gpus: int, on_gpu: bool) -> dict[str, float]:
    """Peak bytes of the fullest rank by what fills them, summing to its peak.

    Raises ``ValueError`` where the model has too few blocks for the pipeline.
    """
    local = divide(shape, scenario.strategy)
    ranks = [_rank_bytes(scenario, local, held, gpus) for held in _stages_by_rank(shape, scenario.strategy)]
    fullest = max(ranks, key=lambda parts: sum(parts.values()))
    return fullest | {"framework": FRAMEWORK_BYTES if on_gpu else 0.0}


def _stages_by_rank(shape: StepShape, strategy: StrategyTable) -> list[list[tuple[list[int], int]]]:
    """For each pipeline rank its stages: their blocks, and how many microbatches each keeps at most."""
    if strategy.pipeline_parallel == 1:
        return [[(list(shape.all_blocks), 1)]]
    blocks, in_flight = stage_blocks(shape, strategy), microbatches_in_flight(strategy)
    held: list[list[tuple[list[int], int]]] = [[] for _ in range(strategy.pipeline_parallel)]
    for stage, own in enumerate(blocks):
        held[placed_on(strategy, stage)].append((own, in_flight[stage]))
    return held


@lru_cache(maxsize=256)
def microbatches_in_flight(strategy: StrategyTable) -> tuple[int, ...]:
    """The most microbatches of which each stage keeps the activations at once: forward done, backward not yet."""
    most = [0] * strategy.stages
    for order in actions_of(strategy):
        held = dict.fromkeys(range(strategy.stages), 0)
        for action in order:
            if action.kind is Pass.FORWARD:
                held[action.stage] += 1
                most[action.stage] = max(most[action.stage], held[action.stage])
            elif action.kind is not Pass.INPUT:  # what the weights' gradients need is kept until they are computed
                held[action.stage] -= 1
    return tuple(most)


def _rank_bytes(
    scenario: Scenario, shape: StepShape, stages: Sequence[tuple[list[int], int]], gpus: int
) -> dict[str, float]:
    strategy, widths = scenario.strategy, widths_of(scenario.workload.precision)
    copies = strategy.copies(gpus)
    shards = strategy.shards(copies) * strategy.context_parallel if strategy.data in SHARDED else 1
    elements = float(sum(shape.elements_in(blocks) for blocks, _ in stages))
    state = STATE_BYTES[scenario.workload.optimizer] * elements
    microbatch = scenario.microbatch(gpus)
    activations = sum(kept * _kept(shape, blocks, strategy, widths) for blocks, kept in stages) * microbatch
    return {
        "parameters": elements * widths.parameter / shards + _half_copies(scenario, elements),
        "gradients": elements * widths.parameter / shards,
        "optimizer_state": state / (copies if strategy.data == "zero1" else shards),
        "buckets": _bucket_bytes(strategy, elements * widths.parameter),
        "gathered": sum(_gathered(shape, blocks, strategy, widths, shards) for blocks, _ in stages),
        "activations": activations,
        "outputs_of_replicas": _replicas_bytes(shape, strategy, widths, gpus) * microbatch,
    }


def _half_copies(scenario: Scenario, elements: float) -> float:
    """Autocast keeps a half-precision copy of each weight during a pass; FSDP gathers in half instead."""
    amp = scenario.workload.precision.startswith("amp") and scenario.strategy.data not in SHARDED
    return 2.0 * elements if amp else 0.0


def _bucket_bytes(strategy: StrategyTable, gradient_bytes: float) -> float:
    """DDP's buckets double the gradients, unless these are views of them; a parameter server's message is a copy."""
    if strategy.data in DDP_BASED and not strategy.gradient_as_bucket_view:
        return gradient_bytes
    return 2 * gradient_bytes if strategy.data == "async-ps" else 0.0


def _gathered(shape: StepShape, blocks: list[int], strategy: StrategyTable, widths: Widths, shards: int) -> float:
    """What FSDP has whole at once: the root, the block in use and those gathered ahead; one block's whole gradients."""
    if strategy.data not in SHARDED or shards == 1:
        return 0.0
    ends = [block for block in blocks if block in (STEM, shape.blocks)]
    sizes = sorted((shape.elements_in([block]) for block in blocks if block not in ends), reverse=True)
    at_once = sizes if strategy.data == "zero2" else sizes[: 1 + max(1, strategy.prefetch)]
    return (shape.elements_in(ends) + sum(at_once)) * widths.gathered + sum(sizes[:1]) * widths.parameter


def _kept(shape: StepShape, blocks: list[int], strategy: StrategyTable, widths: Widths) -> float:
    """Bytes of activations kept from forward to backward for one sample of a microbatch."""
    chosen = set(blocks)
    outputs = dict.fromkeys(blocks, 0.0)
    for layer in shape.forward:
        if layer.block in chosen:
            outputs[layer.block] += layer.outputs * min(1.0, layer.share)
    if strategy.activation_checkpointing == "full":
        inner = [block for block in blocks if 0 <= block < shape.blocks]
        inputs = sum(shape.handed_on(block) for block in inner) / strategy.context_parallel
        whole = max((outputs[block] for block in inner), default=0.0)
        ends = sum(size for block, size in outputs.items() if block not in inner)
        return (inputs + whole + ends) * widths.activation
    return sum(outputs.values()) * widths.activation


def _replicas_bytes(shape: StepShape, strategy: StrategyTable, widths: Widths, gpus: int) -> float:
    """DataParallel's GPU 0 holds every replica's outputs for one sample of each, and their gradients."""
    return 2.0 * (gpus - 1) * shape.forward[-1].outputs * widths.activation if strategy.data == "dp" else 0.0
