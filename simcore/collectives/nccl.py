"""What NCCL would run: every algorithm with every protocol, its time, and the fastest that may be chosen.

Latencies and the bandwidth of protocols are those of NCCL's own model (src/graph/tuning.cc, 2.19 to 2.30); bandwidths
of links are what they really keep (``topology/pace.py``), since NCCL's ranks algorithms but does not tell times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from simcore.collectives.moved import moved_factor, ring_hops
from simcore.files import Table
from simcore.profile.fitted import Collective
from simcore.topology.pace import Medium
from simcore.units import GB, US

Algorithm = Literal["Ring", "Tree", "NVLS", "NVLSTree", "CollNet", "PAT", "Direct"]
Protocol = Literal["LL", "LL128", "Simple"]


class NcclTable(Table):
    """``[cluster.nccl]``: what the environment tells NCCL. Left out, it chooses itself.

    ``algo`` and ``proto`` as in NCCL_ALGO and NCCL_PROTO (CollNet stands for both of its kinds); ``p2p_disable`` as in
    NCCL_P2P_DISABLE=1: also NVLink is left unused.
    """

    algo: Literal["Ring", "Tree", "NVLS", "NVLSTree", "CollNet", "PAT"] | None = None
    proto: Protocol | None = None
    p2p_disable: bool = False


@dataclass(frozen=True, slots=True)
class Wires:
    """What a group of ranks has under it: rates in 10^9 bytes/s of bus bandwidth, latencies in microseconds.

    ``within`` is the pace of rings in a node, ``across`` that of the node's NICs as this group shares them (None on one
    node); ``multicast`` the bytes that a node's switch reduces each second, where it can; ``sharp`` whether the
    network's switches reduce too. ``tuned`` transports pick the fastest where NCCL's own estimate does not.
    """

    ranks: int
    nodes: int
    within_gb_per_s: float
    medium: Medium
    exchange_gb_per_s: float
    across_gb_per_s: float | None
    multicast_gb_per_s: float | None = None
    hop_us: float = 0.0
    level_us: float = 0.0
    sharp: bool = False
    tuned: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """One algorithm with one protocol: seconds that pass before and between bytes, and seconds that bytes take."""

    algorithm: Algorithm
    protocol: Protocol
    latency_s: float
    wire_s: float

    @property
    def total_s(self) -> float:
        """The time of the collective alone."""
        return self.latency_s + self.wire_s


LAUNCH_US = 8.0
"""From the host's call to the first byte, one process a GPU: what 11-16 us on two GPUs leave besides NCCL's own."""

BASE_US: dict[str, dict[Protocol, float]] = {
    "Ring": {"LL": 6.6, "LL128": 14.0, "Simple": 8.4},
    "Tree": {"LL": 6.8, "LL128": 14.0, "Simple": 8.4},
}
HOP_US: dict[Medium, dict[Protocol, float]] = {
    "nvlink": {"LL": 0.6, "LL128": 1.9, "Simple": 3.4},
    "pcie": {"LL": 1.0, "LL128": 2.5, "Simple": 5.7},
    "host": {"LL": 2.0, "LL128": 4.0, "Simple": 8.0},
}
ACROSS: dict[Protocol, float] = {"LL": 1.0, "LL128": 1.5, "Simple": 2.5}
"""A step between nodes in each protocol, as a multiple of its quickest."""

KEPT: dict[Protocol, float] = {"LL": 0.5, "LL128": 0.92, "Simple": 1.0}
"""LL spends half of each store on flags, LL128 8 of 128 bytes."""

MULTICAST_US = 25.0
PIPELINE_GAMMA = 0.25
"""How far the steps of Simple's chunked pipeline and its bytes add up beyond their sum: x + 2·gamma·sqrt(L·x)."""

TREE_KEEPS = 0.92
MULTICAST_TREE_KEEPS = 0.81
"""NVLSTree of the NICs on three nodes and more: 321-329 of 400 on 4 and 8 nodes of H100."""

SHARP_KEEPS = 0.8
PAT_KEEPS = 0.75


def fastest(collective: Collective, size_bytes: float, wires: Wires, nccl: NcclTable) -> Choice:
    """What NCCL runs for a buffer of ``size_bytes``: the fastest that the environment and the machine allow.

    A forced algorithm that this collective does not have is passed over, as NCCL does.
    """
    choices = list(_choices(collective, size_bytes, wires))
    for wanted in (
        [one for one in choices if one.algorithm == nccl.algo and one.protocol == nccl.proto],
        [one for one in choices if nccl.proto is None and one.algorithm == nccl.algo],
        [one for one in choices if one.protocol == nccl.proto],
        choices,
    ):
        if wanted:
            return min(wanted, key=lambda one: one.total_s)
    raise AssertionError("every collective has a way")


def _choices(collective: Collective, size_bytes: float, wires: Wires) -> Iterator[Choice]:
    if collective in ("all_to_all", "send_recv", "exchange"):
        yield _direct(collective, size_bytes, wires)
        return
    for protocol in KEPT:
        # LL128 needs the order of stores kept, as NVLink does and PCIe does not.
        if protocol != "LL128" or wires.medium == "nvlink":
            yield _ring(collective, size_bytes, wires, protocol)
            if collective == "all_reduce" and wires.nodes > 1:
                yield _tree(size_bytes, wires, protocol)
    if collective == "all_reduce" and wires.multicast_gb_per_s is not None:
        yield _multicast(size_bytes, wires)
    if collective == "all_reduce" and wires.sharp and wires.nodes > 1:
        yield _in_network(size_bytes, wires)
    if collective in ("all_gather", "reduce_scatter") and wires.ranks == wires.nodes > 1:
        yield _doubling(collective, size_bytes, wires)


def _ring(collective: Collective, size_bytes: float, wires: Wires, protocol: Protocol) -> Choice:
    hops, across = ring_hops(collective, wires.ranks), ring_hops(collective, wires.nodes) if wires.nodes > 1 else 0
    steps_us = (hops - across) * HOP_US[wires.medium][protocol] + across * wires.hop_us * ACROSS[protocol]
    rate = min(wires.within_gb_per_s, wires.across_gb_per_s or math.inf)
    wire_s = moved_factor(collective, wires.ranks) * size_bytes / (rate * KEPT[protocol] * GB)
    return _timed("Ring", protocol, steps_us, wire_s)


def _tree(size_bytes: float, wires: Wires, protocol: Protocol) -> Choice:
    """Up and down a tree over nodes, a chain inside each: two nodes send each byte once where rings send it twice."""
    assert wires.across_gb_per_s is not None
    per_node = wires.ranks // wires.nodes
    steps_us = 2 * ((per_node - 1) * HOP_US[wires.medium][protocol]
                    + math.ceil(math.log2(wires.nodes)) * wires.level_us * ACROSS[protocol])  # fmt: skip
    # NCCL compares both at the speed inside a node where there are two, and so keeps to rings: only a tuner knows.
    over_nics = wires.across_gb_per_s / (1.0 if wires.nodes == 2 and wires.tuned else 2.0)
    chain = wires.within_gb_per_s * TREE_KEEPS / 2 if per_node > 1 else math.inf
    wire_s = size_bytes / (min(over_nics * TREE_KEEPS, chain) * KEPT[protocol] * GB)
    return _timed("Tree", protocol, steps_us, wire_s)


def _multicast(size_bytes: float, wires: Wires) -> Choice:
    """The switch of a node reduces; between nodes, a tree over every GPU's own NIC."""
    assert wires.multicast_gb_per_s is not None
    if wires.across_gb_per_s is None:
        return _timed("NVLS", "Simple", MULTICAST_US, size_bytes / (wires.multicast_gb_per_s * GB))
    steps_us = MULTICAST_US + 2 * math.ceil(math.log2(wires.nodes)) * wires.level_us * ACROSS["Simple"]
    share = wires.across_gb_per_s * MULTICAST_TREE_KEEPS
    over_nics = share if wires.nodes == 2 else share / moved_factor("all_reduce", wires.ranks)
    return _timed("NVLSTree", "Simple", steps_us, size_bytes / (min(over_nics, wires.multicast_gb_per_s) * GB))


def _in_network(size_bytes: float, wires: Wires) -> Choice:
    """The network's switches reduce (SHARP): each byte goes up once and comes down once."""
    assert wires.across_gb_per_s is not None
    steps_us = 2 * HOP_US[wires.medium]["Simple"] + 2 * wires.level_us * ACROSS["Simple"]
    within = wires.multicast_gb_per_s or wires.within_gb_per_s / 2
    return _timed("CollNet", "Simple", steps_us, size_bytes / (min(within * SHARP_KEEPS, wires.across_gb_per_s) * GB))


def _doubling(collective: Collective, size_bytes: float, wires: Wires) -> Choice:
    """Parts that double in size at each step (PAT), where every rank is a node of its own."""
    assert wires.across_gb_per_s is not None
    steps_us = math.ceil(math.log2(wires.nodes)) * wires.hop_us * ACROSS["Simple"]
    wire_s = moved_factor(collective, wires.ranks) * size_bytes / (wires.across_gb_per_s * PAT_KEEPS * GB)
    return _timed("PAT", "Simple", steps_us, wire_s)


def _direct(collective: Collective, size_bytes: float, wires: Wires) -> Choice:
    """Sends from rank to rank, all at once: what stays in the node and what leaves it flow side by side."""
    ranks, per_node = wires.ranks, wires.ranks // wires.nodes
    if collective != "all_to_all":
        rate = wires.within_gb_per_s if wires.across_gb_per_s is None else wires.across_gb_per_s
        hop_us = HOP_US[wires.medium]["Simple"] if wires.across_gb_per_s is None else wires.hop_us
        return _timed("Direct", "Simple", hop_us * ring_hops(collective, ranks), size_bytes / (rate * GB))
    within_s = size_bytes * (per_node - 1) / ranks / (wires.exchange_gb_per_s * GB)
    across_s = 0.0
    steps_us = (per_node - 1) * HOP_US[wires.medium]["LL"]
    if wires.across_gb_per_s is not None:
        across_s = size_bytes * (ranks - per_node) / ranks / (wires.across_gb_per_s / per_node * GB)
        steps_us += (ranks - per_node) * wires.hop_us / 2
    return _timed("Direct", "Simple", steps_us, max(within_s, across_s))


def _timed(algorithm: Algorithm, protocol: Protocol, steps_us: float, wire_s: float) -> Choice:
    base_us = LAUNCH_US + BASE_US["Tree" if algorithm == "Tree" else "Ring"][protocol]
    pipeline_s = 2 * PIPELINE_GAMMA * math.sqrt(steps_us * US * wire_s) if protocol == "Simple" else 0.0
    return Choice(algorithm, protocol, (base_us + steps_us) * US, wire_s + pipeline_s)
