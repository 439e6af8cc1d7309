"""Real training: every product over gloo equals one process, paced waits are exact, and measure writes what predict reads."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from measure.clock import CpuClock, Pacer, clock_for, sharpen_sleep
from measure.launch import run_ranks
from measure.paced import PacedLayer, PacedModel
from measure.sampling import Effort, alone
from measure.train.expert import split_tokens
from measure.train.pipeline import SCHEDULES
from measure.train.table import TRAINERS
from simcore.errors import InputError
from simcore.scenario.strategy import StrategyTable
from tests.train_targets import PRODUCTS
from tui.cli import main

ROOT = Path(__file__).parent.parent
SIMSCALE = str(Path(sys.executable).parent / "simscale")


def run_target(name: str, ranks: int, **arguments: Any) -> Any:
    return run_ranks(f"tests.train_targets:{name}", arguments, ranks, "cpu", 60, lambda done, label: None)


@pytest.fixture(scope="module", params=sorted(PRODUCTS), ids=lambda ranks: f"{ranks} ranks")
def trained(request: pytest.FixtureRequest) -> dict[str, dict[str, Any]]:
    """Every product for a count of ranks, trained in one launch."""
    found: dict[str, dict[str, Any]] = run_target("train_both_ways", request.param)
    return found


def test_every_product_trains_as_one_process_does(trained: dict[str, dict[str, Any]]) -> None:
    for name, found in trained.items():
        assert found["losses"][-1] < found["losses"][0], name
        assert found["compared"] >= 10, name
        assert found["furthest"] < 1e-5, name


def test_the_products_cover_every_trainer_whose_parameters_must_agree() -> None:
    tables = [StrategyTable(**options) for products in PRODUCTS.values() for options in products.values()]
    assert {table.data for table in tables} == TRAINERS.keys() - {"async-ps", "hogwild"}
    assert {table.schedule for table in tables if table.pipeline_parallel > 1} == SCHEDULES.keys()


@pytest.mark.parametrize(("compression", "tolerance"), [("fp16", 1e-2), ("powersgd", 0.2)])
def test_compressed_gradients_train_nearly_as_one_process_does(compression: str, tolerance: float) -> None:
    found = run_target("train_with_hook", 2, compression=compression)
    assert found["losses"][-1] < found["losses"][0]
    assert found["furthest"] < tolerance


@pytest.mark.parametrize(
    ("options", "workers", "ranks"),
    [
        ({"data": "hogwild"}, 2, 2),
        ({"data": "async-ps"}, 2, 3),
        ({"data": "async-ps", "servers": 2, "staleness": 1}, 2, 4),
    ],
    ids=["hogwild", "one server", "two servers, bounded"],
)
def test_workers_without_a_barrier_learn(options: dict[str, Any], workers: int, ranks: int) -> None:
    found = run_target("train_without_barrier", ranks, options=options, workers=workers)
    assert found["losses"][-1] < found["losses"][0]
    assert len(found["staleness"]) == workers
    assert sum(map(sum, found["staleness"])) > 0
    if (bound := options.get("staleness")) is not None:
        # Each of the others can be a bound ahead of the slowest, and the slowest a bound behind it.
        assert max(map(max, found["staleness"])) <= (2 * bound + 1) * (workers - 1)


def test_diloco_and_uneven_inputs_train() -> None:
    for options in ({"data": "local-sgd", "sync_every": 2, "outer_optimizer": "nesterov"}, {"uneven_inputs": True}):
        losses = run_target("train_rounds", 2, options=options)
        assert losses[-1] < losses[0]


def test_waits_take_their_time_and_no_more() -> None:
    sharpen_sleep()
    pacer = Pacer()
    misses = []
    for _ in range(5):
        pacer.start_forward()
        begun = time.perf_counter()
        for _ in range(20):
            pacer.forward(0.002)
        misses.append(time.perf_counter() - begun - 20 * 0.002)
    assert statistics.median(misses) < 1e-3
    assert min(misses) > -1e-4


def test_waits_yield_the_cpu() -> None:
    pacer = Pacer()
    busy = time.process_time()
    pacer.wait_until(time.perf_counter() + 0.2)
    assert time.process_time() - busy < 0.05


def test_a_paced_model_has_real_gradients_and_takes_its_time() -> None:
    sharpen_sleep()
    layers = tuple(PacedLayer(0.002, 0.004, (1000, 10)) for _ in range(10))
    model = PacedModel(layers, torch.device("cpu"))
    taken = []
    for _ in range(5):
        model.zero_grad(set_to_none=True)
        begun = time.perf_counter()
        model(torch.ones(1, requires_grad=True)).sum().backward()
        taken.append(time.perf_counter() - begun)
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in model.parameters())
    assert statistics.median(taken) == pytest.approx(10 * 0.006, abs=0.004)


@given(ranks=st.integers(2, 16), imbalance=st.floats(1.0, 1.9), tokens=st.integers(16, 10_000))
def test_the_busiest_expert_gets_its_imbalance_or_the_split_is_refused(
    ranks: int, imbalance: float, tokens: int
) -> None:
    wanted = tokens / ranks * imbalance
    try:
        split = split_tokens(tokens, ranks, imbalance)
    except InputError as error:
        assert "expert_imbalance" in str(error)
        assert abs(round(wanted) / wanted - 1) > 0.05
        return
    assert sum(split) == tokens
    assert split[0] == pytest.approx(wanted, rel=0.05)
    assert max(split[1:]) - min(split[1:]) <= 1


def test_samples_are_as_many_as_the_budget_allows_and_no_fewer_than_least() -> None:
    few = alone(lambda: time.sleep(0.02) or 0.02, Effort(budget_s=0.01, least=3, most=30, warmups=2))
    assert len(few.samples_s) == 3
    assert len(few.warmup_s) == 2
    many = alone(lambda: 1e-6, Effort(budget_s=1.0, least=3, most=30))
    assert len(many.samples_s) == 30


def test_the_clock_of_a_cpu_is_the_hosts() -> None:
    assert isinstance(clock_for(torch.device("cpu")), CpuClock)


def test_measure_writes_what_predict_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured = tmp_path / "measured.json"
    command = [SIMSCALE, "measure", "tests/data/paced.toml", "--paced", "--cpu-ranks", "2", "--block-seconds", "0.3"]
    finished = subprocess.run(
        [*command, "-o", str(measured)], cwd=ROOT, capture_output=True, text=True, check=False, timeout=90
    )
    assert finished.returncode == 0, finished.stderr
    assert "repeats to" in finished.stdout
    points = json.loads(measured.read_text())["points"]
    assert [point["gpus"] for point in points] == [1, 2]
    for point in points:
        assert point["step_time_s"]["p50"] >= 6 * 0.006
        assert len(point["samples_by_rank_s"]) == point["gpus"]
        assert all(
            max(step) == slowest for *step, slowest in zip(*point["samples_by_rank_s"], point["samples_s"], strict=True)
        )
    scenario = tmp_path / "scenario.toml"
    text = (ROOT / "tests/data/paced.toml").read_text()
    scenario.write_text(text + '\n[cluster]\ngpu = "CPU"\ngpus_per_node = 2\nintra_node = "shm-cpu"\n')
    assert main(["predict", str(scenario), "--measured", str(measured), "--anchor", "1", "--json"]) == 0
    predicted = json.loads(capsys.readouterr().out)
    assert predicted["accuracy"]["n"] == 1
    assert predicted["points"][1]["measured_step_time_s"] == points[1]["step_time_s"]["p50"]


def test_what_gloo_cannot_run_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "scenario.toml"
    text = (ROOT / "tests/data/paced.toml").read_text()
    scenario.write_text(text.replace("bucket_cap_mb = 1", 'compression = "bf16"'))
    assert main(["measure", str(scenario), "--paced", "--cpu-ranks", "2"]) == 2
    assert "strategy.compression: torch's bf16 hook needs NCCL" in capsys.readouterr().err


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_calibrate_on_a_gpu_uses_events_and_nccl(tmp_path: Path) -> None:
    command = [SIMSCALE, "calibrate", "--quick", "--gpus", "0", "-o", str(tmp_path / "p.json")]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert finished.returncode == 0, finished.stderr
    profile = json.loads((tmp_path / "p.json").read_text())
    assert profile["machine"]["backend"] == "nccl"
    assert {sample["dtype"] for sample in profile["samples"]["matmul"]} >= {"float32", "bfloat16", "float16"}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize(
    ("model", "strategy"),
    [
        ("gpt-mini", 'data = "dp"'),
        ("cnn", "sync_batchnorm = true"),
        ("gpt-mini", "context_parallel = 2"),
        ("gpt-mini", 'compression = "bf16"'),
    ],
    ids=["DataParallel", "SyncBatchNorm", "ring attention", "bf16 hook"],
)
def test_what_gloo_cannot_run_trains_on_gpus(model: str, strategy: str, tmp_path: Path) -> None:
    scenario = tmp_path / "scenario.toml"
    scenario.write_text(
        f'title = "gpu"\n[workload]\nmodel = "{model}"\nbatch_per_gpu = 4\n[strategy]\n{strategy}\n[sweep]\ngpus = [2]\n'
    )
    output = tmp_path / "measured.json"
    assert main(["measure", str(scenario), "--devices", "0,1", "-o", str(output), "--block-seconds", "0.5"]) == 0
    assert json.loads(output.read_text())["points"][0]["step_time_s"]["p50"] > 0
