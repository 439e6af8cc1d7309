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

from simcore.profile.fitted import Collective, Framework


class Kind(StrEnum):
    """What a task does, as breakdowns name it."""

    FORWARD = "forward"
    BACKWARD = "backward"
    COMMUNICATION = "communication"
    HANDOVER = "handover"
    OPTIMIZER = "optimizer"
    HOST = "host"


COMMUNICATES = (Kind.COMMUNICATION, Kind.HANDOVER)
"""A handover passes an activation or its gradient to the next stage: who waits for it waits for that stage, too."""

Axis = Literal["replicate", "shard", "copies", "tensor", "context", "expert", "pipeline", "server"]
"""The ranks that a collective joins: those that differ only along this axis of the mesh."""


LINK = "link"
"""The link of the one rank that stands for all."""


@dataclass(frozen=True, slots=True)
class Compute:
    """A charge: ``times`` passes through one forward layer, one backward piece or the optimizer.

    The optimizer has no ``index``; its step may be ``shared_by`` the ranks of an axis.
    """

    phase: Literal["forward", "backward", "optimizer"]
    index: int = 0
    times: float = 1.0
    shared_by: Axis | None = None


@dataclass(frozen=True, slots=True)
class Overhead:
    """A charge: what a part of the framework itself spends on so many steps, tensors and bytes copied.

    ``activation_bytes`` are copied for each sample.
    """

    steps: float = 0.0
    tensors: float = 0.0
    size_bytes: float = 0.0
    of: Framework = "ddp"
    activation_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Transfer:
    """A charge: ``times`` one part of a collective over the ranks of an axis.

    ``latency`` is the time in which others may use the link, ``wire`` the time during which it is taken, ``all`` both.
    ``size_bytes`` is that of one sample where the transfer is of ``activations``; ``per`` rank of an axis it happens
    again.
    """

    collective: Collective
    size_bytes: float
    part: Literal["latency", "wire", "all"]
    axis: Axis = "replicate"
    activations: bool = False
    times: float = 1.0
    per: Axis | None = None


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

    tasks: list[Task] = field(default_factory=list)
    predecessors: list[tuple[int, ...]] = field(default_factory=list)
    _last_on: dict[str, int] = field(default_factory=dict)

    def add(self, task: Task, after: Iterable[int] = ()) -> int:
        """Issue ``task`` on its resource after the tasks with the given numbers; returns its own number.

        Raises ``ValueError`` where one of them is not issued yet: the graph would have a cycle.
        """
        number = len(self.tasks)
        before = tuple(after)
        previous = self._last_on.get(task.resource)
        if previous is not None and previous not in before:
            before = (*before, previous)
        for earlier in before:
            if earlier >= number:
                raise ValueError(f"task {task.name!r} waits for task {earlier}, which is not issued yet")
        self.tasks.append(task)
        self.predecessors.append(before)
        self._last_on[task.resource] = number
        return number

    @property
    def digraph(self) -> nx.DiGraph:
        """The graph for whoever wants to look at it with networkx: vertices by number, each with its ``task``."""
        digraph = nx.DiGraph()
        for number, task in enumerate(self.tasks):
            digraph.add_node(number, task=task)
        digraph.add_edges_from(
            (earlier, number) for number, before in enumerate(self.predecessors) for earlier in before
        )
        return digraph
