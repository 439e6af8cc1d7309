"""Points of a measured file as a prediction takes them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from simcore.errors import InputError
from simcore.predict import Measured

if TYPE_CHECKING:
    from simcore.profile.measured import MeasuredFile


def measured_points(
    file: MeasuredFile | None, path: Path | None, gpus: Collection[int] = (), anchor: Collection[int] = ()
) -> tuple[Measured, ...]:
    """The file's points, at the counts in ``gpus`` where there are any; those in ``anchor`` calibrate.

    Raises ``InputError`` where the file has no such point to anchor on.
    """
    points = [point for point in file.points if not gpus or point.gpus in gpus] if file else []
    known = {point.gpus for point in points}
    if missing := [count for count in anchor if count not in known]:
        raise InputError(f"--anchor: {path} has no point at {missing[0]} GPUs; it has "
                         f"{', '.join(map(str, sorted(known)))}")  # fmt: skip
    return tuple(Measured(point.gpus, point.step_time_s.p50, str(path), point.gpus in anchor) for point in points)
