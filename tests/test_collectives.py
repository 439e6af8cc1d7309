"""Collectives: NCCL's choice, growth with the ranks, sick sweeps, and the public sweeps predicted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simcore.collectives.curve import Curve
from simcore.collectives.growth import Growth, Scale
from simcore.collectives.health import complaints
from simcore.collectives.nccl import NcclTable, Wires, fastest
from simcore.collectives.sweep import Sweep, read_sweeps
from simcore.errors import InputError
from simcore.profile.swept import profile_of
from simcore.validate.collectives import score_collectives
from tui.cli import main

SHARED = Path(__file__).parents[2] / "shared" / "validation" / "collectives"
SIZES = tuple(1024.0 * 2**power for power in range(20))

SWITCHED = Wires(8, 1, 360.0, "nvlink", 340.0, None, multicast_gb_per_s=274.0)
TWO_NODES = Wires(16, 2, 237.0, "nvlink", 225.0, 190.0, hop_us=6.0, level_us=6.0)


def sweep(times_s: tuple[float, ...], sizes: tuple[float, ...] = SIZES, **more: object) -> Sweep:
    return Sweep(**({"name": "a", "collective": "all_reduce", "ranks": 8, "nodes": 1} | more), sizes=sizes,
                 times_s=times_s)  # type: ignore[arg-type]  # fmt: skip


def healthy_times(rate: float = 1e11, latency_s: float = 2e-5) -> tuple[float, ...]:
    return tuple(latency_s + size / rate for size in SIZES)


def test_small_buffers_take_low_latency_and_large_ones_take_bandwidth() -> None:
    free = NcclTable()
    assert fastest("all_reduce", 1024, SWITCHED, free).protocol == "LL"
    assert fastest("all_reduce", 2**30, SWITCHED, free).algorithm == "NVLS"
    assert fastest("all_gather", 2**30, SWITCHED, free).algorithm == "Ring"
    large = Wires(1024, 128, 237.0, "nvlink", 225.0, 190.0, hop_us=6.0, level_us=6.0)
    assert fastest("all_reduce", 2**20, large, free).algorithm == "Tree"
    assert fastest("all_reduce", 2**36, large, free).algorithm == "Ring"


@pytest.mark.parametrize("algorithm", ["Ring", "Tree"])
@pytest.mark.parametrize("protocol", ["LL", "LL128", "Simple", None])
def test_what_the_environment_forces_is_run(algorithm: str, protocol: str | None) -> None:
    forced = NcclTable(algo=algorithm, proto=protocol)  # type: ignore[arg-type]
    chosen = fastest("all_reduce", 2**20, TWO_NODES, forced)
    assert chosen.algorithm == algorithm
    assert protocol in (None, chosen.protocol)
    assert chosen.total_s >= fastest("all_reduce", 2**20, TWO_NODES, NcclTable()).total_s


def test_an_algorithm_that_a_collective_does_not_have_is_passed_over() -> None:
    assert fastest("all_gather", 2**20, TWO_NODES, NcclTable(algo="Tree")).algorithm == "Ring"


def test_a_large_ring_runs_at_its_links_rate() -> None:
    size = 2.0**36
    chosen = fastest("all_reduce", size, TWO_NODES, NcclTable(algo="Ring"))
    assert 2 * 15 / 16 * size / chosen.total_s / 1e9 == pytest.approx(190, rel=0.01)


def test_only_a_tuner_sends_each_byte_once_between_two_nodes() -> None:
    size = 2.0**34
    plain = Wires(16, 2, 237.0, "nvlink", 225.0, 40.0, hop_us=6.0, level_us=6.0)
    tuned = Wires(16, 2, 237.0, "nvlink", 225.0, 40.0, hop_us=6.0, level_us=6.0, tuned=True)
    assert fastest("all_reduce", size, plain, NcclTable()).algorithm == "Ring"
    assert fastest("all_reduce", size, tuned, NcclTable()).algorithm == "Tree"
    ratio = (
        fastest("all_reduce", size, plain, NcclTable()).total_s
        / fastest("all_reduce", size, tuned, NcclTable()).total_s
    )
    assert ratio == pytest.approx(2 * 15 / 16 * 0.92, rel=0.02)


def test_one_rank_a_node_may_double_its_parts() -> None:
    wires = Wires(64, 64, float("inf"), "nvlink", float("inf"), 45.0, hop_us=6.0, level_us=6.0)
    assert fastest("all_gather", 2**16, wires, NcclTable()).algorithm == "PAT"
    assert fastest("all_gather", 2**34, wires, NcclTable()).algorithm == "Ring"


def ring_scale(ranks: int, nodes: int) -> Scale:
    """A ring of 3 us a hop and 10 GB/s after a launch of 20 us."""
    times = tuple(20e-6 + (ranks - 1) * (3e-6 + size / ranks / 1e10) for size in SIZES)
    return Scale(ranks, nodes, (Curve(SIZES, times),))


def test_a_ring_is_carried_to_more_ranks_exactly_at_its_sizes() -> None:
    growth = Growth("all_gather", (ring_scale(4, 1), ring_scale(8, 1), ring_scale(16, 2)))
    wanted = ring_scale(64, 8)
    for size, time_s in zip(SIZES[8:], wanted.curves[0].times_s[8:], strict=True):
        assert growth.time_s(size, 64, 8) == pytest.approx(time_s, rel=0.02)


def test_a_tree_is_carried_over_nodes_by_their_logarithm() -> None:
    def tree(nodes: int) -> Scale:
        times = tuple(20e-6 + 12e-6 * nodes.bit_length() + size / 1e10 for size in SIZES)
        return Scale(8 * nodes, nodes, (Curve(SIZES, times),))

    growth = Growth("all_reduce", (tree(2), tree(4), tree(8)))
    assert growth.time_s(2.0**20, 2048, 256) == pytest.approx(20e-6 + 12e-6 * 9 + 2**20 / 1e10, rel=0.01)


def test_what_the_topology_explains_is_no_growth() -> None:
    """Times that differ only because the wires do are carried over exactly."""
    rates = {2: 20e9, 4: 80e9, 8: 130e9}

    def scale(ranks: int) -> Scale:
        times = tuple(2 * (ranks - 1) / ranks * size / rates[ranks] for size in SIZES)
        return Scale(ranks, 1, (Curve(SIZES, times),))

    growth = Growth("all_reduce", (scale(2), scale(4)), lambda ranks, nodes: rates[ranks])
    assert growth.time_s(SIZES[10], 8, 1) == pytest.approx(scale(8).time_s(SIZES[10]), rel=0.01)


def test_a_curve_is_a_power_law_between_its_sizes() -> None:
    curve = Curve((1.0, 4.0), (1.0, 2.0))
    assert [curve.time_s(size) for size in (0.5, 1.0, 2.0, 4.0, 8.0)] == pytest.approx([1, 1, 2**0.5, 2, 4])


def test_a_healthy_sweep_has_no_complaint() -> None:
    assert complaints(sweep(healthy_times()), expected_s=healthy_times()[-1]) == []


@pytest.mark.parametrize(
    ("times", "expected_s", "said"),
    [
        (healthy_times(), healthy_times()[-1] / 40, "peer access is not used"),
        (tuple(t * (6 if s > 1e8 else 1) for s, t in zip(SIZES, healthy_times(), strict=True)), None, "collapses past"),
        (tuple(t * (4 if i % 3 else 1) for i, t in enumerate(healthy_times())), None, "take clearly less time"),
        (tuple(t * (1.6 if i % 2 else 1) for i, t in enumerate(healthy_times())), None, "turn sharply"),
    ],
)
def test_a_sick_sweep_is_flagged_with_the_reason(times: tuple[float, ...], expected_s: float | None, said: str) -> None:
    assert said in " ".join(complaints(sweep(times), expected_s))


def test_sweeps_of_two_machines_make_no_profile() -> None:
    with pytest.raises(InputError, match="one machine at a time"):
        profile_of([sweep(healthy_times(), gpu="A100"), sweep(healthy_times(), gpu="H100")])


def log_of(ranks: int, rate: float) -> str:
    """What all_reduce_perf prints on one node of ``ranks`` GPUs."""
    rows = [
        f"{int(size):>12} {int(size) // 4:>12} float sum -1 {20 + 2 * ranks + size / rate * 1e6:.2f} 1.0 1.0 0 "
        f"{20 + 2 * ranks + size / rate * 1e6:.2f} 1.0 1.0 0"
        for size in SIZES
    ]
    devices = [f"#  Rank {r:>2} Group 0 Pid 1 on box device {r} [0x0{r}] NVIDIA A100-SXM4-80GB" for r in range(ranks)]
    heading = "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    return "\n".join(["$ ./all_reduce_perf -b 1K -e 512M -f 2 -g 8", "# nThread 1 nGpus 8", "# Using devices", *devices,
                      heading, *rows, "# Out of bounds values : 0 OK", "# Avg bus bandwidth : 1"]) + "\n"  # fmt: skip


def test_logs_become_a_network_that_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = []
    for ranks in (2, 4):
        log = tmp_path / f"{ranks}.log"
        log.write_text(log_of(ranks, 1e11))
        logs.append(str(log))
    profile = tmp_path / "network.json"
    assert main(["import", "nccl-tests", *logs, "-o", str(profile)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("all_reduce") == 2
    scenario = tmp_path / "s.toml"
    scenario.write_text('title = "t"\n[workload]\nmodel = "resnet50"\nbatch_per_gpu = 32\n[cluster]\nnode = "dgx-a100"\n'
                        "[sweep]\ngpus = [1, 2, 4, 8]\n")  # fmt: skip
    assert main(["predict", str(scenario), "--profile", str(profile), "--json"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    assert [point["gpus"] for point in points] == [1, 2, 4, 8]
    widths = [point["step_time_s"]["p90"] / point["step_time_s"]["p50"] for point in points]
    assert all(width > 1 for width in widths)


def test_a_topology_becomes_a_node_that_predicts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    matrix = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-15\t0\nGPU1\tNV4\t X \t0-15\t0\n"
    file = tmp_path / "topo.txt"
    file.write_text(matrix)
    assert main(["import", "topo", str(file), "--gpu", "RTX-3090"]) == 0
    node = capsys.readouterr().out
    scenario = tmp_path / "s.toml"
    scenario.write_text('title = "t"\n[workload]\nmodel = "gpt2"\nbatch_per_gpu = 2\n[sweep]\ngpus = [1, 2]\n' + node)
    assert main(["predict", str(scenario), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["points"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validate"], "nothing to validate"),
        (["validate", "a.csv", "--collectives", "b"], "both runs tables and --collectives"),
        (["validate", "--collectives", "nowhere.csv"], "cannot be read as an index of sweeps"),
        (["import", "nccl-tests", "nowhere.log"], "no such file"),
        (["import", "topo", "nowhere.txt", "--gpu", "A100"], "no such file"),
        (["import", "kineto", "x"], "invalid choice"),
    ],
)
def test_a_wrong_command_gives_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as stop:
        code = int(str(stop.code))
    printed = capsys.readouterr()
    assert code == 2
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_an_index_without_its_columns_is_refused(tmp_path: Path) -> None:
    index = tmp_path / "index.csv"
    index.write_text("slug,gpu\na,b\n")
    with pytest.raises(InputError, match="lacks n_gpus, collective"):
        read_sweeps(index)
    with pytest.raises(InputError, match="neither an index"):
        (tmp_path / "empty").mkdir()
        read_sweeps(tmp_path / "empty")


@pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared/validation/collectives")
def test_public_sweeps_are_predicted() -> None:
    scored = score_collectives(SHARED)
    ordered = sorted(scored.between.values())
    assert ordered[len(ordered) // 2] < 0.04
    beyond = sorted(one.error for one in scored.beyond)
    assert beyond[len(beyond) // 2] < 0.12
    catalogue = sorted(abs(one.error) for one in scored.catalogue)
    assert catalogue[len(catalogue) // 2] < 0.10
    healthy = [one for one in scored.sweeps if one.healthy]
    assert sum(one.name in scored.complaints for one in healthy) < 0.05 * len(healthy)
    sick = [one.name for one in scored.sweeps if one.status in ("broken", "noisy")]
    assert sum(name in scored.complaints for name in sick) >= 8
