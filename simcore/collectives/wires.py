"""What a group of ranks has under it, from the type of its nodes, the fabric between them and how it lies on both."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from simcore.collectives.nccl import Wires
from simcore.topology.disturbance import JobTable, SlowTable, kept_of, share_beside
from simcore.topology.fabric import FabricTable, Spread, Transport, exchange_share, ring_share
from simcore.topology.node import NodeTable
from simcore.topology.pace import exchange_pace, multicast_gb_per_s, pair_pace, ring_pace


@dataclass(frozen=True)
class Cluster:
    """Nodes of one type on a fabric; ``peer_to_peer`` is what NCCL_P2P_DISABLE leaves of it."""

    node: NodeTable
    fabric: FabricTable
    transport: Transport
    peer_to_peer: bool = True
    slow: tuple[SlowTable, ...] = ()
    jobs: tuple[JobTable, ...] = ()

    def wires(self, inside: int, spread: Spread, sharing: int = 1) -> tuple[Wires, str]:
        """Under a group with ``inside`` ranks on each node of ``spread``, and the link that limits its rings.

        ``sharing`` groups alike use a node's NICs at once. Raises ``ValueError`` where NICs are missing.
        """
        node, nodes = self.node, spread.nodes
        ring = ring_pace(node, inside, self.peer_to_peer) if inside > 1 else None
        wires = Wires(
            ranks=inside * nodes,
            nodes=nodes,
            within_gb_per_s=ring.gb_per_s * kept_of(self.slow, "inside", nodes) if ring else math.inf,
            medium=ring.medium if ring else "nvlink",
            exchange_gb_per_s=exchange_pace(node, inside, self.peer_to_peer).gb_per_s if inside > 1 else math.inf,
            across_gb_per_s=None,
            multicast_gb_per_s=multicast_gb_per_s(node, inside) if self.peer_to_peer else None,
        )
        if nodes == 1:
            return wires, ring.link if ring else "none"
        across, limit = self._across(inside, spread, sharing, exchange=False)
        wires = replace(
            wires,
            across_gb_per_s=across,
            hop_us=self.transport.hop_us,
            level_us=self.transport.level_us,
            sharp=self.fabric.sharp,
            tuned=self.transport.tuned,
        )
        return wires, limit if ring is None or across < ring.gb_per_s else ring.link

    def exchange_wires(self, inside: int, spread: Spread, sharing: int = 1) -> tuple[Wires, str]:
        """The same for an exchange of all with all."""
        wires, link = self.wires(inside, spread, sharing)
        if wires.across_gb_per_s is None:
            return wires, link
        across, limit = self._across(inside, spread, sharing, exchange=True)
        return replace(wires, across_gb_per_s=across), limit

    def send_wires(self, spread: Spread, sharing: int = 1, between: tuple[int, int] = (0, 1)) -> tuple[Wires, str]:
        """From one rank to another: of the same node, or through one NIC's share to the next."""
        if spread.nodes > 1:
            return self.wires(1, replace(spread, nodes=2), sharing)
        pair = pair_pace(self.node, *between, self.peer_to_peer)
        return Wires(2, 1, pair.gb_per_s, pair.medium, pair.gb_per_s, None), pair.link

    def _across(self, inside: int, spread: Spread, sharing: int, exchange: bool) -> tuple[float, str]:
        """What a node's NICs carry for one of ``sharing`` groups, and what limits it: they, the fabric, other jobs."""
        alone = exchange_share(self.fabric, spread) if exchange else ring_share(self.fabric, spread)
        beside = share_beside(self.jobs, self.fabric, spread) if self.jobs else alone
        kept, limit = min(alone, beside)
        sick = kept_of(self.slow, "nic", spread.nodes * spread.spacing)
        if sick < kept:
            kept, limit = sick, "a slow NIC"
        efficiency = self.transport.exchange_efficiency if exchange else self.transport.efficiency
        return self.nics_gb_per_s(inside, sharing) * efficiency * kept, limit

    def nics_gb_per_s(self, inside: int, sharing: int) -> float:
        """The line rate of the NICs that one of ``sharing`` groups with ``inside`` ranks on a node has for itself.

        A rank uses the NICs nearest to it: its part of them, or the one that it shares with its neighbours.
        """
        node = self.node
        if not node.nics or node.nic_gb_per_s is None:
            raise ValueError("its nodes have no NICs")
        near = max(1.0, node.nics * inside * min(sharing, node.gpus // inside) / node.gpus)
        return near * node.nic_gb_per_s / sharing
