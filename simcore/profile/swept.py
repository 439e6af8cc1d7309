"""A profile made of collective sweeps alone, as nccl-tests prints them: the network is measured, the rest is not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from simcore.collectives.sweep import Sweep
from simcore.errors import InputError
from simcore.profile.fit import fit_samples
from simcore.profile.schema import CollectiveSample, Host, Machine, Profile, Samples, Timing

UNKNOWN = "unknown"


def profile_of(sweeps: Sequence[Sweep]) -> Profile:
    """The profile that ``sweeps`` of one machine stand for; repeated sizes become samples of the same thing.

    Raises ``InputError`` where they name different GPUs, or there is none.
    """
    if not sweeps:
        raise InputError("no sweep is left to make a profile of")
    gpus = sorted({sweep.gpu for sweep in sweeps if sweep.gpu})
    if len(gpus) > 1:
        raise InputError(f"the sweeps were taken on {' and on '.join(gpus)}; give those of one machine at a time")
    samples = Samples(collectives=tuple(_samples(sweeps)))
    return Profile(
        format="simscale-profile",
        version=2,
        complete=True,
        machine=_machine(max(sweeps, key=lambda sweep: sweep.ranks), gpus[0] if gpus else UNKNOWN),
        samples=samples,
        fit=fit_samples(samples),
    )


def _samples(sweeps: Sequence[Sweep]) -> list[CollectiveSample]:
    times: dict[tuple[object, ...], list[float]] = {}
    for sweep in sweeps:
        for size, time_s in zip(sweep.sizes, sweep.times_s, strict=True):
            times.setdefault((sweep.collective, sweep.ranks, sweep.nodes, round(size)), []).append(time_s)
    return [
        CollectiveSample.model_validate(
            {"collective": collective, "ranks": ranks, "hosts": nodes, "size_bytes": size, "in_flight": 1,
             "timing": Timing(samples_s=tuple(found))}
        )
        for (collective, ranks, nodes, size), found in times.items()
    ]  # fmt: skip


def _machine(largest: Sweep, gpu: str) -> Machine:
    per_node = math.ceil(largest.ranks / largest.nodes)
    hosts = tuple(
        Host(name=f"node {index}", ranks=tuple(range(index * per_node, min((index + 1) * per_node, largest.ranks))))
        for index in range(largest.nodes)
    )
    return Machine(
        device=gpu,
        device_count=per_node,
        backend="nccl",
        world_size=largest.ranks,
        hosts=hosts,
        threads_per_rank=1,
        cpu=UNKNOWN,
        cores=1,
        platform=UNKNOWN,
        python=UNKNOWN,
        torch=UNKNOWN,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
