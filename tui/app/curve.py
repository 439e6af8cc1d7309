"""The curve: predicted median and band, the ideal line and measured points, over GPU counts on a log axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from textual_plot import HiResMode, LegendLocation, PlotWidget
from textual_plot.axis_formatter import AxisFormatter

from simcore.predict import Prediction
from tui.metric import Metric, band_of, ideal_of, label_of, measured_of


class _Counts(AxisFormatter):
    """Powers of two along a log2 axis."""

    def get_ticks(self, min_: float, max_: float, max_ticks: int = 8) -> list[float]:
        """Whole powers inside the limits, thinned to ``max_ticks``."""
        powers = list(range(math.ceil(min_ - 1e-9), math.floor(max_ + 1e-9) + 1))
        thinned = powers[:: max(1, math.ceil(len(powers) / max_ticks))]
        return [float(power) for power in thinned]

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """The counts themselves."""
        return [str(round(2**tick)) for tick in ticks]


class _Values(AxisFormatter):
    """Values of the metric, on a linear or a log10 axis."""

    def __init__(self, metric: Metric, log: bool) -> None:
        self._metric, self._log = metric, log

    def get_ticks(self, min_: float, max_: float, max_ticks: int = 6) -> list[float]:
        """Evenly spaced round values inside the limits."""
        span = max(max_ - min_, 1e-12)
        step = 10 ** math.floor(math.log10(span / max_ticks))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (factor * step) <= max_ticks)
        first = math.ceil(min_ / step)
        return [index * step for index in range(first, math.floor(max_ / step) + 1)]

    def get_labels_for_ticks(self, ticks: Sequence[float]) -> list[str]:
        """The values with their unit."""
        return [label_of(self._metric, 10**tick if self._log else tick) for tick in ticks]


class CurvePlot(PlotWidget):
    """A plot that can show a prediction."""

    def show(self, prediction: Prediction, metric: Metric, log: bool) -> None:
        """Draw ``prediction`` anew."""
        points = prediction.points
        x = [math.log2(point.gpus) for point in points]
        bands = [band_of(point, metric) for point in points]
        ideal = ideal_of(prediction, metric)
        place = (lambda value: math.log10(max(value, 1e-12))) if log else (lambda value: value)
        self.clear()
        self.plot(
            x, [place(value) for value in ideal], line_style="grey50", hires_mode=HiResMode.BRAILLE, label="ideal"
        )
        for edge in ("p10", "p90"):
            ends = [place(getattr(band, edge)) for band in bands]
            self.plot(
                x, ends, line_style="cyan", hires_mode=HiResMode.BRAILLE, label="80 % band" if edge == "p90" else None
            )
        self.plot(
            x,
            [place(band.p50) for band in bands],
            line_style="bold blue",
            hires_mode=HiResMode.BRAILLE,
            label="predicted",
        )
        seen = [(point.gpus, measured_of(prediction, point, metric)) for point in points]
        known = [(math.log2(gpus), place(value)) for gpus, value in seen if value is not None]
        if known:
            xs, ys = zip(*known, strict=True)
            self.scatter(xs, ys, marker="●", marker_style="bold red", label="measured")
        if prediction.knee.gpus is not None:
            self.add_v_line(math.log2(prediction.knee.gpus), line_style="yellow", label="knee")
        shown = [place(value) for band in bands for value in (band.p10, band.p90)] + [place(value) for value in ideal]
        low, high = (min(shown), max(shown)) if log else (0.0, max(shown))
        margin = 0.04 * (high - low) or 1.0
        self.set_xlimits(x[0] - 0.1, x[-1] + 0.1)
        self.set_ylimits(low - (margin if log else 0.0), high + margin)
        self.set_x_formatter(_Counts())
        self.set_y_formatter(_Values(metric, log))
        self.set_xlabel("GPUs")
        self.set_ylabel(prediction.unit if metric is Metric.THROUGHPUT else metric.value)
        self.show_legend(LegendLocation.BOTTOMLEFT if metric is Metric.EFFICIENCY else LegendLocation.TOPLEFT)
