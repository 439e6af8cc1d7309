"""NVLink rings: how many closed ways through a set of GPUs their bridges and meshes offer at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import pairwise

from simcore.topology.node import NvLink

Links = dict[tuple[int, int], int]


@cache
def nvlink_rings(nvlinks: tuple[NvLink, ...], gpus: int) -> int:
    """Rings through the first ``gpus`` GPUs that share no link's direction; a link carries one each way.

    A ring may be run in both directions at once, as NVLinks are duplex: two for every circuit, but one a link where
    two GPUs are the whole ring. On the mesh of a DGX-1: 1, 2, 4, 0, 2, 4 and 6 for two to eight GPUs.
    """
    links = _links_among(nvlinks, gpus)
    if gpus == 2:
        return links.get((0, 1), 0)
    return 2 * len(nvlink_circuits(nvlinks, gpus))


@cache
def nvlink_circuits(nvlinks: tuple[NvLink, ...], gpus: int) -> tuple[tuple[int, ...], ...]:
    """The circuits behind those rings: the GPUs in the order in which each goes round, for three GPUs and more."""
    return _packed(_links_among(nvlinks, gpus), list(_circuits(_links_among(nvlinks, gpus), gpus)))


def links_between(nvlinks: Sequence[NvLink], first: int, second: int) -> int:
    """NVLinks that join two GPUs directly."""
    return sum(count for a, b, count in nvlinks if {a, b} == {first, second})


def _links_among(nvlinks: Sequence[NvLink], gpus: int) -> Links:
    links: Links = {}
    for first, second, count in nvlinks:
        if max(first, second) < gpus:
            pair = (min(first, second), max(first, second))
            links[pair] = links.get(pair, 0) + count
    return links


def _circuits(links: Links, gpus: int) -> Iterator[tuple[int, ...]]:
    """Every way round all GPUs, once whichever way it is walked."""

    def walk(path: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(path) == gpus:
            if _pair(path[-1], 0) in links and path[1] < path[-1]:
                yield path
            return
        for follower in range(1, gpus):
            if follower not in path and _pair(path[-1], follower) in links:
                yield from walk((*path, follower))

    yield from walk((0,))


def _packed(links: Links, circuits: list[tuple[int, ...]], most: int = 8) -> tuple[tuple[int, ...], ...]:
    """As many circuits as fit on the links together."""
    # No more than half the links of the poorest GPU; a search that reaches it can stop.
    degree: dict[int, int] = {}
    for (first, second), count in links.items():
        degree[first] = degree.get(first, 0) + count
        degree[second] = degree.get(second, 0) + count
    bound = min([most, *(count // 2 for count in degree.values())])
    pairs = [[_pair(first, second) for first, second in pairwise((*circuit, 0))] for circuit in circuits]
    best: list[int] = []

    def add(start: int, taken: list[int]) -> None:
        nonlocal best
        if len(taken) > len(best):
            best = taken
        for index in range(start, len(circuits)):
            if len(best) == bound:
                return
            if all(links[pair] > 0 for pair in pairs[index]):
                for pair in pairs[index]:
                    links[pair] -= 1
                add(index, [*taken, index])
                for pair in pairs[index]:
                    links[pair] += 1

    add(0, [])
    return tuple(circuits[index] for index in best)


def _pair(first: int, second: int) -> tuple[int, int]:
    return min(first, second), max(first, second)
