"""A network of links or measured curves, spoilt: a slow link, other jobs on the same fabric."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simcore.costs.network import Group, Network, TransferCost
from simcore.costs.spread import Assumption
from simcore.profile.fitted import Collective
from simcore.topology.disturbance import JobTable, SlowTable, kept_of, share_beside
from simcore.topology.fabric import FabricTable, Spread, ring_share


@dataclass(frozen=True)
class DisturbedNetwork:
    """``sound`` as it was measured or described, on a fabric where it had everything to itself."""

    sound: Network
    ranks_per_node: int
    fabric: FabricTable
    slow: tuple[SlowTable, ...]
    jobs: tuple[JobTable, ...]

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """The sound cost with its bytes slowed down."""
        cost = self.sound.transfer(collective, size_bytes, group)
        nodes, spacing = group.nodes(self.ranks_per_node), max(1, group.stride // self.ranks_per_node)
        if nodes == 1:
            kept, link = kept_of(self.slow, "inside", nodes), "a slow link"
        else:
            spread = Spread(nodes, spacing, nodes * spacing)
            beside, link = share_beside(self.jobs, self.fabric, spread) if self.jobs else (1.0, cost.link)
            kept = beside / ring_share(self.fabric, spread)[0] if self.jobs else 1.0
            sick = kept_of(self.slow, "nic", nodes * spacing)
            kept, link = min((kept, link), (sick, "a slow NIC"))
        return cost if kept >= 1 else replace(cost, wire_s=cost.wire_s / kept, link=link)

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """Those of the sound network."""
        return self.sound.assumptions(ranks)
