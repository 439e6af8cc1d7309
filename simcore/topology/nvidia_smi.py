"""A machine as ``nvidia-smi topo -m`` prints it, read into a ``NodeTable``.

The matrix says what joins each two devices, not how fast; rates follow from the GPU. Between GPUs joined by NVLink it
hides how they sit on PCIe, which the NICs beside them then tell.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import networkx as nx

from simcore.catalog.load import find_gpu
from simcore.errors import InputError
from simcore.files import parse
from simcore.topology.node import NodeTable
from simcore.topology.wiring import WIRINGS, Wiring

# Terminals underline the header; pasting may lose the escape character and keep the rest.
ANSI = re.compile(r"\x1b?\[\d*(?:;\d+)*m")
AFFINITY_HEADS = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID")
AFFINITY = re.compile(r"\d[\d,-]*|N/A")
CELL = re.compile(r"X|NV(?P<links>\d+)|SYS|SOC|NODE|PHB|PXB|PIX")
SAME_SWITCH = ("PIX", "PXB")
WAY_OUT = "paste all that nvidia-smi topo -m prints"


@dataclass(frozen=True)
class _Matrix:
    """The cells by their two devices, and by each GPU what the columns of affinities hold."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    cells: dict[tuple[str, str], str]
    affinities: dict[str, dict[str, str]]


def read_topology(text: str, gpu: str, where: str, nic_gbit_per_s: float | None = None) -> NodeTable:
    """The machine in ``text``, with GPUs of type ``gpu`` (a name or alias of the catalogue).

    Its NICs are those on a PCIe switch with a GPU, or all where none is; without ``nic_gbit_per_s``, what one carries
    one way, it has none. Raises ``InputError`` where the text holds no whole matrix or the GPU cannot have its links.
    """
    name, wiring = _wiring(gpu, where)
    matrix = _matrix(text, where)
    nics = _nics(matrix) if nic_gbit_per_s is not None else 0
    data: dict[str, Any] = {
        "gpu": name,
        "gpus": len(matrix.gpus),
        **_nvlinks(matrix, name, wiring, where),
        "pcie_gb_per_s": wiring.pcie_gb_per_s,
        "pcie_switches": _pcie_switches(matrix),
        "sockets": _sockets(matrix),
        "peer_to_peer": wiring.peer_to_peer,
        "nics": nics,
        "nic_gb_per_s": nic_gbit_per_s / 8 if nics and nic_gbit_per_s is not None else None,
        "source": "nvidia-smi topo -m",
    }
    return parse(NodeTable, data, where)


def _wiring(gpu: str, where: str) -> tuple[str, Wiring]:
    name, _ = find_gpu(gpu, where)
    if name not in WIRINGS:
        raise InputError(f"{where}: GPU '{name}' is none that nvidia-smi lists; name the NVIDIA GPU of this machine")
    return name, WIRINGS[name]


def _matrix(text: str, where: str) -> _Matrix:
    lines = ANSI.sub("", text).splitlines()
    start = next((number for number, line in enumerate(lines) if _is_header(line.split())), None)
    if start is None:
        raise InputError(f"{where}: no matrix found: no line names GPU0, GPU1 and so on; {WAY_OUT}")
    heads = AFFINITY_HEADS.findall(lines[start])
    devices = AFFINITY_HEADS.split(lines[start])[0].split()
    rows = _rows(lines[start + 1 :], devices, len(heads), where)
    gpus = tuple(device for device in devices if device.startswith("GPU"))
    if missing := [gpu for gpu in gpus if gpu not in rows]:
        raise InputError(f"{where}: no row for {', '.join(missing)}; every GPU of the header needs one; {WAY_OUT}")
    # A row goes on with its affinities, so it may be longer than the devices.
    cells = {(label, device): word for label, row in rows.items() for device, word in zip(devices, row, strict=False)}
    _check_symmetric(cells, where)
    return _Matrix(
        gpus=gpus,
        nics=tuple(device for device in devices if device not in gpus),
        cells=cells,
        affinities={gpu: dict(zip(heads, rows[gpu][len(devices) :], strict=False)) for gpu in gpus},
    )


def _is_header(words: list[str]) -> bool:
    """A line that begins with a GPU, yet not with a GPU's cell."""
    return bool(words and re.fullmatch(r"GPU\d+", words[0])) and not (words[1:] and CELL.fullmatch(words[1]))


def _rows(lines: list[str], devices: list[str], heads: int, where: str) -> dict[str, list[str]]:
    """The words after each device's name; of a matrix that was pasted twice the first."""
    rows: dict[str, list[str]] = {}
    for line in lines:
        label, *words = line.split() or [""]
        if label in devices and label not in rows:
            _check_row(label, words, devices, heads, where)
            rows[label] = words
    return rows


def _check_row(label: str, words: list[str], devices: list[str], heads: int, where: str) -> None:
    """Refuses a row that does not fit the header: a cell for each device, then at most the affinities that it heads."""
    cells = next((number for number, word in enumerate(words) if AFFINITY.fullmatch(word)), len(words))
    unknown = next((word for word in words[:cells] if not CELL.fullmatch(word)), None)
    if unknown is not None:
        raise InputError(f"{where}: row {label}: unknown cell '{unknown}'; a cell is X, NV and a number, SYS, NODE, "
                         f"PHB, PXB or PIX; {WAY_OUT}")  # fmt: skip
    if cells != len(devices) or len(words) > cells + heads:
        raise InputError(f"{where}: row {label} has {cells} cells and {len(words) - cells} affinities; the header "
                         f"names {len(devices)} devices and {heads} affinities; {WAY_OUT}")  # fmt: skip
    if [number for number, word in enumerate(words) if word == "X"] != [devices.index(label)]:
        raise InputError(f"{where}: row {label} needs one X, under {label}; {WAY_OUT}")


def _check_symmetric(cells: dict[tuple[str, str], str], where: str) -> None:
    for (first, second), word in cells.items():
        back = cells.get((second, first), word)
        if back != word:
            raise InputError(f"{where}: {first} to {second} is {word}, yet {second} to {first} is {back}; both must be "
                             f"the same; {WAY_OUT}")  # fmt: skip


def _nvlinks(matrix: _Matrix, gpu: str, wiring: Wiring, where: str) -> dict[str, Any]:
    """The keys of a ``NodeTable`` for the NVLinks: a switch, links between pairs, or none."""
    pairs = dict(_linked(matrix))
    if not pairs:
        return {}
    each = _links_into_switch(pairs, len(matrix.gpus), wiring)
    if each and wiring.nvlink_gb_per_s:
        return {"nvswitch_gb_per_s": each * wiring.nvlink_gb_per_s}
    ends: Counter[int] = Counter()
    for pair, count in pairs.items():
        ends.update(dict.fromkeys(pair, count))
    busiest, most = ends.most_common(1)[0]
    if most > wiring.nvlinks:
        raise InputError(f"{where}: {matrix.gpus[busiest]} shows {most} NVLinks; the GPU {gpu} has {wiring.nvlinks}; "
                         "name the GPU of this machine")  # fmt: skip
    return {"nvlinks": [[*pair, count] for pair, count in pairs.items()], "nvlink_gb_per_s": wiring.nvlink_gb_per_s}


def _linked(matrix: _Matrix) -> Iterator[tuple[tuple[int, int], int]]:
    """The links of each two GPUs joined by NVLink."""
    for (first, one), (second, other) in combinations(enumerate(matrix.gpus), 2):
        found = CELL.fullmatch(matrix.cells[one, other])
        if found and found["links"]:
            yield (first, second), int(found["links"])


def _links_into_switch(pairs: dict[tuple[int, int], int], gpus: int, wiring: Wiring) -> int:
    """The links of a GPU into a switch that joins all; 0 where there is none.

    Behind a switch every pair shows all the links of a GPU, so that they seem to be more than it has.
    """
    every_pair = len(pairs) == gpus * (gpus - 1) // 2 and len(set(pairs.values())) == 1
    each = next(iter(pairs.values()))
    return each if every_pair and each <= wiring.nvlinks < each * (gpus - 1) else 0


def _pcie_switches(matrix: _Matrix) -> int:
    """The groups of GPUs that share a PCIe switch; 0 where no GPU shares one with anything."""
    graph = nx.Graph()
    graph.add_nodes_from(matrix.gpus)
    graph.add_edges_from(pair for pair, word in matrix.cells.items() if word in SAME_SWITCH)
    if not any(graph.degree(gpu) for gpu in matrix.gpus):
        return 0
    return sum(any(gpu in group for gpu in matrix.gpus) for group in nx.connected_components(graph))


def _nics(matrix: _Matrix) -> int:
    """The NICs for GPUs: those away from every GPU, where others are near one, serve storage and management."""
    near = [nic for nic in matrix.nics if any(matrix.cells[gpu, nic] in SAME_SWITCH for gpu in matrix.gpus)]
    return len(near or matrix.nics)


def _sockets(matrix: _Matrix) -> int:
    """The CPUs with GPUs: one each NUMA node, unless these are more than two, when a CPU is split into several."""
    places = {place for gpu in matrix.gpus if (place := _place(matrix.affinities[gpu])) is not None}
    if len(places) <= 1:
        return 2 if any(matrix.cells[pair] in ("SYS", "SOC") for pair in combinations(matrix.gpus, 2)) else 1
    if len(places) == 2 or _has_memory_of_its_own(matrix):
        return len(places)
    # Four quarters with a GPU each are one EPYC; with more GPUs, or more nodes, they are two CPUs.
    one_epyc = len(places) == len(matrix.gpus) and places <= {"0", "1", "2", "3"}
    return 1 if one_epyc else 2


def _place(affinities: dict[str, str]) -> str | None:
    known = [affinities.get(head, "N/A") for head in ("NUMA Affinity", "CPU Affinity")]
    return next((place for place in known if place != "N/A"), None)


def _has_memory_of_its_own(matrix: _Matrix) -> bool:
    """Whether the GPUs are NUMA nodes themselves, as beside a Grace CPU, of which each is one NUMA node."""
    return any(affinities.get("GPU NUMA ID", "N/A") != "N/A" for affinities in matrix.affinities.values())
