"""The fit inside a profile: the costs made from its samples, stamped with the version of the fitting code."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simcore.files import Table

FIT_VERSION = 2

Collective = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "send_recv", "exchange"]
"""What nccl-tests calls so; an exchange is a call of a parameter server: as many bytes there as back."""

Framework = Literal["ddp", "fsdp", "dp", "tensor", "pipeline", "powersgd", "rpc"]
"""Parts of torch that spend time of their own on the host."""

Seconds = Annotated[float, Field(ge=0, le=1e6)]
Positive = Annotated[float, Field(gt=0, le=1e18)]
Spread = Annotated[float, Field(ge=0, le=5)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Whole = Annotated[int, Field(ge=0, le=10**15)]
Bytes = Annotated[int, Field(ge=1, le=10**15)]


class CollectiveCurve(Table):
    """What one collective costs at one group of ranks, by size; between sizes it is a power law.

    ``wire_share`` is the part of the time during which the link is taken: what a second collective must wait for. It
    may exceed one a little, where an idle link has saved up a burst that a busy one has not.
    """

    collective: Collective
    ranks: Count
    hosts: Count
    size_bytes: tuple[Bytes, ...] = Field(min_length=1)
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
    """Passes with ``busy_ranks`` ranks of a host at work take ``slowdown`` times what one alone takes.

    Optimizer steps, which mostly move memory, take ``optimizer_slowdown`` times as long.
    """

    busy_ranks: Count
    slowdown: Positive
    optimizer_slowdown: Positive
    spread: Spread


class OverlapFit(Table):
    """While a collective runs, compute takes ``compute_slowdown`` times as long, and the collective likewise."""

    compute_slowdown: Positive
    collective_slowdown: Positive
    spread: Spread


class OverheadFit(Table):
    """What a part of torch itself adds to a step: ``step_s`` once, ``tensor_s`` a tensor, ``byte_s`` a byte copied."""

    of: Framework = "ddp"
    step_s: Seconds
    tensor_s: Seconds
    byte_s: Seconds
    spread: Spread


class Fit(Table):
    """The costs made from the samples, by the fitting code of ``version``.

    ``rates_spread`` is how far a model that was not measured may be from what the ``rates`` say of it.
    """

    version: int
    curves: tuple[CollectiveCurve, ...] = ()
    laws: tuple[CollectiveLaw, ...] = ()
    rates: tuple[KindRate, ...] = ()
    rates_spread: Spread = 0.5
    backward_ratio: Positive = 2.0
    optimizer_bytes_per_s: Positive | None = None
    models: tuple[ModelFit, ...] = ()
    contention: tuple[Contention, ...] = ()
    jitter: Spread = 0.0
    overlap: OverlapFit | None = None
    overheads: tuple[OverheadFit, ...] = ()
    memory_bytes_per_s: Positive | None = None
