"""Types of machine: every preset valid, sourced and wired as its GPUs can be; machines read from ``nvidia-smi topo -m``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from simcore.catalog.load import find_node, gpus, nodes
from simcore.errors import InputError
from simcore.topology.node import NodeTable
from simcore.topology.nvidia_smi import read_topology
from simcore.topology.wiring import WIRINGS

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
NIC_LEGEND = "\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n"

# An old driver: tabs, NICs by name, no NUMA column.
DGX_1 = (
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tmlx5_0\tmlx5_2\tmlx5_1\tmlx5_3\tCPU Affinity\x1b[0m\n"
    "GPU0\t X \tNV1\tNV1\tNV2\tNV2\tSYS\tSYS\tSYS\tPIX\tSYS\tPHB\tSYS\t0-19,40-59\n"
    "GPU1\tNV1\t X \tNV2\tNV1\tSYS\tNV2\tSYS\tSYS\tPIX\tSYS\tPHB\tSYS\t0-19,40-59\n"
    "GPU2\tNV1\tNV2\t X \tNV2\tSYS\tSYS\tNV1\tSYS\tPHB\tSYS\tPIX\tSYS\t0-19,40-59\n"
    "GPU3\tNV2\tNV1\tNV2\t X \tSYS\tSYS\tSYS\tNV1\tPHB\tSYS\tPIX\tSYS\t0-19,40-59\n"
    "GPU4\tNV2\tSYS\tSYS\tSYS\t X \tNV1\tNV1\tNV2\tSYS\tPIX\tSYS\tPHB\t20-39,60-79\n"
    "GPU5\tSYS\tNV2\tSYS\tSYS\tNV1\t X \tNV2\tNV1\tSYS\tPIX\tSYS\tPHB\t20-39,60-79\n"
    "GPU6\tSYS\tSYS\tNV1\tSYS\tNV1\tNV2\t X \tNV2\tSYS\tPHB\tSYS\tPIX\t20-39,60-79\n"
    "GPU7\tSYS\tSYS\tSYS\tNV1\tNV2\tNV1\tNV2\t X \tSYS\tPHB\tSYS\tPIX\t20-39,60-79\n"
    "mlx5_0\tPIX\tPIX\tPHB\tPHB\tSYS\tSYS\tSYS\tSYS\t X \tSYS\tPHB\tSYS\t\n"
    "mlx5_2\tSYS\tSYS\tSYS\tSYS\tPIX\tPIX\tPHB\tPHB\tSYS\t X \tSYS\tPHB\t\n"
    "mlx5_1\tPHB\tPHB\tPIX\tPIX\tSYS\tSYS\tSYS\tSYS\tPHB\tSYS\t X \tSYS\t\n"
    "mlx5_3\tSYS\tSYS\tSYS\tSYS\tPHB\tPHB\tPIX\tPIX\tSYS\tPHB\tSYS\t X \t\n" + LEGEND
)

# Pasted with spaces and the prompt; a desktop, whose driver knows no NUMA node.
BRIDGE_3090 = (
    "$ nvidia-smi topo -m\n"
    "        GPU0    GPU1    CPU Affinity    NUMA Affinity\n"
    "GPU0     X      NV4     0-23            N/A\n"
    "GPU1    NV4      X      0-23            N/A\n" + LEGEND
)

PCIE_ONLY = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tPHB\tSYS\tSYS\t0-15,32-47\t0\n"
    "GPU1\tPHB\t X \tSYS\tSYS\t0-15,32-47\t0\n"
    "GPU2\tSYS\tSYS\t X \tPHB\t16-31,48-63\t1\n"
    "GPU3\tSYS\tSYS\tPHB\t X \t16-31,48-63\t1\n" + LEGEND
)

# Newer drivers: a column that rows reach over an empty one.
NEWER = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tPIX\tNODE\tNODE\tPIX\tNODE\t0-31\t0\t\tN/A\n"
    "GPU1\tPIX\t X \tNODE\tNODE\tPIX\tNODE\t0-31\t0\t\tN/A\n"
    "GPU2\tNODE\tNODE\t X \tPXB\tNODE\tPXB\t0-31\t0\t\tN/A\n"
    "GPU3\tNODE\tNODE\tPXB\t X \tNODE\tPXB\t0-31\t0\t\tN/A\n"
    "NIC0\tPIX\tPIX\tNODE\tNODE\t X \tNODE\n"
    "NIC1\tNODE\tNODE\tPXB\tPXB\tNODE\t X \n" + LEGEND + NIC_LEGEND
)

POLARIS = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tmlx5_1\tCPU Affinity\tNUMA Affinity\n"
    "GPU0\t X \tNV4\tNV4\tNV4\tSYS\tSYS\t24-31,56-63\t3\n"
    "GPU1\tNV4\t X \tNV4\tNV4\tSYS\tPHB\t16-23,48-55\t2\n"
    "GPU2\tNV4\tNV4\t X \tNV4\tSYS\tSYS\t8-15,40-47\t1\n"
    "GPU3\tNV4\tNV4\tNV4\t X \tPHB\tSYS\t0-7,32-39\t0\n"
    "mlx5_0\tSYS\tSYS\tSYS\tPHB\t X \tSYS\n"
    "mlx5_1\tSYS\tPHB\tSYS\tSYS\tSYS\t X \n" + LEGEND
)

GRACE = (
    "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    "GPU0\t X \tNV6\tNV6\tNV6\t0-71\t0\t\t4\n"
    "GPU1\tNV6\t X \tNV6\tNV6\t72-143\t1\t\t12\n"
    "GPU2\tNV6\tNV6\t X \tNV6\t144-215\t2\t\t20\n"
    "GPU3\tNV6\tNV6\tNV6\t X \t216-287\t3\t\t28\n" + LEGEND
)


def dgx_a100() -> str:
    """Ten NICs: a pair beside each pair of GPUs, and two for storage away from all."""
    beside = {0: (0, 1), 1: (2, 3), 2: (6, 7), 3: (8, 9)}
    places = ("48-63,176-191\t3", "16-31,144-159\t1", "112-127,240-255\t7", "80-95,208-223\t5")
    gpu_rows = [
        [
            *(" X " if peer == gpu else "NV12" for peer in range(8)),
            *("PXB" if nic in beside[gpu // 2] else "SYS" for nic in range(10)),
            places[gpu // 2],
        ]
        for gpu in range(8)
    ]
    nic_rows = [
        [
            *("PXB" if nic in beside[gpu // 2] else "SYS" for gpu in range(8)),
            *(
                " X " if peer == nic else "PXB" if {peer, nic} in map(set, beside.values()) else "SYS"
                for peer in range(10)
            ),
        ]
        for nic in range(10)
    ]
    names = [*(f"GPU{gpu}" for gpu in range(8)), *(f"mlx5_{nic}" for nic in range(10))]
    header = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity"])
    rows = ["\t".join([name, *row]) for name, row in zip(names, [*gpu_rows, *nic_rows], strict=True)]
    return "\n".join([header, *rows]) + "\n" + LEGEND


def uniform(gpus: int, links: int) -> str:
    """GPUs that all show the same links to one another."""
    names = [f"GPU{gpu}" for gpu in range(gpus)]
    rows = [
        "\t".join([name, *(" X " if peer == name else f"NV{links}" for peer in names), "0-63", "0"]) for name in names
    ]
    return "\n".join(["\t".join(["", *names, "CPU Affinity", "NUMA Affinity"]), *rows]) + "\n"


def links_of_each(node: NodeTable) -> list[int]:
    ends: Counter[int] = Counter(dict.fromkeys(range(node.gpus), 0))
    for first, second, count in node.nvlinks:
        ends[first] += count
        ends[second] += count
    return [ends[gpu] for gpu in range(node.gpus)]


@pytest.mark.parametrize("name", nodes())
def test_every_preset_names_a_gpu_of_the_catalogue_and_a_source(name: str) -> None:
    node = nodes()[name]
    assert node.gpu in gpus()
    assert len(node.source) > 20


@pytest.mark.parametrize("name", nodes())
def test_no_preset_joins_two_gpus_twice_or_has_both_a_switch_and_links(name: str) -> None:
    node = nodes()[name]
    pairs = [frozenset(link[:2]) for link in node.nvlinks]
    assert len(pairs) == len(set(pairs))
    assert node.nvswitch_gb_per_s is None or not node.nvlinks


@pytest.mark.parametrize("name", nodes())
def test_gpus_and_switches_of_every_preset_hang_evenly(name: str) -> None:
    node = nodes()[name]
    assert node.gpus % (node.pcie_switches or node.sockets) == 0
    assert node.pcie_switches % node.sockets == 0


@pytest.mark.parametrize("name", [name for name, node in nodes().items() if node.gpu in WIRINGS])
def test_presets_have_the_links_and_peers_that_their_gpus_have(name: str) -> None:
    node = nodes()[name]
    wiring = WIRINGS[node.gpu]
    assert node.pcie_gb_per_s <= wiring.pcie_gb_per_s
    assert node.peer_to_peer == wiring.peer_to_peer
    if node.nvlinks:
        assert links_of_each(node) == [wiring.nvlinks] * node.gpus
        assert node.nvlink_gb_per_s == wiring.nvlink_gb_per_s
    if node.nvswitch_gb_per_s:
        assert node.nvswitch_gb_per_s == wiring.nvlinks * (wiring.nvlink_gb_per_s or 0)


@pytest.mark.parametrize("name", ["dgx-1-v100", "p3dn"])
def test_each_v100_of_a_cube_mesh_has_six_links_to_four_others(name: str) -> None:
    node = nodes()[name]
    assert links_of_each(node) == [6] * 8
    assert Counter(gpu for link in node.nvlinks for gpu in link[:2]) == dict.fromkeys(range(8), 4)


def test_each_mi300x_has_seven_links() -> None:
    assert links_of_each(nodes()["mi300x-8"]) == [7] * 8


def test_each_nvidia_gpu_of_the_catalogue_has_a_wiring() -> None:
    assert set(WIRINGS) == {name for name in gpus() if not name.startswith(("MI", "CPU"))}


def test_a_scenario_s_own_node_goes_before_the_catalogue_s() -> None:
    own = NodeTable(gpu="T4", gpus=1, pcie_gb_per_s=15.75)
    assert find_node("dgx-2", {"dgx-2": own}, "here") == own
    assert find_node("dgx-2", {}, "here").gpus == 16


def test_an_unknown_node_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"^here: unknown node 'dgx-a10'.*dgx-a100.*simscale catalog lists all$"):
        find_node("dgx-a10", {}, "here")


def test_a_dgx_1_is_read_as_its_preset() -> None:
    read = read_topology(DGX_1, "V100-SXM2-32GB", "here", nic_gbit_per_s=100)
    preset = nodes()["dgx-1-v100"]
    aside = {"source": preset.source, "socket_gb_per_s": preset.socket_gb_per_s}
    assert read.model_copy(update=aside) == preset


def test_a_dgx_a100_is_read_as_its_preset_without_the_nics_of_storage() -> None:
    read = read_topology(dgx_a100(), "A100-SXM4-80GB", "here", nic_gbit_per_s=200)
    preset = nodes()["dgx-a100"]
    assert read.model_copy(update={"source": preset.source}) == preset


def test_a_bridge_is_read_as_its_preset() -> None:
    read = read_topology(BRIDGE_3090, "RTX-3090", "here")
    preset = nodes()["2x3090-bridge"]
    assert read.model_copy(update={"source": preset.source}) == preset


def test_polaris_is_read_as_its_preset_of_one_socket() -> None:
    read = read_topology(POLARIS, "A100-SXM4-40GB", "here", nic_gbit_per_s=200)
    preset = nodes()["slingshot-4xa100"]
    assert read.model_copy(update={"source": preset.source}) == preset


def test_four_gpus_on_two_sockets_have_neither_links_nor_switches() -> None:
    read = read_topology(PCIE_ONLY, "T4", "here")
    assert (read.gpus, read.sockets, read.pcie_switches, read.nvlinks) == (4, 2, 0, ())
    assert (read.pcie_gb_per_s, read.peer_to_peer, read.nics) == (15.75, True, 0)


def test_the_newer_format_with_numa_ids_of_gpus() -> None:
    read = read_topology(NEWER, "L40S", "here", nic_gbit_per_s=400)
    assert (read.gpus, read.sockets, read.pcie_switches) == (4, 1, 2)
    assert (read.nics, read.nic_gb_per_s) == (2, 50.0)


def test_without_the_rate_of_its_nics_a_machine_has_none() -> None:
    assert read_topology(NEWER, "L40S", "here").nics == 0


def test_four_grace_hoppers_are_four_sockets_joined_by_a_mesh() -> None:
    read = read_topology(GRACE, "GH200-96GB", "here")
    assert (read.sockets, read.nvswitch_gb_per_s) == (4, None)
    assert links_of_each(read) == [18] * 4


def test_one_gpu_alone() -> None:
    assert read_topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n", "RTX-4090", "here").gpus == 1


def test_sys_between_gpus_makes_two_sockets_where_nothing_tells_their_places() -> None:
    text = "\tGPU0\tGPU1\nGPU0\t X \tSOC\nGPU1\tSOC\t X \n"
    assert read_topology(text, "P100-PCIe-16GB", "here").sockets == 2


@pytest.mark.parametrize(
    ("count", "links", "gpu", "switch"),
    [
        (16, 6, "V100-SXM2-32GB", 150.0),
        (8, 12, "A100-SXM4-80GB", 300.0),
        (8, 18, "H100-SXM5-80GB", 450.0),
        (4, 18, "GB200-186GB", 900.0),
        (4, 4, "A100-SXM4-40GB", None),
        (4, 6, "H100-SXM5-80GB", None),
        (2, 12, "A100-SXM4-80GB", None),
    ],
)
def test_links_beyond_what_a_gpu_has_are_a_switch_and_others_a_mesh(
    count: int, links: int, gpu: str, switch: float | None
) -> None:
    read = read_topology(uniform(count, links), gpu, "here")
    assert read.nvswitch_gb_per_s == switch
    assert bool(read.nvlinks) == (switch is None)


def test_a_header_whose_escapes_lost_a_character_is_read() -> None:
    text = PCIE_ONLY.replace("\tGPU0", "\t[4mGPU0", 1).replace("NUMA Affinity\n", "NUMA Affinity[0m\n", 1)
    assert read_topology(text, "T4", "here") == read_topology(PCIE_ONLY, "T4", "here")


@pytest.mark.parametrize(
    ("spoil", "gpu", "message"),
    [
        (lambda text: "nvidia-smi: command not found\n", "T4", r"no matrix found"),
        (lambda text: "", "T4", r"no matrix found"),
        (lambda text: text.replace("PHB\tSYS\tSYS\t0-15", "PHB\tSYS\t0-15", 1), "T4", r"row GPU0 has 3 cells"),
        (
            lambda text: text.replace("PHB\tSYS\tSYS\t0-15", "PHB\tSYS\tSYS\tSYS\t0-15", 1),
            "T4",
            r"row GPU0 has 5 cells",
        ),
        (lambda text: text.replace("\t0\n", "\t0\t0\t0\n", 1), "T4", r"row GPU0 has 4 cells and 4 affinities"),
        (lambda text: text.replace("PHB", "FOO", 1), "T4", r"row GPU0: unknown cell 'FOO'"),
        (lambda text: text.replace("PHB", "PIX", 1), "T4", r"GPU0 to GPU1 is PIX, yet GPU1 to GPU0 is PHB"),
        (lambda text: text.replace(" X ", "SYS", 1), "T4", r"row GPU0 needs one X"),
        (lambda text: text[: text.index("GPU3\tSYS")], "T4", r"no row for GPU3"),
        (lambda text: text.replace("PHB", "NV2"), "T4", r"GPU0 shows 2 NVLinks; the GPU T4 has 0"),
        (lambda text: text, "MI300X", r"GPU 'MI300X' is none that nvidia-smi lists"),
        (lambda text: text, "T5", r"unknown GPU 'T5'"),
    ],
)
def test_each_mistake_is_one_line_that_says_where(spoil: Callable[[str], str], gpu: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_topology(spoil(PCIE_ONLY), gpu, "topo.txt")
    assert str(caught.value).startswith("topo.txt: ")
    assert "\n" not in str(caught.value)
