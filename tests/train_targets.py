"""What ranks run in tests of training: a job divided by a strategy over all ranks, and the same alone on all data."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.nn import functional

from measure.models.transformer import Gpt
from measure.train.asynchronous import AsynchronousTrainer
from measure.train.job import Job, OptimizerChoice, own_part
from measure.train.mesh import Mesh, mesh_of
from measure.train.server import join_rpc, leave_rpc
from measure.train.table import TRAINERS, Trainer
from measure.world import World
from simcore.scenario.strategy import StrategyTable

STEPS = 4
BATCH = 16
TOKENS, VOCABULARY = 8, 32

PIPELINE = {"pipeline_parallel": 2, "microbatches": 4}
ON_TWO_RANKS: dict[str, dict[str, Any]] = {
    "ddp": {},
    "ddp, bucket views": {"gradient_as_bucket_view": True},
    "ddp, static graph": {"static_graph": True},
    "ddp, unused parameters": {"find_unused_parameters": True},
    "ddp, accumulated": {"gradient_accumulation": 2},
    "ddp, checkpointed": {"activation_checkpointing": "full"},
    "dp": {"data": "dp"},
    "zero1": {"data": "zero1"},
    "zero2": {"data": "zero2"},
    "fsdp": {"data": "fsdp"},
    "fsdp, accumulated": {"data": "fsdp", "gradient_accumulation": 2},
    "fsdp, checkpointed": {"data": "fsdp", "activation_checkpointing": "full"},
    "fsdp, two ahead": {"data": "fsdp", "prefetch": 2},
    "local-sgd, every step": {"data": "local-sgd"},
    "layer-split": {"pipeline_parallel": 2, "schedule": "layer-split"},
    "gpipe": {**PIPELINE, "schedule": "gpipe"},
    "1f1b": {**PIPELINE, "schedule": "1f1b"},
    "1f1b, unequal stages": {**PIPELINE, "schedule": "1f1b", "stage_blocks": (3, 1)},
    "interleaved": {**PIPELINE, "schedule": "interleaved"},
    "looped-bfs": {**PIPELINE, "schedule": "looped-bfs"},
    "zero-bubble": {**PIPELINE, "schedule": "zero-bubble"},
    "zero-bubble, two stages a rank": {**PIPELINE, "schedule": "zero-bubble", "stages_per_rank": 2},
    "zbv": {**PIPELINE, "schedule": "zbv"},
    "tensor": {"tensor_parallel": 2},
    "tensor and sequence": {"tensor_parallel": 2, "sequence_parallel": True},
}
ON_FOUR_RANKS: dict[str, dict[str, Any]] = {
    "hybrid shards": {"data": "fsdp", "shard_size": 2},
    "ddp x 1f1b": PIPELINE,
    "ddp x gpipe": {**PIPELINE, "schedule": "gpipe", "find_unused_parameters": True},
    "ddp x interleaved": {**PIPELINE, "schedule": "interleaved", "find_unused_parameters": True},
    "zero1 x 1f1b": {**PIPELINE, "data": "zero1"},
    "fsdp x 1f1b": {**PIPELINE, "data": "fsdp"},
    "fsdp x interleaved": {**PIPELINE, "data": "fsdp", "schedule": "interleaved"},
    "ddp x tensor": {"tensor_parallel": 2},
    "zero1 x tensor": {"tensor_parallel": 2, "data": "zero1"},
    "fsdp x tensor": {"tensor_parallel": 2, "data": "fsdp"},
    "fsdp x sequence": {"tensor_parallel": 2, "sequence_parallel": True, "data": "fsdp"},
    "tensor x 1f1b": {**PIPELINE, "tensor_parallel": 2},
    "sequence x gpipe": {**PIPELINE, "tensor_parallel": 2, "sequence_parallel": True, "schedule": "gpipe"},
}
ON_EIGHT_RANKS: dict[str, dict[str, Any]] = {
    "fsdp x tensor x 1f1b": {**PIPELINE, "microbatches": 2, "tensor_parallel": 2, "data": "fsdp"}
}
PRODUCTS = {2: ON_TWO_RANKS, 4: ON_FOUR_RANKS, 8: ON_EIGHT_RANKS}


def train_both_ways(world: World) -> dict[str, dict[str, Any]]:
    """Every product of the table for this count of ranks: losses, and how far its parameters end from one process's."""
    return {name: _both_ways(world, StrategyTable(**options)) for name, options in PRODUCTS[world.size].items()}


def train_with_hook(world: World, compression: str) -> dict[str, Any]:
    """DDP with a compressing hook, which only nearly equals one process."""
    return _both_ways(world, StrategyTable(compression=compression))


def _both_ways(world: World, table: StrategyTable) -> dict[str, Any]:
    inputs, targets = _data()
    mesh = mesh_of(world.everyone, world.size, table, "cpu")
    assert mesh is not None
    copies = table.copies(world.size)
    copy = mesh.place("replicate") * mesh.size("shard") + mesh.place("shard")
    mine = slice(copy * BATCH // copies, (copy + 1) * BATCH // copies)
    if table.data == "dp":  # its trainer gives every replica the same batch, so one process needs that alone
        inputs, targets, mine = inputs[mine], targets[mine], slice(None)
    together = _job(inputs[mine], targets[mine])
    trainer = TRAINERS[table.data](together, table, mesh)
    losses = [_loss_over_ranks(trainer) for _ in range(STEPS)]
    single = _job(inputs, targets)
    optimizer = single.optimizer.over(single.model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        single.loss(single.model).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    compared, furthest = _compare(together, trainer, single)
    totals = torch.tensor([float(compared), furthest])
    everyone = [torch.zeros(2) for _ in range(world.size)]
    dist.all_gather(everyone, totals)
    trains = everyone[:1] if table.data == "dp" else everyone
    return {
        "losses": losses,
        "furthest": max(float(one[1]) for one in trains),
        "compared": min(int(one[0]) for one in trains),
    }


def _loss_over_ranks(trainer: Trainer) -> float:
    """The largest loss that any rank saw: in a pipeline only the last stage sees one."""
    loss = trainer.step().reshape(1).clone()
    dist.all_reduce(loss, op=dist.ReduceOp.MAX)
    return float(loss)


def _compare(together: Job, trainer: Trainer, single: Job) -> tuple[int, float]:
    """How many of this rank's parameters are there to compare, and the furthest that any of them lies off."""
    expected = dict(single.model.named_parameters())
    parts = getattr(trainer, "parts", {0: together.model})
    held = {id(parameter) for part in parts.values() for parameter in part.parameters()}
    distances = []
    for name, parameter in together.model.named_parameters():
        if id(parameter) in held:
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            reference = expected[name.replace("_checkpoint_wrapped_module.", "")]
            if (
                whole.shape == reference.shape
            ):  # DDP over tensor-parallel shards holds plain shards: no whole to compare
                distances.append(float((whole - reference).abs().max()))
    return len(distances), max(distances)


def train_rounds(world: World, options: dict[str, Any]) -> list[float]:
    """Losses of rounds of a strategy that only then agrees with one process where there is one step in a round."""
    table = StrategyTable(**options)
    mesh = mesh_of(world.everyone, world.size, table, "cpu")
    assert mesh is not None
    inputs, targets = _data()
    trainer = TRAINERS[table.data](_job(inputs, targets), table, mesh)
    return [_loss_over_ranks(trainer) for _ in range(STEPS)]


def train_without_barrier(world: World, options: dict[str, Any], workers: int) -> dict[str, Any]:
    """Losses of rank 0's worker and the staleness of all, after each has taken a few steps as it likes."""
    table = StrategyTable(**options)
    if table.data == "async-ps":
        join_rpc(world)
    team = world.team(workers)
    mesh = mesh_of(team, workers, table, "cpu")
    losses, stale = [], []
    if team is not None and mesh is not None:
        losses, stale = _work(team.barrier, mesh, table)
        stale = team.gather(stale)
    world.assemble()
    if table.data == "async-ps":
        leave_rpc()
    return {"losses": losses, "staleness": stale}


def _work(barrier: Any, mesh: Mesh, table: StrategyTable) -> tuple[list[float], list[int]]:
    inputs, targets = _data()
    trainer = TRAINERS[table.data](_job(inputs, targets), table, mesh)
    assert isinstance(trainer, AsynchronousTrainer)
    trainer.enter()
    barrier()
    losses = [float(trainer.step()) for _ in range(12)]
    trainer.leave()
    barrier()
    trainer.close()
    return losses, trainer.staleness


def _data() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(7)
    return torch.randint(0, VOCABULARY, (BATCH, TOKENS)), torch.randint(0, VOCABULARY, (BATCH, TOKENS))


def _job(inputs: torch.Tensor, targets: torch.Tensor) -> Job:
    torch.manual_seed(11)
    model = Gpt(4, 16, 4, VOCABULARY, TOKENS)
    sgd = OptimizerChoice(torch.optim.SGD, {"lr": 0.1})
    return Job(model, torch.device("cpu"), len(inputs), inputs, targets, _word_loss, sgd)


def _word_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def account_memory(world: World) -> dict[str, dict[str, float]]:
    """Bytes that torch really keeps on the fullest rank after a step, by strategy and by what fills them."""
    return {name: _kept_bytes(world, StrategyTable(**options)) for name, options in ACCOUNTED.items()}


ACCOUNTED: dict[str, dict[str, Any]] = {
    "ddp": {},
    "zero1": {"data": "zero1"},
    "fsdp": {"data": "fsdp"},
    "1f1b": {**PIPELINE, "schedule": "1f1b"},
    "gpipe": {**PIPELINE, "schedule": "gpipe"},
    "tensor": {"tensor_parallel": 2},
    "checkpointed": {"activation_checkpointing": "full"},
}


def _kept_bytes(world: World, table: StrategyTable) -> dict[str, float]:
    mesh = mesh_of(world.everyone, world.size, table, "cpu")
    assert mesh is not None
    job = _job(*_data())
    job.optimizer = OptimizerChoice(torch.optim.Adam, {"lr": 1e-3})
    trainer = TRAINERS[table.data](job, table, mesh)
    trainer.step()
    parameters = [p for part in trainer.parts.values() for p in part.parameters()]  # type: ignore[attr-defined]
    storages: dict[int, int] = {}
    known = {_storage(parameter) for parameter in parameters}
    held, most = 0, 0

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal held, most
        place = _storage(tensor)
        if place not in known and place not in storages:
            storages[place] = own_part(tensor).untyped_storage().nbytes()
            held = sum(storages.values())
            most = max(most, held)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        trainer.step()
    state = [value for one in trainer._optimizers for value in _states(one)]  # type: ignore[attr-defined]
    found = [
        float(sum(map(_bytes, parameters))),
        float(sum(_bytes(p.grad) for p in parameters if p.grad is not None)),
        float(sum(map(_bytes, state))),
        float(most),
    ]
    everyone = [torch.zeros(4) for _ in range(world.size)]
    dist.all_gather(everyone, torch.tensor(found))
    fullest = max(everyone, key=lambda one: float(one.sum()))
    return dict(zip(("parameters", "gradients", "optimizer_state", "activations"), fullest.tolist(), strict=True))


def _states(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    inner = getattr(optimizer, "optim", optimizer)
    return [value for state in inner.state.values() for key, value in state.items() if key != "step"]


def _storage(tensor: torch.Tensor) -> int:
    return own_part(tensor).untyped_storage().data_ptr()


def _bytes(tensor: torch.Tensor) -> int:
    part = own_part(tensor)
    return part.numel() * part.element_size()
