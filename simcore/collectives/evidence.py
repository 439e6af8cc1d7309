"""What a user measured of a network in single numbers, and how far it moves what the catalogue says.

Bytes and latencies, inside a node and across nodes, each have a log-normal prior; a measured number tells about the one
that makes up most of its time. One helps a little, several more, and one that contradicts the rest is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Self

from pydantic import Field, model_validator

from simcore.collectives.moved import moved_factor
from simcore.fields import Name, PositiveFloat
from simcore.files import Table
from simcore.profile.fitted import Collective
from simcore.units import GB, MIB, MS


class EvidenceTable(Table):
    """``[[cluster.evidence]]``: one collective over ``gpus`` GPUs that was timed, or its bus bandwidth."""

    collective: Collective = "all_reduce"
    gpus: Annotated[int, Field(ge=2, le=10_000_000)]
    size_mib: PositiveFloat = 1024.0
    time_ms: PositiveFloat | None = None
    bus_gb_per_s: PositiveFloat | None = None
    source: Name = "measured"

    @model_validator(mode="after")
    def _one_figure(self) -> Self:
        if (self.time_ms is None) == (self.bus_gb_per_s is None):
            found = "neither time_ms nor" if self.time_ms is None else "both time_ms and"
            raise ValueError(f"gives {found} bus_gb_per_s; give exactly one of them")
        return self

    @property
    def measured_s(self) -> float:
        """The time in seconds, as given or as the bus bandwidth says."""
        if self.time_ms is not None:
            return self.time_ms * MS
        assert self.bus_gb_per_s is not None
        return moved_factor(self.collective, self.gpus) * self.size_mib * MIB / (self.bus_gb_per_s * GB)


MEASURED_SPREAD = 0.07
"""How far one measured number lies from what the same network does next time: a log-normal sigma."""

CONTRADICTS = 0.4
"""A number this far (in the logarithm) from the median of its kind does not describe the same network."""


@dataclass(frozen=True, slots=True)
class Posterior:
    """By how much to scale a cost, how sure that is, how many numbers say so, and which of them contradict."""

    factor: float
    spread: float
    count: int = 0
    contradicting: tuple[str, ...] = ()


def posterior(ratios: Iterable[tuple[float, str]], prior_spread: float) -> Posterior:
    """From measured / predicted, each with its source, by the normal law in the logarithm."""
    known = [(math.log(ratio), source) for ratio, source in ratios]
    if not known:
        return Posterior(1.0, prior_spread)
    middle = median(value for value, _ in known)
    agreeing = [value for value, _ in known if abs(value - middle) <= CONTRADICTS]
    odd = tuple(source for value, source in known if abs(value - middle) > CONTRADICTS)
    precision = 1 / max(prior_spread, 1e-6) ** 2 + len(agreeing) / MEASURED_SPREAD**2
    return Posterior(math.exp(sum(agreeing) / MEASURED_SPREAD**2 / precision), precision**-0.5, len(agreeing), odd)
