"""Scoring predictions against measured points: error, bias, worst, coverage and width of the band, and the naive rival.

Error is predicted / measured - 1 of the step time. Points that calibrated anything are never scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scored:
    """One point to score: the predicted band and the measured step time, in seconds, and what naive scaling says."""

    p10: float
    p50: float
    p90: float
    measured: float
    naive: float | None


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Fractions over ``n`` points; None where there are none. ``width80`` is the mean of (p90 - p10) / p50."""

    n: int
    mape: float | None
    bias: float | None
    max: float | None
    coverage80: float | None
    width80: float | None
    naive_mape: float | None


def score(points: Sequence[Scored]) -> Accuracy:
    """The accuracy over ``points``."""
    if not points:
        return Accuracy(0, None, None, None, None, None, None)
    errors = [point.p50 / point.measured - 1 for point in points]
    naive = [abs(point.naive / point.measured - 1) for point in points if point.naive is not None]
    count = len(points)
    return Accuracy(
        n=count,
        mape=sum(map(abs, errors)) / count,
        bias=sum(errors) / count,
        max=max(map(abs, errors)),
        coverage80=sum(point.p10 <= point.measured <= point.p90 for point in points) / count,
        width80=sum((point.p90 - point.p10) / point.p50 for point in points) / count,
        naive_mape=sum(naive) / len(naive) if naive else None,
    )
