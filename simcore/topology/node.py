"""A type of machine: its GPUs, what joins them inside, and its way out; a table of ``nodes.toml`` or of a scenario.

Bandwidths are line rates one way in 10^9 bytes/s; what collectives keep of them belongs to the collectives.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from simcore.fields import Name, NonNegativeFloat, PositiveFloat, PositiveInt
from simcore.files import Table

# TOML has no tuples, and strictness holds at each level anew.
NvLink = Annotated[tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)], PositiveInt], Field(strict=False)]


class NodeTable(Table):
    """One type of machine.

    ``nvswitch_gb_per_s`` is what one GPU carries into a switch that joins all; ``nvlinks`` are bridges and meshes as
    ``[gpu, gpu, links]``, each link of ``nvlink_gb_per_s``. GPUs hang evenly and in order on ``pcie_switches`` (0: each
    on a root port of its socket), these on ``sockets``; ``socket_gb_per_s`` joins two sockets. Without
    ``peer_to_peer`` GPUs reach each other only through host memory, at ``host_gb_per_s``.
    ``nics`` hang evenly on the PCIe switches, or on the sockets where there are none.
    """

    gpu: Name
    gpus: PositiveInt
    nvswitch_gb_per_s: PositiveFloat | None = None
    nvlinks: Annotated[tuple[NvLink, ...], Field(strict=False)] = ()
    nvlink_gb_per_s: PositiveFloat | None = None
    pcie_gb_per_s: PositiveFloat
    pcie_switches: Annotated[int, Field(ge=0, le=64)] = 0
    sockets: Annotated[int, Field(ge=1, le=16)] = 1
    socket_gb_per_s: PositiveFloat = 16.0
    peer_to_peer: bool = True
    host_gb_per_s: PositiveFloat | None = None
    nics: Annotated[int, Field(ge=0, le=128)] = 0
    nic_gb_per_s: PositiveFloat | None = None
    nic_latency_us: NonNegativeFloat = 5.0
    source: Name = "the scenario"

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        if self.nvlinks and self.nvlink_gb_per_s is None:
            raise ValueError("gives nvlinks without nvlink_gb_per_s; say what one link carries one way")
        if self.nics and self.nic_gb_per_s is None:
            raise ValueError("gives nics without nic_gb_per_s; say what one NIC carries one way")
        for first, second, _ in self.nvlinks:
            if first == second or max(first, second) >= self.gpus:
                raise ValueError(
                    f"nvlinks joins GPUs {first} and {second}; the node has GPUs 0 to {self.gpus - 1}, a link joins "
                    "two of them"
                )
        return self
