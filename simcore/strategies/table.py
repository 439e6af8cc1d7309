"""The strategies that can be predicted, by the name that a scenario gives them."""

from __future__ import annotations

from collections.abc import Callable

from simcore.graph.tasks import TaskGraph
from simcore.scenario.strategy import StrategyTable
from simcore.strategies.asynchronous import build_hogwild, build_parameter_server
from simcore.strategies.data_parallel import build_data_parallel
from simcore.strategies.local_sgd import build_local_sgd
from simcore.strategies.synchronous import build_synchronous
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape

Builder = Callable[[StepShape, StrategyTable, str, Widths, int], TaskGraph]
"""From a shape, a strategy, a backend, the widths of elements and a count of GPUs to the graph of a step."""


def _for_any_count(build: Callable[[StepShape, StrategyTable, str, Widths], TaskGraph]) -> Builder:
    return lambda shape, strategy, backend, widths, _: build(shape, strategy, backend, widths)


STRATEGIES: dict[str, Builder] = {
    "dp": build_data_parallel,
    "ddp": _for_any_count(build_synchronous),
    "zero1": _for_any_count(build_synchronous),
    "zero2": _for_any_count(build_synchronous),
    "fsdp": _for_any_count(build_synchronous),
    "local-sgd": _for_any_count(build_local_sgd),
    "async-ps": _for_any_count(build_parameter_server),
    "hogwild": _for_any_count(build_hogwild),
}

BY_COUNT = ("dp",)
"""Strategies whose graph itself, not only its costs, depends on the count of GPUs."""
