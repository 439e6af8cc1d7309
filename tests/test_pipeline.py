"""Pipelines on the graph: bubbles against the closed forms, microbatches in flight, uneven stages, and speed by size."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.graph.compiled import CompiledGraph, Timeline, compile_graph
from simcore.graph.tasks import Compute, Kind, TaskGraph
from simcore.memory import microbatches_in_flight
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.pipeline import SCHEDULES, stage_blocks
from simcore.strategies.schedules import ideal_bubble
from simcore.strategies.synchronous import build_synchronous
from simcore.strategies.widths import Widths
from simcore.workload.step import LayerShape, Piece, StepShape

WIDTHS = Widths(4, 4, 4)
FORWARD_S, BACKWARD_S = 1.0, 2.0


def blocks(count: int) -> StepShape:
    """A model of equal blocks with a parameter each."""
    forward = tuple(LayerShape(f"layers.{i}", i, "pair", 1.0, 1.0) for i in range(count))
    backward = tuple(Piece(f"layers.{i}", (i,), i, "pair", 1.0, 1.0) for i in reversed(range(count)))
    return StepShape(forward, backward, (1,) * count, count)


def compiled(strategy: StrategyTable, count: int) -> CompiledGraph:
    return compile_graph(build_synchronous(blocks(count), strategy, "nccl", WIDTHS))


def run(graph: CompiledGraph, seconds: dict[str, float] | None = None) -> Timeline:
    """The graph with free communication: a block takes one forward and two backward, or what ``seconds`` says."""
    costs = {"forward": FORWARD_S, "backward": BACKWARD_S, "optimizer": 0.0} | (seconds or {})
    durations = [
        sum(costs[charge.phase] * charge.times for charge in task.charges if isinstance(charge, Compute))
        for task in graph.tasks
    ]
    return graph.evaluate(np.array(durations)[:, None])


def bubble(timeline: Timeline, ranks: int, per_rank_s: float) -> float:
    return 1 - per_rank_s / float(timeline.step_time[0])


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved", "looped-bfs"])
@pytest.mark.parametrize(("ranks", "microbatches"), [(2, 2), (4, 4), (4, 8), (8, 16)])
def test_the_bubble_is_the_closed_form(schedule: str, ranks: int, microbatches: int) -> None:
    strategy = StrategyTable(pipeline_parallel=ranks, schedule=schedule, microbatches=microbatches)
    count = strategy.stages
    timeline = run(compiled(strategy, count))
    per_rank_s = (FORWARD_S + BACKWARD_S) * microbatches * strategy.chunks
    expected = ideal_bubble(schedule, ranks, strategy.chunks, microbatches)
    assert bubble(timeline, ranks, per_rank_s) == pytest.approx(expected, abs=1e-9)
    assert expected == pytest.approx((ranks - 1) / (strategy.chunks * microbatches + ranks - 1))


@pytest.mark.parametrize(("schedule", "chunks"), [("zero-bubble", 1), ("zero-bubble", 2), ("zbv", 2)])
def test_splitting_backward_shrinks_the_bubble_as_far_as_torch_lets_it(schedule: str, chunks: int) -> None:
    """The first stage computes weights' and inputs' gradients together, so a little more than the ideal is left."""
    ranks, microbatches = 4, 16
    strategy = StrategyTable(
        pipeline_parallel=ranks, schedule=schedule, microbatches=microbatches, stages_per_rank=chunks
    )
    plain = StrategyTable(pipeline_parallel=ranks, schedule="1f1b", microbatches=microbatches)
    per_rank_s = (FORWARD_S + BACKWARD_S) * microbatches * chunks
    found = bubble(run(compiled(strategy, strategy.stages)), ranks, per_rank_s)
    ideal = ideal_bubble(schedule, ranks, chunks, microbatches)
    fused = bubble(run(compiled(plain, ranks)), ranks, (FORWARD_S + BACKWARD_S) * microbatches)
    assert ideal - 1e-9 <= found <= ideal + 0.05
    assert found < fused


def test_a_layer_split_leaves_all_ranks_but_one_idle() -> None:
    strategy = StrategyTable(pipeline_parallel=4, schedule="layer-split")
    timeline = run(compiled(strategy, 4))
    assert float(timeline.step_time[0]) == pytest.approx(4 * (FORWARD_S + BACKWARD_S))
    parts = timeline.breakdown("rank 0 compute stream")
    assert float(parts["bubble"][0]) == pytest.approx(3 * (FORWARD_S + BACKWARD_S))


def test_the_slowest_stage_sets_the_pace_of_an_uneven_pipeline() -> None:
    strategy = StrategyTable(pipeline_parallel=2, schedule="1f1b", microbatches=32, stage_blocks=(1, 3))
    step_s = float(run(compiled(strategy, 4)).step_time[0])
    slow = 3 * (FORWARD_S + BACKWARD_S) * 32
    assert slow < step_s <= slow + 2 * (FORWARD_S + BACKWARD_S)


def test_handovers_delay_by_their_own_time() -> None:
    strategy = StrategyTable(pipeline_parallel=2, schedule="layer-split")
    graph = compiled(strategy, 2)
    durations = np.array([0.25 if task.kind is Kind.HANDOVER else 0.0 for task in graph.tasks])[:, None]
    assert float(graph.evaluate(durations).step_time[0]) == pytest.approx(2 * 0.25)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_microbatch_is_computed_once_by_each_stage(schedule: str) -> None:
    strategy = StrategyTable(
        pipeline_parallel=4, schedule=schedule, microbatches=None if schedule == "layer-split" else 8
    )
    graph = compiled(strategy, strategy.stages)
    work = [charge for task in graph.tasks for charge in task.charges if isinstance(charge, Compute)]
    for phase in ("forward", "backward"):
        total = sum(charge.times for charge in work if charge.phase == phase)
        assert total == pytest.approx(strategy.stages * strategy.passes)


def test_1f1b_keeps_as_many_microbatches_as_stages_follow_and_gpipe_all() -> None:
    one = StrategyTable(pipeline_parallel=4, schedule="1f1b", microbatches=16)
    all_at_once = StrategyTable(pipeline_parallel=4, schedule="gpipe", microbatches=16)
    assert microbatches_in_flight(one) == (4, 3, 2, 1)
    assert microbatches_in_flight(all_at_once) == (16,) * 4


def test_stages_get_blocks_evenly_and_the_ends() -> None:
    strategy = StrategyTable(pipeline_parallel=4)
    assert stage_blocks(blocks(10), strategy) == [[-1, 0, 1, 2], [3, 4, 5], [6, 7], [8, 9, 10]]


def test_a_graph_has_one_rank_a_stage_however_many_copies_there_are() -> None:
    graph = build_synchronous(
        blocks(4), StrategyTable(pipeline_parallel=4, tensor_parallel=8, microbatches=8), "nccl", WIDTHS
    )
    assert isinstance(graph, TaskGraph)
    assert len({task.resource for task in graph.tasks if "compute" in task.resource}) == 4
    assert graph.digraph.number_of_nodes() == len(graph.tasks)


def test_wide_graphs_are_evaluated_level_by_level_to_the_same_ends() -> None:
    graph = compiled(StrategyTable(pipeline_parallel=16, schedule="1f1b", microbatches=64), 16)
    durations = np.random.default_rng(0).uniform(0.1, 1.0, (len(graph.tasks), 5))
    assert graph._is_wide
    np.testing.assert_allclose(graph._ends_by_level(durations), graph._ends_one_by_one(durations))
