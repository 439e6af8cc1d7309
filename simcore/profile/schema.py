"""The profile file: the only thing that crosses from measuring to predicting.

It keeps the raw samples, warm-ups apart, with the machine they come from, and the fit made from them, stamped with the
version of the fitting code. Real training steps in it are compared with, never fitted.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from simcore.files import Table
from simcore.profile.fitted import Bytes, Collective, Count, Fit, Framework, Seconds, Whole

PROFILE_VERSION = 2


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
    size_bytes: Bytes
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
    have ended, in the mean over the ranks.
    """

    collective: Collective
    ranks: Count
    hosts: Count
    size_bytes: Bytes
    in_flight: Count
    timing: Timing


class OverlapSample(Table):
    """Compute and an all-reduce, each alone and both at once: how much either slows the other."""

    ranks: Count
    size_bytes: Bytes
    compute_alone: Timing
    compute_beside: Timing
    collective_alone: Timing
    collective_beside: Timing


class CollectiveUse(Table):
    """So many collectives of two ranks, one behind the other."""

    collective: Collective
    size_bytes: Bytes
    times: Count


class OverheadSample(Table):
    """A training step bare and in a part of torch: what that adds to ``plain_share`` of the bare one is ``collectives``
    and what this part spends on so many ``steps``, ``tensors`` and ``parameter_bytes``."""

    of: Framework
    steps: Whole = 1
    tensors: Whole = 0
    parameter_bytes: Whole = 0
    plain_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    collectives: tuple[CollectiveUse, ...] = ()
    hosts: Count = 1
    plain: Timing
    wrapped: Timing


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


class Profile(Table):
    """A calibration of one machine."""

    format: Literal["simscale-profile"]
    version: Literal[2]
    complete: bool
    machine: Machine
    samples: Samples
    fit: Fit

    def __hash__(self) -> int:
        # The samples are many; a machine and a moment tell profiles apart.
        return hash(self.machine)
