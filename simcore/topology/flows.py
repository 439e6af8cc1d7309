"""Flows over links: how fast a collective runs whose flows advance together, and how several share their links.

Rates are in 10^9 bytes/s of one rank's bus bandwidth; a load is how many bytes of each such byte cross a link.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

Load = Mapping[Hashable, float]


def alone(load: Load, capacity: Mapping[Hashable, float]) -> tuple[float, Hashable]:
    """The rate of one collective with the fabric to itself, and the link that sets it: the one with the worst load."""
    link = max(load, key=lambda one: load[one] / capacity[one])
    return capacity[link] / load[link], link


def fair_rates(loads: Sequence[Load], capacity: Mapping[Hashable, float]) -> list[tuple[float, Hashable]]:
    """The max-min fair rates of collectives that run at once, each with the link that holds it.

    All rise together until a link is full; those that cross it stay where they are, the others rise on. Congestion
    control and fair queueing settle near this (Bertsekas and Gallager, Data Networks, section 6.5.2).
    """
    left = dict(capacity)
    rates: dict[int, tuple[float, Hashable]] = {}
    level = 0.0
    rising = {index for index, load in enumerate(loads) if load}
    while rising:
        demand: dict[Hashable, float] = {}
        for index in rising:
            for link, share in loads[index].items():
                demand[link] = demand.get(link, 0.0) + share
        full = min((link for link in demand if demand[link] > 0), key=lambda link: left[link] / demand[link])
        step = left[full] / demand[full]
        level += step
        for link, share in demand.items():
            left[link] -= share * step
        for index in [one for one in rising if loads[one].get(full, 0.0) > 0]:
            rates[index] = (level, full)
            rising.remove(index)
    return [rates.get(index, (float("inf"), None)) for index in range(len(loads))]
