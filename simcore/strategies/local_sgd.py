"""Local SGD on the task graph: an average step of a round that ends in one all-reduce of all parameters.

Sources: Stich 2018; torch's ``average_parameters`` (copies parameters together, sums them, copies them back); DiLoCo
(Douillard et al. 2023), whose outer step also copies the change and the agreed parameters.
"""

from __future__ import annotations

from simcore.graph.tasks import Compute, Kind, Overhead, TaskGraph, Transfer
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.inside import Passes
from simcore.strategies.rank import Rank
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape

COPIES = {"average": 1.0, "nesterov": 2.5}
"""Copies of all parameters around the all-reduce, each a read and a write, in and out."""


def build_local_sgd(shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths) -> TaskGraph:
    """The graph of a step with its part of the synchronisation that ends the round."""
    graph = TaskGraph()
    rank = Rank(graph, backend)
    Passes(rank, shape, strategy, widths).whole()
    rank.run("optimizer", Kind.OPTIMIZER, (Compute("optimizer"),))
    part = 1 / strategy.sync_every
    size_bytes = shape.parameter_elements * widths.parameter
    copies = Overhead(size_bytes=COPIES[strategy.outer_optimizer] * size_bytes * part)
    rank.run("copy parameters", Kind.HOST, (copies,))
    rank.block_on("agree", (Transfer("all_reduce", size_bytes, "all", "copies", times=part),))
    return graph
