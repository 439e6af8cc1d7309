"""The scenario file: one question about one training job, in the words of the field.

Every key carries its unit. The tables are strict and frozen, so a scenario can be a cache key and an edit is a new
scenario (``model_copy``), never a change of an old one.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simcore.collectives.evidence import EvidenceTable
from simcore.collectives.nccl import NcclTable
from simcore.fields import Count, Name, NonNegativeFloat, PositiveFloat, PositiveInt
from simcore.files import Table
from simcore.scenario.strategy import StrategyTable
from simcore.topology.disturbance import JobTable, SlowTable
from simcore.topology.fabric import FabricTable
from simcore.topology.node import NodeTable

Precision = Literal["fp32", "tf32", "fp16", "bf16", "amp-fp16", "amp-bf16"]
Optimizer = Literal["sgd", "sgd-momentum", "adam", "adamw"]


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

    ``sequence_length`` are the tokens of a sample, by default the most that the model takes.

    ``batch_per_gpu`` (weak scaling) and ``global_batch`` (strong scaling) exclude each other. Times of spelled-out
    layers are those of ``timed_at_batch`` samples in one pass, by default the file's own ``batch_per_gpu``. The batch
    is that of one copy of the model, which is one GPU unless tensor, context or pipeline degrees say otherwise.
    """

    model: Name | None = None
    profile: Name | None = None
    layers: Annotated[tuple[LayerTable, ...], Field(strict=False, min_length=1)] | None = None
    sequence_length: PositiveInt | None = None
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


class PartTable(Table):
    """``[[cluster.parts]]``: so many nodes of one type, in a cluster of several; GPUs are taken in order."""

    node: Name
    count: PositiveInt


class ClusterTable(Table):
    """The machines: which GPU, how many in a node, and what joins them. Links may be described in place.

    ``node`` names a type of machine instead, of the catalogue or of ``nodes``: it brings GPU, count and links, and
    ``fabric`` joins such nodes; ``parts`` are several types, whose GPUs are taken in order. ``nccl`` is what its
    environment says; ``slow`` links and other ``jobs`` disturb; ``evidence`` is what was measured of the network.
    """

    gpu: Name | None = None
    gpus_per_node: PositiveInt | None = None
    intra_node: Name | None = None
    inter_node: Name | None = None
    links: dict[str, LinkTable] = Field(default_factory=dict)
    node: Name | None = None
    nodes: dict[str, NodeTable] = Field(default_factory=dict)
    parts: Annotated[tuple[PartTable, ...], Field(strict=False)] = ()
    fabric: FabricTable = FabricTable()
    nccl: NcclTable = NcclTable()
    slow: Annotated[tuple[SlowTable, ...], Field(strict=False)] = ()
    evidence: Annotated[tuple[EvidenceTable, ...], Field(strict=False)] = ()
    jobs: Annotated[tuple[JobTable, ...], Field(strict=False)] = ()
    stragglers: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    straggler_slowdown: Annotated[float, Field(ge=1, le=1000)] = 1.0

    def __hash__(self) -> int:
        named = (self.gpu, self.gpus_per_node, self.intra_node, self.inter_node, self.node)
        tables = (self.parts, self.fabric, self.nccl, self.slow, self.jobs, self.evidence)
        own = (*self.links.items(), *self.nodes.items())
        return hash((*named, self.stragglers, self.straggler_slowdown, *tables, *own))

    @model_validator(mode="after")
    def _node_or_links(self) -> Self:
        if self.node is not None and (self.intra_node or self.inter_node):
            raise ValueError("gives both node and intra_node or inter_node; a type of node brings its own links")
        if self.parts and (self.node or self.intra_node or self.inter_node or self.gpu or self.gpus_per_node):
            raise ValueError("gives parts and a node, GPU or link beside them; parts name all the nodes that there are")
        needing = "nccl" if self.nccl != NcclTable() else "evidence" if self.evidence else None
        if self.node is None and not self.parts and needing:
            raise ValueError(f"gives {needing} without node; name a type of node (simscale catalog)")
        return self


class SweepTable(Table):
    """The GPU counts to predict, rising; by default 1, 2, 4 and 8 copies of the model."""

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
    def _counts_divide(self) -> Self:
        if "sweep" not in self.model_fields_set:
            counts = tuple(copies * self.strategy.gpus_per_copy for copies in SweepTable().gpus)
            object.__setattr__(self, "sweep", SweepTable(gpus=counts))
        for gpus in (*self.sweep.gpus, *(point.gpus for point in self.measured)):
            self.local_batch(gpus)
        if self.cluster.stragglers and self.strategy.pipeline_parallel > 1:
            raise ValueError(
                "cluster.stragglers is not known in a pipeline; leave it out or give pipeline_parallel = 1"
            )
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
        """Samples in one pass of one copy of the model.

        Raises ``ValueError`` where the GPUs do not hold whole copies, ``global_batch`` does not divide over them, or a
        copy's batch does not divide into the pipeline's microbatches.
        """
        strategy = self.strategy
        copies = strategy.copies(gpus)
        if self.workload.batch_per_gpu is not None:
            batch, known = self.workload.batch_per_gpu, f"batch_per_gpu = {self.workload.batch_per_gpu}"
        else:
            assert self.workload.global_batch is not None
            known = f"global_batch = {self.workload.global_batch}"
            parts = copies * strategy.gradient_accumulation
            batch, left = divmod(self.workload.global_batch, parts)
            if left or not batch:
                raise ValueError(
                    f"{known} does not divide over {gpus} GPUs ({copies} copies of the model) x "
                    f"{strategy.gradient_accumulation} accumulated passes; choose a multiple of {parts}"
                )
        if batch % strategy.passes:
            raise ValueError(
                f"{known} gives each copy of the model {batch} samples on {gpus} GPUs, which do not divide into "
                f"{strategy.passes} microbatches; choose a multiple, or another strategy.microbatches"
            )
        return batch

    def microbatch(self, gpus: int) -> int:
        """Samples in one microbatch: what a stage computes at once."""
        return self.local_batch(gpus) // self.strategy.passes

    def samples_per_step(self, gpus: int) -> int:
        """Samples that one optimizer step consumes over all GPUs; of asynchronous workers, a step each."""
        return self.local_batch(gpus) * self.strategy.gradient_accumulation * self.strategy.copies(gpus)
