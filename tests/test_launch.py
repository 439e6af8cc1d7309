"""Ranks that die, hang or are interrupted: the run ends in time, names the rank, and leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from measure.launch import run_ranks
from simcore.errors import MeasurementError

ROOT = Path(__file__).parent.parent
SIMSCALE = str(Path(sys.executable).parent / "simscale")
PATIENCE_S = 6.0


def ranks_alive() -> list[str]:
    """Launched ranks anywhere on the machine: multiprocessing's spawned children."""
    listed = subprocess.run(
        ["ps", "-eo", "pid,stat,args"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return [
        line
        for line in listed
        if "multiprocessing.spawn" in line and "resource_tracker" not in line and " Z" not in line
    ]


def launch(target: str, **arguments: object) -> object:
    return run_ranks(f"tests.rank_targets:{target}", arguments, 2, "cpu", PATIENCE_S, lambda done, label: None)


def test_ranks_work_together_and_the_first_one_answers() -> None:
    assert launch("work", value=10) == {"total": 21.0, "size": 2, "hosts": 1}


@pytest.mark.parametrize(
    ("target", "rank", "expected"),
    [
        ("fail", 1, "rank 1 failed while 'dividing': ZeroDivisionError: division by zero in the test"),
        ("be_killed", 1, "rank 1 was killed by SIGKILL while 'working hard'"),
        ("be_killed", 0, "rank 0 was killed by SIGKILL while 'working hard'"),
        ("hang", 1, "rank 1 hangs while 'sleeping'"),
        ("stop", 0, "rank 0 is stopped while 'about to stop'"),
    ],
)
def test_a_lost_rank_ends_the_run_and_is_named(target: str, rank: int, expected: str) -> None:
    before = set(ranks_alive())
    begun = time.monotonic()
    with pytest.raises(MeasurementError) as caught:
        launch(target, rank=rank)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < PATIENCE_S + 25
    assert set(ranks_alive()) <= before


def start_calibration(output: Path, *more: str) -> subprocess.Popen[str]:
    command = [SIMSCALE, "calibrate", "--quick", "--cpu-ranks", "2", "--timeout", "20", "-o", str(output), *more]
    return subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def wait_for(path: Path, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < until, f"{path} never appeared"
        time.sleep(0.1)


def ranks_of(process: subprocess.Popen[str]) -> list[int]:
    listed = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid,args"], capture_output=True, text=True, check=False
    ).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "multiprocessing.spawn" in line]


def test_a_killed_rank_ends_calibrate_with_3_and_it_resumes(tmp_path: Path) -> None:
    output = tmp_path / "profile.json"
    process = start_calibration(output)
    wait_for(tmp_path / "profile.json.partial")
    ranks = ranks_of(process)
    os.kill(ranks[-1], signal.SIGKILL)
    out, error = process.communicate(timeout=40)
    assert process.returncode == 3, error
    assert "was killed by SIGKILL" in error
    assert "Traceback" not in error
    assert out == ""
    assert not output.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json.partial"]
    kept = (tmp_path / "profile.json.partial").read_text()
    assert kept.endswith("}")
    resumed = start_calibration(output, "--resume")
    _, error = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, error
    assert output.exists()
    assert not (tmp_path / "profile.json.partial").exists()


def test_an_interrupt_ends_calibrate_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    process = start_calibration(tmp_path / "profile.json")
    wait_for(tmp_path / "profile.json.partial")
    ranks = ranks_of(process)
    os.killpg(process.pid, signal.SIGINT)
    _, error = process.communicate(timeout=40)
    assert process.returncode == 130, error
    assert "interrupted" in error
    assert "Traceback" not in error
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    assert [path.name for path in tmp_path.iterdir()] == ["profile.json.partial"]


def test_a_stopped_rank_ends_measure_with_3(tmp_path: Path) -> None:
    scenario = ROOT / "tests/data/paced.toml"
    command = [SIMSCALE, "measure", str(scenario), "--paced", "--cpu-ranks", "2", "--timeout", "5"]
    command += ["--block-seconds", "30", "-o", str(tmp_path / "m.json")]
    process = subprocess.Popen(
        command, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    until = time.monotonic() + 60
    while len(ranks := ranks_of(process)) < 2 and time.monotonic() < until:
        time.sleep(0.1)
    time.sleep(6)  # joined and training
    os.kill(ranks[1], signal.SIGSTOP)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 3, error
    assert "rank 1 is stopped" in error
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
    assert list(tmp_path.iterdir()) == []


def test_samples_of_another_machine_are_not_resumed(tmp_path: Path) -> None:
    """Mixing hosts, devices or torch versions is the user's mistake: one line, exit 2, what was kept stays."""
    output, partial = tmp_path / "profile.json", tmp_path / "profile.json.partial"
    process = start_calibration(output)
    wait_for(partial)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=40)
    kept = json.loads(partial.read_text())
    kept["machine"]["torch"] = "1.0"
    partial.write_text(json.dumps(kept))
    resumed = start_calibration(output, "--resume")
    _, error = resumed.communicate(timeout=60)
    assert resumed.returncode == 2, error
    assert "machine.torch: holds samples of '1.0'" in error
    assert "Traceback" not in error
    assert partial.exists()
    assert not output.exists()


def test_a_rank_killed_in_torchruns_world_ends_it_with_an_error(tmp_path: Path) -> None:
    torchrun = str(Path(SIMSCALE).parent / "torchrun")
    command = [
        torchrun,
        "--nproc-per-node",
        "2",
        "--master-port",
        "29533",
        "--no-python",
        SIMSCALE,
        "calibrate",
        "--quick",
    ]
    process = subprocess.Popen(
        [*command, "-o", str(tmp_path / "p.json")], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_for(tmp_path / "p.json.partial")
    listed = subprocess.run(
        ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True, check=True
    )
    ranks = [int(pid) for pid in listed.stdout.split()]
    os.kill(ranks[-1], signal.SIGKILL)
    _, error = process.communicate(timeout=60)
    assert process.returncode != 0
    assert f"{ranks[-1]}" in error or "simscale calibrate: rank 0 failed while" in error
    assert not (tmp_path / "p.json").exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in ranks)
