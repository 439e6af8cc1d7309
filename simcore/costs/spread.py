"""How sure a cost is: an origin and a log-normal spread, and the samples that predictions draw from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Origin = Literal["given", "measured", "fitted", "assumed"]

SAMPLES = 201  # odd, so that the median is one of them


class Uncertain(IntEnum):
    """The independent sources of uncertainty: a row of the sample matrix each."""

    COMPUTE = 0
    OVERHEAD = 1
    LATENCY = 2
    WIRE = 3
    STRUCTURE = 4


STRUCTURE_SPREAD = 0.015
OTHER_STRUCTURE_SPREAD = 0.03
"""What the graph leaves out of a step even where every cost is known: jitter between ranks, host noise; of strategies
whose runtimes do more than DDP's, more. Priors."""


@dataclass(frozen=True, slots=True)
class Assumption:
    """One line of ``--explain``: a cost, its origin, its spread (log-normal sigma) and its source."""

    what: str
    origin: Origin
    spread: float
    source: str


@cache
def normal_samples(samples: int = SAMPLES) -> NDArray[np.float64]:
    """Standard normal samples ``[len(Uncertain), samples]``, the same on every call, each row exactly balanced.

    Rank-1 lattice points (Korobov, generator from the plastic-number sequence), so 200 samples cover the joint
    distribution evenly and a curve is smooth: every point of a sweep sees the same luck.
    """
    rows = len(Uncertain)
    root = _generalised_golden_ratio(rows)
    inverse = NormalDist().inv_cdf
    matrix = np.empty((rows, samples))
    quantiles = np.array([inverse((rank + 0.5) / samples) for rank in range(samples)])
    for row in range(rows):
        order = np.argsort((0.5 + np.arange(1, samples + 1) * root ** -(row + 1.0)) % 1.0)
        matrix[row, order] = quantiles
    matrix.flags.writeable = False
    return matrix


def _generalised_golden_ratio(dimensions: int) -> float:
    """The root of x^(d+1) = x + 1, whose powers spread points evenly in d dimensions (Roberts' R-sequence)."""
    root = 2.0
    for _ in range(40):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    return root
