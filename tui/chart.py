"""A curve on a plain terminal: median, band, ideal line and measured points, drawn with plotext."""

from __future__ import annotations

from simcore.predict import Prediction
from tui.metric import Metric, band_of, ideal_of, label_of, measured_of

SPAN_FOR_LOG = 16
"""Counts that span at least this factor are drawn on log scales."""

TICK_LINES = 4
"""About one labelled value in so many lines."""


def curve_chart(prediction: Prediction, metric: Metric, width: int, height: int, colour: bool) -> str:
    """The metric over GPUs as text of ``width`` x ``height`` characters; log scales where the counts span far."""
    import plotext

    points = prediction.points
    gpus = [point.gpus for point in points]
    bands = [band_of(point, metric) for point in points]
    plotext.clear_figure()
    plotext.theme("pro" if colour else "clear")
    plotext.plot_size(width, height)
    plotext.plot(gpus, ideal_of(prediction, metric), marker="dot", label="ideal", color="gray")
    plotext.plot(gpus, [band.p90 for band in bands], marker="braille", label="80 % band", color="cyan")
    plotext.plot(gpus, [band.p10 for band in bands], marker="braille", color="cyan")
    plotext.plot(gpus, [band.p50 for band in bands], marker="hd", label="predicted", color="blue")
    seen = [(point.gpus, measured_of(prediction, point, metric)) for point in points]
    known = [(count, value) for count, value in seen if value is not None]
    if known:
        counts, values = (list(column) for column in zip(*known, strict=True))
        plotext.scatter(counts, values, marker="●", label="measured", color="red")
    wide = gpus[-1] / gpus[0] >= SPAN_FOR_LOG
    log = wide and metric is not Metric.EFFICIENCY
    plotext.xscale("log" if wide else "linear")
    plotext.yscale("log" if log else "linear")
    plotext.xticks(gpus, [str(count) for count in gpus])
    shown = [*ideal_of(prediction, metric), *(edge for band in bands for edge in (band.p10, band.p90))]
    low, high = (min(shown), max(shown)) if log else (0.0, max(shown))
    if not log:
        plotext.ylim(low, high)
    ticks = _ticks(low, high, height // TICK_LINES, log)
    plotext.yticks(ticks, [label_of(metric, tick) for tick in ticks])
    plotext.title(f"throughput, {prediction.unit}" if metric is Metric.THROUGHPUT else metric.value)
    text: str = plotext.build()
    return text if colour else plotext.uncolorize(text)


def _ticks(low: float, high: float, steps: int, log: bool) -> list[float]:
    """Values from ``low`` to ``high`` in so many even steps, by ratio on a log scale."""
    parts = [step / steps for step in range(steps + 1)]
    return [low * (high / low) ** part if log else low + (high - low) * part for part in parts]
