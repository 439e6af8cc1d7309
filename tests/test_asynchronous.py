"""Workers without a barrier: the event loop against what queueing theory says, and what a prediction makes of it."""

from __future__ import annotations

import statistics

import pytest

from simcore.files import parse
from simcore.predict import predict
from simcore.profile.schema import Profile
from simcore.strategies.event_loop import Workers, settle
from tests.builders import LAYERS, PROFILE, scenario_of


def test_one_worker_waits_for_nobody() -> None:
    steady = settle(Workers((3.0,), 1.0))
    assert steady.cycle_s == pytest.approx(5.0)
    assert set(steady.staleness) == {0}


def mean_value_analysis(workers: int, work_s: float, transfer_s: float) -> float:
    """The cycle of a closed network of a delay and two shared links, exactly (Reiser and Lavenberg 1980): it depends on
    the mean times only, whatever their distribution (Baskett et al. 1975)."""
    queues = [0.0, 0.0]
    cycle_s = 0.0
    for count in range(1, workers + 1):
        times = [transfer_s * (1 + queue) for queue in queues]
        cycle_s = work_s + sum(times)
        queues = [count / cycle_s * time for time in times]
    return cycle_s


@pytest.mark.parametrize("workers", [2, 3, 4, 6, 8, 16, 32])
def test_the_cycle_is_that_of_mean_value_analysis(workers: int) -> None:
    steady = settle(Workers((3.0,) * workers, 0.25, jitter=0.3))
    assert steady.cycle_s == pytest.approx(mean_value_analysis(workers, 3.0, 0.25), rel=0.06)


@pytest.mark.parametrize("workers", [2, 8, 32, 64])
def test_the_cycle_is_never_shorter_than_a_workers_own_or_the_links(workers: int) -> None:
    steady = settle(Workers((3.0,) * workers, 0.25, jitter=0.02))
    assert steady.cycle_s >= max(3.5, workers * 0.25) * 0.99


def test_a_saturated_link_takes_one_update_per_transfer() -> None:
    """Both ways are full, so that a little is lost where one runs empty while the other has all."""
    steady = settle(Workers((1.0,) * 64, 0.5, jitter=0.1))
    assert 0.5 <= steady.cycle_s / 64 <= 0.55


@pytest.mark.parametrize("workers", [2, 5, 9])
def test_updates_are_stale_by_the_other_workers_in_the_mean(workers: int) -> None:
    """Each worker's step sees as many updates by others as they make in a cycle: one each."""
    steady = settle(Workers((3.0,) * workers, 0.1, jitter=0.05))
    assert statistics.fmean(steady.staleness) == pytest.approx(workers - 1, rel=0.02)


def test_without_a_bound_a_straggler_slows_only_itself() -> None:
    steady = settle(Workers((1.0, 1.0, 1.0, 4.0), 0.0))
    assert 4 / steady.cycle_s == pytest.approx(3 / 1.0 + 1 / 4.0, rel=0.01)


@pytest.mark.parametrize("bound", [0, 1, 3])
def test_with_a_bound_all_follow_the_straggler(bound: int) -> None:
    steady = settle(Workers((1.0, 1.0, 1.0, 4.0), 0.0, bound))
    assert steady.cycle_s == pytest.approx(4.0, rel=0.01)
    assert max(steady.staleness) <= (2 * bound + 1) * 3


def test_the_same_question_has_the_same_answer() -> None:
    workers = Workers((1.0, 1.5), 0.2, jitter=0.2)
    settle.cache_clear()
    first = settle(workers)
    settle.cache_clear()
    assert settle(workers) == first


def asked(strategy: str, gpus: str, cluster: str = "") -> str:
    text = LAYERS.replace("bucket_cap_mb = 5", strategy).replace("gpus = [1, 2, 4]", f"gpus = {gpus}")
    return text + f"\n[cluster]\n{cluster}\n" if cluster else text


def test_a_parameter_server_saturates_where_its_link_is_full() -> None:
    profile = parse(Profile, PROFILE_WITH_EXCHANGE, "test", from_json=True)
    points = predict(scenario_of(asked('data = "async-ps"', "[1, 2, 4, 8]")), profile).points
    per_update = [point.step_time_s.p50 / point.gpus for point in points]
    served_s = 20e6 / 50e6
    assert points[0].step_time_s.p50 == pytest.approx(0.3 + 2 * served_s, rel=0.01)
    assert per_update[-1] == pytest.approx(served_s, rel=0.01)
    assert points[-1].staleness is not None
    assert points[-1].staleness.p50 == pytest.approx(7, abs=1)


def test_more_servers_carry_more_workers() -> None:
    profile = parse(Profile, PROFILE_WITH_EXCHANGE, "test", from_json=True)
    one = predict(scenario_of(asked('data = "async-ps"', "[16]")), profile).points[0]
    four = predict(scenario_of(asked('data = "async-ps"\nservers = 4', "[16]")), profile).points[0]
    assert four.throughput.p50 > 2 * one.throughput.p50


def test_a_straggler_costs_a_barrier_more_than_it_costs_asynchronous_workers() -> None:
    profile = parse(Profile, PROFILE_WITH_EXCHANGE, "test", from_json=True)
    straggling = "stragglers = 1\nstraggler_slowdown = 3.0"

    def slower(strategy: str) -> float:
        without = predict(scenario_of(asked(strategy, "[4]")), profile).points[0].step_time_s.p50
        return predict(scenario_of(asked(strategy, "[4]", straggling)), profile).points[0].step_time_s.p50 / without

    assert slower('data = "hogwild"') < 1.25
    assert slower("bucket_cap_mb = 5") > 1.4


EXCHANGE = {
    "collective": "exchange", "ranks": 2, "hosts": 2, "size_bytes": [1_000_000, 40_000_000],
    "time_s": [2 * 1_000_000 / 50e6, 2 * 40_000_000 / 50e6], "wire_share": [0.5, 0.5], "spread": 0.01,
}  # fmt: skip
PROFILE_WITH_EXCHANGE = PROFILE | {"fit": PROFILE["fit"] | {"curves": [*PROFILE["fit"]["curves"], EXCHANGE]}}
