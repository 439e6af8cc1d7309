"""Reading a scenario file: TOML to a ``Scenario``, with every fault of the file reported at once."""

from __future__ import annotations

from pathlib import Path

from simcore.errors import InputError
from simcore.files import parse, read_toml
from simcore.scenario.schema import Scenario, SweepTable


def load_scenario(path: Path | str) -> Scenario:
    """The scenario in ``path``. Raises ``InputError`` naming each fault by file and dotted key."""
    return parse(Scenario, read_toml(Path(path)), path)


def with_gpus(scenario: Scenario, gpus: tuple[int, ...]) -> Scenario:
    """``scenario`` asked at other counts, without the points measured elsewhere.

    Raises ``InputError`` where a strong-scaling batch does not divide.
    """
    try:
        for count in gpus:
            scenario.local_batch(count)
    except ValueError as error:
        raise InputError(f"--gpus: {error}") from None
    kept = tuple(point for point in scenario.measured if point.gpus in gpus or point.use == "calibrate")
    return scenario.model_copy(update={"sweep": SweepTable(gpus=tuple(sorted(set(gpus)))), "measured": kept})
