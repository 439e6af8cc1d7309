"""Measured points as evidence: those marked ``calibrate`` pull the compute costs towards themselves, a little or a lot.

One log-normal factor on compute has a prior (spread by origin) and each point a likelihood; the posterior's mean and
spread follow by Gauss-Newton in log space. One row helps, a wide prior lets it help more, and none can break anything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

MEASUREMENT_SPREAD = 0.02
"""How well a published or measured step time repeats: a prior, log-normal sigma."""

ITERATIONS = 8
SETTLED = 1e-4
PROBE = 0.01


def posterior_factor(
    step_times: Callable[[Sequence[float]], Sequence[Sequence[float]]], measured: Sequence[float], prior_spread: float
) -> tuple[float, float]:
    """The factor on compute and its remaining spread, given measured step times.

    ``step_times(factors)`` are the predictions at each factor, seconds, each in the order of ``measured``, seconds.
    """
    if prior_spread <= 0:
        return 1.0, prior_spread
    log_factor, precision = 0.0, prior_spread**-2
    for _ in range(ITERATIONS):
        here, beyond = step_times((math.exp(log_factor), math.exp(log_factor + PROBE)))
        gradient = -log_factor / prior_spread**2
        precision = prior_spread**-2
        for now, then, seen in zip(here, beyond, measured, strict=True):
            slope = math.log(then / now) / PROBE
            gradient += slope * math.log(seen / now) / MEASUREMENT_SPREAD**2
            precision += (slope / MEASUREMENT_SPREAD) ** 2
        change = gradient / precision
        log_factor += change
        if abs(change) < SETTLED:
            break
    return math.exp(log_factor), precision**-0.5
