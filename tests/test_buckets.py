"""Bucket assignment is torch's own, on real models and on random sizes, and the Reducer confirms it."""

import os

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from measure.models.table import MODELS
from simcore.strategies.buckets import assign_buckets, bucket_limits, ddp_buckets
from simcore.strategies.powersgd import compressed
from simcore.units import MIB
from simcore.workload.models import build_model
from simcore.workload.step import shape_of, with_tied_twice

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
    shape = shape_of(build_model(name))
    expected = ddp_buckets(shape, range(len(shape.backward)), 4, None, rebuilt=not unused)
    assert launched == [bucket.elements for bucket in expected]


def test_powersgd_sends_what_torchs_hook_sends(alone: None) -> None:
    """The hook's own statistics count the elements before and after compression, of matrices as square as they are."""
    sides = (4, 32, 64, 200)
    module = DistributedDataParallel(nn.ParameterList(nn.Parameter(torch.ones(side, side)) for side in sides))
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2)
    module.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    for _ in range(4):
        sum((parameter**2).sum() for parameter in module.parameters()).backward()
    _, before, after = state.compression_stats()
    steps, total = divmod(before, sum(side * side for side in sides))
    assert not total
    assert after == steps * sum(compressed([side * side for side in sides], rank=2))


def test_a_tied_weight_listed_twice_holds_every_bucket_back() -> None:
    once = shape_of(build_model("gpt2"))
    twice = with_tied_twice(once)
    assert twice.parameter_elements == once.parameter_elements + 50257 * 768
    first = ddp_buckets(twice, range(len(twice.backward)), 4, None, rebuilt=False)[0]
    assert first.ready_after == max(index for index, piece in enumerate(once.backward) if piece.tensors)
