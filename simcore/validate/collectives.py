"""Measured sweeps predicted three ways: between their sizes, beyond their ranks, and from the catalogue alone."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from simcore.collectives.curve import Curve
from simcore.collectives.growth import BusRate, Growth, Scale
from simcore.collectives.health import complaints
from simcore.collectives.moved import moved_factor
from simcore.collectives.nccl import NcclTable, fastest
from simcore.collectives.sweep import Sweep, read_sweeps
from simcore.topology.fabric import Spread
from simcore.units import GB
from simcore.validate.platform import cluster_of, nodes_of

SIZES = 8
"""Sweeps of fewer sizes are not split in two."""

COUNTS = 3
"""Counts of ranks that a family needs: two to fit, one to predict."""


@dataclass(frozen=True, slots=True)
class Extrapolated:
    """A family of sweeps: what it is, the counts fitted, the count predicted, and the median error there."""

    family: str
    fitted: tuple[int, ...]
    ranks: int
    error: float
    naive: float


@dataclass(frozen=True, slots=True)
class Expected:
    """A sweep's time at its largest size beside what the catalogue says, and what runs there by its account."""

    sweep: Sweep
    expected_s: float
    how: str

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.expected_s / self.sweep.times_s[-1] - 1

    @property
    def measured_gb_per_s(self) -> float:
        """The bus bandwidth that was measured."""
        return (
            moved_factor(self.sweep.collective, self.sweep.ranks) * self.sweep.sizes[-1] / self.sweep.times_s[-1] / GB
        )


@dataclass(frozen=True)
class CollectiveScore:
    """Everything found: errors are fractions of time, one a sweep or family; complaints by the sweep's name."""

    sweeps: tuple[Sweep, ...]
    between: dict[str, float]
    between_naive: dict[str, float]
    beyond: tuple[Extrapolated, ...]
    catalogue: tuple[Expected, ...]
    complaints: dict[str, list[str]]
    skipped: dict[str, int]


def score_collectives(path: Path) -> CollectiveScore:
    """Score an index of sweeps, or a folder of them; only healthy ones count, all are looked at for complaints.

    Raises ``InputError`` where there is nothing to read.
    """
    sweeps, skipped = read_sweeps(path)
    expected = {sweep.name: found for sweep in sweeps if (found := expect(sweep)) is not None}
    noted = {
        sweep.name: complaints(sweep, expected[sweep.name].expected_s if sweep.name in expected else None)
        for sweep in sweeps
    }
    healthy = [sweep for sweep in sweeps if sweep.healthy]
    return CollectiveScore(
        sweeps=tuple(sweeps),
        between={sweep.name: _between_sizes(sweep) for sweep in healthy if len(sweep.sizes) >= SIZES},
        between_naive={sweep.name: _alpha_beta(sweep) for sweep in healthy if len(sweep.sizes) >= SIZES},
        beyond=tuple(_beyond(healthy)),
        catalogue=tuple(expected[sweep.name] for sweep in healthy if sweep.name in expected),
        complaints={name: lines for name, lines in noted.items() if lines},
        skipped=skipped,
    )


def expect(sweep: Sweep) -> Expected | None:
    """What the catalogue alone expects of a sweep's largest size; None where it has no preset of the machine."""
    cluster = cluster_of(sweep)
    if cluster is None:
        return None
    nodes = nodes_of(sweep)
    spread = Spread(nodes, 1, nodes)
    inside = math.ceil(sweep.ranks / nodes)
    try:
        if sweep.collective == "send_recv":
            wires, link = cluster.send_wires(spread)
        elif sweep.collective == "all_to_all":
            wires, link = cluster.exchange_wires(inside, spread)
        else:
            wires, link = cluster.wires(inside, spread)
    except ValueError:
        return None
    choice = fastest(sweep.collective, sweep.sizes[-1], wires, NcclTable())
    return Expected(sweep, choice.total_s, f"{choice.algorithm} over {link}")


def _between_sizes(sweep: Sweep) -> float:
    """Fit on every other size, predict the rest: the median error."""
    curve = Curve(sweep.sizes[::2], sweep.times_s[::2])
    return _median_error(curve.time_s(size) / time_s for size, time_s in _points(sweep, 1))


def _alpha_beta(sweep: Sweep) -> float:
    """The same with a latency and a bandwidth only, from the smallest and the largest size of those fitted."""
    sizes, times_s = sweep.sizes[::2], sweep.times_s[::2]
    rate = sizes[-1] / max(times_s[-1] - times_s[0], 1e-12)
    return _median_error((times_s[0] + size / rate) / time_s for size, time_s in _points(sweep, 1))


def _beyond(sweeps: Sequence[Sweep]) -> Iterator[Extrapolated]:
    """Fit on all but the largest count of each family, predict that one."""
    families: defaultdict[tuple[object, ...], list[Sweep]] = defaultdict(list)
    for sweep in sweeps:
        families[_family(sweep)].append(sweep)
    for members in families.values():
        counts: defaultdict[tuple[int, int], list[Sweep]] = defaultdict(list)
        for sweep in members:
            counts[sweep.ranks, sweep.nodes].append(sweep)
        if len(counts) < COUNTS:
            continue
        *fitted, largest = sorted(counts)
        scales = tuple(
            Scale(*count, tuple(Curve(sweep.sizes, sweep.times_s) for sweep in counts[count])) for count in fitted
        )
        growth = Growth(members[0].collective, scales, _wires_of(members[0]))
        held = [(size, time_s) for sweep in counts[largest] for size, time_s in _points(sweep)]
        first = members[0]
        yield Extrapolated(
            family=f"{first.gpu}, {first.inter_link if first.nodes > 1 else first.intra_link}, {first.collective}",
            fitted=tuple(ranks for ranks, _ in fitted),
            ranks=largest[0],
            error=_median_error(growth.time_s(size, *largest) / time_s for size, time_s in held),
            naive=_median_error(scales[-1].time_s(size) / time_s for size, time_s in held),
        )


def _family(sweep: Sweep) -> tuple[object, ...]:
    """What sweeps that differ only in the count of ranks have in common, whichever run they come from."""
    setup = re.sub(r"run \S+", "", sweep.notes)
    per_node = sweep.ranks_per_node if sweep.nodes > 1 else None
    return sweep.gpu, sweep.intra_link, sweep.inter_link, sweep.version, sweep.collective, setup, per_node


def _wires_of(sweep: Sweep) -> BusRate | None:
    """How fast the wires of the sweep's machine are at each count, where it has a mesh or bridges of its own."""
    cluster = cluster_of(sweep)
    if cluster is None or not cluster.node.nvlinks or sweep.nodes > 1:
        return None

    def bus_rate(ranks: int, nodes: int) -> float:
        wires, _ = cluster.wires(ranks, Spread(nodes, 1, nodes))
        return (wires.exchange_gb_per_s if sweep.collective == "all_to_all" else wires.within_gb_per_s) * GB

    return bus_rate


def _points(sweep: Sweep, start: int = 0) -> Iterator[tuple[float, float]]:
    step = 2 if start else 1
    return zip(sweep.sizes[start::step], sweep.times_s[start::step], strict=True)


def _median_error(ratios: Iterator[float]) -> float:
    return median(abs(ratio - 1) for ratio in ratios)
