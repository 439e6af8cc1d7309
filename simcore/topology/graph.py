"""The cluster as a graph: GPUs, NVLink and PCIe switches, sockets, NICs, leaves, pods and spines, link by link.

The closed forms of ``pace.py`` and ``fabric.py`` answer for clusters of any size; this graph is what they sum up, link
by link, for clusters small enough to draw. Capacities on its edges are what collectives keep of them (GB/s one way).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product, zip_longest

import networkx as nx

from simcore.topology.fabric import FabricTable, Transport
from simcore.topology.node import NodeTable
from simcore.topology.pace import OF_MESH, OF_PCIE, OF_SWITCH, host_gb_per_s, pair_pace, socket_of
from simcore.topology.rings import nvlink_circuits

Edge = tuple[str, str]
SPINE = "spine"


@dataclass(frozen=True)
class ClusterGraph:
    """So many nodes of one type on a fabric."""

    node: NodeTable
    nodes: int
    fabric: FabricTable
    transport: Transport

    @cached_property
    def graph(self) -> nx.DiGraph:
        """Vertices by name (``3/gpu1``, ``3/nic0``, ``leaf2``), edges with ``gb_per_s`` either way.

        The switches of a level are drawn as one where a job cannot tell them apart: traffic spreads over them evenly.
        """
        graph = nx.DiGraph()
        for index in range(self.nodes):
            for one, other, gb_per_s in self._inside(index):
                _join(graph, one, other, gb_per_s)
            if self.nodes > 1:
                for one, other, gb_per_s in self._outside(index):
                    _join(graph, one, other, gb_per_s)
        if self.nodes > 1:
            self._join_blocks(graph)
        return graph

    @cached_property
    def capacity(self) -> dict[Edge, float]:
        """What each edge carries."""
        return {(one, other): data["gb_per_s"] for one, other, data in self.graph.edges(data=True)}

    def _inside(self, index: int) -> Iterator[tuple[str, str, float]]:
        node = self.node
        for gpu in range(node.gpus):
            if node.nvswitch_gb_per_s is not None:
                yield f"{index}/gpu{gpu}", f"{index}/nvswitch", node.nvswitch_gb_per_s * OF_SWITCH
            yield f"{index}/gpu{gpu}", f"{index}/{self._slot(gpu)}", node.pcie_gb_per_s * OF_PCIE
            yield f"{index}/gpu{gpu}", f"{index}/memory{socket_of(node, gpu)}", host_gb_per_s(node, False)
        for first, second, links in node.nvlinks:
            yield f"{index}/gpu{first}", f"{index}/gpu{second}", links * (node.nvlink_gb_per_s or 0.0) * OF_MESH
        for switch in range(node.pcie_switches):
            socket = switch * node.sockets // node.pcie_switches
            yield f"{index}/pcie{switch}", f"{index}/socket{socket}", node.pcie_gb_per_s * OF_PCIE
        for socket in range(1, node.sockets):
            yield f"{index}/socket0", f"{index}/socket{socket}", node.socket_gb_per_s
            yield f"{index}/memory{socket - 1}", f"{index}/memory{socket}", host_gb_per_s(node, True)

    def _slot(self, gpu: int) -> str:
        """What a GPU's slot hangs on."""
        if self.node.pcie_switches:
            return f"pcie{gpu * self.node.pcie_switches // self.node.gpus}"
        return f"socket{gpu * self.node.sockets // self.node.gpus}"

    def _outside(self, index: int) -> Iterator[tuple[str, str, float]]:
        node, efficiency = self.node, self.transport.efficiency
        for nic in range(node.nics):
            place = f"{index}/{self._slot(nic * node.gpus // node.nics)}"
            rate = (node.nic_gb_per_s or 0.0) * efficiency
            yield place, f"{index}/nic{nic}", rate
            yield f"{index}/nic{nic}", self._leaf(index, nic), rate

    def _leaf(self, index: int, nic: int) -> str:
        if self.fabric.kind == "rail":
            return f"rail{nic}"
        blocks = self.fabric.blocks
        return f"{blocks[0].name}{index // blocks[0].nodes}" if blocks else "switch"

    def _join_blocks(self, graph: nx.DiGraph) -> None:
        node_rate = self.node.nics * (self.node.nic_gb_per_s or 0.0) * self.transport.efficiency
        blocks = () if self.fabric.kind == "rail" else self.fabric.blocks
        for inner, outer in zip_longest(blocks, blocks[1:]):
            for place in range(-(-self.nodes // inner.nodes)):
                above = f"{outer.name}{place * inner.nodes // outer.nodes}" if outer else SPINE
                _join(graph, f"{inner.name}{place}", above, node_rate * inner.nodes / inner.taper)

    def ring_load(self) -> dict[Edge, float]:
        """The load of the rings of an all-reduce over all GPUs: bytes over each edge for each byte of bus bandwidth."""
        load: dict[Edge, float] = {}
        channels = list(self._channels())
        for order, nic in channels:
            for edge in self._ring(order, nic):
                load[edge] = load.get(edge, 0.0) + 1 / len(channels)
        return load

    def _channels(self) -> Iterator[tuple[tuple[int, ...], int | None]]:
        """Each ring's order of GPUs inside a node, and the NIC by which it comes and goes."""
        node, every = self.node, tuple(range(self.node.gpus))
        orders = [every]
        if node.nvswitch_gb_per_s is None and node.gpus > 2 and node.peer_to_peer:
            circuits = nvlink_circuits(node.nvlinks, node.gpus)
            orders = [*circuits, *(circuit[::-1] for circuit in circuits)] or [every]
        nics: list[int | None] = [*range(node.nics)] if self.nodes > 1 else [None]
        for order, nic in product(orders, nics):
            start = order.index(nic * node.gpus // node.nics) if nic is not None else 0
            yield order[start:] + order[:start], nic

    def _ring(self, order: tuple[int, ...], nic: int | None) -> Iterator[Edge]:
        for index in range(self.nodes):
            for first, second in pairwise((*order, order[0])):
                yield from pairwise(self._between(index, first, second))
            if nic is not None:
                here, there = f"{index}/nic{nic}", f"{(index + 1) % self.nodes}/nic{nic}"
                slot = f"{index}/{self._slot(order[0])}"
                yield from pairwise([f"{index}/gpu{order[0]}", slot, here])
                yield from pairwise(self._across(here, there))
                back = there.split("/", maxsplit=1)[0]
                yield from pairwise([there, f"{back}/{self._slot(order[0])}", f"{back}/gpu{order[0]}"])

    def _between(self, index: int, first: int, second: int) -> list[str]:
        """The way from one GPU of a node to another: over NVLink where there is one, else PCIe, else host memory."""
        one, other = f"{index}/gpu{first}", f"{index}/gpu{second}"
        match pair_pace(self.node, first, second).medium:
            case "nvlink" if self.node.nvswitch_gb_per_s is not None:
                return [one, f"{index}/nvswitch", other]
            case "nvlink":
                return [one, other]
            case "pcie":
                return _joined([one, *self._up(index, first)], [other, *self._up(index, second)])
            case "host":
                here, there = socket_of(self.node, first), socket_of(self.node, second)
                step = 1 if there >= here else -1
                return [one, *(f"{index}/memory{socket}" for socket in range(here, there + step, step)), other]

    def _up(self, index: int, gpu: int) -> list[str]:
        """The PCIe switch and the socket over a GPU."""
        slot, socket = f"{index}/{self._slot(gpu)}", f"{index}/socket{socket_of(self.node, gpu)}"
        return [slot] if slot == socket else [slot, socket]

    def _across(self, here: str, there: str) -> list[str]:
        """The way from a NIC to another, up no further than it must."""
        up, down = [here], [there]
        while up[-1] != down[-1]:
            up.append(self._above(up[-1]))
            down.append(self._above(down[-1]))
        return _joined(up, down)

    def _above(self, vertex: str) -> str:
        """The switch over a NIC or a switch: the one of its neighbours that is not below it."""
        if "/nic" in vertex:
            index, nic = vertex.split("/nic")
            return self._leaf(int(index), int(nic))
        blocks = self.fabric.blocks
        names = [block.name for block in blocks]
        name = vertex.rstrip("0123456789")
        if name not in names or name == names[-1]:
            return SPINE
        level = names.index(name)
        return f"{names[level + 1]}{int(vertex[len(name) :]) * blocks[level].nodes // blocks[level + 1].nodes}"


def _joined(up: list[str], down: list[str]) -> list[str]:
    """The way up from one end and down to the other, turning where both meet first."""
    turn = next(vertex for vertex in up if vertex in down)
    return up[: up.index(turn)] + down[down.index(turn) :: -1]


def _join(graph: nx.DiGraph, one: str, other: str, gb_per_s: float) -> None:
    graph.add_edge(one, other, gb_per_s=gb_per_s)
    graph.add_edge(other, one, gb_per_s=gb_per_s)
