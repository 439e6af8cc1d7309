"""The profile file: the only thing that crosses from measuring to predicting.

It keeps the raw samples, warm-ups apart, with the machine they come from, and the fit made from them, stamped with the
version of the fitting code. Real training steps in it are compared with, never fitted.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simcore.files import Table

PROFILE_VERSION = 1
FIT_VERSION = 1

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv"]

Seconds = Annotated[float, Field(ge=0, le=1e6)]
Positive = Annotated[float, Field(gt=0, le=1e18)]
Spread = Annotated[float, Field(ge=0, le=5)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Whole = Annotated[int, Field(ge=0, le=10**15)]


class Host(Table):
    """One machine and the ranks on it."""

    name: str
    ranks: tuple[int, ...] = Field(min_length=1)


class Machine(Table):
    """Where the samples were taken. Two profiles may only be joined where all of this but ``created`` agrees."""

    device: str
    device_count: Count
    backend: Literal["gloo", "nccl"]
    world_size: Count
    hosts: tuple[Host, ...] = Field(min_length=1)
    threads_per_rank: Count
    cpu: str
    cores: Count
    platform: str
    python: str
    torch: str
    created: str

    @property
    def ranks_per_host(self) -> int:
        """The largest number of ranks that share a host."""
        return max(len(host.ranks) for host in self.hosts)


class Timing(Table):
    """Raw samples of one thing: the warm-ups, which nothing uses, and the samples, in the order they were taken."""

    warmup_s: tuple[Seconds, ...] = ()
    samples_s: tuple[Seconds, ...] = Field(min_length=1)


class MatmulSample(Table):
    """A square-ish matrix product ``[m, k] x [k, n]``."""

    dtype: str
    m: Count
    n: Count
    k: Count
    timing: Timing


class MemorySample(Table):
    """A copy of ``size_bytes``: that much is read and as much written."""

    dtype: str
    size_bytes: Count
    timing: Timing


class LaunchSample(Table):
    """An operation on one element: what remains is the cost of launching it."""

    timing: Timing


class LayerSample(Table):
    """A layer of a model: what it does for one sample, and its forward time inside the running model."""

    name: str
    kind: str
    forward_flops: Annotated[float, Field(ge=0)]
    elements: Annotated[float, Field(ge=0)]
    parameter_elements: Whole
    forward_s: Seconds


class GradientSample(Table):
    """When one parameter's gradient became ready, in seconds from the start of backward (median over the samples)."""

    name: str
    elements: Count
    ready_s: Seconds


class ModelSample(Table):
    """One model at one batch, with ``busy_ranks`` ranks of each host computing at once.

    ``gradients`` are in the order in which they became ready: the timeline that DDP overlaps against.
    ``registration`` are the same parameters' names in registration order.
    """

    model: str
    batch: Count
    busy_ranks: Count
    forward: Timing
    backward: Timing
    optimizer: Timing
    optimizer_name: str
    layers: tuple[LayerSample, ...]
    gradients: tuple[GradientSample, ...] = Field(min_length=1)
    registration: tuple[str, ...]


class CollectiveSample(Table):
    """One collective over ``ranks`` ranks on ``hosts`` hosts, ``in_flight`` of them started together.

    ``size_bytes`` is what nccl-tests calls size: the whole buffer. A sample is the time until all that were started
    have ended, on the rank that came last: it waited for nobody.
    """

    collective: Collective
    ranks: Count
    hosts: Count
    size_bytes: Count
    in_flight: Count
    timing: Timing


class OverlapSample(Table):
    """Compute and an all-reduce, each alone and both at once: how much either slows the other."""

    ranks: Count
    size_bytes: Count
    compute_alone: Timing
    compute_beside: Timing
    collective_alone: Timing
    collective_beside: Timing


class OverheadSample(Table):
    """A training step over ``parameter_bytes`` in ``tensors`` parameters, bare and inside DDP of one rank."""

    parameter_bytes: Count
    tensors: Count
    plain: Timing
    ddp: Timing


class StepSample(Table):
    """Real training steps: compared with predictions, never fitted."""

    model: str
    batch: Count
    ranks: Count
    strategy: str
    timing: Timing


class Samples(Table):
    """Everything that was measured, raw."""

    matmul: tuple[MatmulSample, ...] = ()
    memory: tuple[MemorySample, ...] = ()
    launch: tuple[LaunchSample, ...] = ()
    models: tuple[ModelSample, ...] = ()
    collectives: tuple[CollectiveSample, ...] = ()
    overlap: tuple[OverlapSample, ...] = ()
    overhead: tuple[OverheadSample, ...] = ()
    steps: tuple[StepSample, ...] = ()


class CollectiveCurve(Table):
    """What one collective costs at one group of ranks, by size; between sizes it is a power law.

    ``wire_share`` is the part of the time during which the link is taken: what a second collective must wait for. It
    may exceed one a little, where an idle link has saved up a burst that a busy one has not.
    """

    collective: Collective
    ranks: Count
    hosts: Count
    size_bytes: tuple[Count, ...] = Field(min_length=1)
    time_s: tuple[Positive, ...] = Field(min_length=1)
    wire_share: tuple[Annotated[float, Field(ge=0, le=1.25)], ...] = Field(min_length=1)
    spread: Spread

    @model_validator(mode="after")
    def _same_length(self) -> Self:
        if not len(self.size_bytes) == len(self.time_s) == len(self.wire_share):
            raise ValueError("size_bytes, time_s and wire_share must have one entry per size")
        if list(self.size_bytes) != sorted(set(self.size_bytes)):
            raise ValueError("size_bytes must rise without repeats")
        return self


class CollectiveLaw(Table):
    """How one collective extends to other counts: ``launch + hops·latency + moved bytes / bandwidth``.

    ``crosses_hosts`` says whether it was fitted on groups inside one host or across hosts.
    """

    collective: Collective
    crosses_hosts: bool
    launch_s: Seconds
    latency_s: Seconds
    bandwidth_bytes_per_s: Positive
    spread: Spread


class KindRate(Table):
    """What a kind of layer costs on this device: a call, its FLOPs at a rate and its bytes at a bandwidth."""

    kind: str
    call_s: Seconds
    flops_per_s: Positive
    bytes_per_s: Positive
    spread: Spread


class LinearTime(Table):
    """A time that grows with the batch: ``fixed_s + per_sample_s * batch``."""

    name: str
    fixed_s: Seconds
    per_sample_s: Seconds


class BackwardPiece(LinearTime):
    """A stretch of backward that ends as some gradients become ready: their places in registration order."""

    tensors: tuple[Whole, ...]


class ModelFit(Table):
    """A measured model: its forward layers and its gradient-ready timeline as functions of the batch.

    ``elements`` are the sizes of its parameters in registration order.
    """

    model: str
    batches: tuple[Count, ...] = Field(min_length=1)
    forward: tuple[LinearTime, ...] = Field(min_length=1)
    backward: tuple[BackwardPiece, ...] = Field(min_length=1)
    elements: tuple[Count, ...] = Field(min_length=1)
    optimizer_s: Seconds
    optimizer_name: str
    spread: Spread


class Contention(Table):
    """Compute with ``busy_ranks`` ranks of a host at work takes ``slowdown`` times what one alone takes."""

    busy_ranks: Count
    slowdown: Positive
    spread: Spread


class OverlapFit(Table):
    """While a collective runs, compute takes ``compute_slowdown`` times as long, and the collective likewise."""

    compute_slowdown: Positive
    collective_slowdown: Positive
    spread: Spread


class OverheadFit(Table):
    """What DDP itself adds to a step: ``step_s`` once, ``tensor_s`` per gradient and ``byte_s`` per byte of them."""

    step_s: Seconds
    tensor_s: Seconds
    byte_s: Seconds
    spread: Spread


class Fit(Table):
    """The costs made from the samples, by the fitting code of ``version``."""

    version: int
    curves: tuple[CollectiveCurve, ...] = ()
    laws: tuple[CollectiveLaw, ...] = ()
    rates: tuple[KindRate, ...] = ()
    backward_ratio: Positive = 2.0
    optimizer_bytes_per_s: Positive | None = None
    models: tuple[ModelFit, ...] = ()
    contention: tuple[Contention, ...] = ()
    jitter: Spread = 0.0
    overlap: OverlapFit | None = None
    overhead: OverheadFit | None = None


class Profile(Table):
    """A calibration of one machine."""

    format: Literal["simscale-profile"]
    version: Literal[1]
    complete: bool
    machine: Machine
    samples: Samples
    fit: Fit

    def __hash__(self) -> int:
        # The samples are many; a machine and a moment tell profiles apart.
        return hash(self.machine)
