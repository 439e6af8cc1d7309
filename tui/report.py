"""A prediction as a person reads it: the table, the chart, the knee, the bottleneck and the error where measured."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

from simcore.accuracy import Accuracy
from simcore.predict import Point, Prediction
from simcore.units import format_bytes, format_count, format_seconds
from tui.chart import curve_chart
from tui.metric import Metric

if TYPE_CHECKING:
    from simcore.profile.measured import MeasuredFile

CHART_WIDTH = 78
CHARTS = {Metric.THROUGHPUT: 16, Metric.EFFICIENCY: 10}
"""What is drawn, and how many lines high."""


def print_prediction(prediction: Prediction, measured: MeasuredFile | None, explain: bool) -> None:
    """Print to stdout; colours only on a terminal that wants them."""
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    print(prediction.scenario.title)
    if prediction.scenario.question:
        print(prediction.scenario.question)
    print()
    print(point_table(prediction))
    width = min(CHART_WIDTH, shutil.get_terminal_size((CHART_WIDTH, 24)).columns)
    if len(prediction.points) > 1:
        print()
        for metric, height in CHARTS.items():
            print(curve_chart(prediction, metric, width, height, colour))
    print()
    knee = prediction.knee
    print(f"knee        {knee.gpus or 'none'}: {knee.why}")
    last = prediction.points[-1]
    print(f"bottleneck  at {last.gpus} GPUs: {last.bottleneck}")
    print(f"memory      at {last.gpus} GPUs: {memory_line(last)}")
    print(f"measured    {accuracy_line(prediction.accuracy, sum(point.calibrated for point in prediction.points))}")
    if measured is not None:
        print(f"            {_repeatability(measured, prediction)}")
    if explain:
        print("\nwhat the costs rest on")
        for item in prediction.assumptions:
            print(f"  {item.what}: {item.origin}, ±{item.spread:.1%}; {item.source}")


ALWAYS = 8
"""Columns of the table that are always there; the rest only where some row has something to say."""


def point_table(prediction: Prediction) -> str:
    """One line per count: step, band, throughput, efficiency, what the step is made of, memory, and the error."""
    header = ["GPUs", "step", "80 % band", prediction.unit, "efficiency", "compute", "exposed", "other",
              "bubble", "memory", "stale by", "measured", "error"]  # fmt: skip
    rows = [header, *(_row(point) for point in prediction.points)]
    kept = [column for column in range(len(header)) if column < ALWAYS or any(row[column] for row in rows[1:])]
    widths = {column: max(len(row[column]) for row in rows) for column in kept}
    return "\n".join("  ".join(row[column].rjust(widths[column]) for column in kept) for row in rows)


def memory_line(point: Point) -> str:
    """What fills the fullest rank, largest first."""
    parts = sorted(point.memory_bytes.items(), key=lambda part: -part[1])
    return ", ".join(f"{name.replace('_', ' ')} {format_bytes(size)}" for name, size in parts if size)


def accuracy_line(accuracy: Accuracy, calibrated: int) -> str:
    """The error at measured points in words, beside what naive linear scaling would have scored."""
    used = f", {calibrated} used to calibrate and not scored" if calibrated else ""
    if accuracy.mape is None or accuracy.bias is None:
        return f"no point to score{used}"
    naive = f"; naive linear scaling {accuracy.naive_mape:.1%}" if accuracy.naive_mape is not None else ""
    return (
        f"{accuracy.n} point(s) scored{used}: mean error {accuracy.mape:.1%}, bias {accuracy.bias:+.1%}, worst "
        f"{accuracy.max:.1%}; the 80 % band holds {accuracy.coverage80:.0%}, width {accuracy.width80:.0%}{naive}"
    )


def _row(point: Point) -> list[str]:
    band, parts = point.step_time_s, point.breakdown_s
    compute = parts["forward"] + parts["backward"]
    exposed, bubble = parts["exposed_communication"], parts["bubble"]
    memory = f"{point.memory_gib:.1f} GiB" + (" !" if point.fits is False else "")
    measured = format_seconds(point.measured_step_time_s) if point.measured_step_time_s is not None else ""
    error = "" if point.error is None else "calibrates" if point.calibrated else f"{point.error:+.1%}"
    return [
        str(point.gpus),
        format_seconds(band.p50),
        f"{format_seconds(band.p10)} - {format_seconds(band.p90)}",
        format_count(point.throughput.p50),
        f"{point.efficiency:.0%}",
        format_seconds(compute),
        format_seconds(exposed),
        format_seconds(band.p50 - compute - exposed - bubble),
        format_seconds(bubble) if bubble else "",
        memory,
        "" if point.staleness is None else f"{point.staleness.p50:.0f} updates",
        measured,
        error,
    ]


def _repeatability(measured: MeasuredFile, prediction: Prediction) -> str:
    """How well each measured point repeats, and how the prediction's error compares."""
    errors = {point.gpus: point.error for point in prediction.points if not point.calibrated}
    known = []
    for point in measured.points:
        if point.repeatability is not None:
            error = errors.get(point.gpus)
            beside = (
                "" if error is None else f" (the error is {abs(error) / max(point.repeatability, 1e-4):.1f} times that)"
            )
            known.append(f"±{point.repeatability:.1%} at {point.gpus}{beside}")
    return f"the measurement itself repeats to {', '.join(known)}" if known else ""
