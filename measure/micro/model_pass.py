"""A model's pass, taken apart: its forward layers, and the moment at which each parameter's gradient becomes ready.

That timeline is what DDP overlaps against. Taken with one rank of a host at work and with all, in turn, so that the
difference is contention and not drift.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from measure.clock import Clock, Mark
from measure.models.table import ReferenceModel
from measure.sampling import Effort, interleave
from measure.world import Team
from simcore.profile.schema import GradientSample, LayerSample, ModelSample, Timing

KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "linear": (nn.Linear,),
    "conv": (nn.modules.conv._ConvNd,),
    "norm": (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm),
    "embedding": (nn.Embedding,),
}
REST = "rest"
"""The part of forward outside modules that compute: residual sums, attention as a function, the loss."""


@dataclass
class _Leaf:
    """A module without children: what it does for one sample, and its marks in the current pass."""

    name: str
    kind: str
    parameters: int
    flops: float = 0.0
    elements: float = 0.0
    marks: list[Mark] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)


class ModelPass:
    """One model at one batch, ready to be passed through and timed piece by piece."""

    def __init__(self, reference: ReferenceModel, batch: int, device: torch.device, clock: Clock) -> None:
        self._clock, self._batch, self._loss = clock, batch, reference.loss
        self._model = reference.build().to(device).train()
        self._inputs, self._targets = reference.batch(batch, device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3, momentum=0.9)
        self._leaves = [
            _Leaf(name, _kind_of(module), sum(p.numel() for p in module.parameters()))
            for name, module in self._model.named_modules()
            if not list(module.children())
        ]
        self._flops = self._count_flops()
        self._ready: dict[str, Mark] = {}
        self._ready_samples: dict[str, list[float]] = {name: [] for name, _ in self._model.named_parameters()}
        self.forward: list[float] = []
        self.backward: list[float] = []
        self.optimizer: list[float] = []
        self._hook()

    def take(self) -> float:
        """One whole step, its parts kept; returns its seconds."""
        self._ready.clear()
        self._optimizer.zero_grad(set_to_none=True)
        clock = self._clock
        begun = clock.mark()
        loss = self._loss(self._model(self._inputs), self._targets)
        turned = clock.mark()
        loss.backward()  # type: ignore[no-untyped-call]
        learned = clock.mark()
        self._optimizer.step()
        ended = clock.mark()
        clock.settle()
        self.forward.append(clock.between(begun, turned))
        self.backward.append(clock.between(turned, learned))
        self.optimizer.append(clock.between(learned, ended))
        for leaf in self._leaves:
            leaf.samples.append(sum(clock.between(*leaf.marks[at : at + 2]) for at in range(0, len(leaf.marks), 2)))
            leaf.marks.clear()
        for name, mark in self._ready.items():
            self._ready_samples[name].append(clock.between(turned, mark))
        return clock.between(begun, ended)

    def sample(self, model: str, busy_ranks: int, passes: list[int], warmups: int) -> ModelSample:
        """What the given passes found, the first ``warmups`` of them being warm-ups."""
        sizes = {name: parameter.numel() for name, parameter in self._model.named_parameters()}
        keep = passes[warmups:]
        ready = {name: _median(taken, keep) for name, taken in self._ready_samples.items() if taken}
        return ModelSample(
            model=model,
            batch=self._batch,
            busy_ranks=busy_ranks,
            forward=_timing(self.forward, passes, warmups),
            backward=_timing(self.backward, passes, warmups),
            optimizer=_timing(self.optimizer, passes, warmups),
            optimizer_name="sgd-momentum",
            layers=self._layers(keep),
            gradients=tuple(
                GradientSample(name=name, elements=sizes[name], ready_s=ready[name])
                for name in sorted(ready, key=ready.__getitem__)
            ),
            registration=tuple(sizes),
        )

    def _layers(self, keep: list[int]) -> tuple[LayerSample, ...]:
        used = [leaf for leaf in self._leaves if any(leaf.samples)]
        layers = [
            LayerSample(name=leaf.name, kind=leaf.kind, forward_flops=leaf.flops, elements=leaf.elements,
                        parameter_elements=leaf.parameters, forward_s=_median(leaf.samples, keep))
            for leaf in used
        ]  # fmt: skip
        rest_s = max(0.0, _median(self.forward, keep) - sum(layer.forward_s for layer in layers))
        rest_flops = max(0.0, self._flops - sum(layer.forward_flops for layer in layers))
        kind = "attention" if rest_flops else "elementwise"
        rest = LayerSample(
            name=REST, kind=kind, forward_flops=rest_flops, elements=0.0, parameter_elements=0, forward_s=rest_s
        )
        return (*layers, rest)

    def _count_flops(self) -> float:
        """FLOPs of forward for one sample, by torch's own counter; fills in each leaf's."""
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            self._model(self._inputs)
        counts: dict[str, dict[Any, int]] = counter.get_flop_counts()
        root = type(self._model).__name__
        for leaf in self._leaves:
            leaf.flops = sum(counts.get(f"{root}.{leaf.name}", {}).values()) / self._batch
        return counter.get_total_flops() / self._batch

    def _hook(self) -> None:
        modules = dict(self._model.named_modules())
        for leaf in self._leaves:
            modules[leaf.name].register_forward_pre_hook(lambda *_, leaf=leaf: leaf.marks.append(self._clock.mark()))
            modules[leaf.name].register_forward_hook(lambda *seen, leaf=leaf: self._passed(leaf, *seen[1:]))
        for name, parameter in self._model.named_parameters():
            parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, name=name: self._ready.__setitem__(name, self._clock.mark())
            )

    def _passed(self, leaf: _Leaf, inputs: Any, output: Any) -> None:
        leaf.marks.append(self._clock.mark())
        tensors = [value for value in (*inputs, output) if isinstance(value, torch.Tensor)]
        leaf.elements = sum(tensor.numel() for tensor in tensors) / self._batch


def measure_model(team: Team, name: str, reference: ReferenceModel, batch: int, effort: Effort) -> list[ModelSample]:
    """Samples of ``name`` with rank 0 alone at work and, where its host has more ranks, with all of them.

    Every rank of rank 0's host takes part; only rank 0's samples are returned, an empty list elsewhere.
    """
    world = team.world
    world.beat.move(f"{name}, batch {batch}: forward, backward and gradient-ready times")
    subject = ModelPass(reference, batch, world.device, world.clock)
    alone_passes: list[int] = []
    together_passes: list[int] = []

    def alone() -> float:
        if world.leads:
            alone_passes.append(len(subject.forward))
            subject.take()
        team.barrier()
        return 0.0

    def together() -> float:
        team.barrier()
        together_passes.append(len(subject.forward))
        return subject.take()

    interleave(team, {"alone": alone, "together": together} if team.size > 1 else {"alone": alone}, effort)
    if not world.leads:
        return []
    found = [(1, alone_passes)] + ([(team.size, together_passes)] if team.size > 1 else [])
    return [subject.sample(name, busy, passes, effort.warmups) for busy, passes in found]


def _timing(samples: list[float], passes: list[int], warmups: int) -> Timing:
    taken = [samples[index] for index in passes]
    return Timing(warmup_s=tuple(taken[:warmups]), samples_s=tuple(taken[warmups:]))


def _median(samples: list[float], passes: list[int]) -> float:
    return statistics.median(samples[index] for index in passes)


def _kind_of(module: nn.Module) -> str:
    return next((kind for kind, classes in KINDS.items() if isinstance(module, classes)), "elementwise")
