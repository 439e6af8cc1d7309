"""Memory of a rank against torch's own accounting, and against what each strategy must save."""

from __future__ import annotations

import pytest

from measure.launch import run_ranks
from simcore.memory import memory_bytes
from simcore.scenario.strategy import StrategyTable
from simcore.workload.step import StepShape, shape_of
from simcore.workload.transformer import gpt
from tests.builders import SCENARIO, scenario_of
from tests.train_targets import ACCOUNTED, BATCH, TOKENS, VOCABULARY


@pytest.fixture(scope="module")
def accounted() -> dict[str, dict[str, float]]:
    """What two ranks of the tests' GPT really keep."""
    found: dict[str, dict[str, float]] = run_ranks(
        "tests.train_targets:account_memory", {}, 2, "cpu", 60, lambda done, label: None
    )
    return found


def predicted(options: dict[str, object], shape: StepShape, gpus: int = 2, batch: int = BATCH) -> dict[str, float]:
    table = {key: list(value) if isinstance(value, tuple) else value for key, value in options.items()}
    scenario = scenario_of(
        SCENARIO,
        workload={"batch_per_gpu": batch, "precision": "fp32", "optimizer": "adam"},
        strategy=table,
        sweep={"gpus": [gpus]},
    )
    return memory_bytes(scenario, shape, gpus, on_gpu=False)


SMALL_GPT = shape_of(gpt("test", 4, 16, VOCABULARY, TOKENS))


@pytest.mark.parametrize("name", ACCOUNTED)
def test_states_are_what_torch_keeps(accounted: dict[str, dict[str, float]], name: str) -> None:
    expected, found = accounted[name], predicted(ACCOUNTED[name], SMALL_GPT)
    # Biases of rows stay whole in tensor parallelism, ZeRO's shares and FSDP's paddings are uneven by a few elements, and
    # the last stage of a pipeline holds a copy of the tied embedding.
    for part in ("parameters", "gradients", "optimizer_state"):
        assert found[part] == pytest.approx(expected[part], rel=0.08), part


@pytest.mark.parametrize("name", ["ddp", "zero1", "fsdp", "tensor"])
def test_activations_are_nearly_what_autograd_saves(accounted: dict[str, dict[str, float]], name: str) -> None:
    found = predicted(ACCOUNTED[name], SMALL_GPT)
    assert found["activations"] == pytest.approx(accounted[name]["activations"], rel=0.3)


def test_what_each_strategy_saves() -> None:
    shape = shape_of(gpt("test", 8, 256, 1024, 128))
    ddp = predicted({}, shape, gpus=8)
    zero1 = predicted({"data": "zero1"}, shape, gpus=8)
    fsdp = predicted({"data": "fsdp"}, shape, gpus=8)
    checkpointed = predicted({"activation_checkpointing": "full"}, shape, gpus=8)
    assert zero1["optimizer_state"] == pytest.approx(ddp["optimizer_state"] / 8)
    for part in ("parameters", "gradients", "optimizer_state"):
        assert fsdp[part] == pytest.approx(ddp[part] / 8)
    assert 0 < fsdp["gathered"] < ddp["parameters"]
    assert checkpointed["activations"] < 0.4 * ddp["activations"]


def test_gpipe_keeps_every_microbatch_and_1f1b_only_those_in_flight() -> None:
    shape = shape_of(gpt("test", 8, 256, 1024, 128))
    options = {"pipeline_parallel": 4, "microbatches": 16}
    gpipe = predicted({**options, "schedule": "gpipe"}, shape, gpus=4)
    one = predicted({**options, "schedule": "1f1b"}, shape, gpus=4)
    assert one["activations"] < 0.5 * gpipe["activations"]


def test_the_first_gpu_of_data_parallel_holds_all_outputs() -> None:
    shape = shape_of(gpt("test", 2, 64, 4096, 128))
    outputs = 4096 * 128 * 4.0 * BATCH
    assert predicted({"data": "dp"}, shape, gpus=4)["outputs_of_replicas"] == pytest.approx(2 * 3 * outputs)
    assert StrategyTable(data="dp").gpus_per_copy == 1
