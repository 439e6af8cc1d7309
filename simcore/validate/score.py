"""Predicting the rows of a runs table that are there to test, with those that are there to calibrate, and scoring them.

A row's compute is anchored by the calibrate rows of its curve, else by those of the same model, GPU, precision and
batch a GPU. Nothing is fitted to a test row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simcore.accuracy import Accuracy, Scored, score
from simcore.errors import InputError
from simcore.predict import Band, Measured, predict
from simcore.validate.reading import NotUnderstood, scenario_of
from simcore.validate.runs import Run, read_runs

ALIKE = ("model", "gpu", "precision", "batch_per_gpu", "seq_len_or_image", "seq_len")


@dataclass(frozen=True, slots=True)
class Row:
    """One scored row: the predicted band and the measured step, in seconds."""

    run: Run
    predicted: Band
    measured_s: float
    naive_s: float | None

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted.p50 / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class FileScore:
    """A runs table: its scored rows, how they fare, and the rows that were skipped, by reason."""

    path: Path
    rows: tuple[Row, ...]
    accuracy: Accuracy
    skipped: dict[str, int]


def score_file(path: Path) -> FileScore:
    """Predict and score a runs table. Raises ``InputError`` where the file is none."""
    runs = read_runs(path)
    rows: list[Row] = []
    skipped: dict[str, int] = {}
    for run in runs:
        if run.calibrates:
            continue
        try:
            rows.append(_predicted(run, [one for one in runs if one.calibrates]))
        except NotUnderstood as error:
            skipped[str(error)] = skipped.get(str(error), 0) + 1
    return FileScore(path, tuple(rows), score_rows(rows), skipped)


def score_rows(rows: Sequence[Row]) -> Accuracy:
    """The accuracy over rows."""
    return score([Scored(r.predicted.p10, r.predicted.p50, r.predicted.p90, r.measured_s, r.naive_s) for r in rows])


def _predicted(run: Run, calibrating: Sequence[Run]) -> Row:
    measured_s = run.step_time_s
    if measured_s is None:
        raise NotUnderstood("no usable figure is stated")
    scenario = scenario_of(run)
    anchors = _anchors(run, calibrating)
    evidence = tuple(Measured(one.gpus, one.step_time_s or 0.0, one.name, calibrate=True) for one in anchors)
    asked = scenario.model_copy(
        update={"workload": scenario.workload.model_copy(
            update={"global_batch": None, "batch_per_gpu": scenario.local_batch(run.gpus)})}
    )  # fmt: skip
    try:
        prediction = predict(asked, None, evidence, where=run.name)
    except InputError as error:
        raise NotUnderstood(str(error)) from None
    point = next(point for point in prediction.points if point.gpus == run.gpus)
    return Row(run, point.step_time_s, measured_s, _naive(run, anchors))


def _anchors(run: Run, calibrating: Sequence[Run]) -> list[Run]:
    """The rows that may anchor a row: of its curve, else of jobs alike; in its own strategy where there are any."""
    usable = [one for one in calibrating if one.step_time_s is not None]
    of_curve = [one for one in usable if run.text("curve") and one.text("curve") == run.text("curve")]
    found = of_curve or [one for one in usable if all(one.text(key) == run.text(key) for key in ALIKE)]
    own = [one for one in found if one.text("strategy") == run.text("strategy")]
    return own or found


def _naive(run: Run, anchors: Sequence[Run]) -> float | None:
    """What linear scaling makes of the smallest anchor: the same step at the same batch a GPU."""
    smallest = min(anchors, key=lambda one: one.gpus, default=None)
    if smallest is None or smallest.step_time_s is None or not smallest.batch or not run.batch:
        return None
    return smallest.step_time_s * (run.batch / run.gpus) / (smallest.batch / smallest.gpus)
