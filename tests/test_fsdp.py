"""FSDP on the graph: what is gathered and scattered, what overlaps on NCCL, and that gloo overlaps nothing."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.graph.compiled import Timeline, compile_graph
from simcore.graph.tasks import Compute, Kind, TaskGraph, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.synchronous import build_synchronous
from simcore.strategies.widths import Widths
from tests.test_pipeline import WIDTHS, blocks

BLOCKS = 6


def graph_of(backend: str, widths: Widths = WIDTHS, **options: object) -> TaskGraph:
    return build_synchronous(blocks(BLOCKS), StrategyTable(data="fsdp", **options), backend, widths)  # type: ignore[arg-type]


def run(graph: TaskGraph, gather_s: float, scatter_s: float) -> Timeline:
    """A block takes 1 s forward and 2 backward; each gather and scatter what is said."""
    seconds = {"forward": 1.0, "backward": 2.0, "optimizer": 0.0}
    collectives = {"all_gather": gather_s, "reduce_scatter": scatter_s, "all_reduce": 0.0}

    def duration(charge: object) -> float:
        if isinstance(charge, Compute):
            return seconds[charge.phase] * charge.times
        if isinstance(charge, Transfer) and charge.part != "latency":
            return collectives[charge.collective] * charge.times
        return 0.0

    durations = [sum(map(duration, task.charges)) for task in graph.tasks]
    return compile_graph(graph).evaluate(np.array(durations)[:, None])


def count(graph: TaskGraph, collective: str) -> int:
    charges = [charge for task in graph.tasks for charge in task.charges if isinstance(charge, Transfer)]
    return sum(charge.collective == collective and charge.part != "latency" for charge in charges)


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_zero3_gathers_twice_and_zero2_once(backend: str) -> None:
    assert count(graph_of(backend), "all_gather") == 2 * BLOCKS
    zero2 = build_synchronous(blocks(BLOCKS), StrategyTable(data="zero2"), backend, WIDTHS)
    assert count(zero2, "all_gather") == BLOCKS
    assert count(graph_of(backend), "reduce_scatter") == count(zero2, "reduce_scatter") == BLOCKS


def test_hybrid_shards_reduce_among_their_replicates() -> None:
    graph = graph_of("nccl", shard_size=2)
    reduced = [c for t in graph.tasks for c in t.charges if isinstance(c, Transfer) and c.collective == "all_reduce"]
    assert {charge.axis for charge in reduced} == {"replicate"}
    assert count(graph, "all_reduce") == BLOCKS


def test_accumulated_passes_scatter_once_and_gather_each_time() -> None:
    graph = graph_of("nccl", gradient_accumulation=3)
    assert count(graph, "reduce_scatter") == BLOCKS
    assert count(graph, "all_gather") == 3 * 2 * BLOCKS


def test_on_gloo_nothing_overlaps() -> None:
    step_s = float(run(graph_of("gloo"), gather_s=0.5, scatter_s=0.25).step_time[0])
    assert step_s == pytest.approx(BLOCKS * (1 + 2 + 2 * 0.5 + 0.25))


def test_on_nccl_what_is_shorter_than_compute_hides_but_for_the_ends() -> None:
    """Exposed are the first gather, and the last scatter."""
    step_s = float(run(graph_of("nccl"), gather_s=0.5, scatter_s=0.25).step_time[0])
    assert step_s == pytest.approx(BLOCKS * (1 + 2) + 0.5 + 0.25, abs=0.51)


def test_a_network_bound_step_is_its_collectives() -> None:
    step_s = float(run(graph_of("nccl"), gather_s=10.0, scatter_s=10.0).step_time[0])
    assert step_s == pytest.approx(3 * BLOCKS * 10.0, rel=0.1)


def test_gathering_further_ahead_never_lengthens_a_step() -> None:
    one, three = (float(run(graph_of("nccl", prefetch=n), 1.5, 0.5).step_time[0]) for n in (1, 3))
    assert three <= one + 1e-9


def test_mixed_precision_gathers_half_the_bytes() -> None:
    def gathered(widths: Widths) -> float:
        graph = graph_of("nccl", widths)
        charges = [
            c for t in graph.tasks for c in t.charges if isinstance(c, Transfer) and c.collective == "all_gather"
        ]
        return sum(charge.size_bytes for charge in charges)

    assert gathered(Widths(4, 2, 2)) == gathered(WIDTHS) / 2


def test_every_block_is_computed_once() -> None:
    for backend in ("nccl", "gloo"):
        graph = graph_of(backend)
        kinds = [task.kind for task in graph.tasks]
        assert kinds.count(Kind.FORWARD) == kinds.count(Kind.BACKWARD) == BLOCKS
