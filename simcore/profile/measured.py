"""The measured file: step times of a scenario's real training, which predictions are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from simcore.errors import InputError
from simcore.files import Table, parse, read_json
from simcore.profile.schema import Machine

Positive = Annotated[float, Field(gt=0)]


class Quantiles(Table):
    """A step time's median and the band that holds 80 % of the steps."""

    p10: Positive
    p50: Positive
    p90: Positive


class Staleness(Table):
    """How many updates by others came between a worker's reading the parameters and changing them, over all steps."""

    mean: Annotated[float, Field(ge=0)]
    p10: Annotated[float, Field(ge=0)]
    p50: Annotated[float, Field(ge=0)]
    p90: Annotated[float, Field(ge=0)]
    most: Annotated[float, Field(ge=0)]


class MeasuredPoint(Table):
    """One count: step times of the slowest rank of each step, and of each rank, seconds, in the order taken.

    Without a barrier between workers, ``samples_s`` are blocks instead: in each, the time in which the workers together
    take as many steps as they are. ``repeatability`` is half the range of the medians of separate blocks, relative to
    the median of all.
    """

    gpus: Annotated[int, Field(ge=1)]
    step_time_s: Quantiles
    samples_s: tuple[Positive, ...] = ()
    samples_by_rank_s: tuple[tuple[Positive, ...], ...] = ()
    repeatability: Annotated[float, Field(ge=0)] | None = None
    staleness: Staleness | None = None


class MeasuredFile(Table):
    """What ``simscale measure`` writes."""

    format: Literal["simscale-measured"]
    version: Literal[1]
    title: str
    paced: bool
    machine: Machine
    points: tuple[MeasuredPoint, ...] = Field(min_length=1)


def load_measured(path: Path | str) -> MeasuredFile:
    """The measured file at ``path``. Raises ``InputError`` where it is none."""
    data = read_json(Path(path))
    if data.get("format") != "simscale-measured":
        raise InputError(f"{path}: format: found {data.get('format')!r}; a measured file says 'simscale-measured'; "
                         "write one with: simscale measure SCENARIO -o measured.json")  # fmt: skip
    return parse(MeasuredFile, data, path, from_json=True)
