"""Collective costs: the time of a collective over a count of ranks, split into latency and time on the wire.

The split is what lets two collectives share a link: while one waits for a hop, another may send.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Protocol

from simcore.collectives.curve import Curve
from simcore.collectives.growth import Growth, Scale
from simcore.collectives.moved import moved_factor, ring_hops
from simcore.costs.spread import Assumption
from simcore.errors import InputError
from simcore.profile.fitted import Collective, CollectiveCurve, CollectiveLaw, Fit
from simcore.scenario.schema import LinkTable
from simcore.units import GB, US


@dataclass(frozen=True, slots=True)
class TransferCost:
    """One collective: its latency and wire seconds, their log-normal spreads and the link that sets the pace."""

    latency_s: float
    wire_s: float
    latency_spread: float
    wire_spread: float
    link: str

    @property
    def total_s(self) -> float:
        """The time of the collective alone on the link."""
        return self.latency_s + self.wire_s


@dataclass(frozen=True, slots=True)
class Group:
    """So many ranks, ``stride`` apart: 1 for neighbours, the ranks of a node filling up first.

    A ``lone`` group has no others like it beside it on the network.
    """

    ranks: int
    stride: int = 1
    lone: bool = False

    def inside(self, ranks_per_node: int) -> int:
        """Ranks of the group on one node."""
        return min(self.ranks, max(1, ranks_per_node // self.stride))

    def nodes(self, ranks_per_node: int) -> int:
        """Nodes that the group spans."""
        return math.ceil(self.ranks / self.inside(ranks_per_node))

    def sharing(self, ranks_per_node: int) -> int:
        """Groups like this one that use a node's network at the same time."""
        return 1 if self.lone else max(1, min(self.stride, ranks_per_node))


NOTHING = TransferCost(0.0, 0.0, 0.0, 0.0, "none")


class Network(Protocol):
    """What every source of collective costs offers."""

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """The cost of ``collective`` over a buffer of ``size_bytes`` on the ranks of ``group``."""

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """Where the costs at ``ranks`` come from."""


GROWTH_SPREAD = 0.08
SPREAD_PER_DOUBLING = 0.04
"""How sure a measured curve is at another count, and how much less with each doubling: public sweeps, carried over to
their largest count by all others, miss by 8 % in the median and 23 % in one of ten."""

PIPELINE_GAMMA = 0.5
"""How far latency and wire time add up beyond their sum in a chunked pipeline: x + 2·gamma·sqrt(L·x)."""


@dataclass(frozen=True)
class CatalogNetwork:
    """Links of the catalogue: nodes of equal size, ring inside a node, ring or tree (the faster) across nodes.

    ``t = launch + L + x + 2·gamma·sqrt(L·x)``: L the hops' latency, x the bytes over the slower of the two links.
    """

    gpus_per_node: int
    intra_name: str
    intra: LinkTable | None
    inter_name: str
    inter: LinkTable | None

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """The closed form above; the link named is the one that carries its bytes longest.

        Raises ``InputError`` where the ranks use a link that is not named.
        """
        ranks = group.ranks
        if ranks < 2:
            return NOTHING
        inside, nodes = group.inside(self.gpus_per_node), group.nodes(self.gpus_per_node)
        moved = moved_factor(collective, ranks) * size_bytes
        # The ring enters and leaves each node once, so a node's network carries what one rank sends.
        legs: list[tuple[str, LinkTable | None, float]] = []
        if inside > 1:
            legs.append((self.intra_name, self.intra, ring_hops(collective, inside)))
        if nodes > 1:
            legs.append((self.inter_name, self.inter, _hops_across(collective, nodes)))
        known = [(name, link, hops) for name, link, hops in legs if link is not None]
        if len(known) != len(legs):
            raise InputError(
                f"{ranks} GPUs in nodes of {self.gpus_per_node} use a link that the scenario does not name; "
                "give cluster.intra_node and cluster.inter_node"
            )
        hops_s = sum(hops * link.latency_us * US for _, link, hops in known)
        launch_s = max(link.launch_us * US for _, link, _ in known)
        sharing = group.sharing(self.gpus_per_node)
        name, slowest, _ = min(known, key=lambda leg: self._rate(leg[1], sharing))
        wire = moved / self._rate(slowest, sharing)
        pipeline = 2.0 * PIPELINE_GAMMA * math.sqrt(hops_s * wire)
        # Of an exchange there and back, the server's link is taken one way at a time: others use the other way.
        latency = launch_s + hops_s + (wire if collective == "exchange" else 0.0)
        return TransferCost(latency, wire + pipeline, slowest.latency_spread, slowest.efficiency_spread, name)

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """The links that ``ranks`` ranks use."""
        inside, across = min(ranks, self.gpus_per_node) > 1, ranks > self.gpus_per_node
        used = [(self.intra_name, self.intra, inside), (self.inter_name, self.inter, across)]
        return tuple(
            Assumption(f"link {name}", "assumed", link.efficiency_spread, link.source)
            for name, link, taken in used
            if taken and link is not None
        )

    @staticmethod
    def _rate(link: LinkTable, sharing: int) -> float:
        """Bytes a second for one group: its node's groups share the network, a link inside it is each GPU's own."""
        shared = sharing if link.scope == "inter" else 1
        return link.bandwidth_gb_per_s * GB * link.efficiency / shared


def _hops_across(collective: Collective, nodes: int) -> float:
    """Hops between nodes: an all-reduce may take a tree, up and down; the rest go round the ring."""
    ring = ring_hops(collective, nodes)
    return min(ring, 2.0 * math.log2(nodes)) if collective == "all_reduce" else ring


@dataclass(frozen=True)
class MeasuredNetwork:
    """Collectives measured in a profile; a count that was not measured borrows the nearest curve and a law's ratio.

    Where ranks would cross hosts and the profile never did, ``beyond`` (the catalogue) answers.
    """

    fit: Fit
    ranks_per_host: int
    source: str
    beyond: Network | None

    def transfer(self, collective: Collective, size_bytes: float, group: Group) -> TransferCost:
        """The measured curve at ``size_bytes``, carried over to the group's count by the fitted law."""
        ranks = group.ranks
        if ranks < 2:
            return NOTHING
        hosts = group.nodes(self.ranks_per_host)
        curve = self._nearest_curve(collective, ranks, hosts)
        if curve is None and collective == "exchange":
            way = self.transfer("send_recv", size_bytes, group)
            return replace(way, latency_s=way.latency_s * 2 + way.wire_s)
        if curve is None:
            assert self.beyond is not None
            return self.beyond.transfer(collective, size_bytes, group)
        time_s, wire_share = _on_curve(curve, size_bytes)
        spread = curve.spread
        if curve.ranks != ranks:
            time_s *= self._growth(curve, size_bytes, ranks, hosts)
            spread = math.hypot(spread, GROWTH_SPREAD) + SPREAD_PER_DOUBLING * abs(math.log2(ranks / curve.ranks))
        link = "network between hosts" if hosts > 1 else "links inside the host"
        return TransferCost(time_s * max(0.0, 1 - wire_share), time_s * wire_share, spread, spread, link)

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """The curve used at ``ranks``: measured there, or carried over from another count."""
        hosts = math.ceil(ranks / self.ranks_per_host)
        curve = self._nearest_curve("all_reduce", ranks, hosts) if ranks > 1 else None
        if curve is None:
            return self.beyond.assumptions(ranks) if self.beyond else ()
        here = curve.ranks == ranks
        spread = self.transfer("all_reduce", curve.size_bytes[-1], Group(ranks)).wire_spread
        how = f"all_reduce at {ranks} ranks" if here else f"all_reduce at {curve.ranks} ranks, extended to {ranks}"
        return (Assumption("collectives", "measured" if here else "fitted", spread, f"{self.source}: {how}"),)

    def _nearest_curve(self, collective: Collective, ranks: int, hosts: int) -> CollectiveCurve | None:
        """The curve of the nearest count, inside a host or across hosts alike; any, where nothing else is known."""
        alike = self._alike(collective, hosts)
        if not alike and self.beyond is None:
            alike = [curve for curve in self.fit.curves if curve.collective == collective]
        return min(alike, key=lambda curve: abs(math.log(ranks / curve.ranks)), default=None)

    def _growth(self, curve: CollectiveCurve, size_bytes: float, ranks: int, hosts: int) -> float:
        """How much longer it takes on ``ranks`` ranks: by how it grew over the counts measured, else by the law."""
        alike = self._alike(curve.collective, curve.hosts)
        if len({one.ranks for one in alike}) > 1 and ranks > max(one.ranks for one in alike):
            scales = (Scale(one.ranks, one.hosts, (Curve(one.size_bytes, one.time_s),)) for one in alike)
            growth = Growth(curve.collective, tuple(scales))
            return growth.time_s(size_bytes, ranks, hosts) / time_on_curve(curve, size_bytes)
        law = self._law(curve.collective, curve.hosts > 1)
        return _law_s(law, size_bytes, ranks) / _law_s(law, size_bytes, curve.ranks)

    def _alike(self, collective: Collective, hosts: int) -> list[CollectiveCurve]:
        """Its curves inside a host, or across hosts."""
        return [one for one in self.fit.curves if one.collective == collective and (one.hosts > 1) == (hosts > 1)]

    def _law(self, collective: Collective, crosses_hosts: bool) -> CollectiveLaw:
        for law in self.fit.laws:
            if law.collective == collective and law.crosses_hosts == crosses_hosts:
                return law
        where = "across hosts" if crosses_hosts else "inside a host"
        raise InputError(
            f"{self.source}: its fit has no law for {collective} {where}, so it cannot speak of counts that were not "
            "measured; calibrate again"
        )


def law_seconds(
    collective: Collective, launch_s: float, latency_s: float, rate: float, size_bytes: float, ranks: int
) -> float:
    """``launch + hops·latency + moved bytes / rate``: the ring law by which a count extends to others."""
    return launch_s + ring_hops(collective, ranks) * latency_s + moved_factor(collective, ranks) * size_bytes / rate


def _law_s(law: CollectiveLaw, size_bytes: float, ranks: int) -> float:
    return law_seconds(law.collective, law.launch_s, law.latency_s, law.bandwidth_bytes_per_s, size_bytes, ranks)


def time_on_curve(curve: CollectiveCurve, size_bytes: float) -> float:
    """Seconds of a measured collective at a size."""
    return _on_curve(curve, size_bytes)[0]


def _on_curve(curve: CollectiveCurve, size_bytes: float) -> tuple[float, float]:
    """Time and wire share at a size: power laws between the sizes, constant below, proportional to size above."""
    sizes, times, shares = curve.size_bytes, curve.time_s, curve.wire_share
    if size_bytes <= sizes[0]:
        return times[0], shares[0]
    if size_bytes >= sizes[-1]:
        return times[-1] * (1 + shares[-1] * (size_bytes / sizes[-1] - 1)), shares[-1]
    right = bisect_left(sizes, size_bytes)
    left = right - 1
    weight = math.log(size_bytes / sizes[left]) / math.log(sizes[right] / sizes[left])
    time_s = times[left] ** (1 - weight) * times[right] ** weight
    return time_s, shares[left] + weight * (shares[right] - shares[left])
