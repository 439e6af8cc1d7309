"""Collective costs on a described cluster: its nodes' links, the fabric between them, and what NCCL runs on both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from simcore.collectives.evidence import EvidenceTable, Posterior, posterior
from simcore.collectives.nccl import NcclTable, Wires, fastest
from simcore.collectives.wires import Cluster
from simcore.costs.network import NOTHING, Group, TransferCost
from simcore.costs.spread import Assumption
from simcore.errors import InputError
from simcore.profile.fitted import Collective
from simcore.topology.fabric import Spread
from simcore.units import MIB


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of latencies and of bytes on one kind of link."""

    latency: Posterior
    wire: Posterior


INSIDE_SPREAD = 0.06
LATENCY_SPREAD = 0.3
"""How far links inside nodes, and latencies anywhere, lie from what the catalogue says: log-normal sigmas."""


@dataclass(frozen=True)
class ClusterNetwork:
    """A cluster of the type of node called ``name``; ``gpus_per_node`` of a node's GPUs take part."""

    cluster: Cluster
    name: str
    gpus_per_node: int
    nccl: NcclTable
    evidence: tuple[EvidenceTable, ...] = ()

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """What NCCL takes for it; the link named is the one that sets the pace of its bytes.

        Raises ``InputError`` where the group crosses nodes that have no NICs.
        """
        if group.ranks < 2:
            return NOTHING
        wires, link = self._wires(collective, group)
        choice = fastest(collective, size_bytes, wires, self.nccl)
        known = self._across if wires.across_gb_per_s is not None else self._inside
        return TransferCost(
            choice.latency_s * known.latency.factor,
            choice.wire_s * known.wire.factor,
            known.latency.spread,
            known.wire.spread,
            link,
        )

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """The node and, where ``ranks`` ranks cross nodes, what carries them."""
        cluster, found = self.cluster, []
        if min(ranks, self.gpus_per_node) > 1:
            found.append(_assumption(f"links of {self.name}", self._inside, cluster.node.source))
        if ranks > self.gpus_per_node:
            name = f"{cluster.fabric.kind} of {cluster.fabric.transport}"
            found.append(_assumption(name, self._across, cluster.transport.source))
        return tuple(found)

    @cached_property
    def _inside(self) -> Known:
        return self._known([entry for entry in self.evidence if entry.gpus <= self.gpus_per_node], INSIDE_SPREAD)

    @cached_property
    def _across(self) -> Known:
        across = [entry for entry in self.evidence if entry.gpus > self.gpus_per_node]
        return self._known(across, self.cluster.transport.spread)

    def _known(self, evidence: list[EvidenceTable], spread: float) -> Known:
        """What measured numbers make of the catalogue's: each speaks of what takes most of its time."""
        wires: list[tuple[float, str]] = []
        latencies: list[tuple[float, str]] = []
        for entry in evidence:
            wires_here, _ = self._wires(entry.collective, Group(entry.gpus))
            choice = fastest(entry.collective, entry.size_mib * MIB, wires_here, self.nccl)
            told = wires if choice.wire_s > choice.latency_s else latencies
            told.append((entry.measured_s / choice.total_s, entry.source))
        return Known(posterior(latencies, LATENCY_SPREAD), posterior(wires, spread))

    def _wires(self, collective: Collective, group: Group) -> tuple[Wires, str]:
        inside, nodes = group.inside(self.gpus_per_node), group.nodes(self.gpus_per_node)
        spacing = max(1, group.stride // self.gpus_per_node)
        spread = Spread(nodes, spacing, nodes * spacing)
        sharing = group.sharing(self.gpus_per_node)
        try:
            if collective in ("send_recv", "exchange"):
                return self.cluster.send_wires(spread, sharing)
            if collective == "all_to_all":
                wires, link = self.cluster.exchange_wires(inside, spread, sharing)
            else:
                wires, link = self.cluster.wires(inside, spread, sharing)
        except ValueError as error:
            raise InputError(
                f"cluster.node: {group.ranks} GPUs span {nodes} nodes of '{self.name}', but {error}; give the node "
                "nics and nic_gb_per_s, or fewer GPUs"
            ) from None
        return replace(wires, ranks=group.ranks), link


def _assumption(name: str, known: Known, source: str) -> Assumption:
    """What is known of one kind of link, and which measured numbers did not fit."""
    wire = known.wire
    if not wire.count and not wire.contradicting:
        return Assumption(name, "assumed", wire.spread, source)
    odd = f"; left aside, as they contradict the rest: {', '.join(wire.contradicting)}" if wire.contradicting else ""
    numbers = f"{wire.count} measured number{'s' if wire.count > 1 else ''}: time x{wire.factor:.2f}"
    return Assumption(name, "fitted", wire.spread, f"{source}; {numbers}{odd}")
