"""From a scenario, and a profile where there is one, to every cost that its task graph will be charged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from simcore.catalog.load import Gpu, find_gpu, find_link, find_node, find_transport, known_gpu
from simcore.collectives.wires import Cluster
from simcore.costs.cluster import ClusterNetwork
from simcore.costs.compute import ComputeCosts, DeviceRates, given_costs, measured_costs, rated_costs
from simcore.costs.device import COMPUTE_SPREAD, catalog_rates, compiled
from simcore.costs.disturbed import DisturbedNetwork
from simcore.costs.framework import UNMEASURED_OVERHEAD, assumed_overheads
from simcore.costs.mixed import MixedNetwork
from simcore.costs.network import CatalogNetwork, MeasuredNetwork, Network
from simcore.costs.spread import Assumption, Origin
from simcore.errors import InputError
from simcore.files import nearest
from simcore.profile.fitted import Contention, Fit, Framework, ModelFit, OverheadFit, OverlapFit
from simcore.scenario.schema import Scenario
from simcore.units import BYTES_PER_ELEMENT, GB
from simcore.workload.models import MODELS

if TYPE_CHECKING:
    from simcore.profile.schema import Profile

NO_OVERLAP = OverlapFit(compute_slowdown=1.0, collective_slowdown=1.0, spread=0.0)
GPU_OVERLAP = OverlapFit(compute_slowdown=1.04, collective_slowdown=1.0, spread=0.02)
"""NCCL's kernels take a few SMs and some memory bandwidth from the compute beside them: a prior."""

GPU_JITTER = 0.01
CPU_JITTER = 0.03
"""How much one rank's compute varies from step to step, as a part of it: priors."""

CATALOGUE = "catalogue priors"

CPU = "CPU"
CPU_CONTENTION = Contention(busy_ranks=2, slowdown=1.1, optimizer_slowdown=1.5, spread=0.3)
"""How much slower a CPU rank is with its host's other ranks at work: a prior."""


@dataclass(frozen=True)
class Costs:
    """Everything that a step is charged for, each with its spread.

    ``anchor`` scales compute: 1, or what measured points marked ``calibrate`` made of it, with the spread they left.
    ``jitter`` is how much one rank's compute varies from step to step; where a barrier joins the steps, all ranks wait
    for the slowest. ``stragglers`` of them are slower than the rest by ``straggler_slowdown``; ranks beyond so many
    have GPUs that take so much longer (``unequal``). ``overheads`` are what parts of the framework spend, by name.
    """

    compute: ComputeCosts
    compute_spread: float
    network: Network
    overheads: Mapping[Framework, OverheadFit]
    overlap: OverlapFit
    contention: tuple[Contention, ...]
    jitter: float
    ranks_per_node: int
    backend: str
    device: str
    memory_gib: float | None
    source: str
    anchor: float = 1.0
    synchronous: bool = True
    stragglers: int = 0
    straggler_slowdown: float = 1.0
    unequal: tuple[tuple[int, float], ...] = ()

    def overhead_of(self, part: Framework) -> tuple[float, float, float]:
        """Seconds of a step, a tensor and a byte in one part of the framework."""
        overhead = self.overheads.get(part, UNMEASURED_OVERHEAD)
        return overhead.step_s, overhead.tensor_s, overhead.byte_s

    def contention_at(self, ranks: int) -> tuple[float, float]:
        """How much slower passes and optimizer steps are while all ranks of a node work, at ``ranks`` ranks in all."""
        busy = min(ranks, self.ranks_per_node)
        points = ((1, 1.0, 1.0), *((c.busy_ranks, c.slowdown, c.optimizer_slowdown) for c in self.contention))
        counts, passes, optimizers = zip(*points, strict=True)
        return float(np.interp(busy, counts, passes)), float(np.interp(busy, counts, optimizers))

    def contention_spread_at(self, ranks: int) -> float:
        """The log-normal sigma of that slowdown; none for a rank alone."""
        return (
            max((entry.spread for entry in self.contention), default=0.0)
            if min(ranks, self.ranks_per_node) > 1
            else 0.0
        )

    def straggling_at(self, ranks: int) -> float:
        """How much longer the slowest of ``ranks`` computes than a typical one, step by step, where all wait for it.

        The expected largest of n normal deviations, by Blom's approximation of its quantile.
        """
        if not self.synchronous:
            return 1.0
        slowest = self.straggler_slowdown if self.stragglers and ranks > 1 else 1.0
        slowest = max(slowest, *(longer for before, longer in self.unequal if ranks > before), 1.0)
        if ranks < 2 or not self.jitter:
            return slowest
        return slowest + self.jitter * NormalDist().inv_cdf((ranks - 0.375) / (ranks + 0.25))

    def anchored(self, factor: float, spread: float) -> Costs:
        """These costs with compute scaled by ``factor`` and its spread replaced."""
        return replace(self, anchor=self.anchor * factor, compute_spread=spread)

    def assumptions(self, ranks: int) -> tuple[Assumption, ...]:
        """Every cost with its origin, spread and source, as a step at ``ranks`` uses them."""
        compute = replace(self.compute.assumption, spread=self.compute_spread)
        if self.anchor != 1.0:
            compute = replace(
                compute, origin="fitted", source=f"{compute.source}; scaled x{self.anchor:.3f} to the calibrate points"
            )
        overhead = Assumption("framework overhead", self._overhead_origin, self.overheads["ddp"].spread, self.source)
        return (compute, overhead, *self.network.assumptions(ranks))

    @property
    def _overhead_origin(self) -> Origin:
        return "assumed" if self.source == CATALOGUE else "fitted"


def resolve_costs(scenario: Scenario, profile: Profile | None, where: str = "scenario") -> Costs:
    """The costs of ``scenario``; measured ones from ``profile`` where it has them, the catalogue's otherwise.

    Raises ``InputError`` where a name is unknown or something needed is neither given nor measured.
    """
    profile = profile or _named_profile(scenario)
    if scenario.cluster.parts:
        return _mixed(scenario, profile, where)
    return _from_profile(scenario, profile, where) if profile else _from_catalog(scenario, where)


def resolve_compute(scenario: Scenario, profile: Profile | None, where: str = "scenario") -> ComputeCosts:
    """The compute costs alone: from the scenario's layers, the profile, or the catalogue, in this order."""
    profile = profile or _named_profile(scenario)
    if scenario.workload.layers is not None:
        return given_costs(scenario.workload)
    if profile is not None and (profile.fit.models or profile.fit.rates):
        return _profiled_compute(scenario, profile.fit, _source(profile), where)
    return _catalog_compute(scenario, *_gpu(scenario, where), where)


def _mixed(scenario: Scenario, profile: Profile | None, where: str) -> Costs:
    """The costs of a cluster of several types of node: the first one's compute, and how much longer others take.

    Raises ``InputError`` where a profile is given, which knows one type, or more GPUs are asked for than there are.
    """
    if profile is not None:
        raise InputError(f"{where}: cluster.parts: a profile knows one type of node; predict parts without it")
    before = 0
    parts: list[tuple[int, Costs]] = []
    for part in scenario.cluster.parts:
        cluster = scenario.cluster.model_copy(update={"parts": (), "node": part.node})
        costs = _from_catalog(scenario.model_copy(update={"cluster": cluster}), where)
        parts.append((before, costs))
        before += part.count * costs.ranks_per_node
    if scenario.largest_count > before:
        raise InputError(f"{where}: cluster.parts: {scenario.largest_count} GPUs are asked for, and there are {before}"
                         "; raise a part's count or lower sweep.gpus")  # fmt: skip
    first = parts[0][1]
    batch = scenario.local_batch(scenario.sweep.gpus[0])
    return replace(
        first,
        network=MixedNetwork(tuple((start, costs.network) for start, costs in parts)),
        unequal=tuple((start, costs.compute.pass_s(batch) / first.compute.pass_s(batch)) for start, costs in parts[1:]),
        memory_gib=min((costs.memory_gib for _, costs in parts if costs.memory_gib is not None), default=None),
        device=" + ".join(dict.fromkeys(costs.device for _, costs in parts)),
    )


def _named_profile(scenario: Scenario) -> Profile | None:
    if scenario.workload.profile is None:
        return None
    from simcore.profile.load import load_profile

    return load_profile(scenario.workload.profile)


def _source(profile: Profile) -> str:
    return f"profile of {profile.machine.device} ({profile.machine.created[:10]})"


def _from_catalog(scenario: Scenario, where: str) -> Costs:
    gpu_name, gpu = _gpu(scenario, where)
    on_cpu = gpu_name == CPU
    given = scenario.workload.layers is not None
    ranks_per_node = _gpus_per_node(scenario, where) or scenario.largest_count
    compute = resolve_compute(scenario, None, where)
    return Costs(
        compute=compute,
        compute_spread=compute.assumption.spread,
        network=_disturbed(scenario, _catalog_network(scenario, ranks_per_node, where), ranks_per_node),
        overheads=assumed_overheads(gpu.memory_bandwidth_gb_per_s * GB, on_cpu),
        overlap=NO_OVERLAP if on_cpu or given else GPU_OVERLAP,
        contention=(CPU_CONTENTION,) if on_cpu and not given else (),
        jitter=0.0 if given else CPU_JITTER if on_cpu else GPU_JITTER,
        ranks_per_node=ranks_per_node,
        backend=_backend(scenario, "gloo" if on_cpu else "nccl"),
        device=gpu_name,
        memory_gib=None if on_cpu else gpu.memory_gib,
        source=CATALOGUE,
        **_workers_of(scenario),
    )


def _workers_of(scenario: Scenario) -> dict[str, Any]:
    """How the ranks wait for each other, and how unequal they are."""
    cluster = scenario.cluster
    return {
        "synchronous": scenario.strategy.synchronous,
        "stragglers": cluster.stragglers,
        "straggler_slowdown": cluster.straggler_slowdown,
    }


def _catalog_compute(scenario: Scenario, gpu_name: str, gpu: Gpu, where: str) -> ComputeCosts:
    rates = catalog_rates(gpu, gpu_name, scenario.workload.precision, where)
    spread = COMPUTE_SPREAD * (2 if gpu_name == CPU else 1)
    assumption = Assumption("compute", "assumed", spread, f"{gpu_name}: {gpu.source}")
    return _rated(scenario, rates, assumption, where)


def _from_profile(scenario: Scenario, profile: Profile, where: str) -> Costs:
    fit, machine = profile.fit, profile.machine
    ranks_per_node = _gpus_per_node(scenario, where) or machine.ranks_per_host
    given = scenario.workload.layers is not None
    compute = resolve_compute(scenario, profile, where)
    gpu = known_gpu(machine.device) if machine.backend == "nccl" else None
    return Costs(
        compute=compute,
        compute_spread=compute.assumption.spread,
        network=_disturbed(scenario, _measured_network(scenario, profile, ranks_per_node, where), ranks_per_node),
        overheads=_measured_overheads(profile),
        overlap=fit.overlap if fit.overlap and not given else NO_OVERLAP,
        contention=() if given else fit.contention,
        jitter=0.0 if given else fit.jitter,
        ranks_per_node=ranks_per_node,
        backend=_backend(scenario, machine.backend),
        device=machine.device,
        memory_gib=gpu.memory_gib if gpu else None,
        source=_source(profile),
        **_workers_of(scenario),
    )


def _measured_overheads(profile: Profile) -> dict[Framework, OverheadFit]:
    """What was measured of the framework, and for the rest what is assumed of it on such a device."""
    on_cpu = profile.machine.backend == "gloo"
    gpu = None if on_cpu else known_gpu(profile.machine.device)
    bandwidth = profile.fit.memory_bytes_per_s or (gpu.memory_bandwidth_gb_per_s if gpu else 10.0) * GB
    return assumed_overheads(bandwidth, on_cpu) | {fit.of: fit for fit in profile.fit.overheads}


def _profiled_compute(scenario: Scenario, fit: Fit, source: str, where: str) -> ComputeCosts:
    """A model measured in the profile if it was, else a catalogue model from the profile's rates by kind."""
    workload = scenario.workload
    if workload.precision != "fp32":
        raise InputError(f"{where}: workload.precision: found '{workload.precision}', but the profile measured fp32; "
                         "write precision = \"fp32\" or predict without --profile")  # fmt: skip
    batch = scenario.local_batch(scenario.sweep.gpus[0])
    measured = {entry.model: entry for entry in fit.models}
    if workload.model is None:
        return measured_costs(_only(measured, where), workload.optimizer, source, batch)
    if workload.model in measured and workload.sequence_length is None:
        return measured_costs(measured[workload.model], workload.optimizer, source, batch)
    if not fit.rates:
        raise InputError(f"{where}: workload.model: the profile measured neither '{workload.model}' nor rates by kind "
                         f"of layer; calibrate again with --model {workload.model}")  # fmt: skip
    kinds = tuple((rate.kind, (rate.call_s, rate.flops_per_s, rate.bytes_per_s)) for rate in fit.rates)
    rates = DeviceRates(kinds, fit.backward_ratio, fit.optimizer_bytes_per_s or 5 * GB)
    assumption = Assumption("compute", "fitted", fit.rates_spread, f"{source}: rates by kind of layer")
    return _rated(scenario, rates, assumption, where)


def _only(measured: dict[str, ModelFit], where: str) -> ModelFit:
    own = [model for name, model in measured.items() if ":" in name] or list(measured.values())
    if len(own) != 1:
        raise InputError(f"{where}: workload.profile holds {len(own)} models ({', '.join(measured) or 'none'}); "
                         "name one: model = \"...\"")  # fmt: skip
    return own[0]


def _rated(scenario: Scenario, rates: DeviceRates, assumption: Assumption, where: str) -> ComputeCosts:
    workload = scenario.workload
    if workload.model is None or workload.model not in MODELS:
        name = workload.model or "?"
        hint = "; a model of your own is known from a profile: simscale calibrate --model" if ":" in name else ""
        raise InputError(f"{where}: workload.model: unknown model '{name}'{nearest(name, MODELS)}{hint}; "
                         f"known: {', '.join(MODELS)}")  # fmt: skip
    bytes_per_element = BYTES_PER_ELEMENT[workload.precision]
    if scenario.strategy.compile:
        rates = compiled(rates)
    try:
        return rated_costs(
            workload.model, workload.sequence_length, rates, workload.optimizer, bytes_per_element, assumption
        )
    except ValueError as error:
        raise InputError(f"{where}: workload.sequence_length: {error}") from None


def _gpu(scenario: Scenario, where: str) -> tuple[str, Gpu]:
    cluster = scenario.cluster
    if cluster.gpu is not None:
        return find_gpu(cluster.gpu, f"{where}: cluster.gpu")
    if cluster.node is None:
        raise InputError(f"{where}: cluster.gpu: is missing; name a GPU or a type of node, or give --profile")
    node = find_node(cluster.node, cluster.nodes, f"{where}: cluster.node")
    return find_gpu(node.gpu, f"{where}: cluster.node: {cluster.node}")


def _gpus_per_node(scenario: Scenario, where: str) -> int | None:
    """GPUs of a node that take part: as the scenario says, else all of its type of node. Raises ``InputError``."""
    cluster = scenario.cluster
    if cluster.node is None:
        return cluster.gpus_per_node
    most = find_node(cluster.node, cluster.nodes, f"{where}: cluster.node").gpus
    if cluster.gpus_per_node is not None and cluster.gpus_per_node > most:
        raise InputError(f"{where}: cluster.gpus_per_node: found {cluster.gpus_per_node}, but a node of type "
                         f"'{cluster.node}' has {most}; write {most} or fewer")  # fmt: skip
    return cluster.gpus_per_node or most


def _catalog_network(scenario: Scenario, ranks_per_node: int, where: str) -> CatalogNetwork | ClusterNetwork:
    cluster, most = scenario.cluster, scenario.largest_count
    if cluster.node is not None:
        transport = find_transport(cluster.fabric.transport, f"{where}: cluster.fabric.transport")
        described = Cluster(
            find_node(cluster.node, cluster.nodes, f"{where}: cluster.node"),
            cluster.fabric,
            transport,
            peer_to_peer=not cluster.nccl.p2p_disable,
            slow=cluster.slow,
            jobs=cluster.jobs,
        )
        return ClusterNetwork(described, cluster.node, ranks_per_node, cluster.nccl, cluster.evidence)
    needs_intra, needs_inter = min(ranks_per_node, most) > 1, most > ranks_per_node
    for needed, key in ((needs_intra, "intra_node"), (needs_inter, "inter_node")):
        if needed and getattr(cluster, key) is None:
            raise InputError(f"{where}: cluster.{key}: is missing, and {most} GPUs in nodes of {ranks_per_node} need "
                             "it; name a link of the catalogue (simscale catalog)")  # fmt: skip
    intra_name, inter_name = cluster.intra_node or "none", cluster.inter_node or "none"
    inter = (
        find_link(inter_name, "inter", cluster.links, f"{where}: cluster.inter_node") if cluster.inter_node else None
    )
    intra = (
        find_link(intra_name, "intra", cluster.links, f"{where}: cluster.intra_node") if cluster.intra_node else None
    )
    return CatalogNetwork(ranks_per_node, intra_name, intra, inter_name, inter)


def _measured_network(scenario: Scenario, profile: Profile, ranks_per_node: int, where: str) -> Network:
    """The profile's network; beyond what it crossed, the catalogue's links, which the scenario must then name."""
    most = scenario.largest_count
    crossed = {curve.hosts > 1 for curve in profile.fit.curves if curve.collective == "all_reduce"}
    crosses = most > ranks_per_node
    beyond = None
    if crosses and True not in crossed and scenario.cluster.inter_node is None and not scenario.cluster.node:
        raise InputError(f"{where}: {most} ranks cross hosts of {ranks_per_node}, which the profile never measured; "
                         "name cluster.inter_node, or calibrate under torchrun over the hosts")  # fmt: skip
    if (crosses and True not in crossed) or (min(most, ranks_per_node) > 1 and False not in crossed):
        beyond = _catalog_network(scenario, ranks_per_node, where)
    return MeasuredNetwork(profile.fit, ranks_per_node, _source(profile), beyond)


def _disturbed(scenario: Scenario, network: Network, ranks_per_node: int) -> Network:
    """The network with its slow links and other jobs, where it does not know of them itself."""
    cluster = scenario.cluster
    if isinstance(network, ClusterNetwork) or not (cluster.slow or cluster.jobs):
        return network
    return DisturbedNetwork(network, ranks_per_node, cluster.fabric, cluster.slow, cluster.jobs)


def _backend(scenario: Scenario, default: str) -> str:
    return default if scenario.strategy.backend == "auto" else scenario.strategy.backend
