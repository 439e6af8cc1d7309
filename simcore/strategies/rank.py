"""One representative rank as a step is laid on the graph: its compute stream, its collectives' workers, its link.

Sources: NCCL runs the collectives of a group one after the other on a stream; gloo hands them to two worker threads, so
that two may share the link.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from simcore.graph.tasks import LINK, Axis, Charge, Kind, Task, TaskGraph, Transfer
from simcore.profile.fitted import Collective

COLLECTIVES_IN_FLIGHT = {"nccl": 1, "gloo": 2}


@dataclass
class Rank:
    """A rank's streams on a graph. ``name`` stands before every task and resource where there are several ranks."""

    graph: TaskGraph
    backend: str
    name: str = ""
    _started: list[int] = field(default_factory=list)

    @property
    def compute(self) -> str:
        """The stream on which this rank computes."""
        return f"{self.name}compute stream"

    def run(self, name: str, kind: Kind, charges: tuple[Charge, ...], after: Iterable[int] = ()) -> int:
        """A task on the compute stream; returns its number."""
        return self.graph.add(Task(f"{self.name}{name}", kind, self.compute, charges), after)

    def block_on(self, name: str, transfers: tuple[Transfer, ...], after: Iterable[int] = ()) -> int:
        """Collectives that the compute stream itself waits for, one after the other; returns their task."""
        return self.run(name, Kind.COMMUNICATION, transfers, after)

    def beside(self, name: str, transfers: tuple[Transfer, ...], after: Iterable[int]) -> int:
        """Transfers on a stream of their own; returns their task."""
        return self.graph.add(Task(f"{self.name}{name}", Kind.COMMUNICATION, f"{self.name}ring", transfers), after)

    def start(
        self,
        name: str,
        collective: Collective,
        size_bytes: float,
        after: Iterable[int],
        axis: Axis = "replicate",
    ) -> int:
        """A collective beside compute: its latency on a worker of the group, then its bytes on the link.

        Returns the task that ends it.
        """
        in_flight = COLLECTIVES_IN_FLIGHT[self.backend]
        worker = f"{self.name}collective worker {len(self._started) % in_flight}"
        before = [*after, *self._started[-in_flight:][: len(self._started) >= in_flight]]
        latency = Transfer(collective, size_bytes, "latency", axis)
        wire = Transfer(collective, size_bytes, "wire", axis)
        first = self.graph.add(Task(f"{self.name}{name} latency", Kind.COMMUNICATION, worker, (latency,)), before)
        last = self.graph.add(Task(f"{self.name}{name}", Kind.COMMUNICATION, f"{self.name}{LINK}", (wire,)), [first])
        self._started.append(last)
        return last
