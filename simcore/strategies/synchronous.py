"""A synchronous step on the task graph: any product of tensor, pipeline and data parallelism."""

from __future__ import annotations

from simcore.graph.tasks import TaskGraph
from simcore.scenario.strategy import DDP_BASED, StrategyTable
from simcore.strategies.ddp import lay_accumulated_passes
from simcore.strategies.pipeline import lay_pipeline
from simcore.strategies.rank import Rank
from simcore.strategies.stage import StageLayer
from simcore.strategies.tensor import divide
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape


def build_synchronous(shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths) -> TaskGraph:
    """The graph of one step: one rank for all equal ones, so one for each place in the pipeline.

    Raises ``ValueError`` where the model has too few blocks for the pipeline.
    """
    graph = TaskGraph()
    shape = divide(shape, strategy)
    if strategy.pipeline_parallel > 1:
        lay_pipeline(graph, shape, strategy, backend, widths)
    else:
        _lay_whole(Rank(graph, backend), shape, strategy, widths)
    return graph


def _lay_whole(rank: Rank, shape: StepShape, strategy: StrategyTable, widths: Widths) -> None:
    """A model that is not cut."""
    stage = StageLayer(rank, shape, list(shape.all_blocks), strategy, widths)
    stage.open()
    if strategy.data in DDP_BASED:
        lay_accumulated_passes(rank, shape, strategy, widths)
    else:
        for _ in range(strategy.gradient_accumulation - 1):
            stage.forward_by_block()
            stage.backward_by_block(synchronise=False)
    stage.forward_by_block()
    stage.synchronised_backward()
    stage.finish()
    stage.update()
