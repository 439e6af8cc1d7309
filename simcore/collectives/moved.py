"""What a collective has to do whatever carries it: the bytes that a rank sends, the steps that follow each other."""

from __future__ import annotations

from simcore.profile.fitted import Collective


def moved_factor(collective: Collective, ranks: int) -> float:
    """Bytes that the busiest rank sends, per byte of buffer (nccl-tests PERFORMANCE.md: algbw to busbw)."""
    match collective:
        case "all_reduce":
            return 2.0 * (ranks - 1) / ranks
        case "reduce_scatter" | "all_gather" | "all_to_all":
            return (ranks - 1) / ranks
        case "broadcast" | "send_recv" | "exchange":
            return 1.0


def ring_hops(collective: Collective, ranks: int) -> int:
    """Steps of the ring (or of the peers visited) that follow each other: what latency is paid for."""
    match collective:
        case "all_reduce":
            return 2 * (ranks - 1)
        case "send_recv":
            return 1
        case "exchange":
            return 2
        case _:
            return ranks - 1
