"""From what a sweep's index says of a machine, in people's words, to a preset of the catalogue with its own NICs."""

from __future__ import annotations

import math
import re

from simcore.catalog.load import find_node, find_transport
from simcore.collectives.sweep import Sweep
from simcore.collectives.wires import Cluster
from simcore.topology.fabric import FabricTable

# The first that fits: words of the GPU, words of the links inside, the preset. All are looked for in any case.
PRESETS = (
    (r"DGX-2|V100-SXM3", r"NVSwitch", "dgx-2"),
    (r"V100.*(DGX-1|8/node|SXM2)", r"mesh|^NVLink$", "dgx-1-v100"),
    (r"A100(?!.*PCIE)", r"NVSwitch|NCCL_P2P_DISABLE", "dgx-a100"),
    (r"A100(?!.*PCIE)", r"all-to-all", "slingshot-4xa100"),
    (r"A100-PCIE", r"PCIe4", "8xpcie-two-sockets"),
    (r"H100(?!.*pairwise)", r"NVSwitch|NVLink4 all-to-all", "hgx-h100"),
    (r"H200", r"NVSwitch", "hgx-h200"),
    (r"GB[23]00", r"NVL72|NVLink5|MNNVL", "gb200-nvl72"),
    (r"B200", r"NVSwitch", "hgx-b200"),
    (r"MI300X", r"xGMI|Infinity", "mi300x-8"),
    (r"A40", r"NVLink bridge|SHM", "2xa40-bridge"),
    (r"4090", r"P2P", "4x4090"),
    (r"2080 ?Ti", r"PCIe3", "8x2080ti"),
    (r"3090", r"bridge", "8x3090-two-sockets"),
)
TRANSPORTS = (
    (r"TCPXO|FasTrak", "tcpxo"),
    (r"TCPX", "tcpx"),
    (r"TCP|socket|gVNIC(?!.*GPUD)|ENA", "tcp"),
    (r"GPUD", "tcpx"),
    (r"EFA", "efa"),
    (r"Slingshot", "slingshot"),
    (r"RoCE|Ethernet|ConnectX|gIB", "roce"),
    (r"\bIB\b|InfiniBand|[HNE]DR", "infiniband"),
)
RACK = 72
"""GPUs of a rack that NVLink joins."""

NICS = re.compile(r"(\d+)\s*x\s*(\d+)\s*Gb?", re.IGNORECASE)


def cluster_of(sweep: Sweep) -> Cluster | None:
    """The preset that the sweep's words name, with the NICs that they name; None where no preset is meant, or where it
    crosses nodes without saying over what."""
    name = _first([(gpu, links) for gpu, links, _ in PRESETS], [preset for *_, preset in PRESETS], sweep)
    if name is None:
        return None
    node = find_node(name, {}, sweep.name)
    if not _is_rack(sweep) and sweep.ranks_per_node > node.gpus:
        if node.nvlinks:
            return None
        node = node.model_copy(update={"gpus": sweep.ranks_per_node})
    if re.search(r"P2P e|P2P driver|p2pdriver", sweep.intra_link):
        node = node.model_copy(update={"peer_to_peer": True})
    if nodes_of(sweep) == 1:
        return Cluster(node, FabricTable(), find_transport("infiniband", sweep.name))
    transport = next((known for words, known in TRANSPORTS if re.search(words, sweep.inter_link, re.I)), None)
    nics = NICS.search(sweep.inter_link)
    if transport is None or nics is None:
        return None
    if not _is_rack(sweep):
        node = node.model_copy(update={"nics": int(nics[1]), "nic_gb_per_s": int(nics[2]) / 8})
    fabric = FabricTable(transport=transport, sharp="SHARP" in sweep.inter_link)
    return Cluster(node, fabric, find_transport(transport, sweep.name))


def nodes_of(sweep: Sweep) -> int:
    """The sweep's nodes as the catalogue counts them: a rack of NVL72 is one, however many trays it has."""
    if not _is_rack(sweep):
        return sweep.nodes
    racks = re.search(r"(\d+) racks", sweep.inter_link)
    return int(racks[1]) if racks else math.ceil(sweep.ranks / RACK)


def _is_rack(sweep: Sweep) -> bool:
    return re.search(r"GB[23]00", sweep.gpu) is not None and re.search(r"NVL72|MNNVL", sweep.intra_link) is not None


def _first(words: list[tuple[str, str]], names: list[str], sweep: Sweep) -> str | None:
    for (gpu, links), name in zip(words, names, strict=True):
        if re.search(gpu, sweep.gpu, re.I) and re.search(links, sweep.intra_link, re.I):
            return name
    return None
