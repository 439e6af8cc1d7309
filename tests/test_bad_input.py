"""One bad file per mistake: each gives one clear line on stderr, exit code 2, nothing on stdout and no traceback."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import PROFILE, SCENARIO
from tui.cli import main

Edit = Callable[[str], str]


def swap(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text, old
        return text.replace(old, new)

    return edit


def add(text: str) -> Edit:
    return lambda whole: f"{whole}\n{text}\n"


BAD_SCENARIOS: dict[str, tuple[Edit, str]] = {
    "empty file": (lambda text: "", "title: is missing"),
    "not TOML": (lambda text: "title = ", "is not valid TOML"),
    "unclosed table": (swap("[workload]", "[workload"), "is not valid TOML"),
    "no title": (swap('title = "test"', ""), "title: is missing"),
    "no workload": (lambda text: 'title = "x"', "workload: is missing"),
    "misspelt table": (swap("[strategy]", "[stratgy]"), "stratgy: unknown key; did you mean 'strategy'?"),
    "misspelt key": (swap("batch_per_gpu", "batch_per_gpus"), "did you mean 'batch_per_gpu'?"),
    "misspelt strategy": (swap('data = "ddp"', 'data = "fspd"'), "did you mean 'fsdp'?"),
    "unknown precision": (swap("amp-fp16", "fp17"), "workload.precision: found 'fp17'"),
    "unknown model": (swap('"resnet50"', '"resnet-50"'), "unknown model 'resnet-50'; did you mean 'resnet50'?"),
    "unknown GPU": (swap("A100-SXM4-40GB", "A100-SXM4-41GB"), "unknown GPU 'A100-SXM4-41GB'; did you mean"),
    "unknown link": (
        swap("nvswitch-a100", "nvswitch-a10"),
        "unknown link 'nvswitch-a10'; did you mean 'nvswitch-a100'?",
    ),
    "link of the wrong scope": (swap("nvswitch-a100", "eth-1g"), "link 'eth-1g' has scope inter"),
    "no GPU": (swap('gpu = "A100-SXM4-40GB"', ""), "cluster.gpu: is missing"),
    "no link inside": (swap('intra_node = "nvswitch-a100"', ""), "cluster.intra_node: is missing"),
    "no link between": (swap("gpus = [1, 2, 4, 8]", "gpus = [1, 16]"), "cluster.inter_node: is missing"),
    "zero GPUs": (swap("gpus = [1, 2, 4, 8]", "gpus = [0, 1]"), "sweep.gpus[0]: found 0"),
    "negative GPUs": (swap("gpus = [1, 2, 4, 8]", "gpus = [-2]"), "sweep.gpus[0]: found -2"),
    "no counts": (swap("gpus = [1, 2, 4, 8]", "gpus = []"), "sweep.gpus"),
    "falling counts": (swap("gpus = [1, 2, 4, 8]", "gpus = [4, 2]"), "must rise"),
    "repeated counts": (swap("gpus = [1, 2, 4, 8]", "gpus = [2, 2]"), "must rise"),
    "fractional count": (swap("gpus = [1, 2, 4, 8]", "gpus = [1.5]"), "sweep.gpus[0]: found 1.5"),
    "text for a number": (swap("batch_per_gpu = 256", 'batch_per_gpu = "256"'), "workload.batch_per_gpu: found '256'"),
    "number for text": (swap('title = "test"', "title = 3"), "title: found 3"),
    "zero batch": (swap("batch_per_gpu = 256", "batch_per_gpu = 0"), "workload.batch_per_gpu: found 0"),
    "negative batch": (swap("batch_per_gpu = 256", "batch_per_gpu = -1"), "workload.batch_per_gpu: found -1"),
    "no batch": (swap("batch_per_gpu = 256", ""), "neither batch_per_gpu nor global_batch"),
    "both batches": (
        swap("batch_per_gpu = 256", "batch_per_gpu = 256\nglobal_batch = 512"),
        "both batch_per_gpu and global_batch",
    ),
    "batch that does not divide": (swap("batch_per_gpu = 256", "global_batch = 100"), "does not divide over 8 GPUs"),
    "infinite bucket": (swap('data = "ddp"', 'data = "ddp"\nbucket_cap_mb = inf'), "strategy.bucket_cap_mb: found inf"),
    "bucket that is no number": (
        swap('data = "ddp"', 'data = "ddp"\nbucket_cap_mb = nan'),
        "strategy.bucket_cap_mb: found nan",
    ),
    "zero bucket": (swap('data = "ddp"', 'data = "ddp"\nbucket_cap_mb = 0'), "strategy.bucket_cap_mb: found 0"),
    "zero passes": (
        swap('data = "ddp"', 'data = "ddp"\ngradient_accumulation = 0'),
        "strategy.gradient_accumulation: found 0",
    ),
    "yes for true": (swap('data = "ddp"', 'data = "ddp"\nstatic_graph = "yes"'), "strategy.static_graph: found 'yes'"),
    "no source": (add("[[measured]]\ngpus = 8\nthroughput = 100.0"), "measured[0].source: is missing"),
    "no figure": (add('[[measured]]\ngpus = 8\nsource = "x"'), "neither throughput nor step_time_ms"),
    "two figures": (
        add('[[measured]]\ngpus = 8\nthroughput = 1.0\nstep_time_ms = 1.0\nsource = "x"'),
        "both throughput and",
    ),
    "throughput of zero": (
        add('[[measured]]\ngpus = 8\nthroughput = 0.0\nsource = "x"'),
        "measured[0].throughput: found 0.0",
    ),
    "layers beside a model": (add("[[workload.layers]]\nforward_ms = 1\nbackward_ms = 1"), "gives layers beside model"),
    "layer without a time": (
        swap('model = "resnet50"', "layers = [{ parameters = 10, forward_ms = 1.0 }]"),
        "workload.layers[0].backward_ms: is missing",
    ),
    "negative time": (
        swap('model = "resnet50"', "layers = [{ forward_ms = -1.0, backward_ms = 1.0 }]"),
        "workload.layers[0].forward_ms: found -1.0",
    ),
    "measured beyond the node": (
        add('[[measured]]\ngpus = 16\nstep_time_ms = 1.0\nsource = "x"'),
        "cluster.inter_node: is missing",
    ),
    "precision that the GPU lacks": (swap("amp-fp16", "amp-bf16"), ""),
}
IMPOSSIBLE: dict[str, tuple[str, str]] = {
    "microbatches without a pipeline": ("microbatches = 4", "gives microbatches with pipeline_parallel = 1"),
    "pipeline and accumulation": ("pipeline_parallel = 2\ngradient_accumulation = 2", "raise microbatches instead"),
    "two stages in 1F1B": ('pipeline_parallel = 2\nschedule = "1f1b"\nstages_per_rank = 2', "one stage a rank"),
    "one stage interleaved": (
        'pipeline_parallel = 2\nschedule = "interleaved"\nstages_per_rank = 1',
        "two stages a rank",
    ),
    "zbv with three stages": ('pipeline_parallel = 2\nschedule = "zbv"\nstages_per_rank = 3', "two stages a rank"),
    "layer split in microbatches": (
        'pipeline_parallel = 2\nschedule = "layer-split"\nmicrobatches = 2',
        "microbatches = 2",
    ),
    "fewer microbatches than 1F1B fills": (
        "pipeline_parallel = 8\nmicrobatches = 4",
        "1F1B needs as many microbatches",
    ),
    "uneven rounds": ('pipeline_parallel = 4\nschedule = "interleaved"\nmicrobatches = 9', "choose a multiple of 4"),
    "stages without blocks": ("pipeline_parallel = 2\nstage_blocks = [1, 2, 3]", "3 entries for 2 stages"),
    "sequence without tensor": ("sequence_parallel = true", "without tensor_parallel"),
    "experts and shards": ('data = "fsdp"\nexpert_parallel = 2', "expert_parallel = 2"),
    "imbalance without experts": ("expert_imbalance = 2.0", "without expert_parallel"),
    "DataParallel in a pipeline": ('data = "dp"\npipeline_parallel = 2', "whole copies of the model"),
    "accumulated local SGD": ('data = "local-sgd"\ngradient_accumulation = 2', "use a larger batch"),
    "ZeRO-2 in a pipeline": ('data = "zero2"\npipeline_parallel = 2', "use fsdp or zero1"),
    "hybrid DDP": ("shard_size = 2", "hybrid sharding needs fsdp or zero2"),
    "PowerSGD in FSDP": ('data = "fsdp"\ncompression = "powersgd"', "a hook of DDP"),
    "uneven inputs in FSDP": ('data = "fsdp"\nuneven_inputs = true', "uneven_inputs"),
    "SyncBatchNorm in FSDP": ('data = "fsdp"\nsync_batchnorm = true', "sync_batchnorm needs"),
    "servers of DDP": ("servers = 2", "belong to data"),
    "rare agreement of DDP": ("sync_every = 4", "belong to data"),
    "GPUs that hold no whole copy": ("tensor_parallel = 3", "choose a multiple of 3"),
    "zero bubble in copies": ('pipeline_parallel = 2\nschedule = "zero-bubble"', "past the hooks"),
    "interleaved DDP": ('pipeline_parallel = 2\nschedule = "interleaved"', "give find_unused_parameters = true"),
    "shards that do not divide": ('data = "fsdp"\nshard_size = 3', "groups of shard_size = 3"),
}
"""Products that torch does not run: what ``[strategy]`` says, and what the answer says."""
BAD_SCENARIOS |= {
    f"impossible: {name}": (
        lambda text, said=said: text.replace('data = "ddp"', said).replace("[1, 2, 4, 8]", "[4]"),  # type: ignore[misc]
        expected,
    )
    for name, (said, expected) in IMPOSSIBLE.items()
}
BAD_SCENARIOS |= {
    "too few blocks": (
        lambda text: (
            text.replace('data = "ddp"', "pipeline_parallel = 32")
            .replace("[1, 2, 4, 8]", "[32]")
            .replace('intra_node = "nvswitch-a100"', 'intra_node = "nvswitch-a100"\ninter_node = "eth-1g"')
        ),
        "16 blocks, too few for 32 pipeline stages",
    ),
    "batch that does not divide into microbatches": (
        lambda text: text.replace('data = "ddp"', "pipeline_parallel = 4\nmicrobatches = 7").replace(
            "[1, 2, 4, 8]", "[4]"
        ),
        "do not divide into 7 microbatches",
    ),
    "sequence of images": (swap("[workload]", "[workload]\nsequence_length = 128"), "is no model over sequences"),
    "stragglers in a pipeline": (
        lambda text: (
            text.replace('data = "ddp"', "pipeline_parallel = 2")
            .replace("[1, 2, 4, 8]", "[2]")
            .replace("gpus_per_node = 8", "gpus_per_node = 8\nstragglers = 1")
        ),
        "not known in a pipeline",
    ),
}
BAD_SCENARIOS["precision that the GPU lacks"] = (
    lambda text: text.replace("amp-fp16", "amp-bf16").replace("A100-SXM4-40GB", "V100-SXM2-16GB"),
    "V100-SXM2-16GB has no bf16 arithmetic",
)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and stderr of a command that must print nothing else."""
    code = main(words)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return code, captured.err


@pytest.mark.parametrize("mistake", BAD_SCENARIOS)
def test_a_bad_scenario_gives_one_clear_line(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit, expected = BAD_SCENARIOS[mistake]
    path = tmp_path / "scenario.toml"
    path.write_text(edit(SCENARIO))
    code, error = run(capsys, "predict", str(path))
    assert code == 2
    matching = [line for line in error.splitlines() if expected in line]
    assert matching, error
    assert str(path) in matching[0]


def test_all_faults_of_a_file_are_reported_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.replace("amp-fp16", "fp17").replace('"ddp"', '"dpp"').replace("256", "0"))
    code, error = run(capsys, "predict", str(path))
    assert code == 2
    assert len(error.splitlines()) == 3


def without(key: str) -> Callable[[dict[str, Any]], str]:
    def edit(profile: dict[str, Any]) -> str:
        *parents, last = key.split(".")
        table = profile
        for parent in parents:
            table = table[parent]
        del table[last]
        return json.dumps(profile)

    return edit


def with_value(key: str, value: Any) -> Callable[[dict[str, Any]], str]:
    def edit(profile: dict[str, Any]) -> str:
        *parents, last = key.split(".")
        table = profile
        for parent in parents:
            table = table[parent]
        table[last] = value
        return json.dumps(profile)

    return edit


BAD_PROFILES: dict[str, tuple[Callable[[dict[str, Any]], str], str]] = {
    "empty file": (lambda profile: "", "is empty"),
    "not JSON": (lambda profile: "profile!", "is not valid JSON"),
    "cut off": (lambda profile: json.dumps(profile)[:500], "is not valid JSON"),
    "a list": (lambda profile: "[]", "a JSON object is needed"),
    "another format": (with_value("format", "something"), "format: found 'something'"),
    "no format": (without("format"), "format: found None"),
    "another version": (with_value("version", 1), "version: found 1"),
    "no machine": (without("machine"), "machine: is missing"),
    "no samples": (without("samples"), "samples: is missing"),
    "unknown key": (with_value("machine.gpu", "x"), "machine.gpu: unknown key"),
    "unknown backend": (with_value("machine.backend", "mpi"), "machine.backend: found 'mpi'"),
    "no ranks": (with_value("machine.world_size", 0), "machine.world_size: found 0"),
    "no hosts": (with_value("machine.hosts", []), "machine.hosts"),
    "text for a number": (with_value("machine.cores", "two"), "machine.cores: found 'two'"),
    "infinite time": (
        lambda profile: json.dumps(profile).replace('"launch_s": 0.0002', '"launch_s": Infinity'),
        "every number must be finite",
    ),
    "not a number": (
        lambda profile: json.dumps(profile).replace('"launch_s": 0.0002', '"launch_s": NaN'),
        "every number must be finite",
    ),
    "negative time": (
        lambda profile: json.dumps(profile).replace('"launch_s": 0.0002', '"launch_s": -1'),
        "launch_s: found -1",
    ),
}


@pytest.mark.parametrize("mistake", BAD_PROFILES)
def test_a_bad_profile_gives_one_clear_line(mistake: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit, expected = BAD_PROFILES[mistake]
    scenario, profile = tmp_path / "scenario.toml", tmp_path / "profile.json"
    scenario.write_text(SCENARIO)
    profile.write_text(edit(copy.deepcopy(PROFILE)))
    code, error = run(capsys, "predict", str(scenario), "--profile", str(profile))
    assert code == 2
    assert expected in error
    assert str(profile) in error


def test_a_missing_file_is_answered_with_its_neighbour(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    code, error = run(capsys, "predict", str(tmp_path / "scenaro.toml"))
    assert code == 2
    assert "no such file; did you mean 'scenario.toml'?" in error


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["predict"], "required: scenario"),
        (["predikt"], "invalid choice"),
        (["predict", "x.toml", "--gpus", "1,x"], "found '1,x'"),
        (["predict", "x.toml", "--gpus", "0"], "counts start at 1"),
        (["calibrate", "--gpus", "0", "--cpu-ranks", "2"], "not allowed with"),
        (["calibrate", "--cpu-ranks", "0"], "at least 1"),
        (["calibrate", "--timeout", "-1"], "positive number of seconds"),
        (["measure", "x.toml", "--gpus", "1,"], "found '1,'"),
    ],
)
def test_a_wrong_command_line_gives_one_line(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert expected in error
    assert len(error.splitlines()) == 1


def test_measured_points_at_counts_that_do_not_divide_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scenario.toml"
    measured = '[[measured]]\ngpus = 3\nstep_time_ms = 1.0\nsource = "x"\n'
    path.write_text(SCENARIO.replace("batch_per_gpu = 256", "global_batch = 256") + measured)
    code, error = run(capsys, "predict", str(path))
    assert code == 2
    assert "does not divide over 3 GPUs" in error


def test_gpus_that_do_not_divide_the_batch_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text(SCENARIO.replace("batch_per_gpu = 256", "global_batch = 256"))
    code, error = run(capsys, "predict", str(path), "--gpus", "3")
    assert code == 2
    assert "--gpus" in error
