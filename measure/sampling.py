"""Taking samples: warm-ups apart, rounds interleaved, as many as a time budget allows and no fewer than it takes.

Every rank must take the same number of samples, or a collective would wait for ever: the leader decides and tells.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from measure.world import Team
from simcore.profile.schema import Timing

Take = Callable[[], float]
"""Does the thing once and returns its seconds."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much to spend on one comparison: seconds in all, and bounds on the rounds."""

    budget_s: float
    least: int = 3
    most: int = 30
    warmups: int = 1


UNSURE = 0.1
"""Relative spread of a median past which more samples are worth their time."""

PATIENCE = 8
"""How many times the budget samples may take that disagree: small messages on slow links wait 0 or 40 ms by chance."""


def interleave(team: Team, takes: Mapping[str, Take], effort: Effort) -> dict[str, Timing]:
    """Samples of several things taken in turn, round after round, so that drift meets all of them alike.

    Returns one ``Timing`` a name. All of ``team`` take part and take equally many rounds: what the budget allows, and
    ``PATIENCE`` times that where the samples disagree.
    """
    warmups = {name: [take() for _ in range(effort.warmups)] for name, take in takes.items()}
    started = time.perf_counter()
    samples: dict[str, list[float]] = {name: [take()] for name, take in takes.items()}
    round_s = time.perf_counter() - started
    affordable = effort.budget_s / max(round_s, 1e-6)

    def take_until(wanted: float) -> None:
        rounds = team.from_leader(round(max(effort.least, min(effort.most, wanted))))
        for _ in range(rounds - len(next(iter(samples.values())))):
            for name, take in takes.items():
                samples[name].append(take())

    take_until(affordable)
    unsure = any(_spread_of_median(taken) > UNSURE for taken in samples.values())
    take_until(affordable * PATIENCE if unsure else 0.0)
    return {name: Timing(warmup_s=tuple(warmups[name]), samples_s=tuple(samples[name])) for name in takes}


def _spread_of_median(samples: Sequence[float]) -> float:
    """How far the median of these samples may be off, relative to it: their range over the root of their number."""
    middle = max(statistics.median(samples), 1e-9)
    return (max(samples) - min(samples)) / middle / math.sqrt(len(samples)) / 2


def over_ranks(team: Team, timing: Timing, pick: Callable[[Iterable[float]], float]) -> Timing:
    """Each sample as ``pick`` takes it over the ranks: their mean, or the slowest."""
    everyone: list[Timing] = team.gather(timing)
    return Timing(
        warmup_s=tuple(map(pick, zip(*(one.warmup_s for one in everyone), strict=True))),
        samples_s=tuple(map(pick, zip(*(one.samples_s for one in everyone), strict=True))),
    )


def alone(take: Take, effort: Effort) -> Timing:
    """Samples of something that needs no other rank."""
    warmup = [take() for _ in range(effort.warmups)]
    samples = [take()]
    until = time.perf_counter() + effort.budget_s
    while len(samples) < effort.least or (len(samples) < effort.most and time.perf_counter() < until):
        samples.append(take())
    return Timing(warmup_s=tuple(warmup), samples_s=tuple(samples))
