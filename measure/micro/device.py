"""What the device does by itself: matrix products, memory traffic and the launch of an operation."""

from __future__ import annotations

import torch

from measure.clock import Clock
from measure.sampling import Effort, Take, alone
from simcore.profile.schema import LaunchSample, MatmulSample, MemorySample

REPEATS_UNDER_S = 2e-4
"""Things shorter than this are timed several at once."""


def matmul(device: torch.device, clock: Clock, dtype: str, m: int, n: int, k: int, effort: Effort) -> MatmulSample:
    """Seconds of ``[m, k] x [k, n]`` in ``dtype`` (``float32``, ``bfloat16``, ``float16``)."""
    kind = getattr(torch, dtype)
    left, right = torch.randn(m, k, device=device).to(kind), torch.randn(k, n, device=device).to(kind)
    out = torch.empty(m, n, device=device, dtype=kind)
    timing = alone(_timed(clock, lambda: torch.mm(left, right, out=out)), effort)
    return MatmulSample(dtype=dtype, m=m, n=n, k=k, timing=timing)


def memory(device: torch.device, clock: Clock, size_bytes: int, effort: Effort) -> MemorySample:
    """Seconds of copying ``size_bytes`` within the device."""
    source = torch.ones(size_bytes // 4, device=device)
    target = torch.empty_like(source)
    timing = alone(_timed(clock, lambda: target.copy_(source)), effort)
    return MemorySample(dtype="float32", size_bytes=size_bytes, timing=timing)


def launch(device: torch.device, clock: Clock, effort: Effort) -> LaunchSample:
    """Seconds of an operation on a single element."""
    one = torch.ones(1, device=device)
    return LaunchSample(timing=alone(_timed(clock, lambda: one.add_(1.0)), effort))


def _timed(clock: Clock, work: object) -> Take:
    """``work`` as a sample: repeated within one sample where it is too short for the clock."""
    assert callable(work)

    def several(times: int) -> float:
        start = clock.mark()
        for _ in range(times):
            work()
        end = clock.mark()
        clock.settle()
        return clock.between(start, end) / times

    several(1)
    times = max(1, round(REPEATS_UNDER_S / max(several(1), 1e-9)))
    return lambda: several(times)
