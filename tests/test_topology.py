"""Clusters: closed forms against the explicit graph, link by link, and what spoils them."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.catalog.load import find_node, nodes, transports
from simcore.collectives.evidence import EvidenceTable
from simcore.collectives.nccl import NcclTable
from simcore.collectives.wires import Cluster
from simcore.costs.cluster import ClusterNetwork
from simcore.costs.network import Group
from simcore.predict import predict
from simcore.scenario.schema import Scenario
from simcore.topology.disturbance import JobTable, SlowTable
from simcore.topology.fabric import FabricTable, Spread, exchange_share, ring_share
from simcore.topology.flows import alone, fair_rates
from simcore.topology.graph import ClusterGraph
from simcore.topology.node import NodeTable
from simcore.topology.pace import multicast_gb_per_s, ring_pace
from simcore.topology.rings import nvlink_circuits, nvlink_rings

INFINIBAND = transports()["infiniband"]

FABRICS = {
    "one node": (FabricTable(), 1),
    "one switch": (FabricTable(), 4),
    "leaves": (FabricTable(kind="leaf-spine", nodes_per_leaf=4, oversubscription=8.0), 16),
    "rails": (FabricTable(kind="rail", nodes_per_leaf=4), 8),
    "fat tree": (
        FabricTable(
            kind="fat-tree", nodes_per_leaf=2, leaves_per_pod=2, oversubscription=3.0, pod_oversubscription=2.0
        ),
        16,
    ),
    "dragonfly": (FabricTable(kind="dragonfly", nodes_per_leaf=4, oversubscription=6.0), 8),
}


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("preset", nodes())
def test_the_closed_form_equals_the_graph(preset: str, fabric: str) -> None:
    node, (table, count) = find_node(preset, {}, "test"), FABRICS[fabric]
    if count > 1 and not node.nics:
        pytest.skip(f"{preset} has no NICs")
    graph = ClusterGraph(node, count, table, INFINIBAND)
    rate, _ = alone(graph.ring_load(), graph.capacity)
    wires, _ = Cluster(node, table, INFINIBAND).wires(node.gpus, Spread(count, 1, count))
    assert rate == pytest.approx(min(wires.within_gb_per_s, wires.across_gb_per_s or rate), rel=0.01)


def test_the_graph_conserves_what_flows() -> None:
    """What a ring brings into a vertex leaves it again."""
    graph = ClusterGraph(find_node("dgx-a100", {}, "test"), 4, FABRICS["leaves"][0], INFINIBAND)
    balance: dict[str, float] = {}
    for (one, other), share in graph.ring_load().items():
        balance[one] = balance.get(one, 0.0) - share
        balance[other] = balance.get(other, 0.0) + share
    assert all(rest == pytest.approx(0, abs=1e-9) for rest in balance.values())


@pytest.mark.parametrize(
    ("gpus", "rings", "measured"),
    [(2, 1, 22.55), (3, 2, 45.14), (4, 4, 85.36), (5, 0, 37.17), (6, 2, 45.74), (7, 4, 87.0), (8, 6, 134.51)],
)
def test_the_mesh_of_a_v100_node_sets_its_bandwidth(gpus: int, rings: int, measured: float) -> None:
    """All-reduce at 1 GiB on the first n of 8 V100 (vTrain's published traces): the links decide, not the count."""
    node = find_node("dgx-1-v100", {}, "test")
    assert nvlink_rings(node.nvlinks, gpus) == rings
    assert ring_pace(node, gpus).gb_per_s == pytest.approx(measured, rel=0.06)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 3)), max_size=12))
def test_circuits_fit_on_their_links(drawn: list[tuple[int, int, int]]) -> None:
    links = tuple((a, b, count) for a, b, count in drawn if a != b)
    left: dict[frozenset[int], int] = {}
    for a, b, count in links:
        left[frozenset((a, b))] = left.get(frozenset((a, b)), 0) + count
    for circuit in nvlink_circuits(links, 6):
        assert sorted(circuit) == list(range(6))
        for one, other in zip(circuit, (*circuit[1:], circuit[0]), strict=True):
            left[frozenset((one, other))] -= 1
    assert min(left.values(), default=0) >= 0


@given(
    st.lists(st.dictionaries(st.integers(0, 4), st.floats(0.1, 5), min_size=1), min_size=1, max_size=5),
    st.lists(st.floats(0.5, 50), min_size=5, max_size=5),
)
def test_fair_rates_fill_a_link_of_each_and_overload_none(loads: list[dict[int, float]], capacity: list[float]) -> None:
    rates = fair_rates(loads, dict(enumerate(capacity)))
    used = [sum(load.get(link, 0) * rate for load, (rate, _) in zip(loads, rates, strict=True)) for link in range(5)]
    assert all(one <= most * (1 + 1e-9) for one, most in zip(used, capacity, strict=True))
    for load, (rate, link) in zip(loads, rates, strict=True):
        assert isinstance(link, int)
        assert used[link] == pytest.approx(capacity[link])  # its bottleneck is full,
        beside = [other for one, (other, _) in zip(loads, rates, strict=True) if one.get(link)]
        assert rate == pytest.approx(max(beside))  # and nobody on it has more
        assert load.get(link)


def test_fair_rates_of_the_textbook() -> None:
    """Three flows, two links of 1 and 2: the long one and its neighbour share the first, the third takes the rest."""
    rates = fair_rates([{"a": 1.0, "b": 1.0}, {"a": 1.0}, {"b": 1.0}], {"a": 1.0, "b": 2.0})
    assert [rate for rate, _ in rates] == pytest.approx([0.5, 0.5, 1.5])


def test_packed_rings_hardly_feel_a_narrow_spine_and_scattered_ones_do() -> None:
    packed = FabricTable(kind="leaf-spine", nodes_per_leaf=8, oversubscription=4.0)
    scattered = packed.model_copy(update={"placement": "scattered"})
    assert ring_share(packed, Spread(64, 1, 64)) == (1.0, "NICs")
    share, link = ring_share(scattered, Spread(64, 1, 64))
    assert share == pytest.approx(1 / (4 * (1 - 7 / 63)))
    assert link == "way out of a leaf"
    # Groups whose members are 8 nodes apart (one in each leaf) all leave their leaf.
    assert ring_share(packed, Spread(8, 8, 64))[0] == pytest.approx(1 / 4)


def test_an_exchange_sends_almost_all_out_of_its_leaf() -> None:
    fabric = FabricTable(kind="leaf-spine", nodes_per_leaf=8, oversubscription=2.0)
    assert exchange_share(fabric, Spread(64, 1, 64))[0] == pytest.approx(63 / (2 * 56))
    assert exchange_share(fabric, Spread(8, 1, 8)) == (1.0, "NICs")


def test_a_torus_gives_a_ring_its_neighbours_links() -> None:
    fabric = FabricTable(kind="torus", shape=(4, 4, 4))
    assert ring_share(fabric, Spread(64, 1, 64))[0] == pytest.approx(1 / 3)
    assert exchange_share(fabric, Spread(64, 1, 64))[0] == pytest.approx(16 * 2 / 6 / 16)


def described(**changes: object) -> Cluster:
    cluster = Cluster(find_node("dgx-a100", {}, "test"), FabricTable(), INFINIBAND)
    return Cluster(**(cluster.__dict__ | changes))  # type: ignore[arg-type]


def test_one_slow_nic_sets_the_pace_of_all_that_cross_its_node() -> None:
    whole, sick = described(), described(slow=(SlowTable(node=3, keeps=0.25),))
    for count, keeps in ((2, 1.0), (8, 0.25)):
        spread = Spread(count, 1, count)
        across = sick.wires(8, spread)[0].across_gb_per_s
        assert across == pytest.approx((whole.wires(8, spread)[0].across_gb_per_s or 0.0) * keeps)
    assert sick.wires(8, Spread(8, 1, 8))[1] == "a slow NIC"


def test_another_job_takes_its_fair_share_of_the_spine() -> None:
    fabric = FabricTable(kind="leaf-spine", nodes_per_leaf=8, oversubscription=4.0, placement="scattered")
    spread = Spread(8, 1, 8)
    cluster = described(fabric=fabric, jobs=(JobTable(nodes=8),))
    across, link = cluster.wires(8, spread)
    leaving = 4 / 7  # of a leaf's eight nodes four are ours: three of the seven others that we send to
    assert across.across_gb_per_s == pytest.approx(200 * 0.95 * 2 / (8 * leaving))
    assert "another job" in link
    one_switch = described(jobs=(JobTable(nodes=8),))
    assert one_switch.wires(8, spread)[0].across_gb_per_s == pytest.approx(190)


def test_groups_side_by_side_share_the_nics() -> None:
    cluster = described()
    alone_gb, _ = cluster.wires(8, Spread(4, 1, 4))
    eighth, _ = cluster.wires(1, Spread(4, 1, 4), sharing=8)
    assert (eighth.across_gb_per_s or 0.0) * 8 == pytest.approx(alone_gb.across_gb_per_s)
    lone, _ = cluster.wires(1, Spread(4, 1, 4), sharing=1)
    assert lone.across_gb_per_s == pytest.approx(25 * 0.95)  # one rank uses its own NIC


def test_switches_add_up_only_from_nvlink_4_on() -> None:
    assert multicast_gb_per_s(find_node("dgx-a100", {}, "test"), 8) is None
    assert multicast_gb_per_s(find_node("hgx-h100", {}, "test"), 8) == pytest.approx(480 / 1.75, rel=0.05)


def test_a_node_without_nics_cannot_be_crossed() -> None:
    node = NodeTable(gpu="RTX-3090", gpus=2, pcie_gb_per_s=31.5)
    with pytest.raises(ValueError, match="no NICs"):
        Cluster(node, FabricTable(), INFINIBAND).wires(2, Spread(2, 1, 2))


@pytest.mark.parametrize("preset", ["dgx-a100", "hgx-h100", "slingshot-4xa100", "4x4090"])
def test_more_bytes_never_take_less(preset: str) -> None:
    node = find_node(preset, {}, "test")
    network = ClusterNetwork(Cluster(node, FabricTable(), INFINIBAND), preset, node.gpus, NcclTable())
    counts = (2, node.gpus) if not node.nics else (2, node.gpus, 4 * node.gpus, 64 * node.gpus)
    for collective in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"):
        for ranks in counts:
            times = [network.transfer(collective, 2.0**power, Group(ranks)).total_s for power in range(4, 34)]
            assert times == sorted(times)


def test_one_measured_number_moves_its_own_cost_and_narrows_it() -> None:
    plain = ClusterNetwork(described(), "dgx-a100", 8, NcclTable())
    informed = ClusterNetwork(
        described(), "dgx-a100", 8, NcclTable(), (EvidenceTable(gpus=32, bus_gb_per_s=150.0, source="ours"),)
    )
    inside, across = Group(8), Group(64)
    assert informed.transfer("all_reduce", 1e9, inside) == plain.transfer("all_reduce", 1e9, inside)
    before, after = (network.transfer("all_reduce", 1e9, across) for network in (plain, informed))
    assert 1.05 < after.wire_s / before.wire_s < 190 / 150
    assert after.wire_spread < before.wire_spread
    assert after.latency_s == before.latency_s


def test_a_number_that_contradicts_the_rest_is_named_and_left_aside() -> None:
    evidence = [EvidenceTable(gpus=32, bus_gb_per_s=rate, source=f"{rate:g}") for rate in (185.0, 188.0, 20.0)]
    network = ClusterNetwork(described(), "dgx-a100", 8, NcclTable(), tuple(evidence))
    assert network.transfer("all_reduce", 1e9, Group(32)).wire_s == pytest.approx(
        ClusterNetwork(described(), "dgx-a100", 8, NcclTable()).transfer("all_reduce", 1e9, Group(32)).wire_s, rel=0.05
    )
    assert "contradict the rest: 20" in network.assumptions(32)[-1].source


def test_a_mixed_cluster_runs_as_its_slowest_part() -> None:
    def steps(cluster: str) -> list[float]:
        table = tomllib.loads(
            'title = "t"\n[workload]\nmodel = "resnet50"\nbatch_per_gpu = 64\nprecision = "amp-fp16"\n'
            f"{cluster}\n[sweep]\ngpus = [8, 16]\n"
        )
        return [point.step_time_s.p50 for point in predict(Scenario.model_validate(table)).points]

    part = '[[cluster.parts]]\nnode = "{}"\ncount = 1\n'
    mixed = steps(part.format("dgx-a100") + part.format("dgx-1-v100"))
    a100, v100 = (steps(f'[cluster]\nnode = "{node}"') for node in ("dgx-a100", "dgx-1-v100"))
    assert mixed[0] == pytest.approx(a100[0])
    assert mixed[1] == pytest.approx(v100[1], rel=0.03)
