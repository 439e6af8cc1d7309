"""Predictions against what must hold whatever the costs: closed forms, monotony, sums, cost of scale."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from simcore.files import parse
from simcore.predict import Measured, predict, step_timeline
from simcore.profile.schema import Profile
from simcore.scenario.load import load_scenario
from simcore.scenario.strategy import DataParallel, Schedule
from tests.builders import LAYERS, PROFILE, SCENARIO, scenario_of
from tests.lab.settings import CLUSTERS, NOT_ON_GLOO, SMALL, Cluster, Job

ROOT = Path(__file__).parent.parent
SCENARIOS = sorted((ROOT / "scenarios").glob("*.toml"))


@pytest.fixture
def profile() -> Profile:
    return parse(Profile, PROFILE, "test", from_json=True)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_shipped_scenario_predicts_and_its_parts_sum(path: Path) -> None:
    prediction = predict(load_scenario(path))
    for point in prediction.points:
        band = point.step_time_s
        assert 0 < band.p10 <= band.p50 <= band.p90
        assert sum(point.breakdown_s.values()) == pytest.approx(band.p50, rel=1e-9)
        # Sharded states make each GPU's own optimizer step shorter, so a little more than linear is right for them.
        assert 0 < point.efficiency <= (1.001 if prediction.scenario.strategy.data == "ddp" else 1.1)
        assert point.throughput.p50 == pytest.approx(prediction.scenario.samples_per_step(point.gpus) / band.p50)


def test_a_ring_bound_step_is_the_closed_form(profile: Profile) -> None:
    """Buckets of 6, 6, 6 and 2 MB on a ring of 50 MB/s: the first is ready after 60 ms of backward, the rest queue."""
    for ranks in (2, 4):
        point = predict(scenario_of(LAYERS, sweep={"gpus": [ranks]}), profile).points[0]
        ring_s = 2 * (ranks - 1) / ranks * 20e6 / 50e6
        assert point.step_time_s.p50 == pytest.approx(0.100 + 0.060 + ring_s, rel=0.002)
        assert point.bottleneck == "network between hosts"


def test_one_rank_is_the_sum_of_its_layers(profile: Profile) -> None:
    point = predict(scenario_of(LAYERS, sweep={"gpus": [1]}), profile).points[0]
    assert point.step_time_s.p50 == pytest.approx(0.300, rel=0.002)
    assert point.breakdown_s["exposed_communication"] == pytest.approx(0.0, abs=1e-6)


def test_accumulation_adds_passes_and_no_communication(profile: Profile) -> None:
    one = predict(scenario_of(LAYERS), profile).points
    four = predict(scenario_of(LAYERS, strategy={"gradient_accumulation": 4}), profile).points
    for alone, accumulated in zip(one, four, strict=True):
        assert accumulated.step_time_s.p50 == pytest.approx(alone.step_time_s.p50 + 3 * 0.300, rel=0.005)


def test_compression_halves_the_bytes_on_the_wire(profile: Profile) -> None:
    plain = predict(scenario_of(LAYERS, sweep={"gpus": [4]}), profile).points[0]
    half = predict(scenario_of(LAYERS, sweep={"gpus": [4]}, strategy={"compression": "fp16"}), profile).points[0]
    saved = 0.5 * 2 * 3 / 4 * 20e6 / 50e6
    assert plain.step_time_s.p50 - half.step_time_s.p50 == pytest.approx(saved, rel=0.15)


def test_one_large_bucket_overlaps_nothing(profile: Profile) -> None:
    point = predict(scenario_of(LAYERS, sweep={"gpus": [2]}, strategy={"bucket_cap_mb": 100}), profile).points[0]
    assert point.step_time_s.p50 == pytest.approx(0.300 + 20e6 / 50e6, rel=0.002)


def test_a_count_that_was_not_measured_follows_the_law(profile: Profile) -> None:
    three, eight = predict(scenario_of(LAYERS, sweep={"gpus": [3, 8]}), profile).points
    assert three.step_time_s.p50 == pytest.approx(0.160 + 2 * 2 / 3 * 20e6 / 50e6, rel=0.02)
    assert eight.step_time_s.p50 == pytest.approx(0.160 + 2 * 7 / 8 * 20e6 / 50e6, rel=0.03)
    four = predict(scenario_of(LAYERS, sweep={"gpus": [4]}), profile).points[0]
    width = [(point.step_time_s.p90 - point.step_time_s.p10) / point.step_time_s.p50 for point in (four, eight)]
    assert width[1] > width[0]


def test_a_faster_link_never_slows_a_step() -> None:
    text = SCENARIO.replace('intra_node = "nvswitch-a100"', 'intra_node = "own"')
    steps = []
    for rate in (1.0, 3.0, 10.0, 30.0, 100.0):
        link = {"own": {"scope": "intra", "bandwidth_gb_per_s": rate}}
        steps.append(predict(scenario_of(text, cluster={"links": link})).points[-1].step_time_s.p50)
    assert steps == sorted(steps, reverse=True)


def test_strong_scaling_shortens_the_step_and_keeps_the_batch() -> None:
    text = SCENARIO.replace("batch_per_gpu = 256", "global_batch = 512")
    points = predict(scenario_of(text)).points
    steps = [point.step_time_s.p50 for point in points]
    assert steps == sorted(steps, reverse=True)
    assert points[-1].throughput.p50 == pytest.approx(512 / steps[-1])


def test_a_calibrating_point_is_met_and_not_scored() -> None:
    measured = [Measured(1, 0.200, "x", calibrate=True), Measured(8, 0.210, "x", calibrate=False)]
    prediction = predict(scenario_of(SCENARIO), measured=measured)
    assert prediction.points[0].step_time_s.p50 == pytest.approx(0.200, rel=0.01)
    assert prediction.accuracy.n == 1
    assert prediction.accuracy.naive_mape == pytest.approx(1 - 0.200 / 0.210, rel=1e-6)


def test_a_calibrating_point_narrows_the_band() -> None:
    def width(measured: list[Measured]) -> float:
        band = predict(scenario_of(SCENARIO), measured=measured).points[-1].step_time_s
        return (band.p90 - band.p10) / band.p50

    assert width([Measured(1, 0.2, "x", calibrate=True)]) < 0.3 * width([])


def test_the_whole_and_the_folded_graph_agree() -> None:
    asked = load_scenario(ROOT / "scenarios/8xA100.toml")
    whole = step_timeline(asked, 8).step_time[0]
    assert predict(asked).points[-1].step_time_s.p50 == pytest.approx(whole, rel=0.005)


def test_a_graph_does_not_grow_with_the_cluster() -> None:
    asked = load_scenario(ROOT / "scenarios/large.toml")
    assert len(step_timeline(asked, 8).graph.tasks) == len(step_timeline(asked, 4096).graph.tasks)


def test_the_knee_is_where_adding_stops_paying() -> None:
    prediction = predict(load_scenario(ROOT / "scenarios/slow-ethernet.toml"))
    assert prediction.knee.gpus == 1
    assert "eth-1g" in prediction.knee.why


@pytest.mark.parametrize(
    ("cluster", "job"),
    [(cluster, job) for clusters in (CLUSTERS, SMALL) for cluster, jobs in clusters.items() for job in jobs],
    ids=lambda part: part.name if isinstance(part, Job) else f"{part.hosts} hosts",
)
def test_every_setting_of_the_lab_is_a_scenario_that_predicts(cluster: Cluster, job: Job) -> None:
    links = 'gpus_per_node = 1\ninter_node = "eth-1g"\nintra_node = "shm-cpu"\ngpu = "CPU"\n'
    text = job.scenario(cluster).replace("[cluster]\n", f"[cluster]\n{links}")
    (point,) = predict(scenario_of(text)).points
    assert point.gpus == cluster.ranks - job.servers
    assert point.step_time_s.p50 > 0


def test_the_lab_names_every_strategy_or_says_why_not() -> None:
    jobs = [scenario_of(job.scenario(cluster)).strategy for cluster, jobs in CLUSTERS.items() for job in jobs]
    assert {strategy.data for strategy in jobs} == set(get_args(DataParallel))
    assert {s.schedule for s in jobs if s.pipeline_parallel > 1} == set(get_args(Schedule))
    assert any(s.sequence_parallel for s in jobs)
    assert any(s.expert_parallel > 1 for s in jobs)
    assert "context_parallel" in NOT_ON_GLOO
