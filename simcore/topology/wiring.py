"""What a GPU can be joined by: its NVLinks and its PCIe slot, which no list of a machine's connections says."""

from __future__ import annotations

from dataclasses import dataclass

# x16, one way, after the 128b/130b encoding.
PCIE_3, PCIE_4, PCIE_5 = 15.75, 31.5, 63.0


@dataclass(frozen=True)
class Wiring:
    """A GPU's PCIe rate, its NVLinks and what each carries one way (GB/s), and whether peers reach it over PCIe."""

    pcie_gb_per_s: float
    nvlinks: int = 0
    nvlink_gb_per_s: float | None = None
    peer_to_peer: bool = True


# From NVIDIA's whitepapers and datasheets of each GPU; GeForce drivers refuse peers over PCIe.
WIRINGS = {
    "P100-PCIe-16GB": Wiring(PCIE_3),
    "P100-SXM2-16GB": Wiring(PCIE_3, 4, 20.0),
    "V100-PCIe-16GB": Wiring(PCIE_3),
    "V100-PCIe-32GB": Wiring(PCIE_3),
    "V100-SXM2-16GB": Wiring(PCIE_3, 6, 25.0),
    "V100-SXM2-32GB": Wiring(PCIE_3, 6, 25.0),
    "T4": Wiring(PCIE_3),
    "RTX-2080Ti": Wiring(PCIE_3, 2, 25.0, peer_to_peer=False),
    "TitanRTX": Wiring(PCIE_3, 2, 25.0, peer_to_peer=False),
    "A30": Wiring(PCIE_4, 4, 25.0),
    "A100-PCIe-40GB": Wiring(PCIE_4, 12, 25.0),
    "A100-PCIe-80GB": Wiring(PCIE_4, 12, 25.0),
    "A100-SXM4-40GB": Wiring(PCIE_4, 12, 25.0),
    "A100-SXM4-80GB": Wiring(PCIE_4, 12, 25.0),
    "A10G": Wiring(PCIE_4),
    "A40": Wiring(PCIE_4, 4, 14.0625),
    "RTX-A6000": Wiring(PCIE_4, 4, 14.0625),
    "RTX-3090": Wiring(PCIE_4, 4, 14.0625, peer_to_peer=False),
    "L4": Wiring(PCIE_4),
    "L40S": Wiring(PCIE_4),
    "RTX-4090": Wiring(PCIE_4, peer_to_peer=False),
    "H100-PCIe-80GB": Wiring(PCIE_5, 12, 25.0),
    "H100-SXM5-80GB": Wiring(PCIE_5, 18, 25.0),
    "H200-SXM5-141GB": Wiring(PCIE_5, 18, 25.0),
    "GH200-96GB": Wiring(PCIE_5, 18, 25.0),
    "RTX-5090": Wiring(PCIE_5, peer_to_peer=False),
    "B200-180GB": Wiring(PCIE_5, 18, 50.0),
    "GB200-186GB": Wiring(PCIE_5, 18, 50.0),
}
