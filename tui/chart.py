"""The curve on a plain terminal: median, band, ideal line and measured points, drawn with plotext."""

from __future__ import annotations

from simcore.predict import Prediction

DECADES_FOR_LOG = 16


def curve_chart(prediction: Prediction, width: int, height: int, colour: bool) -> str:
    """Throughput over GPUs as text of ``width`` x ``height`` characters; log scales where the counts span far."""
    import plotext

    points = prediction.points
    gpus = [point.gpus for point in points]
    wide = gpus[-1] / gpus[0] >= DECADES_FOR_LOG
    first = points[0].throughput.p50 / points[0].gpus
    plotext.clear_figure()
    plotext.theme("clear" if not colour else "pro")
    plotext.plot_size(width, height)
    plotext.plot(gpus, [first * count for count in gpus], marker="dot", label="ideal", color="gray")
    plotext.plot(gpus, [point.throughput.p90 for point in points], marker="braille", label="80 % band", color="cyan")
    plotext.plot(gpus, [point.throughput.p10 for point in points], marker="braille", color="cyan")
    plotext.plot(gpus, [point.throughput.p50 for point in points], marker="hd", label="predicted", color="blue")
    seen = [(point.gpus, _measured_rate(point.throughput.p50, point.step_time_s.p50, point.measured_step_time_s))
            for point in points if point.measured_step_time_s is not None]  # fmt: skip
    if seen:
        plotext.scatter(
            [count for count, _ in seen], [rate for _, rate in seen], marker="●", label="measured", color="red"
        )
    if wide:
        plotext.xscale("log")
        plotext.yscale("log")
    plotext.xticks(gpus, [str(count) for count in gpus])
    plotext.xlabel("GPUs")
    plotext.title(f"throughput, {prediction.unit}")
    text: str = plotext.build()
    return text if colour else plotext.uncolorize(text)


def _measured_rate(throughput: float, step_s: float, measured_s: float | None) -> float:
    return throughput * step_s / (measured_s or step_s)
