"""Planning a step: a strategy's graph, compiled and charged once for everything that shares its structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from simcore.costs.charge import At, Charges, charge
from simcore.costs.resolve import Costs
from simcore.errors import InputError
from simcore.graph.compiled import compile_graph
from simcore.scenario.schema import Scenario
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.asynchronous import queue_up
from simcore.strategies.event_loop import Steady
from simcore.strategies.groups import groups_of
from simcore.strategies.table import BY_COUNT, STRATEGIES
from simcore.strategies.widths import Widths, widths_of
from simcore.workload.step import StepShape

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A planned step: charges on its whole graph for those who look at it, and on its folded one for its time.

    ``lanes`` are the compute streams of its representative ranks.
    """

    strategy: StrategyTable
    whole: Charges
    folded: Charges
    lanes: tuple[str, ...]

    def durations(
        self, charges: Charges, costs: Costs, points: Sequence[At], factors: Sequence[float] = (1.0,)
    ) -> Array:
        """Seconds of each task of one of the plan's graphs, ``[tasks, factors · points]``."""
        return self.settled(charges, costs, points, factors)[0]

    def settled(
        self, charges: Charges, costs: Costs, points: Sequence[At], factors: Sequence[float] = (1.0,)
    ) -> tuple[Array, list[Steady]]:
        """The same, and what workers without a barrier settle into, column by column (nothing where there is one)."""
        durations = charges.durations(costs, points, factors)
        if self.strategy.synchronous:
            return durations, []
        return queue_up(charges, durations, costs, points, self.strategy)


def points_of(scenario: Scenario, counts: Sequence[int]) -> list[At]:
    """What to charge for at each count of GPUs."""
    return [At(scenario.microbatch(count), count, groups_of(scenario.strategy, count)) for count in counts]


def plan_for(scenario: Scenario, costs: Costs, gpus: int, where: str) -> StepPlan:
    """The plan of a scenario's step at a count. Raises ``InputError`` where the model cannot be divided so."""
    strategy = scenario.strategy
    count = gpus if strategy.data in BY_COUNT else 0
    widths = widths_of(scenario.workload.precision)
    try:
        return plan_step(costs.compute.shape, strategy, costs.backend, widths, count)
    except ValueError as error:
        raise InputError(f"{where}: strategy: {error}") from None


@lru_cache(maxsize=256)
def plan_step(shape: StepShape, strategy: StrategyTable, backend: str, widths: Widths, gpus: int = 0) -> StepPlan:
    """The plan of a strategy on a workload's shape; the same arguments give the same plan, built once.

    ``gpus`` counts only where the graph depends on it. Raises ``ValueError`` where the model cannot be divided so.
    """
    graph = compile_graph(STRATEGIES[strategy.data](shape, strategy, backend, widths, gpus))
    lanes = dict.fromkeys(task.resource for task in graph.tasks if task.resource.endswith("compute stream"))
    return StepPlan(strategy, *charge(graph, len(shape.forward), len(shape.backward)), tuple(lanes))
