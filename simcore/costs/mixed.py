"""Collective costs on a cluster of several types of node: all wait for the slowest that takes part."""

from __future__ import annotations

from dataclasses import dataclass

from simcore.costs.network import Group, Network, TransferCost
from simcore.costs.spread import Assumption
from simcore.profile.fitted import Collective


@dataclass(frozen=True)
class MixedNetwork:
    """Each part's network, as if the whole cluster were of its type, with the count of GPUs before it."""

    parts: tuple[tuple[int, Network], ...]

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """What the slowest of the parts that the group reaches makes of it."""
        costs = (
            network.transfer(collective, size_bytes, group) for network in self._reached(group.ranks * group.stride)
        )
        return max(costs, key=lambda cost: cost.total_s)

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """Those of every part that ``ranks`` ranks reach."""
        return tuple(dict.fromkeys(one for network in self._reached(ranks) for one in network.assumptions(ranks)))

    def _reached(self, ranks: int) -> list[Network]:
        return [network for before, network in self.parts if before < ranks or not before]
