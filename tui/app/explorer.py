"""The explorer: a scenario's curve on the left, what would change it on the right, recomputed as one types."""

from __future__ import annotations

from typing import ClassVar

from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Footer, Header, Input, Label, Select, Static

from simcore.catalog.load import gpus, links
from simcore.errors import SimscaleError
from simcore.predict import Measured, Point, Prediction, predict
from simcore.profile.schema import Profile
from simcore.scenario.schema import Scenario
from simcore.units import format_count, format_seconds
from tui.app.curve import CurvePlot
from tui.app.edit import WhatIf, apply, what_if_of
from tui.metric import Metric
from tui.report import accuracy_line

FIELDS = {
    "gpus": "GPUs, up to",
    "batch": "batch",
    "bucket_mb": "bucket cap, MB",
    "gpu": "GPU",
    "intra": "in the node",
    "inter": "between nodes",
}
UNKNOWN = ""
SHORT = {"exposed_communication": "exposed comm."}
SHOWN_PART = 1e-4
"""Parts of a step smaller than this are not listed."""


class Explorer(App[None]):
    """The app. It never loses a curve: a change that cannot be predicted shows why and keeps the last one."""

    CSS_PATH = "explorer.tcss"
    TITLE = "simscale"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+t", "next_metric", "Metric"),
        Binding("ctrl+l", "toggle_log", "Log/linear"),
        Binding("ctrl+z", "undo", "Undo"),
        Binding("ctrl+r", "reset", "Reset"),
        Binding("ctrl+q", "quit", "Quit"),
    ]

    def __init__(self, scenario: Scenario, profile: Profile | None = None, measured: tuple[Measured, ...] = ()) -> None:
        super().__init__()
        self.scenario, self.profile, self.measured = scenario, profile, measured
        self.what_if = what_if_of(scenario)
        self.metric = Metric.THROUGHPUT
        self.log_scale = max(scenario.sweep.gpus) > 64
        self.prediction: Prediction | None = None
        self._history: list[WhatIf] = []

    def compose(self) -> ComposeResult:
        """Header, curve with its readout, the what-if panel, footer."""
        yield Header(show_clock=False, icon="")
        with Horizontal(id="body"):
            with Vertical(id="left"):
                yield CurvePlot(id="curve")
                yield Static(id="points")
            with VerticalScroll(id="panel"):
                yield from self._controls()
                yield Static(id="summary")
        yield Static(id="fault")
        yield Footer()

    def _controls(self) -> ComposeResult:
        unit = "global batch" if self.scenario.strong_scaling else "batch per GPU"
        for name, label in FIELDS.items():
            yield Label(unit if name == "batch" else label)
            value = getattr(self.what_if, name)
            if name in ("gpus", "batch", "bucket_mb"):
                yield Input(value, id=name, compact=True, placeholder="torch's default" if name == "bucket_mb" else "")
            else:
                yield Select(self._choices(name, value), value=value, allow_blank=False, id=name, compact=True)

    def _choices(self, name: str, value: str) -> list[tuple[str, str]]:
        own = self.scenario.cluster.links
        if name == "gpu":
            names = list(gpus())
        else:
            scope = "intra" if name == "intra" else "inter"
            names = [known for known, link in (links() | own).items() if link.scope == scope]
        names = names if value in names or not value else [value, *names]
        empty = "the profile's" if self.profile else "none"
        return [(empty, UNKNOWN), *((known, known) for known in names)]

    def on_mount(self) -> None:
        """Show the scenario as it was given."""
        self.sub_title = self.scenario.title
        self.recompute()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._set(event.input.id or "", event.value)

    @on(Select.Changed)
    def _chosen(self, event: Select.Changed) -> None:
        self._set(event.select.id or "", str(event.value))

    def _set(self, name: str, value: str) -> None:
        if getattr(self.what_if, name) != value.strip():
            self._history.append(self.what_if)
            self.what_if = self.what_if.with_value(name, value)
            self.recompute()

    @work(thread=True, exclusive=True)
    def recompute(self) -> None:
        """Predict what the controls say, beside the interface."""
        what_if = self.what_if
        try:
            edited = apply(self.scenario, what_if)
            moved = (
                edited.model_copy(update={"sweep": self.scenario.sweep, "measured": self.scenario.measured})
                != self.scenario
            )
            known = () if moved else tuple(point for point in self.measured if point.gpus <= max(edited.sweep.gpus))
            prediction = predict(edited, self.profile, known, "what if", self.scenario if moved else None)
        except SimscaleError as error:
            self.call_from_thread(self._show_fault, error.faults[0])
            return
        if what_if == self.what_if:
            self.call_from_thread(self._show, prediction)

    def _show(self, prediction: Prediction) -> None:
        self.prediction = prediction
        self.query_one("#fault", Static).update("")
        self.query_one(CurvePlot).show(prediction, self.metric, self.log_scale)
        self.query_one("#points", Static).update(_readout(prediction, self.query_one("#left").size.width))
        self.query_one("#summary", Static).update(_summary(prediction, self.what_if.changed(what_if_of(self.scenario))))

    def _show_fault(self, fault: str) -> None:
        self.query_one("#fault", Static).update(fault)

    def action_next_metric(self) -> None:
        """Throughput, step time, efficiency, and round again."""
        metrics = list(Metric)
        self.metric = metrics[(metrics.index(self.metric) + 1) % len(metrics)]
        self._redraw()

    def action_toggle_log(self) -> None:
        """Logarithmic or linear values."""
        self.log_scale = not self.log_scale
        self._redraw()

    def _redraw(self) -> None:
        if self.prediction is not None:
            self.query_one(CurvePlot).show(self.prediction, self.metric, self.log_scale)

    def action_undo(self) -> None:
        """Take the last change back."""
        if self._history:
            self._restore(self._history.pop())

    def action_reset(self) -> None:
        """Back to the scenario as it was given."""
        self._history.clear()
        self._restore(what_if_of(self.scenario))

    def _restore(self, what_if: WhatIf) -> None:
        self.what_if = what_if  # first, so that the controls' own events find nothing changed
        for name in FIELDS:
            control = self.query_one(f"#{name}")
            if isinstance(control, Input | Select):
                control.value = getattr(what_if, name)
        self.recompute()


def _readout(prediction: Prediction, width: int) -> str:
    """The last counts in figures, one line each; the band only where there is room for it."""
    wide = width >= 66
    header = f"{'GPUs':>6} {'step':>8} " + (f"{'80 % band':>19} " if wide else "")
    lines = [f"{header}{prediction.unit:>9} {'eff.':>5} {'error':>7}"]
    return "\n".join(lines + [_line(point, wide) for point in prediction.points[-4:]])


def _line(point: Point, wide: bool) -> str:
    band = point.step_time_s
    error = "" if point.error is None else "fitted" if point.calibrated else f"{point.error:+.1%}"
    spread = f"{format_seconds(band.p10)} - {format_seconds(band.p90)}"
    start = f"{point.gpus:>6} {format_seconds(band.p50):>8} " + (f"{spread:>19} " if wide else "")
    return f"{start}{format_count(point.throughput.p50):>9} {point.efficiency:>5.0%} {error:>7}"


def _summary(prediction: Prediction, changed: int) -> str:
    """What the last count is made of, what limits it, and how good the prediction has been."""
    last = prediction.points[-1]
    band = last.step_time_s
    lines = [f"[b]At {last.gpus} GPUs: {format_seconds(band.p50)}[/b]"]
    lines += [f"{format_seconds(band.p10)} - {format_seconds(band.p90)}, {last.efficiency:.0%}"]
    lines += [
        f"{SHORT.get(name, name):<16}{format_seconds(seconds):>10}"
        for name, seconds in last.breakdown_s.items()
        if seconds > SHOWN_PART * band.p50
    ]
    lines += [f"{'memory':<16}{last.memory_gib:>6.1f} GiB", *(["[b]does not fit[/b]"] if last.fits is False else [])]
    lines += [
        f"limited by {last.bottleneck}",
        f"knee {prediction.knee.gpus or 'not in sight'}",
        f"changed {changed}",
        "",
    ]
    lines += [accuracy_line(prediction.accuracy, sum(point.calibrated for point in prediction.points))]
    return "\n".join(lines)
