"""What spoils a regular cluster: a link that is slow, and other jobs on the same fabric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from simcore.fields import Name, PositiveInt
from simcore.files import Table
from simcore.topology.fabric import FabricTable, Spread, leaving_exchange
from simcore.topology.flows import fair_rates


class SlowTable(Table):
    """``[[cluster.slow]]``: a node one of whose links keeps only ``keeps`` of its rate.

    Collectives split their bytes evenly over NICs and links, so that all wait for the slowest.
    """

    node: Annotated[int, Field(ge=0, le=10_000_000)]
    link: Literal["nic", "inside"] = "nic"
    keeps: Annotated[float, Field(gt=0, le=1)]


class JobTable(Table):
    """``[[cluster.jobs]]``: another job, its ``nodes`` mingled with ours on every leaf, communicating ``busy`` of its
    time."""

    name: Name = "another job"
    nodes: PositiveInt
    busy: Annotated[float, Field(gt=0, le=1)] = 1.0


def kept_of(slow: Sequence[SlowTable], link: str, nodes: int) -> float:
    """What is left of the pace of a collective over the first ``nodes`` nodes."""
    return min((entry.keeps for entry in slow if entry.link == link and entry.node < nodes), default=1.0)


def share_beside(jobs: Sequence[JobTable], fabric: FabricTable, spread: Spread) -> tuple[float, str]:
    """The part of the NICs' rate that is ours beside other jobs, by max-min fair sharing of each block's way out.

    All jobs' nodes are mingled, so a block holds each in proportion, and a job's send leaves it unless it goes to one
    of the job's own nodes in there. While the others are silent, we have what we would have alone.
    """
    total = spread.cluster_nodes + sum(job.nodes for job in jobs)
    worst, limit = 1.0, "NICs"
    for block in fabric.blocks:
        if fabric.kind == "rail" or total <= block.nodes:
            continue
        capacity: dict[object, float] = {"way out": block.nodes / block.taper}
        loads: list[dict[object, float]] = []
        for index, nodes in enumerate((spread.cluster_nodes, *(job.nodes for job in jobs))):
            here = min(nodes, block.nodes * nodes / total)
            capacity[index] = 1.0
            loads.append({index: 1.0, "way out": here * leaving_exchange(max(1.0, here), Spread(nodes, 1, nodes))})
        alone, _ = fair_rates(loads[:1], capacity)[0]
        together, link = fair_rates(loads, capacity)[0]
        ours = alone + (together - alone) * max(job.busy for job in jobs)
        if link == "way out" and ours < worst:
            worst, limit = ours, f"way out of a {block.name}, shared with {', '.join(job.name for job in jobs)}"
    return worst, limit
