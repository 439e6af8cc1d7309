"""The fit inside a profile: raw samples to costs, by medians and regularised least squares in log space.

The only file of the package that imports scipy; predicting reads its result. Real training steps are never looked at.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, nnls

from simcore.costs.compute import OPTIMIZER_BYTES
from simcore.costs.network import law_seconds, time_on_curve
from simcore.profile.fitted import (
    FIT_VERSION,
    BackwardPiece,
    Collective,
    CollectiveCurve,
    CollectiveLaw,
    Contention,
    Fit,
    Framework,
    KindRate,
    LinearTime,
    ModelFit,
    OverheadFit,
    OverlapFit,
)
from simcore.profile.schema import (
    CollectiveSample,
    LayerSample,
    MemorySample,
    ModelSample,
    OverheadSample,
    OverlapSample,
    Samples,
    Timing,
)

Array = NDArray[np.float64]

LEAST_SPREAD = 0.01
LEAST_RATES_SPREAD = 0.08
PRIOR_SPREAD = 3.0
"""How far, in log space, the data may pull a parameter from its starting value: a weak prior that keeps it finite."""


def fit_samples(samples: Samples) -> Fit:
    """The costs that ``samples`` stand for; what was not measured is left out."""
    curves = _curves(samples.collectives)
    rates, ratio = _rates(samples.models), _backward_ratio(samples.models)
    return Fit(
        version=FIT_VERSION,
        curves=curves,
        laws=_laws(curves),
        rates=rates,
        rates_spread=_rates_spread(samples.models, rates, ratio),
        backward_ratio=ratio,
        optimizer_bytes_per_s=_optimizer_rate(samples.models),
        models=_models(samples.models),
        contention=_contention(samples.models),
        jitter=_jitter(samples.models),
        overlap=_overlap(samples.overlap),
        overheads=_overheads(samples.overhead, curves),
        memory_bytes_per_s=_memory_rate(samples.memory),
    )


def _median(timing: Timing) -> float:
    return max(statistics.median(timing.samples_s), 1e-9)


def _spread_of_median(timing: Timing) -> float:
    """Log-normal sigma of a median: the samples' robust spread (from the MAD) over the square root of their number."""
    middle = _median(timing)
    deviation = statistics.median(abs(sample - middle) for sample in timing.samples_s)
    return 1.25 * 1.4826 * deviation / middle / math.sqrt(len(timing.samples_s))


def _curves(samples: Sequence[CollectiveSample]) -> tuple[CollectiveCurve, ...]:
    """One curve per collective and group; two in flight tell which part of one's time holds the link."""
    groups: dict[tuple[Collective, int, int], dict[int, dict[int, Timing]]] = defaultdict(lambda: defaultdict(dict))
    for sample in samples:
        groups[sample.collective, sample.ranks, sample.hosts][sample.size_bytes][sample.in_flight] = sample.timing
    curves = []
    for (collective, ranks, hosts), by_size in groups.items():
        sizes = sorted(size for size, timings in by_size.items() if 1 in timings)
        times = [_median(by_size[size][1]) for size in sizes]
        shares = [_wire_share(by_size[size]) for size in sizes]
        spreads = [_spread_of_median(by_size[size][1]) for size in sizes]
        curves.append(
            CollectiveCurve(
                collective=collective,
                ranks=ranks,
                hosts=hosts,
                size_bytes=tuple(sizes),
                time_s=tuple(times),
                wire_share=tuple(shares),
                spread=max(LEAST_SPREAD, statistics.median(spreads)),
            )
        )
    return tuple(curves)


def _wire_share(timings: dict[int, Timing]) -> float:
    if 2 not in timings:
        return 1.0
    one, two = _median(timings[1]), _median(timings[2])
    return min(1.25, max(0.0, (two - one) / one))


def _laws(curves: Sequence[CollectiveCurve]) -> tuple[CollectiveLaw, ...]:
    """``launch + hops·latency + moved/bandwidth`` over all groups of a collective, inside a host and across hosts."""
    groups: dict[tuple[Collective, bool], list[CollectiveCurve]] = defaultdict(list)
    for curve in curves:
        groups[curve.collective, curve.hosts > 1].append(curve)
    laws = []
    for (collective, crosses), alike in groups.items():
        points = [(s, c.ranks, t) for c in alike for s, t in zip(c.size_bytes, c.time_s, strict=True)]
        sizes, ranks, times = (list(column) for column in zip(*points, strict=True))

        def model(
            parameters: Array, collective: Collective = collective, sizes: list[int] = sizes, ranks: list[int] = ranks
        ) -> Array:
            launch, latency, rate = parameters
            return np.array(
                [law_seconds(collective, launch, latency, rate, s, n) for s, n in zip(sizes, ranks, strict=True)]
            )

        start = np.array([0.5 * min(times), 0.1 * min(times), max(s / t for s, t in zip(sizes, times, strict=True))])
        fitted, spread = _fit_log(model, start, np.array(times))
        laws.append(
            CollectiveLaw(
                collective=collective, crosses_hosts=crosses, launch_s=fitted[0], latency_s=fitted[1],
                bandwidth_bytes_per_s=fitted[2], spread=spread,
            )
        )  # fmt: skip
    return tuple(laws)


def _fit_log(
    model: Callable[[Array], Array], start: Array, seen: Array, weights: Array | None = None
) -> tuple[list[float], float]:
    """Positive parameters that bring ``log model`` to ``log seen``, with a weak prior at ``start``; rms residual."""
    scale = np.ones_like(seen) if weights is None else np.sqrt(weights / weights.mean())

    def residuals(logs: Array) -> Array:
        misses = scale * (np.log(model(np.exp(logs))) - np.log(seen))
        return np.concatenate([misses, (logs - np.log(start)) / PRIOR_SPREAD / math.sqrt(len(seen))])

    found = least_squares(residuals, np.log(start), loss="soft_l1", f_scale=0.3)
    misses = residuals(found.x)[: len(seen)]
    return [float(value) for value in np.exp(found.x)], max(LEAST_SPREAD, float(np.sqrt(np.mean(misses**2))))


def _rates(samples: Sequence[ModelSample]) -> tuple[KindRate, ...]:
    """Per kind of layer: seconds a call, FLOPs a second and bytes a second, weighted by the time that layers take."""
    layers: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for sample in samples:
        if sample.busy_ranks == 1:
            for layer in sample.layers:
                if _counts(layer):
                    work = (layer.forward_flops * sample.batch, _traffic(layer, sample.batch), layer.forward_s)
                    layers[layer.kind].append(work)
    rates = []
    for kind, seen in layers.items():
        flops, traffic, times = np.array(seen).T

        def model(parameters: Array, flops: Array = flops, traffic: Array = traffic) -> Array:
            call, rate, bandwidth = parameters
            seconds: Array = call + flops / rate + traffic / bandwidth
            return seconds

        start = np.array([5e-6, max(1e9, float(np.max(flops / times))), max(1e9, float(np.max(traffic / times)))])
        (call, rate, bandwidth), _ = _fit_log(model, start, times, weights=times)
        rates.append(KindRate(kind=kind, call_s=call, flops_per_s=rate, bytes_per_s=bandwidth))
    return tuple(rates)


def _rates_spread(samples: Sequence[ModelSample], rates: Sequence[KindRate], backward_ratio: float) -> float:
    """How far whole passes lie from what the rates say of them: twice the rms, since the fit has seen those models."""
    by_kind = {rate.kind: rate for rate in rates}
    misses = []
    for sample in _alone(samples):
        forward_s = sum(_layer_s(layer, by_kind[layer.kind], sample.batch) for layer in sample.layers if _counts(layer))
        pass_s = _median(sample.forward) + _median(sample.backward)
        misses.append(math.log((1 + backward_ratio) * forward_s / pass_s))
    return max(LEAST_RATES_SPREAD, 2 * math.sqrt(statistics.fmean(miss**2 for miss in misses))) if misses else 0.5


def _layer_s(layer: LayerSample, rate: KindRate, batch: int) -> float:
    return rate.call_s + layer.forward_flops * batch / rate.flops_per_s + _traffic(layer, batch) / rate.bytes_per_s


def _traffic(layer: LayerSample, batch: int) -> float:
    """Bytes that a layer's forward moves at a batch, fp32."""
    return 4.0 * (layer.elements * batch + layer.parameter_elements)


def _counts(layer: LayerSample) -> bool:
    """Whether it is known what a layer does, so that its time says something about its kind."""
    return bool(layer.forward_s > 0 and (layer.forward_flops or layer.elements))


def _alone(samples: Iterable[ModelSample]) -> list[ModelSample]:
    return [sample for sample in samples if sample.busy_ranks == 1]


def _backward_ratio(samples: Sequence[ModelSample]) -> float:
    ratios = [_median(sample.backward) / _median(sample.forward) for sample in _alone(samples)]
    return statistics.median(ratios) if ratios else 2.0


def _optimizer_rate(samples: Sequence[ModelSample]) -> float | None:
    rates = [
        sum(gradient.elements for gradient in sample.gradients)
        * OPTIMIZER_BYTES[sample.optimizer_name]
        / _median(sample.optimizer)
        for sample in _alone(samples)
    ]
    return statistics.median(rates) if rates else None


def _models(samples: Sequence[ModelSample]) -> tuple[ModelFit, ...]:
    """Each measured model as lines in the batch, from the samples of one rank at work alone."""
    by_model: dict[str, list[ModelSample]] = defaultdict(list)
    for sample in _alone(samples):
        by_model[sample.model].append(sample)
    return tuple(_model(name, sorted(seen, key=lambda sample: sample.batch)) for name, seen in by_model.items())


def _model(name: str, seen: list[ModelSample]) -> ModelFit:
    batches = [sample.batch for sample in seen]
    largest = seen[-1]
    sizes = {gradient.name: gradient.elements for gradient in largest.gradients}
    registration = [parameter for parameter in largest.registration if parameter in sizes]
    place = {parameter: index for index, parameter in enumerate(registration)}
    order = [gradient.name for gradient in largest.gradients]
    forward = [
        _line(layer.name, batches, [_forward_of(sample, layer.name) for sample in seen]) for layer in largest.layers
    ]
    stretches = [_stretches(sample, order) for sample in seen]
    names = [*order, "after the last gradient"]
    backward = []
    for index, piece in enumerate(names):
        line = _line(piece, batches, [stretch[index] for stretch in stretches])
        tensors = (place[piece],) if piece in place else ()
        backward.append(
            BackwardPiece(name=piece, fixed_s=line.fixed_s, per_sample_s=line.per_sample_s, tensors=tensors)
        )
    spreads = [_spread_of_median(timing) for sample in seen for timing in (sample.forward, sample.backward)]
    return ModelFit(
        model=name,
        batches=tuple(batches),
        forward=tuple(forward),
        backward=tuple(backward),
        elements=tuple(sizes[parameter] for parameter in registration),
        optimizer_s=statistics.median(_median(sample.optimizer) for sample in seen),
        optimizer_name=largest.optimizer_name,
        spread=max(LEAST_SPREAD, statistics.median(spreads)),
    )


def _forward_of(sample: ModelSample, layer: str) -> float:
    return next((entry.forward_s for entry in sample.layers if entry.name == layer), 0.0)


def _stretches(sample: ModelSample, order: list[str]) -> list[float]:
    """Seconds of backward up to each gradient in ``order`` since the one before, and what is left behind the last."""
    ready = {gradient.name: gradient.ready_s for gradient in sample.gradients}
    moments = list(np.maximum.accumulate([ready.get(name, 0.0) for name in order]))
    ends = [*moments, max(_median(sample.backward), moments[-1])]
    return [float(end - start) for start, end in zip([0.0, *ends], ends, strict=False)]


def _line(name: str, batches: list[int], seconds: list[float]) -> LinearTime:
    """The line through ``seconds``, neither part negative; through the origin's side where one batch was measured."""
    if len(batches) == 1:
        return LinearTime(name=name, fixed_s=0.0, per_sample_s=seconds[0] / batches[0])
    weights = 1.0 / np.maximum(np.array(seconds), 1e-9)  # relative errors count, not absolute ones
    matrix = np.stack([np.ones(len(batches)), np.array(batches, dtype=float)], axis=1)
    (fixed, slope), _ = nnls(matrix * weights[:, None], np.array(seconds) * weights)
    return LinearTime(name=name, fixed_s=float(fixed), per_sample_s=float(slope))


def _contention(samples: Sequence[ModelSample]) -> tuple[Contention, ...]:
    """How much longer a pass, and an optimizer step, take with all ranks of a host at work, where measured both ways.

    The two differ: a pass mostly computes, an optimizer step mostly moves memory, which ranks share.
    """
    alone = {(sample.model, sample.batch): sample for sample in _alone(samples)}
    ratios: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for sample in samples:
        if sample.busy_ranks > 1 and (single := alone.get((sample.model, sample.batch))):
            together_s, alone_s = (_median(one.forward) + _median(one.backward) for one in (sample, single))
            ratios[sample.busy_ranks].append(
                (together_s / alone_s, _median(sample.optimizer) / _median(single.optimizer))
            )
    found = []
    for busy, seen in sorted(ratios.items()):
        passes, optimizers = zip(*seen, strict=True)
        found.append(
            Contention(
                busy_ranks=busy,
                slowdown=statistics.median(passes),
                optimizer_slowdown=statistics.median(optimizers),
                spread=max(LEAST_SPREAD, statistics.pstdev(map(math.log, passes))),
            )
        )
    return tuple(found)


def _jitter(samples: Sequence[ModelSample]) -> float:
    """How much a pass varies from step to step, relative to its median: a robust sigma, typical over the models.

    Taken with all ranks at work where that was measured: it is then that they wait for each other.
    """
    busiest = max((sample.busy_ranks for sample in samples), default=1)
    sigmas = []
    for sample in samples:
        if sample.busy_ranks == busiest:
            passes = [f + b for f, b in zip(sample.forward.samples_s, sample.backward.samples_s, strict=True)]
            middle = statistics.median(passes)
            sigmas.append(1.4826 * statistics.median(abs(one - middle) for one in passes) / middle)
    return statistics.median(sigmas) if sigmas else 0.0


def _overlap(samples: Sequence[OverlapSample]) -> OverlapFit | None:
    """The slowdowns of compute beside a collective and of the collective beside compute; never below one."""
    if not samples:
        return None
    compute = [_median(sample.compute_beside) / _median(sample.compute_alone) for sample in samples]
    collective = [_median(sample.collective_beside) / _median(sample.collective_alone) for sample in samples]
    spread = max(_spread_of_median(sample.compute_beside) for sample in samples)
    return OverlapFit(
        compute_slowdown=max(1.0, statistics.median(compute)),
        collective_slowdown=max(1.0, statistics.median(collective)),
        spread=max(LEAST_SPREAD, spread),
    )


def _overheads(samples: Sequence[OverheadSample], curves: Sequence[CollectiveCurve]) -> tuple[OverheadFit, ...]:
    """What each part of torch adds per step, per tensor and per byte, none negative, from relative errors."""
    by_part: dict[Framework, list[OverheadSample]] = defaultdict(list)
    for sample in samples:
        by_part[sample.of].append(sample)
    return tuple(_overhead(part, alike, curves) for part, alike in by_part.items())


def _overhead(part: Framework, samples: Sequence[OverheadSample], curves: Sequence[CollectiveCurve]) -> OverheadFit:
    added = np.array([max(_added(sample, curves), 1e-6) for sample in samples])
    matrix = np.array([[float(s.steps), float(s.tensors), float(s.parameter_bytes)] for s in samples])
    (step_s, tensor_s, byte_s), _ = nnls(matrix / added[:, None], np.ones(len(added)))
    return OverheadFit(of=part, step_s=float(step_s), tensor_s=float(tensor_s), byte_s=float(byte_s), spread=0.2)


def _added(sample: OverheadSample, curves: Sequence[CollectiveCurve]) -> float:
    """What a part of torch added to a step by itself: without the collectives, as far as they were measured."""
    added = _median(sample.wrapped) - sample.plain_share * _median(sample.plain)
    for use in sample.collectives:
        for curve in curves:
            if (curve.collective, curve.ranks, curve.hosts) == (use.collective, 2, sample.hosts):
                added -= use.times * time_on_curve(curve, use.size_bytes)
    return added


def _memory_rate(samples: Sequence[MemorySample]) -> float | None:
    """Bytes read and written a second in the largest copies."""
    largest = sorted(samples, key=lambda sample: sample.size_bytes)[-2:]
    return statistics.median(2 * one.size_bytes / _median(one.timing) for one in largest) if largest else None
