"""DDP's gradient buckets, as torch assigns them.

Restates ``torch.distributed._compute_bucket_assignment_by_size`` for tensors of one type on one device; a test holds
the two equal on real models. Sizes are in bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from simcore.units import MIB
from simcore.workload.step import StepShape

DEFAULT_CAP_MB = 25.0
FIRST_BUCKET_BYTES = MIB  # torch.distributed._DEFAULT_FIRST_BUCKET_BYTES


@dataclass(frozen=True, slots=True)
class Bucket:
    """One bucket: its parameters' places in registration order, and the backward piece that completes it."""

    tensors: tuple[int, ...]
    elements: int
    ready_after: int


def assign_buckets(sizes_bytes: Sequence[int], limits_bytes: Sequence[int]) -> list[list[int]]:
    """Indices of ``sizes_bytes`` by bucket: a bucket closes once it *reaches* its limit, the last limit repeats."""
    buckets: list[list[int]] = []
    current: list[int] = []
    filled = 0
    for index, size in enumerate(sizes_bytes):
        current.append(index)
        filled += size
        if filled >= limits_bytes[min(len(buckets), len(limits_bytes) - 1)]:
            buckets.append(current)
            current, filled = [], 0
    return [*buckets, current] if current else buckets


def bucket_limits(bucket_cap_mb: float | None) -> list[int]:
    """The limits torch uses: with its default cap the first bucket is 1 MiB, an explicit cap holds for all."""
    if bucket_cap_mb is None:
        return [FIRST_BUCKET_BYTES, int(DEFAULT_CAP_MB * MIB)]
    return [int(bucket_cap_mb * MIB)]


def ddp_buckets(
    shape: StepShape,
    pieces: Sequence[int],
    bytes_per_element: int,
    bucket_cap_mb: float | None,
    *,
    rebuilt: bool = True,
) -> tuple[Bucket, ...]:
    """The buckets of what the ``pieces`` of ``shape`` learn, in launch order.

    After its first step DDP rebuilds them in the order in which gradients became ready. With
    ``find_unused_parameters`` and no static graph it does not (``rebuilt=False``): they stay those of registration
    order, taken from the back.
    """
    piece_of = {tensor: index for index in pieces for tensor in shape.backward[index].tensors}
    order = list(piece_of) if rebuilt else sorted(piece_of)
    sizes = [shape.elements[tensor] * bytes_per_element for tensor in order]
    assigned = assign_buckets(sizes, bucket_limits(bucket_cap_mb))
    groups = [tuple(order[index] for index in indices) for indices in (assigned if rebuilt else reversed(assigned))]
    return tuple(
        Bucket(
            tensors=group,
            elements=sum(shape.elements[tensor] for tensor in group),
            ready_after=max(piece_of[tensor] for tensor in group),
        )
        for group in groups
    )
