"""Taking samples: warm-ups apart, rounds interleaved, as many as a time budget allows and no fewer than it takes.

Every rank must take the same number of samples, or a collective would wait for ever: the leader decides and tells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
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


def interleave(team: Team, takes: Mapping[str, Take], effort: Effort) -> dict[str, Timing]:
    """Samples of several things taken in turn, round after round, so that drift meets all of them alike.

    Returns one ``Timing`` a name. All of ``team`` take part and take equally many rounds.
    """
    warmups = {name: [take() for _ in range(effort.warmups)] for name, take in takes.items()}
    started = time.perf_counter()
    samples: dict[str, list[float]] = {name: [take()] for name, take in takes.items()}
    round_s = time.perf_counter() - started
    affordable = round(effort.budget_s / max(round_s, 1e-6))
    rounds = team.from_leader(max(effort.least, min(effort.most, affordable)))
    for _ in range(rounds - 1):
        for name, take in takes.items():
            samples[name].append(take())
    return {name: Timing(warmup_s=tuple(warmups[name]), samples_s=tuple(samples[name])) for name in takes}


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
