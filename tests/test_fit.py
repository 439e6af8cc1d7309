"""The fit recovers what made the samples, ignores outliers, and never looks at real training steps."""

from __future__ import annotations

import random

import pytest

from simcore.costs.network import law_seconds
from simcore.profile.fit import fit_samples
from simcore.profile.schema import (
    CollectiveSample,
    CollectiveUse,
    GradientSample,
    LayerSample,
    ModelSample,
    OverheadSample,
    OverlapSample,
    Samples,
    StepSample,
    Timing,
)

SIZES = tuple(1024 * 4**power for power in range(8))


def timing(seconds: float, seed: int = 0, noise: float = 0.01, count: int = 9) -> Timing:
    luck = random.Random(seed)
    return Timing(warmup_s=(10 * seconds,), samples_s=tuple(seconds * (1 + luck.gauss(0, noise)) for _ in range(count)))


def collectives(noise: float = 0.01) -> tuple[CollectiveSample, ...]:
    found = []
    for ranks in (2, 4):
        for size in SIZES:
            one = law_seconds("all_reduce", 2e-4, 5e-5, 1e9, size, ranks)
            for in_flight, seconds in ((1, one), (2, 1.8 * one)):
                sample = CollectiveSample(
                    collective="all_reduce", ranks=ranks, hosts=ranks, size_bytes=size, in_flight=in_flight,
                    timing=timing(seconds, seed=size + ranks + in_flight, noise=noise),
                )  # fmt: skip
                found.append(sample)
    return tuple(found)


def test_curves_are_medians_and_their_wire_share_is_what_a_second_one_waits() -> None:
    curve = fit_samples(Samples(collectives=collectives())).curves[0]
    assert curve.size_bytes == SIZES
    assert curve.time_s[3] == pytest.approx(law_seconds("all_reduce", 2e-4, 5e-5, 1e9, SIZES[3], 2), rel=0.02)
    assert curve.wire_share[3] == pytest.approx(0.8, abs=0.05)


def test_the_law_extends_to_counts_that_were_not_measured() -> None:
    law = fit_samples(Samples(collectives=collectives())).laws[0]
    for size in (SIZES[0], SIZES[-1]):
        predicted = law_seconds("all_reduce", law.launch_s, law.latency_s, law.bandwidth_bytes_per_s, size, 16)
        assert predicted == pytest.approx(law_seconds("all_reduce", 2e-4, 5e-5, 1e9, size, 16), rel=0.1)


def test_a_wild_sample_changes_nothing() -> None:
    samples = list(collectives())
    wild = samples[0].timing
    samples[0] = samples[0].model_copy(
        update={"timing": wild.model_copy(update={"samples_s": (*wild.samples_s[:-1], 100.0)})}
    )
    assert fit_samples(Samples(collectives=tuple(samples))).curves[0].time_s[0] == pytest.approx(
        fit_samples(Samples(collectives=collectives())).curves[0].time_s[0], rel=0.02
    )


def test_warm_ups_are_never_used() -> None:
    samples = collectives(noise=0.0)
    assert fit_samples(Samples(collectives=samples)).curves[0].time_s[0] == samples[0].timing.samples_s[0]


def model(batch: int, busy: int = 1, slowdown: float = 1.0) -> ModelSample:
    """A model of two linear layers: 100 GFLOP/s forward, gradients after a third and two thirds of backward."""
    forward_s = slowdown * (1e-4 + 2e-4 * batch)
    return ModelSample(
        model="test",
        batch=batch,
        busy_ranks=busy,
        forward=timing(forward_s, noise=0.0),
        backward=timing(2 * forward_s, noise=0.0),
        optimizer=timing(3e-4, noise=0.0),
        optimizer_name="sgd-momentum",
        layers=tuple(
            LayerSample(
                name=name,
                kind="linear",
                forward_flops=1e7,
                elements=100,
                parameter_elements=1000,
                forward_s=forward_s / 2,
            )
            for name in ("a", "b")
        ),
        gradients=(
            GradientSample(name="b.weight", elements=1000, ready_s=2 * forward_s / 3),
            GradientSample(name="a.weight", elements=500, ready_s=4 * forward_s / 3),
        ),
        registration=("a.weight", "b.weight"),
    )


def test_a_model_is_lines_in_the_batch_with_its_gradient_timeline() -> None:
    fit = fit_samples(Samples(models=(model(4), model(16)))).models[0]
    at_8 = sum(piece.fixed_s + 8 * piece.per_sample_s for piece in fit.backward)
    assert at_8 == pytest.approx(2 * (1e-4 + 8 * 2e-4), rel=1e-6)
    assert [piece.tensors for piece in fit.backward] == [(1,), (0,), ()]
    assert fit.elements == (500, 1000)
    first = fit.backward[0]
    assert first.fixed_s + 8 * first.per_sample_s == pytest.approx(at_8 / 3, rel=1e-6)


def test_contention_is_together_against_alone() -> None:
    fit = fit_samples(Samples(models=(model(4), model(4, busy=2, slowdown=1.3))))
    assert fit.contention[0].busy_ranks == 2
    assert fit.contention[0].slowdown == pytest.approx(1.3)
    assert fit.contention[0].optimizer_slowdown == pytest.approx(1.0)


def test_rates_and_ratios_come_from_the_layers() -> None:
    fit = fit_samples(Samples(models=(model(4), model(16))))
    assert fit.backward_ratio == pytest.approx(2.0)
    rate = fit.rates[0]
    predicted = rate.call_s + 16e7 / rate.flops_per_s + 4 * (1600 + 1000) / rate.bytes_per_s
    assert predicted == pytest.approx((1e-4 + 16 * 2e-4) / 2, rel=0.1)


def test_overhead_is_split_into_step_tensor_and_byte() -> None:
    def sample(tensors: int, size: int) -> OverheadSample:
        added = 1e-4 + 5e-6 * tensors + 2e-10 * size
        return OverheadSample(
            of="ddp", parameter_bytes=size, tensors=tensors,
            plain=timing(1e-3, noise=0.0), wrapped=timing(1e-3 + added, noise=0.0),
        )  # fmt: skip

    samples = Samples(overhead=(sample(8, 32_768), sample(64, 262_144), sample(8, 16_000_000)))
    (overhead,) = fit_samples(samples).overheads
    assert overhead.step_s == pytest.approx(1e-4, rel=0.05)
    assert overhead.tensor_s == pytest.approx(5e-6, rel=0.05)
    assert overhead.byte_s == pytest.approx(2e-10, rel=0.05)


def test_what_a_part_of_torch_sends_is_not_its_overhead() -> None:
    """A step divided over two ranks: half the plain one, two all-reduces as they were measured, and 1 ms of its own."""
    reduce = [
        CollectiveSample(collective="all_reduce", ranks=2, hosts=1, size_bytes=size, in_flight=1,
                         timing=timing(5e-3, noise=0.0)) for size in (1000, 2000)
    ]  # fmt: skip
    sample = OverheadSample(
        of="tensor", steps=0, tensors=2, plain_share=0.5,
        collectives=(CollectiveUse(collective="all_reduce", size_bytes=1000, times=2),),
        plain=timing(40e-3, noise=0.0), wrapped=timing(20e-3 + 2 * 5e-3 + 1e-3, noise=0.0),
    )  # fmt: skip
    (overhead,) = fit_samples(Samples(collectives=tuple(reduce), overhead=(sample,))).overheads
    assert overhead.of == "tensor"
    assert overhead.tensor_s == pytest.approx(0.5e-3, rel=0.01)


def test_overlap_is_beside_against_alone_and_never_a_gain() -> None:
    sample = OverlapSample(
        ranks=2, size_bytes=8, compute_alone=timing(1.0, noise=0.0), compute_beside=timing(1.5, noise=0.0),
        collective_alone=timing(1.0, noise=0.0), collective_beside=timing(0.9, noise=0.0),
    )  # fmt: skip
    overlap = fit_samples(Samples(overlap=(sample,))).overlap
    assert overlap is not None
    assert overlap.compute_slowdown == pytest.approx(1.5)
    assert overlap.collective_slowdown == 1.0


def test_real_training_steps_are_never_looked_at() -> None:
    steps = (StepSample(model="test", batch=4, ranks=2, strategy="ddp", timing=timing(123.0)),)
    assert fit_samples(Samples(models=(model(4),), steps=steps)) == fit_samples(Samples(models=(model(4),)))


def test_nothing_measured_fits_nothing() -> None:
    fit = fit_samples(Samples())
    assert fit.curves == fit.laws == fit.rates == fit.models == ()
    assert fit.overlap is None
    assert fit.overheads == ()
