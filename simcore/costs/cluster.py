"""Collective costs on a described cluster: its nodes' links, the fabric between them, and what NCCL runs on both."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simcore.collectives.nccl import Choice, NcclTable, Wires, fastest
from simcore.collectives.wires import Cluster
from simcore.costs.network import NOTHING, Group, TransferCost
from simcore.costs.spread import Assumption
from simcore.errors import InputError
from simcore.profile.fitted import Collective
from simcore.topology.fabric import Spread

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

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """What NCCL takes for it; the link named is the one that sets the pace of its bytes.

        Raises ``InputError`` where the group crosses nodes that have no NICs.
        """
        if group.ranks < 2:
            return NOTHING
        wires, link = self._wires(collective, group)
        choice: Choice = fastest(collective, size_bytes, wires, self.nccl)
        spread = self.cluster.transport.spread if wires.across_gb_per_s is not None else INSIDE_SPREAD
        return TransferCost(choice.latency_s, choice.wire_s, LATENCY_SPREAD, spread, link)

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """The node and, where ``ranks`` ranks cross nodes, what carries them."""
        found = []
        if min(ranks, self.gpus_per_node) > 1:
            found.append(Assumption(f"links of {self.name}", "assumed", INSIDE_SPREAD, self.cluster.node.source))
        if ranks > self.gpus_per_node:
            transport = self.cluster.transport
            name = f"{self.cluster.fabric.kind} of {self.cluster.fabric.transport}"
            found.append(Assumption(name, "assumed", transport.spread, transport.source))
        return tuple(found)

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
