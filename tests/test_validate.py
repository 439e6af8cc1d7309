"""Validation: runs tables are read as they mean, calibrate rows only anchor, and public runs are predicted well."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from simcore.errors import InputError
from simcore.validate.reading import NotUnderstood, scenario_of
from simcore.validate.runs import Run, read_runs
from simcore.validate.score import Row, score_file
from tui.cli import main

RUNS = Path(__file__).parent.parent / "scenarios" / "published"

ROW = {
    "case_id": "r1", "use": "test", "curve": "c", "model": "ResNet-50", "gpu": "V100", "n_gpus": "8",
    "gpus_per_node": "8", "intra_link": "NVLink hybrid mesh", "precision": "amp (apex O1)", "strategy": "ddp",
    "batch_per_gpu": "128", "step_time_s": "0.2",
}  # fmt: skip


def run(**cells: str) -> Run:
    return Run({key: value for key, value in (ROW | cells).items() if value})


def test_a_row_becomes_the_scenario_that_it_means() -> None:
    scenario = scenario_of(run())
    assert scenario.workload.model == "resnet50"
    assert scenario.workload.precision == "amp-fp16"
    assert scenario.samples_per_step(8) == 8 * 128
    assert scenario.cluster.gpu == "V100-SXM2-32GB"
    assert scenario.cluster.intra_node == "nvlink-v100-mesh"
    assert scenario.strategy.data == "ddp"


def test_options_are_read_from_the_strategys_own_words() -> None:
    assert scenario_of(run(strategy="ddp (bucket_cap_mb=1)")).strategy.bucket_cap_mb == 1
    old = scenario_of(run(model="gpt2", framework_version="PyTorch 1.4.0, transformers 4.3.0.dev0")).strategy
    assert old.tied_weights_twice
    assert old.find_unused_parameters
    assert not scenario_of(run(framework_version="PyTorch 2.1")).strategy.tied_weights_twice


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"model": "AlexNet"}, "model"),
        ({"gpu": "Voodoo 2"}, "GPU"),
        ({"intra_link": "a wet string"}, "link"),
        ({"precision": "int4"}, "precision"),
        ({"strategy": "horovod"}, "strategy"),
        ({"batch_per_gpu": ""}, "batch"),
    ],
)
def test_what_is_not_understood_is_refused_with_its_reason(cells: dict[str, str], reason: str) -> None:
    with pytest.raises(NotUnderstood, match=reason):
        scenario_of(run(**cells))


def table(path: Path, *rows: Run) -> Path:
    columns = [*ROW, "throughput", "throughput_unit"]
    lines = [",".join(columns), *(",".join(row.text(column) for column in columns) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_calibrate_rows_anchor_and_are_not_scored(tmp_path: Path) -> None:
    single = run(case_id="r0", use="calibrate", n_gpus="1", gpus_per_node="1", intra_link="", step_time_s="0.19")
    found = score_file(table(tmp_path / "runs.csv", single, run(), run(case_id="r2", strategy="horovod")))
    assert [row.run.name for row in found.rows] == ["r1"]
    assert found.rows[0].naive_s == pytest.approx(0.19)
    assert found.rows[0].predicted.p50 == pytest.approx(0.19, rel=0.06)
    assert sum(found.skipped.values()) == 1


def test_a_throughput_stands_for_a_step_where_it_counts_what_the_batch_counts() -> None:
    assert run(step_time_s="", throughput="512", throughput_unit="img/s").step_time_s == pytest.approx(2.0)
    assert run(step_time_s="", throughput="512", throughput_unit="steps/s").step_time_s is None


def test_a_file_that_is_no_runs_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "other.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="lacks case_id"):
        read_runs(path)
    assert main(["validate", str(path)]) == 2
    assert "runs table" in capsys.readouterr().err


def test_the_command_gates_on_the_mean_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table(tmp_path / "runs.csv", run())
    assert main(["validate", str(path), "--max-mape", "5"]) == 0
    assert main(["validate", str(path), "--max-mape", "0"]) == 1
    capsys.readouterr()
    assert main(["validate", str(path), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"][0]["n"] == printed["total"]["n"] == 1
    assert printed["total"].keys() == {"n", "mape", "bias", "max", "coverage80", "width80", "naive_mape"}


@pytest.mark.parametrize(
    ("name", "rows"), [("huggingface_dp_vs_ddp", 12), ("raysgd", 16), ("pytorch_ddp_benchmark", 16)]
)
def test_public_runs_of_dataparallel_and_ddp_are_predicted(name: str, rows: int) -> None:
    found = score_file(RUNS / f"{name}.csv")
    assert found.accuracy.n == rows
    assert found.accuracy.mape is not None
    assert found.accuracy.mape <= 0.10


@pytest.mark.parametrize("name", ["huggingface_dp_vs_ddp", "raysgd", "pytorch_ddp_benchmark"])
def test_strategies_come_out_in_the_order_in_which_they_were_measured(name: str) -> None:
    """Of jobs that differ only in strategy or link, as far apart as a measurement can tell: one per cent."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in score_file(RUNS / f"{name}.csv").rows:
        same = ("model", "gpu", "n_gpus", "precision", "batch_per_gpu", "seq_len_or_image")
        groups.setdefault(tuple(row.run.text(key) for key in same), []).append(row)
    compared = 0
    for rows in groups.values():
        for faster, slower in pairwise(sorted(rows, key=lambda row: row.measured_s)):
            if _way(faster) != _way(slower) and slower.measured_s > 1.01 * faster.measured_s:
                assert faster.predicted.p50 < slower.predicted.p50, (faster.run.name, slower.run.name)
                compared += 1
    assert compared


def _way(row: Row) -> tuple[str, str]:
    return row.run.text("strategy"), row.run.text("intra_link")
