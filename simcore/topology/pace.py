"""What collectives keep of the links inside a node, by what joins its GPUs: the pace of rings, pairs and exchanges.

Rates are bus bandwidths one way in 10^9 bytes/s at large sizes; the parts kept of the line rate are what public
nccl-tests output shows for a kind of link, the same for every machine that has it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from simcore.topology.node import NodeTable
from simcore.topology.rings import links_between, nvlink_rings

Medium = Literal["nvlink", "pcie", "host"]

OF_SWITCH = 0.80
"""DGX-2 123.6 of 150, A100 232-235 of 300, H100 358-368 of 450, B200 674-682 of 900 (rings)."""

OF_MESH = 0.90
"""V100 mesh 22.5 of 25 a link; bridge pairs 45.5-47.5 of 56."""

OF_PCIE = 0.78
"""12.2 of 15.75 (gen 3), 24-25 of 31.5 (gen 4), 49 of 63 (gen 5)."""

OF_HOST = 0.31
"""Through host memory: 4.0-5.3 of 15.75 (gen 3), 9.4 of 31.5 (gen 4)."""

OF_HOST_ACROSS = 0.043
"""The same where copies cross to the other socket's memory: 1.25-1.35 of 31.5 on two machines, 5.2 on a third."""

EXCHANGE = 0.95
"""What an exchange of all with all keeps of a ring's pace: 224 of 235 (A100), 346 of 367 (H100)."""

MULTICAST_FROM_GB_PER_S = 450.0
"""Switches of NVLink 4 (this much a GPU) and later add up on the way (NVLS)."""

MULTICAST = {450.0: 0.61, 900.0: 0.535}
"""Bytes reduced per byte of a GPU's line rate: all_reduce at 478-482 on 8 H100 (bus), 845 on 8 B200."""

MULTICAST_FEW = 2.0
"""Fewer GPUs keep 1 - this/n² of it: 363, 414, 436, 460, 473 on 4 to 8 H200."""


@dataclass(frozen=True, slots=True)
class Pace:
    """A bus bandwidth and what limits it."""

    gb_per_s: float
    medium: Medium
    link: str


def ring_pace(node: NodeTable, gpus: int, peer_to_peer: bool = True) -> Pace:
    """What rings through the first ``gpus`` GPUs carry together."""
    if peer_to_peer and node.nvswitch_gb_per_s is not None:
        return Pace(node.nvswitch_gb_per_s * OF_SWITCH, "nvlink", "NVSwitch")
    if peer_to_peer and node.nvlink_gb_per_s is not None and (rings := nvlink_rings(node.nvlinks, gpus)):
        return Pace(rings * node.nvlink_gb_per_s * OF_MESH, "nvlink", "NVLink")
    if peer_to_peer and node.nvlink_gb_per_s is not None and (weakest := _weakest_in_a_tree(node, gpus)):
        # No ring goes through all: a tree does, and each of its links carries every byte, up and down.
        return Pace(weakest * node.nvlink_gb_per_s * OF_MESH * (gpus - 1) / gpus, "nvlink", "NVLink")
    return _beside_nvlink(node, {socket_of(node, gpu) for gpu in range(gpus)}, peer_to_peer)


def pair_pace(node: NodeTable, first: int, second: int, peer_to_peer: bool = True) -> Pace:
    """What one GPU sends to another, one way."""
    if peer_to_peer and node.nvswitch_gb_per_s is not None:
        return Pace(node.nvswitch_gb_per_s * OF_SWITCH, "nvlink", "NVSwitch")
    links = links_between(node.nvlinks, first, second)
    if peer_to_peer and links and node.nvlink_gb_per_s is not None:
        return Pace(links * node.nvlink_gb_per_s * OF_MESH, "nvlink", "NVLink")
    return _beside_nvlink(node, {socket_of(node, first), socket_of(node, second)}, peer_to_peer)


def exchange_pace(node: NodeTable, gpus: int, peer_to_peer: bool = True) -> Pace:
    """What each GPU sends to all others together, where everyone does and the last pair decides."""
    if node.nvswitch_gb_per_s is not None or not node.nvlinks:
        ring = ring_pace(node, gpus, peer_to_peer)
        return Pace(ring.gb_per_s * EXCHANGE, ring.medium, ring.link)
    pairs = [pair_pace(node, first, second, peer_to_peer) for first, second in combinations(range(gpus), 2)]
    slowest = min(pairs, key=lambda pace: pace.gb_per_s)
    beside = sum(pace.medium == slowest.medium for pace in pairs) * 2 / gpus if slowest.medium != "nvlink" else 1.0
    # Pairs without a direct link share their GPUs' slots; the others have links of their own.
    return Pace(slowest.gb_per_s * (gpus - 1) / max(1.0, beside), slowest.medium, slowest.link)


def multicast_gb_per_s(node: NodeTable, gpus: int) -> float | None:
    """Bytes a second that all GPUs reduce in the switch itself (NVLS), where it can."""
    port = node.nvswitch_gb_per_s
    if port is None or port < MULTICAST_FROM_GB_PER_S or gpus < 3:
        return None
    share = MULTICAST[max(rate for rate in MULTICAST if rate <= port)]
    return port * share * (1 - MULTICAST_FEW / gpus**2)


def _weakest_in_a_tree(node: NodeTable, gpus: int) -> int:
    """Links of the poorest GPU where NVLinks still join all ``gpus``, else none."""
    degree = [sum(links_between(node.nvlinks, one, other) for other in range(gpus)) for one in range(gpus)]
    reached, edge = {0}, {0}
    while edge:
        edge = {o for g in edge for o in range(gpus) if o not in reached and links_between(node.nvlinks, g, o)}
        reached |= edge
    return min(degree) if len(reached) == gpus else 0


def host_gb_per_s(node: NodeTable, across_sockets: bool) -> float:
    """What a copy from GPU to GPU through host memory carries, in one socket's or from one socket's to the other's."""
    if not across_sockets:
        return node.host_gb_per_s or node.pcie_gb_per_s * OF_HOST
    return min(node.host_gb_per_s or node.pcie_gb_per_s * OF_HOST_ACROSS, node.socket_gb_per_s)


def socket_of(node: NodeTable, gpu: int) -> int:
    """The socket that a GPU hangs on."""
    return gpu * node.sockets // node.gpus


def _beside_nvlink(node: NodeTable, sockets: set[int], peer_to_peer: bool) -> Pace:
    """Over PCIe from slot to slot; through memory without peers, and between sockets, where NCCL asks for none."""
    if len(sockets) > 1:
        return Pace(host_gb_per_s(node, across_sockets=True), "host", "host memory across sockets")
    if peer_to_peer and node.peer_to_peer:
        return Pace(node.pcie_gb_per_s * OF_PCIE, "pcie", "PCIe")
    return Pace(host_gb_per_s(node, across_sockets=False), "host", "host memory")
