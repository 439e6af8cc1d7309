"""A task graph as arrays, and its evaluation: end = latest predecessor's end + duration, for all columns at once.

Columns are the points of a sweep times the samples of an uncertainty, so one pass gives a curve with its band.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simcore.graph.tasks import COMMUNICATES, Kind, Task, TaskGraph

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

WIDE = 4
"""Tasks a level from which on it is quicker to evaluate whole levels at once."""


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
        return self._ends_by_level(durations) if self._is_wide else self._ends_one_by_one(durations)

    @cached_property
    def _levels(self) -> tuple[tuple[Indices, Indices | None], ...]:
        """Tasks that wait only for earlier levels, with what they wait for ``[tasks, most]`` (repeated to fill up)."""
        level: list[int] = []
        for before in self.predecessors:
            level.append(max((level[earlier] for earlier in before), default=-1) + 1)
        members: list[list[int]] = [[] for _ in range(max(level, default=-1) + 1)]
        for number, depth in enumerate(level):
            members[depth].append(number)
        return tuple((np.array(numbers, dtype=np.intp), self._waited_for_by(numbers)) for numbers in members)

    def _waited_for_by(self, numbers: list[int]) -> Indices | None:
        most = max(len(self.predecessors[number]) for number in numbers)
        if not most:
            return None
        rows = [self.predecessors[number] for number in numbers]
        return np.array([row + row[-1:] * (most - len(row)) for row in rows], dtype=np.intp)

    @cached_property
    def _is_wide(self) -> bool:
        return len(self.tasks) > WIDE * max(1, len(self._levels))

    def _ends_by_level(self, durations: Array) -> Array:
        ends = np.empty_like(durations)
        for numbers, before in self._levels:
            if before is None:
                ends[numbers] = durations[numbers]
                continue
            latest = ends[before[:, 0]]
            for column in range(1, before.shape[1]):
                np.maximum(latest, ends[before[:, column]], out=latest)
            latest += durations[numbers]
            ends[numbers] = latest
        return ends

    def _ends_one_by_one(self, durations: Array) -> Array:
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

        Idle time is *exposed communication* as far as the stream waits for a transfer that runs, *bubble* where it
        waits for the stage behind that transfer, else *wait*; each in seconds, ``[columns]``.
        """
        columns = self.end.shape[1]
        parts = {kind.value: np.zeros(columns) for kind in Kind if kind not in COMMUNICATES}
        parts |= {name: np.zeros(columns) for name in ("exposed_communication", "bubble", "wait")}
        clock: Array = np.zeros(columns)
        for number, task in enumerate(self.graph.tasks):
            if task.resource != resource:
                continue
            self._divide_idle(parts, number, self.start[number] - clock)
            busy = "exposed_communication" if task.kind in COMMUNICATES else task.kind.value
            parts[busy] += self.end[number] - self.start[number]
            clock = self.end[number]
        pipelined = any(task.kind is Kind.HANDOVER for task in self.graph.tasks)
        parts["bubble" if pipelined else "exposed_communication"] += self.step_time - clock
        return parts

    def _divide_idle(self, parts: dict[str, Array], number: int, idle: Array) -> None:
        """Add the time that a stream was idle before a task to what it waited for."""
        before = self.graph.predecessors[number]
        kinds = {self.graph.tasks[earlier].kind for earlier in before}
        if Kind.HANDOVER in kinds:
            handovers = [earlier for earlier in before if self.graph.tasks[earlier].kind is Kind.HANDOVER]
            handover = (self.end[handovers] - self.start[handovers]).max(axis=0)
            exposed = np.minimum(idle, handover)
            parts["exposed_communication"] += exposed
            parts["bubble"] += idle - exposed
        else:
            parts["exposed_communication" if Kind.COMMUNICATION in kinds else "wait"] += idle

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
    """``graph`` as arrays."""
    return CompiledGraph(tuple(graph.tasks), tuple(graph.predecessors))


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
