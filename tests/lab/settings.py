"""The lab's settings: hosts, link speed and a spelled-out job, each asking something else of the prediction.

Every strategy that gloo can run is among them, by name; ``NOT_ON_GLOO`` names the rest, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass

EQUAL = """
[[workload.layers]]
name = "block"
repeat = 20
parameters = 250_000
forward_ms = 5.0
backward_ms = 10.0
"""

COMMUNICATING = """
[[workload.layers]]
name = "block"
repeat = 20
parameters = 250_000
forward_ms = 1.0
backward_ms = 2.0
"""

UNEQUAL = """
[[workload.layers]]
name = "stem"
repeat = 6
parameters = 10_000
forward_ms = 8.0
backward_ms = 16.0
[[workload.layers]]
name = "body"
repeat = 8
parameters = 150_000
forward_ms = 4.0
backward_ms = 9.0
[[workload.layers]]
name = "wide"
repeat = 2
parameters = 1_500_000
forward_ms = 6.0
backward_ms = 14.0
[[workload.layers]]
name = "head"
parameters = 1_000
forward_ms = 1.0
backward_ms = 2.0
"""


BLOCKS = """
optimizer_ms = 6.0
[[workload.layers]]
name = "block"
repeat = 8
parameters = 250_000
forward_ms = 20.0
backward_ms = 40.0
activation_kib = 64
"""

UNEVEN_BLOCKS = """
optimizer_ms = 6.0
[[workload.layers]]
name = "early"
repeat = 5
parameters = 100_000
forward_ms = 24.0
backward_ms = 48.0
activation_kib = 128
[[workload.layers]]
name = "late"
repeat = 3
parameters = 600_000
forward_ms = 12.0
backward_ms = 24.0
activation_kib = 32
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Hosts of the lab, the speed of their links, and the ranks on each.

    ``slow`` is a host whose link loses speed after calibration, and what it has then; ``shared`` puts a second job, on
    as many hosts, behind the same trunk of one link's speed.
    """

    hosts: int
    gbit_per_s: float
    ranks_per_host: int = 1
    slow: tuple[int, float] | None = None
    shared: bool = False

    @property
    def ranks(self) -> int:
        """Ranks in all."""
        return self.hosts * self.ranks_per_host

    @property
    def name(self) -> str:
        """What its files are called."""
        slow = f"_slow{self.slow[0]}x{self.slow[1]:g}" if self.slow else ""
        return f"{self.hosts}x{self.ranks_per_host}x{self.gbit_per_s:g}{slow}{'_shared' if self.shared else ''}"

    @property
    def disturbance(self) -> str:
        """What a scenario says of its slow link or of the other job."""
        if self.slow:
            host, gbit_per_s = self.slow
            return f"[[cluster.slow]]\nnode = {host}\nkeeps = {gbit_per_s / self.gbit_per_s}\n"
        if self.shared:
            return ('[cluster.fabric]\nkind = "leaf-spine"\nnodes_per_leaf = 2\noversubscription = 2.0\n'
                    f'placement = "scattered"\n[[cluster.jobs]]\nnodes = {self.hosts}\n')  # fmt: skip
        return ""


@dataclass(frozen=True, slots=True)
class Job:
    """A job to rehearse: its name, its layers, its ``[strategy]`` table, its batch and who serves instead of training."""

    name: str
    layers: str
    strategy: str
    batch: int = 1
    servers: int = 0
    cluster: str = ""

    def scenario(self, cluster: Cluster) -> str:
        """The scenario file of this job on such a cluster."""
        return (
            f'title = "{self.name} on {cluster.hosts} hosts at {cluster.gbit_per_s:g} Gbit/s"\n'
            f"[workload]\nbatch_per_gpu = {self.batch}\n{self.layers}\n[cluster]\n{self.cluster}\n{cluster.disturbance}"
            f"[strategy]\n{self.strategy}\n[sweep]\ngpus = [{cluster.ranks - self.servers}]\n"
        )


def _ddp(name: str, layers: str, strategy: str) -> Job:
    return Job(f"ddp: {name}", layers, strategy)


def _blocks(name: str, strategy: str, layers: str = BLOCKS, servers: int = 0, cluster: str = "") -> Job:
    """Blocks that hand on activations, in batches that divide into microbatches."""
    return Job(name, layers, strategy, 8, servers, cluster)


HEAVY = _ddp("heavy layers, beside another such job", COMMUNICATING, "bucket_cap_mb = 5")
HEAVY_FSDP = Job("fsdp: heavy layers, beside another such job", COMMUNICATING, 'data = "fsdp"')
EQUAL_1 = _ddp("equal layers, 1 MB buckets", EQUAL, "bucket_cap_mb = 1")
EQUAL_5 = _ddp("equal layers, 5 MB buckets", EQUAL, "bucket_cap_mb = 5")
EQUAL_25 = _ddp("equal layers, 25 MB buckets", EQUAL, "bucket_cap_mb = 25")
UNEQUAL_1 = _ddp("unequal layers, 1 MB buckets", UNEQUAL, "bucket_cap_mb = 1")
UNEQUAL_5 = _ddp("unequal layers, 5 MB buckets", UNEQUAL, "bucket_cap_mb = 5")
UNEQUAL_DEFAULT = _ddp("unequal layers, torch's default buckets", UNEQUAL, "")
ACCUMULATED = _ddp("equal layers, 4 accumulated passes", EQUAL, "bucket_cap_mb = 5\ngradient_accumulation = 4")
FP16 = _ddp("fp16 hook", EQUAL, 'compression = "fp16"\nbucket_cap_mb = 5')
POWERSGD = _ddp("PowerSGD hook", EQUAL, 'compression = "powersgd"\nbucket_cap_mb = 100')
UNEVEN = _ddp("uneven inputs (join)", EQUAL, "uneven_inputs = true\nbucket_cap_mb = 5")
RECOMPUTED = _ddp("activation checkpointing", EQUAL, 'activation_checkpointing = "full"\nbucket_cap_mb = 5')

ZERO1 = _blocks("zero1", 'data = "zero1"\nbucket_cap_mb = 5')
ZERO2 = _blocks("zero2", 'data = "zero2"')
FSDP = _blocks("fsdp", 'data = "fsdp"')
FSDP_UNEVEN = _blocks("fsdp: unequal blocks, 2 passes", 'data = "fsdp"\ngradient_accumulation = 2', UNEVEN_BLOCKS)
HYBRID = _blocks("fsdp: hybrid, shards of 2", 'data = "fsdp"\nshard_size = 2')


def _pipeline(schedule: str, ranks: int, more: str = "", layers: str = BLOCKS) -> Job:
    strategy = f'schedule = "{schedule}"\npipeline_parallel = {ranks}\n{more}'
    return _blocks(
        f"pipeline: {schedule} over {ranks}" + (", unequal" if layers is UNEVEN_BLOCKS else ""), strategy, layers
    )


SPLIT = _pipeline("layer-split", 4)
GPIPE = _pipeline("gpipe", 4, "microbatches = 8")
ONE_F_ONE_B = _pipeline("1f1b", 4, "microbatches = 8")
ONE_F_ONE_B_UNEVEN = _pipeline("1f1b", 4, "microbatches = 8\nstage_blocks = [1, 2, 2, 3]", UNEVEN_BLOCKS)
INTERLEAVED = _pipeline("interleaved", 4, "microbatches = 8")
LOOPED = _pipeline("looped-bfs", 4, "microbatches = 8")
ZERO_BUBBLE = _pipeline("zero-bubble", 4, "microbatches = 8")
ZBV = _pipeline("zbv", 4, "microbatches = 8")

TENSOR = _blocks("tensor: 2 x ddp", "tensor_parallel = 2\nbucket_cap_mb = 5")
SEQUENCE = _blocks("tensor and sequence: 2 x fsdp", 'tensor_parallel = 2\nsequence_parallel = true\ndata = "fsdp"')
EXPERT = _blocks("expert: all-to-all over 4, 1.25 x imbalance", "expert_parallel = 4\nexpert_imbalance = 1.25")
PIPELINE_DDP = _blocks("product: pipeline 2 x ddp", "pipeline_parallel = 2\nmicrobatches = 4\nbucket_cap_mb = 5")
PIPELINE_FSDP = _blocks("product: pipeline 2 x fsdp", 'pipeline_parallel = 2\nmicrobatches = 4\ndata = "fsdp"')
THREE_AXES = _blocks("product: tensor 2 x pipeline 2 x ddp",
                     "tensor_parallel = 2\npipeline_parallel = 2\nmicrobatches = 4\nbucket_cap_mb = 5")  # fmt: skip

LOCAL_SGD = _blocks("local SGD, every 4 steps", 'data = "local-sgd"\nsync_every = 4')
DILOCO = _blocks("DiLoCo, every 8 steps", 'data = "local-sgd"\nsync_every = 8\nouter_optimizer = "nesterov"')
SERVER = _blocks("async-ps: 1 server", 'data = "async-ps"', servers=1)
SERVERS = _blocks("async-ps: 2 servers, staleness 2", 'data = "async-ps"\nservers = 2\nstaleness = 2', servers=2)
STRAGGLER = _blocks("async-ps: 1 server, a straggler of 2 x", 'data = "async-ps"', servers=1,
                    cluster="stragglers = 1\nstraggler_slowdown = 2.0")  # fmt: skip
BOUND_STRAGGLER = _blocks("async-ps: staleness 1, a straggler of 2 x", 'data = "async-ps"\nstaleness = 1', servers=1,
                          cluster="stragglers = 1\nstraggler_slowdown = 2.0")  # fmt: skip
HOGWILD = _blocks("hogwild", 'data = "hogwild"')
DATA_PARALLEL = _blocks("dp: DataParallel's steps in one process", 'data = "dp"')

CLUSTERS: dict[Cluster, tuple[Job, ...]] = {
    Cluster(1, 1.0, ranks_per_host=2): (DATA_PARALLEL, HOGWILD, RECOMPUTED),
    Cluster(2, 0.25): (EQUAL_5, UNEQUAL_1, FSDP, POWERSGD),
    Cluster(2, 1.0): (UNEQUAL_DEFAULT, ZERO1, TENSOR),
    Cluster(4, 0.5): (
        *(EQUAL_25, UNEQUAL_5, ACCUMULATED, FP16, UNEVEN),
        *(ZERO1, ZERO2, FSDP, FSDP_UNEVEN, HYBRID),
        *(SPLIT, GPIPE, ONE_F_ONE_B, ONE_F_ONE_B_UNEVEN, INTERLEAVED, LOOPED, ZERO_BUBBLE, ZBV),
        *(TENSOR, SEQUENCE, PIPELINE_DDP, PIPELINE_FSDP),
        *(LOCAL_SGD, SERVER, STRAGGLER, BOUND_STRAGGLER),
    ),
    Cluster(8, 0.5): (EQUAL_25, ACCUMULATED, FSDP, HYBRID, SERVERS),
    Cluster(8, 1.0): (EQUAL_1, UNEQUAL_DEFAULT, ZERO1, TENSOR, THREE_AXES, EXPERT, DILOCO),
    Cluster(2, 0.5, ranks_per_host=2): (EQUAL_25, FSDP, TENSOR),
    Cluster(8, 1.0, slow=(5, 0.25)): (EQUAL_5, FSDP),
    Cluster(2, 0.5, shared=True): (HEAVY, HEAVY_FSDP),
}

SMALL: dict[Cluster, tuple[Job, ...]] = {Cluster(2, 0.5): (EQUAL_5, FSDP, SERVER)}
"""The lab that CI runs."""

NOT_ON_GLOO = {
    "sync_batchnorm": "torch's SyncBatchNorm runs on GPUs only",
    "context_parallel": "torch's ring attention has no kernel for the CPU",
    'compression = "bf16"': "torch's bf16 hook asks for NCCL",
    "compile": "waits do not compile",
}
"""What the lab cannot rehearse, and why."""
