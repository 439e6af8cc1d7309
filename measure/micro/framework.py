"""What parts of torch cost by themselves: the same paced step bare and inside a strategy, in turn.

The model only makes its gradients, so what is left beyond the waits is hooks, copies and the host's work, and the
collectives, which are noted so that their own cost can be taken off. DDP and its PowerSGD hook run on one rank, where
nothing is sent; the rest needs two.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch.distributed as dist
from torch import nn

from measure.paced import PacedLayer
from measure.sampling import Effort, Take, interleave
from measure.train.ddp import wrap_ddp
from measure.train.job import Job, PacedWork, paced_job
from measure.train.mesh import pairs_of
from measure.train.synchronous import SynchronousTrainer
from measure.world import Team, World
from simcore.profile.fitted import Collective, Framework
from simcore.profile.schema import CollectiveUse, OverheadSample, Timing
from simcore.scenario.strategy import StrategyTable

PIECE_S = 4e-3
"""Each gradient takes this long to come, so that caches and cores are as cold, and as free, as between real layers.

What runs much Python between two waits, as tensor parallelism does, feels the cold most: it gets longer ones.
"""

ACTIVATION = 1024
"""Elements that a layer hands on for one sample: enough to be sent, too few to cost."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One rehearsal of a part of torch: so many layers, each of one parameter of so many elements, how long each waits,
    how many elements it hands on, and a pipeline's microbatches."""

    of: Framework
    layers: int
    elements: int
    microbatches: int | None = None
    forward_s: float = 0.0
    backward_s: float = PIECE_S
    activation: int = ACTIVATION


ON_ONE_RANK = (
    Trial("ddp", 4, 1024),
    Trial("ddp", 32, 1024),
    Trial("ddp", 8, 500_000),
    Trial("powersgd", 4, 40_000),
    Trial("powersgd", 8, 250_000),
)
"""Few and small, many and small, few and large tell step, tensor and byte apart."""

ON_TWO_RANKS = (
    Trial("fsdp", 4, 1024),
    Trial("fsdp", 16, 1024),
    Trial("fsdp", 4, 500_000),
    Trial("tensor", 8, 1024, forward_s=0.02, backward_s=0.04),
    Trial("tensor", 8, 1024, forward_s=0.02, backward_s=0.04, activation=256 * 1024),
    Trial("pipeline", 4, 1024, microbatches=2),
    Trial("pipeline", 4, 1024, microbatches=8),
)

_STRATEGIES: dict[Framework, StrategyTable] = {
    "fsdp": StrategyTable(data="fsdp"),
    "tensor": StrategyTable(tensor_parallel=2),
    "pipeline": StrategyTable(pipeline_parallel=2, schedule="gpipe"),
}


def name_of(trial: Trial) -> str:
    """What a trial is called."""
    passes = f" in {trial.microbatches} microbatches" if trial.microbatches else ""
    handed_on = f", handing on {trial.activation}" if trial.activation != ACTIVATION else ""
    return f"{trial.of} overhead {trial.layers}x{trial.elements}{passes}{handed_on}"


def measure_alone(team: Team, own_group: dist.ProcessGroup, trial: Trial, effort: Effort) -> OverheadSample:
    """A step in DDP of this rank alone against the bare step; PowerSGD against DDP. All ranks do it at once."""
    team.world.beat.move(name_of(trial))
    job = _job(team.world, trial, StrategyTable())

    def in_ddp(strategy: StrategyTable) -> nn.Module:
        return wrap_ddp(_job(team.world, trial, strategy).model, job, strategy, own_group)

    plain, wrapped = job.model, in_ddp(StrategyTable())
    if trial.of == "powersgd":
        plain, wrapped = wrapped, in_ddp(StrategyTable(compression="powersgd"))
    timings = interleave(team, {"plain": _step(team, job, plain), "wrapped": _step(team, job, wrapped)}, effort)
    size_bytes = 4 * trial.layers * trial.elements
    plain_s, wrapped_s = timings["plain"], timings["wrapped"]
    return OverheadSample(
        of=trial.of, tensors=trial.layers, parameter_bytes=size_bytes, plain=plain_s, wrapped=wrapped_s
    )


def measure_together(world: World, trial: Trial, effort: Effort) -> list[OverheadSample]:
    """A step divided over two ranks against the bare step of one, by all pairs of ranks at once, as in training.

    Every rank of the world must come here; only rank 0's samples are returned.
    """
    strategy = _STRATEGIES[trial.of].model_copy(update={"microbatches": trial.microbatches})
    paired = world.size - world.size % 2
    team = world.team(paired)
    mesh = pairs_of(team, strategy, world.device.type, paired)
    if team is None or mesh is None:
        return []
    world.beat.move(name_of(trial))
    bare = _job(world, trial, StrategyTable(), strategy.passes)
    divided = SynchronousTrainer(_job(world, trial, strategy, strategy.passes), strategy, mesh)
    timings = interleave(team, {"plain": _step(team, bare, bare.model), "wrapped": _timed(team, divided.step)}, effort)
    sample = _spent(trial, strategy, timings["plain"], timings["wrapped"], world.hosts_of(2))
    return [sample] if world.leads else []


def _spent(trial: Trial, strategy: StrategyTable, plain: Timing, wrapped: Timing, hosts: int) -> OverheadSample:
    """A divided step, with what it does besides its part of the plain one, as ``simcore/strategies`` counts it."""
    size_bytes, layers, handed_on = 4 * trial.elements, trial.layers, 4 * trial.activation
    sample = OverheadSample(of=trial.of, hosts=hosts, plain=plain, wrapped=wrapped)
    match trial.of:
        case "fsdp":  # two gathers and a scatter a layer, each copied once on the way
            used: tuple[CollectiveUse, ...] = (
                _use("all_gather", size_bytes, 2 * layers),
                _use("reduce_scatter", size_bytes, layers),
            )
            spent: dict[str, object] = {
                "tensors": 3 * layers,
                "parameter_bytes": 3 * layers * size_bytes // 2,
                "collectives": used,
            }
        case "tensor":
            used = (_use("all_reduce", handed_on, 2 * layers),)
            copied = 2 * layers * handed_on
            spent = {
                "steps": 0,
                "tensors": 2 * layers,
                "parameter_bytes": copied,
                "plain_share": 0.5,
                "collectives": used,
            }
        case _:  # in GPipe, what stands one behind the other: a place for each microbatch, and one for the other stage
            places = strategy.passes + 1
            used = (_use("send_recv", handed_on, 2 * places),)
            spent = {"tensors": 2 * places, "plain_share": places / (2 * strategy.passes), "collectives": used}
    return sample.model_copy(update=spent)


def _use(collective: Collective, size_bytes: int, times: int) -> CollectiveUse:
    return CollectiveUse(collective=collective, size_bytes=size_bytes, times=times)


def _job(world: World, trial: Trial, strategy: StrategyTable, batch: int = 1) -> Job:
    layer = PacedLayer(trial.forward_s, trial.backward_s, (trial.elements,), trial.activation)
    return paced_job(PacedWork((layer,) * trial.layers, 0.0), batch, world.device, strategy)


def _step(team: Team, job: Job, model: nn.Module) -> Take:
    def step() -> None:
        model.zero_grad(set_to_none=True)
        job.loss(model).backward()  # type: ignore[no-untyped-call]

    return _timed(team, step)


def _timed(team: Team, step: Callable[[], object]) -> Take:
    def take() -> float:
        begun = time.perf_counter()
        step()
        team.world.clock.settle()
        return time.perf_counter() - begun

    return take
