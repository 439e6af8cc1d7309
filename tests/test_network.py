"""Collective costs: nccl-tests' byte counts, limits of the closed form, and what a measured curve says between sizes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore.collectives.moved import moved_factor
from simcore.costs.network import CatalogNetwork, Group, MeasuredNetwork, law_seconds
from simcore.profile.fitted import Collective, CollectiveCurve, CollectiveLaw, Fit
from simcore.scenario.schema import LinkTable

FAST = LinkTable(scope="intra", bandwidth_gb_per_s=100.0, efficiency=1.0, launch_us=10.0, latency_us=1.0)
SLOW = LinkTable(scope="inter", bandwidth_gb_per_s=10.0, efficiency=0.9, launch_us=20.0, latency_us=5.0)
NETWORK = CatalogNetwork(8, "fast", FAST, "slow", SLOW)


@pytest.mark.parametrize(
    ("collective", "ranks", "factor"),
    [
        ("all_reduce", 4, 1.5),
        ("all_gather", 4, 0.75),
        ("reduce_scatter", 8, 0.875),
        ("broadcast", 4, 1.0),
        ("send_recv", 2, 1.0),
    ],
)
def test_bytes_moved_are_those_of_nccl_tests(collective: Collective, ranks: int, factor: float) -> None:
    assert moved_factor(collective, ranks) == factor


def test_a_large_collective_approaches_the_bandwidth_of_its_worst_link() -> None:
    size = 64e9
    inside = NETWORK.transfer("all_reduce", size, Group(8))
    assert inside.total_s == pytest.approx(2 * 7 / 8 * size / 100e9, rel=0.01)
    assert inside.link == "fast"
    across = NETWORK.transfer("all_reduce", size, Group(16))
    assert across.total_s == pytest.approx(2 * 15 / 16 * size / 9e9, rel=0.01)
    assert across.link == "slow"


def test_a_small_collective_is_launch_and_hops() -> None:
    inside = NETWORK.transfer("all_reduce", 8, Group(8))
    assert inside.total_s == pytest.approx(10e-6 + 14 * 1e-6, rel=0.01)
    across = NETWORK.transfer("all_reduce", 8, Group(64))
    assert across.total_s == pytest.approx(20e-6 + 14 * 1e-6 + 2 * 3 * 5e-6, rel=0.01)


def test_one_rank_sends_nothing() -> None:
    assert NETWORK.transfer("all_reduce", 1e9, Group(1)).total_s == 0.0


@given(st.integers(2, 4096), st.floats(1, 1e10), st.floats(1.0, 4.0))
def test_more_bytes_never_take_less(ranks: int, size: float, times: float) -> None:
    assert (
        NETWORK.transfer("all_reduce", size * times, Group(ranks)).total_s
        >= NETWORK.transfer("all_reduce", size, Group(ranks)).total_s
    )


def curve(ranks: int, rate: float, sizes: tuple[int, ...] = (1_000, 1_000_000, 100_000_000)) -> CollectiveCurve:
    times = tuple(law_seconds("all_reduce", 1e-4, 1e-5, rate, size, ranks) for size in sizes)
    return CollectiveCurve(
        collective="all_reduce",
        ranks=ranks,
        hosts=ranks,
        size_bytes=sizes,
        time_s=times,
        wire_share=(0.2, *(0.9 for _ in sizes[2:]), 1.1),
        spread=0.02,
    )


LAW = CollectiveLaw(
    collective="all_reduce", crosses_hosts=True, launch_s=1e-4, latency_s=1e-5, bandwidth_bytes_per_s=1e8, spread=0.05
)
MEASURED = MeasuredNetwork(Fit(version=2, curves=(curve(2, 1e8), curve(8, 1e8)), laws=(LAW,)), 1, "test", None)


def test_a_measured_size_gives_its_measured_time() -> None:
    cost = MEASURED.transfer("all_reduce", 1_000_000, Group(2))
    assert cost.total_s == pytest.approx(curve(2, 1e8).time_s[1])
    assert cost.wire_s / cost.total_s == pytest.approx(0.9)


def test_beyond_the_largest_size_time_grows_with_the_bytes() -> None:
    largest, twice = (MEASURED.transfer("all_reduce", size, Group(2)) for size in (100_000_000, 200_000_000))
    assert twice.wire_s > 1.99 * largest.wire_s


def test_below_the_smallest_size_time_stays() -> None:
    assert MEASURED.transfer("all_reduce", 10, Group(2)) == MEASURED.transfer("all_reduce", 1_000, Group(2))


def test_a_queue_pays_what_a_busy_link_takes_even_if_an_idle_one_is_faster() -> None:
    cost = MEASURED.transfer("all_reduce", 100_000_000, Group(2))
    assert cost.latency_s == 0.0
    assert cost.wire_s == pytest.approx(1.1 * curve(2, 1e8).time_s[2])


@pytest.mark.parametrize(("ranks", "within"), [(3, 0.02), (4, 0.02), (6, 0.02), (16, 0.02), (64, 0.02)])
def test_a_count_between_or_beyond_follows_the_law(ranks: int, within: float) -> None:
    # Beyond the counts it is the growth over them that is extended: as exact as the curves between their sizes.
    sizes = tuple(1_000 * 2**power for power in range(20))
    curves = (curve(2, 1e8, sizes), curve(8, 1e8, sizes))
    network = MeasuredNetwork(Fit(version=2, curves=curves, laws=(LAW,)), 1, "test", None)
    cost = network.transfer("all_reduce", 1_000_000, Group(ranks))
    assert cost.total_s == pytest.approx(law_seconds("all_reduce", 1e-4, 1e-5, 1e8, 1_000_000, ranks), rel=within)
    assert cost.wire_spread > network.transfer("all_reduce", 1_000_000, Group(8)).wire_spread


def test_a_group_of_neighbours_stays_in_its_node_and_one_of_strangers_crosses() -> None:
    size = 1e9
    assert NETWORK.transfer("all_reduce", size, Group(8, 1)).link == "fast"
    assert NETWORK.transfer("all_reduce", size, Group(8, 8)).link == "slow"
    assert Group(8, 2).inside(8) == 4
    assert Group(8, 2).nodes(8) == 2


def test_groups_side_by_side_share_their_nodes_network() -> None:
    size = 64e9
    lone = NETWORK.transfer("all_reduce", size, Group(4, 8, lone=True))
    beside = NETWORK.transfer("all_reduce", size, Group(4, 8))
    assert beside.wire_s == pytest.approx(8 * lone.wire_s, rel=0.01)


def test_an_exchange_holds_the_servers_link_one_way_at_a_time() -> None:
    there = NETWORK.transfer("send_recv", 1e9, Group(2, 8, lone=True))
    exchange = NETWORK.transfer("exchange", 1e9, Group(2, 8, lone=True))
    assert exchange.wire_s == pytest.approx(there.wire_s, rel=0.01)
    assert exchange.total_s == pytest.approx(2 * there.total_s, rel=0.01)
