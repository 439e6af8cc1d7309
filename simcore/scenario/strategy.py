"""The ``[strategy]`` table: how the work is divided, as independent axes that compose.

Three axes (pipeline, tensor with its relatives, data) and one choice (synchronous or not). What torch cannot run
together is refused here, with the reason, so that everything behind may count on a product that exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from simcore.files import Table

DataParallel = Literal["ddp", "dp", "zero1", "zero2", "fsdp", "async-ps", "hogwild", "local-sgd"]
Schedule = Literal["layer-split", "gpipe", "1f1b", "interleaved", "looped-bfs", "zero-bubble", "zbv"]
Compression = Literal["none", "fp16", "bf16", "powersgd"]
Backend = Literal["auto", "nccl", "gloo"]
Degree = Annotated[int, Field(ge=1, le=4096)]

ASYNCHRONOUS = ("async-ps", "hogwild")
"""No barrier joins the workers' steps."""
SHARDED = ("zero2", "fsdp")
"""Run by ``fully_shard``: parameters live in shards between their uses."""
DDP_BASED = ("ddp", "zero1")
"""Gradients are synchronised by DistributedDataParallel's buckets."""
STAGES_PER_RANK = {"interleaved": 2, "looped-bfs": 2, "zero-bubble": 1, "zbv": 2}
"""Stages that a rank holds by default; one where it is not said."""
UNEVEN_ROUND = 4
"""Steps between two ends of the data, where ``uneven_inputs`` is rehearsed."""
REBUILDS_WRONGLY = ("gpipe", "interleaved", "looped-bfs")
"""Schedules in which several microbatches are forward before DDP's first synchronised backward."""
ONE_STAGE = ("layer-split", "gpipe", "1f1b")


class StrategyTable(Table):
    """How the work is divided, in torch's own words; defaults are torch's.

    A copy of the model takes ``tensor_parallel · context_parallel · pipeline_parallel`` GPUs; ``data`` joins the
    copies. ``microbatches`` are those of one pass through a pipeline. ``tied_weights_twice`` is how DDP of torch before
    1.9 lists a weight that two modules share: reduced twice, and, as the last registered, in the bucket that all others
    wait for.
    """

    data: DataParallel = "ddp"
    backend: Backend = "auto"

    # Gradients and parameters between the copies.
    bucket_cap_mb: Annotated[float, Field(gt=0, le=100_000)] | None = None
    find_unused_parameters: bool = False
    gradient_as_bucket_view: bool = False
    static_graph: bool = False
    compression: Compression = "none"
    powersgd_rank: Annotated[int, Field(ge=1, le=1024)] = 1
    sync_batchnorm: bool = False
    uneven_inputs: bool = False
    tied_weights_twice: bool = False
    shard_size: Degree | None = None
    prefetch: Annotated[int, Field(ge=0, le=64)] = 1

    # Inside one copy of the model.
    tensor_parallel: Degree = 1
    sequence_parallel: bool = False
    context_parallel: Degree = 1
    expert_parallel: Degree = 1
    expert_imbalance: Annotated[float, Field(ge=1, le=64)] = 1.0
    pipeline_parallel: Degree = 1
    schedule: Schedule = "1f1b"
    microbatches: Degree | None = None
    stages_per_rank: Annotated[int, Field(ge=1, le=64)] | None = None
    stage_blocks: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(strict=False)] | None = None

    # Without a barrier, or with a rarer one.
    servers: Annotated[int, Field(ge=1, le=4096)] = 1
    staleness: Annotated[int, Field(ge=0, le=10**6)] | None = None
    sync_every: Annotated[int, Field(ge=1, le=10**6)] = 1
    outer_optimizer: Literal["average", "nesterov"] = "average"

    # On any of these.
    gradient_accumulation: Degree = 1
    activation_checkpointing: Literal["none", "full"] = "none"
    compile: bool = False

    @model_validator(mode="after")
    def _product_exists(self) -> Self:
        rules = (_pipeline_faults, _tensor_faults, _data_faults, _asynchronous_faults)
        if faults := [fault for rule in rules for fault in rule(self)]:
            raise ValueError("; ".join(faults))
        return self

    @property
    def synchronous(self) -> bool:
        """Whether every step of all ranks ends together."""
        return self.data not in ASYNCHRONOUS

    @property
    def gpus_per_copy(self) -> int:
        """GPUs that one copy of the model takes."""
        return self.tensor_parallel * self.context_parallel * self.pipeline_parallel

    @property
    def chunks(self) -> int:
        """Pipeline stages that one rank holds."""
        return self.stages_per_rank or STAGES_PER_RANK.get(self.schedule, 1)

    @property
    def stages(self) -> int:
        """Pipeline stages in all."""
        return self.pipeline_parallel * self.chunks

    @property
    def passes(self) -> int:
        """Microbatches of one pass through the pipeline: as many as ranks where nothing is said; one without one."""
        if self.pipeline_parallel == 1 or self.schedule == "layer-split":
            return 1
        return self.microbatches or self.pipeline_parallel

    def copies(self, gpus: int) -> int:
        """Copies of the model on so many GPUs. Raises ``ValueError`` where they do not fill them."""
        copies, left = divmod(gpus, self.gpus_per_copy)
        if left or not copies:
            raise ValueError(
                f"{gpus} GPUs do not hold whole copies of the model, which take {self.gpus_per_copy} each "
                f"(tensor {self.tensor_parallel} x context {self.context_parallel} x pipeline "
                f"{self.pipeline_parallel}); choose a multiple of {self.gpus_per_copy}"
            )
        if copies > 1 and (faults := list(_copies_faults(self))):
            raise ValueError(f"{gpus} GPUs make {copies} copies of the model, but {faults[0]}")
        for name, size in (("shard_size", self.shard_size or 1), ("expert_parallel", self.expert_parallel)):
            if copies % size and copies > 1:
                raise ValueError(
                    f"{copies} copies of the model on {gpus} GPUs do not divide into groups of {name} = {size}; "
                    f"choose a multiple of {size * self.gpus_per_copy} GPUs"
                )
        return copies

    def shards(self, copies: int) -> int:
        """Ranks that share one copy of parameters (or of optimizer state), where the strategy shards at all."""
        if self.data == "zero1":
            return copies
        return min(self.shard_size or copies, copies) if self.data in SHARDED else 1

    def ranks(self, gpus: int) -> int:
        """Processes that train on so many GPUs: parameter servers come on top."""
        return gpus + (self.servers if self.data == "async-ps" else 0)

    def split_blocks(self, blocks: int) -> tuple[tuple[int, int], ...]:
        """First and last-plus-one block of each stage: as stated, else evenly, the first stages taking what is left.

        Raises ``ValueError`` where there are fewer blocks than stages, or ``stage_blocks`` does not add up.
        """
        sizes = self.stage_blocks
        if sizes is None:
            least, more = divmod(blocks, self.stages)
            sizes = tuple(least + (stage < more) for stage in range(self.stages))
            if not least:
                raise ValueError(f"the model has {blocks} blocks, too few for {self.stages} pipeline stages")
        elif sum(sizes) != blocks:
            raise ValueError(f"stage_blocks adds up to {sum(sizes)} blocks, but the model has {blocks}")
        ends = [sum(sizes[: stage + 1]) for stage in range(len(sizes))]
        return tuple((end - size, end) for end, size in zip(ends, sizes, strict=True))


def _pipeline_faults(table: StrategyTable) -> Iterator[str]:
    ranks, microbatches, schedule, chunks = table.pipeline_parallel, table.passes, table.schedule, table.chunks
    if ranks == 1:
        for key in ("microbatches", "stages_per_rank", "stage_blocks"):
            if getattr(table, key) is not None:
                yield f"gives {key} with pipeline_parallel = 1; give pipeline_parallel = 2 or more, or leave {key} out"
        return
    if table.gradient_accumulation > 1:
        yield (
            f"gives gradient_accumulation = {table.gradient_accumulation} with a pipeline, whose microbatches "
            "accumulate already; raise microbatches instead"
        )
    if schedule in ONE_STAGE and chunks != 1:
        yield f'schedule = "{schedule}" holds one stage a rank, found stages_per_rank = {chunks}'
    if schedule in ("interleaved", "looped-bfs") and chunks < 2:
        yield f'schedule = "{schedule}" interleaves two stages a rank or more, found stages_per_rank = {chunks}'
    if schedule == "zbv" and chunks != 2:
        yield f'schedule = "zbv" folds the model into a V of two stages a rank, found stages_per_rank = {chunks}'
    if schedule == "layer-split" and table.microbatches not in (None, 1):
        yield f'schedule = "layer-split" passes the whole batch at once, found microbatches = {table.microbatches}'
    if schedule == "1f1b" and microbatches < ranks:
        yield f"1F1B needs as many microbatches as its {ranks} ranks or more, found microbatches = {microbatches}"
    rounds = max(1, microbatches // ranks)
    if schedule in ("interleaved", "zero-bubble") and microbatches % rounds:
        yield (
            f"{microbatches} microbatches do not divide into {rounds} rounds over {ranks} pipeline ranks; "
            f"choose a multiple of {ranks}"
        )
    if table.stage_blocks is not None and len(table.stage_blocks) != table.stages:
        yield f"stage_blocks has {len(table.stage_blocks)} entries for {table.stages} stages; give one a stage"


def _copies_faults(table: StrategyTable) -> Iterator[str]:
    """What a pipeline does not do for more than one copy of the model, as seen with torch 2.13."""
    if table.pipeline_parallel == 1:
        return
    if table.schedule in ("zero-bubble", "zbv"):
        yield (
            f'torch\'s "{table.schedule}" computes weight gradients past the hooks that would synchronise the copies; '
            "use another schedule, or as many GPUs as one copy takes"
        )
    elif table.data in DDP_BASED and table.schedule in REBUILDS_WRONGLY and not table.find_unused_parameters:
        yield (
            f'torch\'s DDP fails in "{table.schedule}" as it rebuilds its buckets at the second step; give '
            'find_unused_parameters = true, with which it does not, or data = "fsdp"'
        )


def _tensor_faults(table: StrategyTable) -> Iterator[str]:
    if table.sequence_parallel and table.tensor_parallel == 1:
        yield "gives sequence_parallel without tensor_parallel; it shards the sequence over the tensor-parallel ranks"
    if table.expert_parallel > 1 and (table.data not in DDP_BASED or table.gpus_per_copy > 1):
        yield (
            f'expert_parallel = {table.expert_parallel} is known with data = "ddp" on copies of one GPU, found '
            f'"{table.data}" on copies of {table.gpus_per_copy}'
        )
    if table.expert_imbalance > 1 and table.expert_parallel == 1:
        yield "gives expert_imbalance without expert_parallel"


def _data_faults(table: StrategyTable) -> Iterator[str]:
    inside, data = table.gpus_per_copy, table.data
    if data not in (*DDP_BASED, *SHARDED) and inside > 1:
        yield (
            f'data = "{data}" trains whole copies of the model, one on a GPU; tensor {table.tensor_parallel} x context '
            f"{table.context_parallel} x pipeline {table.pipeline_parallel} needs ddp, zero1, zero2 or fsdp"
        )
    if data not in (*DDP_BASED, *SHARDED) and table.gradient_accumulation > 1:
        yield f'gradient_accumulation with data = "{data}" is not run; use a larger batch'
    if data == "zero2" and table.pipeline_parallel > 1:
        yield (
            'data = "zero2" keeps gradients sharded through a pass, while a pipeline accumulates them over '
            "microbatches; use fsdp or zero1"
        )
    if table.shard_size is not None and data not in SHARDED:
        yield f'gives shard_size with data = "{data}"; hybrid sharding needs fsdp or zero2'
    if table.compression == "powersgd" and data != "ddp":
        yield f'compression = "powersgd" is a hook of DDP, found data = "{data}"'
    if table.uneven_inputs and (data != "ddp" or inside > 1):
        yield 'uneven_inputs joins the ranks of plain data = "ddp"'
    if table.sync_batchnorm and data not in DDP_BASED:
        yield f'sync_batchnorm needs data = "ddp" or "zero1", found "{data}"'


def _asynchronous_faults(table: StrategyTable) -> Iterator[str]:
    if table.data != "async-ps" and (table.servers != 1 or table.staleness is not None):
        yield f'servers and staleness belong to data = "async-ps", found "{table.data}"'
    if table.data != "local-sgd" and (table.sync_every != 1 or table.outer_optimizer != "average"):
        yield f'sync_every and outer_optimizer belong to data = "local-sgd", found "{table.data}"'
