"""What a curve can show over GPU counts, and its values: median, band, ideal and measured."""

from __future__ import annotations

from enum import StrEnum

from simcore.predict import Band, Point, Prediction
from simcore.units import format_count, format_seconds


class Metric(StrEnum):
    """What the vertical axis shows."""

    THROUGHPUT = "throughput"
    STEP_TIME = "step time"
    EFFICIENCY = "efficiency"


def band_of(point: Point, metric: Metric) -> Band:
    """The metric's band at a point, low to high."""
    match metric:
        case Metric.THROUGHPUT:
            return point.throughput
        case Metric.STEP_TIME:
            return point.step_time_s
        case Metric.EFFICIENCY:
            return point.efficiency_band


def measured_of(prediction: Prediction, point: Point, metric: Metric) -> float | None:
    """The metric at a point as it was measured."""
    if point.measured_step_time_s is None:
        return None
    ratio = point.step_time_s.p50 / point.measured_step_time_s
    match metric:
        case Metric.THROUGHPUT:
            return point.throughput.p50 * ratio
        case Metric.STEP_TIME:
            return point.measured_step_time_s
        case Metric.EFFICIENCY:
            return point.efficiency * ratio


def ideal_of(prediction: Prediction, metric: Metric) -> list[float]:
    """Linear scaling of the first point."""
    first = prediction.points[0]
    match metric:
        case Metric.THROUGHPUT:
            return [first.throughput.p50 / first.gpus * point.gpus for point in prediction.points]
        case Metric.STEP_TIME if prediction.scenario.strong_scaling:
            return [first.step_time_s.p50 * first.gpus / point.gpus for point in prediction.points]
        case Metric.STEP_TIME:
            return [first.step_time_s.p50 for _ in prediction.points]
        case Metric.EFFICIENCY:
            return [1.0 for _ in prediction.points]


def label_of(metric: Metric, value: float) -> str:
    """A value of the metric with its unit."""
    match metric:
        case Metric.THROUGHPUT:
            return format_count(value)
        case Metric.STEP_TIME:
            return format_seconds(value)
        case Metric.EFFICIENCY:
            return f"{value:.0%}"
