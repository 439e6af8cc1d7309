"""Planning a step: a strategy's graph, compiled and charged once for everything that shares its structure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from simcore.costs.charge import Charges, charge
from simcore.graph.compiled import compile_graph
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.table import STRATEGIES
from simcore.workload.step import StepShape


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A planned step: charges on its whole graph for those who look at it, and on its folded one for its time."""

    whole: Charges
    folded: Charges


@lru_cache(maxsize=256)
def plan_step(shape: StepShape, strategy: StrategyTable, backend: str) -> StepPlan:
    """The plan of a strategy on a workload's shape; the same arguments give the same plan, built once."""
    graph = compile_graph(STRATEGIES[strategy.data](shape, strategy, backend))
    return StepPlan(*charge(graph, len(shape.forward), len(shape.backward)))
