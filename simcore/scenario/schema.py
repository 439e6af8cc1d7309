"""The scenario file: one question about one training job, in the words of the field.

Every key carries its unit. The tables are strict and frozen, so a scenario can be a cache key and an edit is a new
scenario (``model_copy``), never a change of an old one.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simcore.files import Table

Precision = Literal["fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16"]
Optimizer = Literal["sgd", "sgd-momentum", "adam", "adamw"]
DataParallel = Literal["ddp"]
Compression = Literal["none", "fp16", "bf16"]
Backend = Literal["auto", "nccl", "gloo"]

PositiveInt = Annotated[int, Field(ge=1, le=10_000_000)]
Count = Annotated[int, Field(ge=0, le=10**13)]
PositiveFloat = Annotated[float, Field(gt=0, le=1e15)]
NonNegativeFloat = Annotated[float, Field(ge=0, le=1e15)]
Name = Annotated[str, Field(min_length=1)]


class LayerTable(Table):
    """A layer spelled out: its times on the device in question and the parameters it learns."""

    name: Name = "layer"
    repeat: PositiveInt = 1
    parameters: Count = 0
    forward_ms: NonNegativeFloat
    backward_ms: NonNegativeFloat
    activation_kib: NonNegativeFloat = 0.0


class WorkloadTable(Table):
    """What is trained: a catalogue model, a model measured in a profile, or layers spelled out; and how much at once.

    ``batch_per_gpu`` (weak scaling) and ``global_batch`` (strong scaling) exclude each other. Times of spelled-out
    layers are those of ``timed_at_batch`` samples in one pass, by default the file's own ``batch_per_gpu``.
    """

    model: Name | None = None
    profile: Name | None = None
    layers: Annotated[tuple[LayerTable, ...], Field(strict=False, min_length=1)] | None = None
    batch_per_gpu: PositiveInt | None = None
    global_batch: PositiveInt | None = None
    timed_at_batch: PositiveInt | None = None
    optimizer_ms: NonNegativeFloat | None = None
    precision: Precision = "fp32"
    optimizer: Optimizer = "sgd-momentum"

    @model_validator(mode="after")
    def _one_source_and_one_batch(self) -> Self:
        if self.layers is not None and (self.model is not None or self.profile is not None):
            raise ValueError("gives layers beside model or profile; a workload has one source: keep one of them")
        if self.layers is None and self.model is None and self.profile is None:
            raise ValueError('names no model; give model = "...", profile = "..." or [[workload.layers]]')
        if (self.batch_per_gpu is None) == (self.global_batch is None):
            found = "neither batch_per_gpu nor" if self.batch_per_gpu is None else "both batch_per_gpu and"
            raise ValueError(f"gives {found} global_batch; give batch_per_gpu (weak scaling) or global_batch (strong)")
        if self.layers is None:
            for key in ("timed_at_batch", "optimizer_ms"):
                if getattr(self, key) is not None:
                    raise ValueError(f"gives {key} without [[workload.layers]]; it belongs to spelled-out layers only")
        elif self.timed_at_batch is None:
            if self.batch_per_gpu is None:
                raise ValueError("gives layers with global_batch but no timed_at_batch; say how many samples they time")
            object.__setattr__(self, "timed_at_batch", self.batch_per_gpu)
        return self


class LinkTable(Table):
    """A link of the catalogue, or one that a scenario describes itself.

    ``bandwidth_gb_per_s`` is the line rate one way, per GPU inside a node and per node between nodes;
    ``efficiency`` what a large all-reduce keeps of it; spreads are log-normal sigmas.
    """

    scope: Literal["intra", "inter"]
    bandwidth_gb_per_s: PositiveFloat
    efficiency: Annotated[float, Field(gt=0, le=1)] = 0.85
    launch_us: NonNegativeFloat = 15.0
    latency_us: NonNegativeFloat = 10.0
    efficiency_spread: Annotated[float, Field(ge=0, le=2)] = 0.15
    latency_spread: Annotated[float, Field(ge=0, le=2)] = 0.3
    source: Name = "the scenario"


class ClusterTable(Table):
    """The machines: which GPU, how many in a node, and what joins them. Links may be described in place."""

    gpu: Name | None = None
    gpus_per_node: PositiveInt | None = None
    intra_node: Name | None = None
    inter_node: Name | None = None
    links: dict[str, LinkTable] = Field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.gpu, self.gpus_per_node, self.intra_node, self.inter_node, *self.links.items()))


class StrategyTable(Table):
    """How the work is divided, in torch's own words; defaults are torch's."""

    data: DataParallel = "ddp"
    tensor_parallel: Literal[1] = 1
    pipeline_parallel: Literal[1] = 1
    bucket_cap_mb: Annotated[float, Field(gt=0, le=100_000)] | None = None
    gradient_accumulation: Annotated[int, Field(ge=1, le=4096)] = 1
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    compression: Compression = "none"
    backend: Backend = "auto"


class SweepTable(Table):
    """The GPU counts to predict, rising."""

    gpus: Annotated[tuple[PositiveInt, ...], Field(strict=False, min_length=1)] = (1, 2, 4, 8)

    @model_validator(mode="after")
    def _rising(self) -> Self:
        if list(self.gpus) != sorted(set(self.gpus)):
            raise ValueError(f"gpus = {list(self.gpus)} must rise without repeats; write {sorted(set(self.gpus))}")
        return self


class MeasuredTable(Table):
    """A measured point: what one count really gave, and who says so. ``calibrate`` points may anchor the costs."""

    gpus: PositiveInt
    throughput: PositiveFloat | None = None
    step_time_ms: PositiveFloat | None = None
    use: Literal["test", "calibrate"] = "test"
    source: Name

    @model_validator(mode="after")
    def _one_figure(self) -> Self:
        if (self.throughput is None) == (self.step_time_ms is None):
            found = "neither throughput nor" if self.throughput is None else "both throughput and"
            raise ValueError(f"gives {found} step_time_ms; give exactly one of them")
        return self


class Scenario(Table):
    """One question: a workload, on a cluster, with a strategy, over a sweep, beside the points measured so far."""

    title: Name
    question: str | None = None
    workload: WorkloadTable
    cluster: ClusterTable = ClusterTable()
    strategy: StrategyTable = StrategyTable()
    sweep: SweepTable = SweepTable()
    measured: Annotated[tuple[MeasuredTable, ...], Field(strict=False)] = ()

    @model_validator(mode="after")
    def _batches_divide(self) -> Self:
        if self.workload.global_batch is not None:
            for gpus in (*self.sweep.gpus, *(point.gpus for point in self.measured)):
                self.local_batch(gpus)
        return self

    @property
    def largest_count(self) -> int:
        """The most GPUs that the scenario speaks of: in its sweep or at a measured point."""
        return max(*self.sweep.gpus, *(point.gpus for point in self.measured), 1)

    @property
    def strong_scaling(self) -> bool:
        """Whether the whole job's batch stays as GPUs are added."""
        return self.workload.global_batch is not None

    def local_batch(self, gpus: int) -> int:
        """Samples in one forward pass of one GPU. Raises ``ValueError`` where ``global_batch`` does not divide."""
        if self.workload.batch_per_gpu is not None:
            return self.workload.batch_per_gpu
        assert self.workload.global_batch is not None
        passes = gpus * self.strategy.gradient_accumulation
        batch, left = divmod(self.workload.global_batch, passes)
        if left or not batch:
            raise ValueError(
                f"global_batch = {self.workload.global_batch} does not divide over {gpus} GPUs x "
                f"{self.strategy.gradient_accumulation} accumulated passes; choose a multiple of {passes}"
            )
        return batch

    def samples_per_step(self, gpus: int) -> int:
        """Samples that one optimizer step consumes over all GPUs."""
        return self.local_batch(gpus) * self.strategy.gradient_accumulation * gpus
