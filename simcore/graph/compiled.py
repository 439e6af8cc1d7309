"""A task graph as arrays, and its evaluation: end = latest predecessor's end + duration, for all columns at once.

Columns are the points of a sweep times the samples of an uncertainty, so one pass gives a curve with its band.
"""

from __future__ import annotations

from dataclasses import dataclass

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from simcore.graph.tasks import Kind, Task, TaskGraph

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class CompiledGraph:
    """Tasks in issue order, and for each the numbers of the tasks that must have ended before it starts."""

    tasks: tuple[Task, ...]
    predecessors: tuple[tuple[int, ...], ...]

    def numbers(self, *kinds: Kind, resource: str | None = None) -> Indices:
        """The numbers of the tasks of some kinds, on one resource where it is named, in issue order."""
        return np.array(
            [
                number
                for number, task in enumerate(self.tasks)
                if task.kind in kinds and resource in (None, task.resource)
            ],
            dtype=np.intp,
        )

    def ends(self, durations: Array) -> Array:
        """When each task ends, seconds, given durations in seconds; both ``[tasks, columns]``."""
        ends = np.empty_like(durations)
        for number, before in enumerate(self.predecessors):
            if len(before) == 1:
                np.add(ends[before[0]], durations[number], out=ends[number])
            elif before:
                row = np.maximum(ends[before[0]], ends[before[1]], out=ends[number])
                for other in before[2:]:
                    np.maximum(row, ends[other], out=row)
                row += durations[number]
            else:
                ends[number] = durations[number]
        return ends

    def evaluate(self, durations: Array) -> Timeline:
        """When each task starts and ends, given durations ``[tasks, columns]`` in seconds."""
        ends = self.ends(durations)
        return Timeline(self, ends - durations, ends)


@dataclass(frozen=True)
class Timeline:
    """Start and end of each task, seconds, ``[tasks, columns]``. Every engine yields one; all else reads only this."""

    graph: CompiledGraph
    start: Array
    end: Array

    @property
    def step_time(self) -> Array:
        """The length of the step, seconds, ``[columns]``."""
        ends: Array = self.end.max(axis=0)
        return ends

    def critical_path(self, column: int = 0) -> list[int]:
        """The tasks, in order, none of which can grow without the step growing."""
        end = self.end[:, column].tolist()
        task = max(range(len(end)), key=end.__getitem__)
        path = [task]
        while before := self.graph.predecessors[task]:
            task = max(before, key=end.__getitem__)
            path.append(task)
        return path[::-1]

    def breakdown(self, resource: str) -> dict[str, Array]:
        """Where the step goes as one stream sees it: its busy time by kind, and its idle time; sums to the step.

        Idle time is *exposed communication* where the stream waits for a collective, else *wait*; each in seconds,
        ``[columns]``.
        """
        columns = self.end.shape[1]
        parts = {kind.value: np.zeros(columns) for kind in Kind if kind is not Kind.COMMUNICATION}
        parts |= {"exposed_communication": np.zeros(columns), "wait": np.zeros(columns)}
        clock: Array = np.zeros(columns)
        for number, task in enumerate(self.graph.tasks):
            if task.resource != resource:
                continue
            parts[self._waited_for(number)] += self.start[number] - clock
            parts[task.kind.value] += self.end[number] - self.start[number]
            clock = self.end[number]
        parts["exposed_communication"] += self.step_time - clock
        return parts

    def _waited_for(self, number: int) -> str:
        kinds = {self.graph.tasks[earlier].kind for earlier in self.graph.predecessors[number]}
        return "exposed_communication" if Kind.COMMUNICATION in kinds else "wait"

    def overlap_share(self, tasks: Indices, others: Indices) -> Array:
        """Which part of each of ``tasks`` ran while any of ``others`` did, ``[tasks, columns]``, 0 to 1.

        ``others`` must not overlap each other in time (the tasks of one resource do not).
        """
        start, end = self.start[tasks][:, None], self.end[tasks][:, None]
        shared = np.minimum(end, self.end[others][None]) - np.maximum(start, self.start[others][None])
        length = self.end[tasks] - self.start[tasks]
        overlap = np.maximum(shared, 0.0).sum(axis=1)
        share: Array = np.divide(overlap, length, out=np.zeros_like(overlap), where=length > 0)
        return share


def compile_graph(graph: TaskGraph) -> CompiledGraph:
    """``graph`` as arrays. Raises ``ValueError`` where a task waits for a later one: the graph has a cycle."""
    tasks = graph.tasks
    digraph: nx.DiGraph = graph.digraph
    predecessors = tuple(tuple(sorted(digraph.pred[number])) for number in range(len(tasks)))
    for number, before in enumerate(predecessors):
        if before and before[-1] >= number:
            raise ValueError(f"task {tasks[number].name!r} waits for {tasks[before[-1]].name!r}, which is issued later")
    return CompiledGraph(tasks, predecessors)


@dataclass(frozen=True)
class FoldedGraph:
    """A graph whose chains are one task each: what forward and backward mostly are, since nothing joins or leaves them.

    ``first[f]`` is the first of the consecutive tasks that make up folded task ``f``. Same step, same breakdown, a
    tenth of the tasks.
    """

    graph: CompiledGraph
    first: Indices

    def sum(self, durations: Array) -> Array:
        """Durations of the whole graph's tasks ``[tasks, ...]`` as the folded tasks' ``[folded, ...]``."""
        folded: Array = np.add.reduceat(durations, self.first, axis=0)
        return folded


def fold(graph: CompiledGraph) -> FoldedGraph:
    """``graph`` with each chain of consecutive tasks of one kind, joined by nothing else, folded into its first."""
    successors = [0] * len(graph.tasks)
    for before in graph.predecessors:
        for earlier in before:
            successors[earlier] += 1
    first: list[int] = []
    folded_of: list[int] = []
    for number, task in enumerate(graph.tasks):
        previous = graph.tasks[number - 1]
        carries_on = (
            graph.predecessors[number] == (number - 1,)
            and successors[number - 1] == 1
            and (task.kind, task.resource) == (previous.kind, previous.resource)
        )
        if not carries_on:
            first.append(number)
        folded_of.append(len(first) - 1)
    tasks = tuple(graph.tasks[number] for number in first)
    joined = tuple(tuple(sorted({folded_of[earlier] for earlier in graph.predecessors[number]})) for number in first)
    return FoldedGraph(CompiledGraph(tasks, joined), np.array(first, dtype=np.intp))
