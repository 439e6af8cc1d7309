"""The network between nodes: what carries it, and how its switches nest.

Every fabric of switches is a nesting of blocks of nodes whose way out is so many times narrower than what the nodes in
it can send: leaves under spines, pods of leaves under cores, groups of a dragonfly. A torus has links to neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simcore.fields import Name, NonNegativeFloat, PositiveInt
from simcore.files import Table

Kind = Literal["switch", "leaf-spine", "rail", "fat-tree", "dragonfly", "torus"]
Taper = Annotated[float, Field(ge=1, le=1000)]


class Transport(Table):
    """What carries a collective between nodes; see ``transports.toml`` for what its figures mean."""

    efficiency: Annotated[float, Field(gt=0, le=1)]
    exchange_efficiency: Annotated[float, Field(gt=0, le=1)]
    hop_us: NonNegativeFloat
    level_us: NonNegativeFloat
    tuned: bool = False
    spread: Annotated[float, Field(ge=0, le=2)]
    source: Name


class FabricTable(Table):
    """``[cluster.fabric]``: the kind of network between nodes.

    ``oversubscription`` is how many times more the nodes of a leaf (a dragonfly's group, a rail's leaf) can send than
    their leaf's way up carries; ``pod_oversubscription`` the same of a pod of ``leaves_per_pod`` leaves in a fat tree.
    ``placement`` says whether a job's nodes are neighbours, or anywhere. A torus has ``shape`` nodes along its axes and
    the NICs spread over its directions.
    """

    kind: Kind = "switch"
    transport: Name = "infiniband"
    nodes_per_leaf: PositiveInt | None = None
    leaves_per_pod: PositiveInt | None = None
    oversubscription: Taper = 1.0
    pod_oversubscription: Taper = 1.0
    placement: Literal["packed", "scattered"] = "packed"
    shape: Annotated[tuple[PositiveInt, ...], Field(strict=False, max_length=4)] = ()
    sharp: bool = False

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.kind in ("leaf-spine", "rail", "fat-tree", "dragonfly") and self.nodes_per_leaf is None:
            raise ValueError(f"kind = '{self.kind}' needs nodes_per_leaf, the nodes on one leaf switch or group")
        if self.kind == "fat-tree" and self.leaves_per_pod is None:
            raise ValueError("kind = 'fat-tree' needs leaves_per_pod; for two levels write kind = 'leaf-spine'")
        if self.kind == "torus" and not self.shape:
            raise ValueError("kind = 'torus' needs shape, its nodes along each axis, e.g. shape = [4, 4, 4]")
        if self.kind == "switch" and self.oversubscription > 1:
            raise ValueError("oversubscription needs leaves: write kind = 'leaf-spine' and nodes_per_leaf")
        return self

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The nested blocks of nodes, inner ones first."""
        if self.nodes_per_leaf is None or self.kind in ("switch", "torus"):
            return ()
        leaf = Block("leaf" if self.kind != "dragonfly" else "group", self.nodes_per_leaf, self.oversubscription)
        if self.kind != "fat-tree" or self.leaves_per_pod is None:
            return (leaf,)
        pod = Block("pod", leaf.nodes * self.leaves_per_pod, self.oversubscription * self.pod_oversubscription)
        return (leaf, pod)


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes under one switch: ``taper`` is what they can send together over what its way up carries."""

    name: str
    nodes: int
    taper: float


@dataclass(frozen=True, slots=True)
class Spread:
    """How a group lies on the nodes of a job: ``nodes`` of it, ``spacing`` apart, among ``cluster_nodes``."""

    nodes: int
    spacing: int
    cluster_nodes: int


def ring_share(fabric: FabricTable, spread: Spread) -> tuple[float, str]:
    """The part of the NICs' rate that rings keep on this fabric when all groups alike run theirs, and the limit."""
    if fabric.kind == "torus":
        # A ring winds through the torus along neighbours, both ways: two of the directions that share the NICs.
        return min(1.0, 1.0 / (len(fabric.shape) * min(spread.spacing, max(fabric.shape)))), "torus links"
    crossed = [block for block in fabric.blocks if fabric.kind != "rail" and spread.cluster_nodes > block.nodes]
    return _narrowest([(block, leaving_ring(fabric, block, spread)) for block in crossed])


def exchange_share(fabric: FabricTable, spread: Spread) -> tuple[float, str]:
    """The same for an exchange of all with all."""
    if fabric.kind == "torus":
        # Half of all traffic crosses the middle of the longest axis, over two links a row (it wraps around).
        nodes, longest = math.prod(fabric.shape), max(fabric.shape)
        bisection = 2 * nodes / longest * (1 / (2 * len(fabric.shape)))
        return min(1.0, bisection / (nodes / 4)), "torus bisection"
    inside = [(block, max(1.0, block.nodes / spread.spacing)) for block in fabric.blocks if fabric.kind != "rail"]
    return _narrowest([(block, leaving_exchange(own, spread)) for block, own in inside if spread.nodes > own])


def leaving_ring(fabric: FabricTable, block: Block, spread: Spread) -> float:
    """The part of a block's sends that leave it when rings run.

    Groups whose nodes are d apart leave a block of m nodes d times for m sends, and always where d is larger; scattered
    nodes with every send that does not happen to stay.
    """
    if fabric.placement == "scattered":
        return 1 - (block.nodes - 1) / (spread.cluster_nodes - 1)
    return min(1.0, spread.spacing / block.nodes)


def leaving_exchange(inside: float, spread: Spread) -> float:
    """The part of a block's sends that leave it when all send to all and ``inside`` of a group's nodes are in it."""
    return (spread.nodes - inside) / (spread.nodes - 1) if spread.nodes > 1 else 0.0


def _narrowest(leaving: list[tuple[Block, float]]) -> tuple[float, str]:
    """What the worst of the ways out leaves of the NICs' rate."""
    worst, limit = 1.0, "NICs"
    for block, part in leaving:
        if part > 0 and 1 / (block.taper * part) < worst:
            worst, limit = 1 / (block.taper * part), f"way out of a {block.name}"
    return worst, limit
