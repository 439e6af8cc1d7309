"""The engine against closed forms and against networkx's own longest path; folding changes nothing."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.graph.compiled import compile_graph, fold
from simcore.graph.tasks import Kind, Task, TaskGraph


def task(name: str, resource: str, kind: Kind = Kind.BACKWARD) -> Task:
    return Task(name, kind, resource, ())


@st.composite
def graphs(draw: st.DrawFn) -> tuple[TaskGraph, list[float]]:
    """Random graphs over three resources, each task after up to two earlier ones, with durations."""
    graph = TaskGraph()
    count = draw(st.integers(1, 30))
    for number in range(count):
        after = draw(st.sets(st.integers(0, number - 1), max_size=2)) if number else set()
        graph.add(task(str(number), draw(st.sampled_from("abc"))), after)
    durations = draw(st.lists(st.floats(0, 10), min_size=count, max_size=count))
    return graph, durations


def longest_path(graph: TaskGraph, durations: list[float]) -> float:
    """The same by networkx: a vertex's duration on the edges that leave it, to a common end."""
    weighted = nx.DiGraph()
    for number, duration in enumerate(durations):
        weighted.add_edge(number, "end", weight=duration)
        for later in graph.digraph.successors(number):
            weighted.add_edge(number, later, weight=duration)
    return float(nx.dag_longest_path_length(weighted))


@given(graphs())
def test_the_step_is_the_longest_path(built: tuple[TaskGraph, list[float]]) -> None:
    graph, durations = built
    timeline = compile_graph(graph).evaluate(np.array(durations)[:, None])
    assert timeline.step_time[0] == pytest.approx(longest_path(graph, durations), abs=1e-9)


@given(graphs())
def test_folding_keeps_the_step(built: tuple[TaskGraph, list[float]]) -> None:
    graph, durations = built
    compiled = compile_graph(graph)
    folded = fold(compiled)
    whole = compiled.evaluate(np.array(durations)[:, None]).step_time[0]
    assert folded.graph.evaluate(folded.sum(np.array(durations)[:, None])).step_time[0] == pytest.approx(
        whole, abs=1e-9
    )


@given(graphs(), st.integers(0, 29), st.floats(0, 1))
def test_a_shorter_task_never_lengthens_the_step(
    built: tuple[TaskGraph, list[float]], which: int, factor: float
) -> None:
    graph, durations = built
    compiled = compile_graph(graph)
    shorter = list(durations)
    shorter[which % len(durations)] *= factor
    steps = compiled.evaluate(np.array([durations, shorter]).T).step_time
    assert steps[1] <= steps[0] + 1e-9


@given(graphs())
def test_the_breakdown_of_any_stream_sums_to_the_step(built: tuple[TaskGraph, list[float]]) -> None:
    graph, durations = built
    timeline = compile_graph(graph).evaluate(np.array(durations)[:, None])
    parts = timeline.breakdown(graph.tasks[0].resource)
    assert sum(part[0] for part in parts.values()) == pytest.approx(timeline.step_time[0], abs=1e-9)
    assert all(part[0] >= -1e-9 for part in parts.values())


@given(graphs())
def test_the_critical_path_is_tight(built: tuple[TaskGraph, list[float]]) -> None:
    graph, durations = built
    timeline = compile_graph(graph).evaluate(np.array(durations)[:, None])
    path = timeline.critical_path()
    assert sum(durations[number] for number in path) == pytest.approx(timeline.step_time[0], abs=1e-9)


def test_resources_run_in_issue_order() -> None:
    graph = TaskGraph()
    slow = graph.add(task("slow", "compute"))
    graph.add(task("late", "link"), after=[slow])
    graph.add(task("early but issued later", "link"))
    timeline = compile_graph(graph).evaluate(np.array([[5.0], [1.0], [1.0]]))
    assert timeline.end[:, 0].tolist() == [5.0, 6.0, 7.0]


def test_overlap_is_the_shared_part_of_a_task() -> None:
    graph = TaskGraph()
    graph.add(task("first", "compute"))
    start = graph.add(task("second", "compute"))
    graph.add(task("transfer", "link", Kind.COMMUNICATION), after=[0])
    timeline = compile_graph(graph).evaluate(np.array([[1.0], [4.0], [1.0]]))
    share = timeline.overlap_share(np.array([0, start]), np.array([2]))
    assert share[:, 0].tolist() == [0.0, 0.25]
