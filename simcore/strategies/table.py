"""The strategies that can be predicted, by the name that a scenario gives them."""

from __future__ import annotations

from collections.abc import Callable

from simcore.graph.tasks import TaskGraph
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.ddp import build_ddp
from simcore.workload.step import StepShape

Builder = Callable[[StepShape, StrategyTable, str], TaskGraph]

STRATEGIES: dict[str, Builder] = {"ddp": build_ddp}
