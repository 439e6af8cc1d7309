"""The task graph: what a training step consists of, which resource each task takes and what it waits for.

A vertex is a task; its resource is a stream, a link or a processor of one representative rank. Resources run their
tasks in the order in which they were issued, as CUDA streams do: a shorter task can never lengthen a step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

import networkx as nx

from simcore.profile.fitted import Collective


class Kind(StrEnum):
    """What a task does, as breakdowns name it."""

    FORWARD = "forward"
    BACKWARD = "backward"
    COMMUNICATION = "communication"
    OPTIMIZER = "optimizer"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Compute:
    """A charge: ``times`` passes through one forward layer, one backward piece or the optimizer.

    ``index`` None means the whole phase.
    """

    phase: Literal["forward", "backward", "optimizer"]
    index: int | None = None
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class Overhead:
    """A charge: what the framework itself spends on so many steps, gradient tensors and bytes copied."""

    steps: float = 0.0
    tensors: float = 0.0
    size_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A charge: one part of a collective over the data-parallel group.

    ``latency`` is the time in which others may use the link, ``wire`` the time during which it is taken.
    """

    collective: Collective
    size_bytes: float
    part: Literal["latency", "wire"]


Charge = Compute | Overhead | Transfer


@dataclass(frozen=True, slots=True)
class Task:
    """One vertex: its name, what it does, the resource it occupies and what its time is charged for."""

    name: str
    kind: Kind
    resource: str
    charges: tuple[Charge, ...]


@dataclass
class TaskGraph:
    """Tasks in issue order, joined by what they wait for and by their place on their resource."""

    digraph: nx.DiGraph = field(default_factory=nx.DiGraph)
    _last_on: dict[str, int] = field(default_factory=dict)

    def add(self, task: Task, after: Iterable[int] = ()) -> int:
        """Issue ``task`` on its resource after the tasks with the given numbers; returns its own number."""
        number = len(self.digraph)
        resource = task.resource
        self.digraph.add_node(number, task=task)
        self.digraph.add_edges_from((earlier, number) for earlier in after)
        if (previous := self._last_on.get(resource)) is not None:
            self.digraph.add_edge(previous, number)
        self._last_on[resource] = number
        return number

    @property
    def tasks(self) -> tuple[Task, ...]:
        """Every task in issue order, which is a topological order: a task waits only for earlier ones."""
        return tuple(self.digraph.nodes[number]["task"] for number in range(len(self.digraph)))
