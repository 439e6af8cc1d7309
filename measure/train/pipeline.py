"""Pipelines for real, by ``torch.distributed.pipelining``: the twin of ``simcore/strategies/schedules.py``."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, schedules

from measure.models.chain import Chain, Stage
from measure.train.job import Job, own_part
from measure.train.mesh import Mesh
from simcore.errors import InputError
from simcore.scenario.strategy import ONE_STAGE, StrategyTable

SCHEDULES = {
    "layer-split": schedules.ScheduleGPipe,
    "gpipe": schedules.ScheduleGPipe,
    "1f1b": schedules.Schedule1F1B,
    "interleaved": schedules.ScheduleInterleaved1F1B,
    "looped-bfs": schedules.ScheduleLoopedBFS,
    "zero-bubble": schedules.ScheduleInterleavedZeroBubble,
    "zbv": schedules.ScheduleZBVZeroBubble,
}


def stages_of_rank(strategy: StrategyTable, rank: int) -> list[int]:
    """The stages that a pipeline rank holds: looped round the ranks, or down and up again for ``zbv``."""
    ranks = strategy.pipeline_parallel
    if strategy.schedule == "zbv":
        return [rank, 2 * ranks - 1 - rank]
    return [rank + ranks * chunk for chunk in range(strategy.chunks)]


def cut(model: nn.Module, strategy: StrategyTable, rank: int) -> dict[int, Stage]:
    """This rank's stages of ``model``, by number. Raises ``InputError`` where it cannot be cut so."""
    if not isinstance(model, Chain):
        raise InputError("strategy.pipeline_parallel: this model is no chain of blocks, so nothing says where to cut; "
                         "make it a measure.models.chain.Chain")  # fmt: skip
    try:
        bounds = strategy.split_blocks(len(model.blocks()))
    except ValueError as error:
        raise InputError(f"strategy.pipeline_parallel: {error}") from None
    last = strategy.stages - 1
    # Each stage of a rank is cut from a copy of its own: stages share nothing, not even a tied weight.
    return {
        number: Stage(copy.deepcopy(model) if place else model, bounds[number], number == 0, number == last)
        for place, number in enumerate(stages_of_rank(strategy, rank))
    }


class PipelinePass:
    """One pass of a batch through the pipeline: all its microbatches, forward and backward."""

    def __init__(self, job: Job, strategy: StrategyTable, mesh: Mesh, stages: dict[int, nn.Module]) -> None:
        self._job = job
        self._first, self._last = 0 in stages, strategy.stages - 1 in stages
        made = [
            PipelineStage(module, number, strategy.stages, job.device, group=mesh.group("pipeline"))
            for number, module in stages.items()
        ]
        kind = SCHEDULES[strategy.schedule]
        held = made[0] if strategy.schedule in ONE_STAGE else made
        self._schedule = kind(held, n_microbatches=strategy.passes, loss_fn=job.criterion)
        self._tied = _TiedWeights(stages, strategy.stages - 1, mesh) if _is_tied(job.model) else None

    def run(self) -> torch.Tensor:
        """Gradients of the batch, added to those there; the mean loss on the last stage, nought elsewhere."""
        losses: list[torch.Tensor] = []
        inputs = (self._job.inputs,) if self._first else ()
        with self._job.precision():
            if self._last:
                self._schedule.step(*inputs, target=self._job.targets, losses=losses)
            else:
                self._schedule.step(*inputs)
        if self._tied:
            self._tied.sum_gradients()
        return torch.stack(losses).mean().detach() if losses else torch.zeros(())


def _is_tied(model: nn.Module) -> bool:
    return isinstance(model, Chain) and bool(model.tied_parts)


class _TiedWeights:
    """Weights of which the first and the last stage keep a copy each: equal as long as their gradients are summed."""

    def __init__(self, stages: dict[int, nn.Module], last: int, mesh: Mesh) -> None:
        ends = [stages[number] for number in (0, last) if number in stages]
        self._copies = [_tied_of(end) for end in ends]
        self._group: dist.ProcessGroup | None = None
        if len(ends) == 1:
            pair = [dist.get_process_group_ranks(mesh.group("pipeline"))[end] for end in (0, -1)]
            self._group = dist.new_group(pair, use_local_synchronization=True)

    def sum_gradients(self) -> None:
        """Give both copies the sum of their gradients."""
        for weights in zip(*self._copies, strict=True):
            gradients = [own_part(weight.grad) for weight in weights if weight.grad is not None]
            if self._group is not None:
                dist.all_reduce(gradients[0], group=self._group)
            else:
                total = gradients[0] + gradients[1]
                for gradient in gradients:
                    gradient.copy_(total)


def _tied_of(end: nn.Module) -> list[nn.Parameter]:
    """The tied weights of a stage, which data parallelism may have wrapped."""
    stage = next(module for module in end.modules() if isinstance(module, Stage))
    return [weight for name in stage.tied_parts for weight in stage.ends[name].parameters()]
