"""Bucket assignment is torch's own, on real models and on random sizes, and the Reducer confirms it."""

import os

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.parallel import DistributedDataParallel

from measure.models.table import MODELS
from simcore.strategies.buckets import assign_buckets, bucket_limits, ddp_buckets
from simcore.units import MIB
from simcore.workload.models import build_model
from simcore.workload.step import shape_of

REAL_MODELS = ["mlp", "cnn", "gpt-small", "resnet18", "resnet50", "bert-base"]


def torchs_assignment(elements: list[int], limits: list[int]) -> list[list[int]]:
    tensors = [torch.empty(size) for size in elements]
    buckets, _ = dist._compute_bucket_assignment_by_size(tensors, limits, [False] * len(tensors))
    return [list(bucket) for bucket in buckets]


@pytest.mark.parametrize("cap", [None, 1, 5, 25, 100])
@pytest.mark.parametrize("name", REAL_MODELS)
def test_real_models_are_bucketed_as_torch_does(name: str, cap: float | None) -> None:
    elements = [parameter.elements for parameter in reversed(build_model(name).parameters)]
    limits = bucket_limits(cap)
    assert assign_buckets([4 * size for size in elements], limits) == torchs_assignment(elements, limits)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.lists(st.integers(1, 20_000), min_size=1, max_size=3)
)
def test_any_sizes_are_bucketed_as_torch_does(elements: list[int], limits: list[int]) -> None:
    assert assign_buckets([4 * size for size in elements], limits) == torchs_assignment(elements, limits)


def test_torchs_default_starts_with_a_small_bucket_and_an_explicit_cap_does_not() -> None:
    assert bucket_limits(None) == [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 * MIB]
    assert bucket_limits(5) == [5 * MIB]


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """A process group of this process alone."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("unused", [False, True])
@pytest.mark.parametrize("name", ["mlp", "cnn", "gpt-small", "resnet18"])
def test_the_reducers_buckets_are_the_predicted_ones(name: str, unused: bool, alone: None) -> None:
    """DDP reports, after its rebuild, how many bytes each bucket that it launches holds."""
    reference = MODELS[name]
    module = DistributedDataParallel(reference.build(), find_unused_parameters=unused)
    launched: list[int] = []

    def count(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        launched.append(bucket.buffer().numel())
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    module.register_comm_hook(None, count)
    inputs, targets = reference.batch(1, torch.device("cpu"))
    for _ in range(2):
        launched.clear()
        reference.loss(module(inputs), targets).backward()
    expected = ddp_buckets(shape_of(build_model(name)), 4, None, rebuilt=not unused)
    assert launched == [bucket.elements for bucket in expected]
