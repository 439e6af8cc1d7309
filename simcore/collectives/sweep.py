"""A sweep: one collective on one group of ranks, timed over sizes; read from CSV tables and from nccl-tests' text."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import cast, get_args

from simcore.collectives.nccl_tests import LogRun, read_log
from simcore.errors import InputError
from simcore.profile.fitted import Collective
from simcore.units import US

COLLECTIVES: dict[str, Collective] = {name: name for name in get_args(Collective)} | {
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "p2p_send": "send_recv",
}
"""Names of collectives as people write them."""

FIRST_TOUCH = 1.6
"""A time out of place beyond so many times that in place met memory that was being touched for the first time."""

NEEDED = ("slug", "n_gpus", "collective")


@dataclass(frozen=True, slots=True)
class Sweep:
    """Times in seconds at rising sizes in bytes, of the whole buffer, and what is known of where they were taken."""

    name: str
    collective: Collective
    ranks: int
    nodes: int
    sizes: tuple[float, ...]
    times_s: tuple[float, ...]
    gpu: str = ""
    intra_link: str = ""
    inter_link: str = ""
    version: str = ""
    notes: str = ""
    status: str = ""

    @property
    def ranks_per_node(self) -> int:
        """Ranks on a node, where they are spread evenly."""
        return math.ceil(self.ranks / self.nodes)

    @property
    def healthy(self) -> bool:
        """Whether whoever recorded it found nothing wrong; unmarked sweeps count as good."""
        return self.status in ("healthy", "")


def read_sweeps(path: Path) -> tuple[list[Sweep], dict[str, int]]:
    """The sweeps of an index table, or of a folder: its ``index.csv``, else each ``.log``, ``.txt`` and ``.out``.

    Returns them with the entries passed over, by reason. Raises ``InputError`` where there is nothing to read.
    """
    if path.is_dir():
        index = path / "index.csv"
        return _of_index(index) if index.exists() else _of_logs(path)
    return _of_index(path)


def of_run(run: LogRun, where: str) -> Sweep:
    """The sweep in an nccl-tests table. Raises ``InputError`` where it does not say what was run, on how many ranks."""
    if run.collective is None or run.collective not in COLLECTIVES:
        raise InputError(f"{where}: does not say which collective it timed, of {', '.join(get_args(Collective)[:-1])}")
    if run.ranks is None or run.ranks < 2:
        found = "does not say how many ranks took part" if run.ranks is None else "timed a single rank"
        raise InputError(
            f"{where}: {found}; a sweep needs two or more (under mpirun, build nccl-tests with MPI=1, or each rank "
            "times itself alone)"
        )
    good = [
        (size, _settled(out, into) * US)
        for size, out, into in zip(run.size_bytes, run.out_of_place_us, run.in_place_us, strict=True)
        if size > 0 and size not in run.wrong and _settled(out, into) > 0
    ]
    if len(good) < 2:
        raise InputError(f"{where}: holds fewer than two sizes with a time and right results")
    sizes, times = zip(*sorted(dict(good).items()), strict=True)
    return Sweep(where, COLLECTIVES[run.collective], run.ranks, run.nodes or 1, tuple(map(float, sizes)), tuple(times),
                 gpu=run.gpu or "", version=run.version or "")  # fmt: skip


def _of_logs(folder: Path) -> tuple[list[Sweep], dict[str, int]]:
    files = sorted(file for file in folder.iterdir() if file.suffix in (".log", ".txt", ".out"))
    if not files:
        raise InputError(f"{folder}: holds neither an index.csv nor a log of nccl-tests (.log, .txt, .out)")
    found: list[Sweep] = []
    passed: dict[str, int] = {}
    for file in files:
        try:
            text = file.read_text(encoding="utf-8", errors="replace")
            found += [of_run(run, str(file)) for run in read_log(text, str(file))]
        except InputError as error:
            reason = str(error).removeprefix(f"{file}: ")
            passed[reason] = passed.get(reason, 0) + 1
    return found, passed


def _of_index(index: Path) -> tuple[list[Sweep], dict[str, int]]:
    rows = _table(index, NEEDED, "an index of sweeps")
    found: list[Sweep] = []
    passed: dict[str, int] = {}
    for row in rows:
        try:
            found.append(_of_row(row, index))
        except _PassOver as reason:
            passed[str(reason)] = passed.get(str(reason), 0) + 1
    return found, passed


class _PassOver(Exception):
    """Why an entry of an index is not a sweep to work with."""


def _of_row(row: dict[str, str], index: Path) -> Sweep:
    name, file = row["slug"], index.parent / f"{row['slug']}.csv"
    collective = COLLECTIVES.get(row["collective"])
    if collective is None:
        raise _PassOver(f"{row['collective']} is not among the collectives that training uses")
    ranks = _whole(row, "n_gpus", index)
    if ranks < 2:
        raise _PassOver("a single rank")
    points: dict[float, list[float]] = {}
    for point in _table(file, ("size_bytes",), "a sweep"):
        size = _number(point, "size_bytes")
        time_us = _settled(_number(point, "time_us_out_of_place"), _number(point, "time_us_in_place"))
        if size > 0 and time_us > 0:
            points.setdefault(size, []).append(time_us * US)
    if len(points) < 2:
        raise _PassOver("fewer than two sizes")
    return Sweep(
        name=name,
        collective=collective,
        ranks=ranks,
        nodes=_whole(row, "n_nodes", index) if row.get("n_nodes") else 1,
        sizes=tuple(sorted(points)),
        times_s=tuple(median(points[size]) for size in sorted(points)),
        gpu=row.get("gpu", ""),
        intra_link=row.get("intra_link", ""),
        inter_link=row.get("inter_link", ""),
        version=row.get("nccl_version", ""),
        notes=row.get("notes", ""),
        status=row.get("status", ""),
    )


def _settled(out_of_place_us: float | None, in_place_us: float | None) -> float:
    """The time to go by, 0 where there is none: out of place, unless that was the first touch of its memory."""
    out, into = out_of_place_us or 0.0, in_place_us or 0.0
    if math.isnan(out) or out <= 0:
        out = 0.0
    if math.isnan(into) or into <= 0:
        return out
    return into if out == 0.0 or out > FIRST_TOUCH * into else out


def _number(row: dict[str, str], column: str) -> float:
    """A cell as a number; not a number where it is empty or something else, as such a point is passed over."""
    try:
        return float(row.get(column) or "nan")
    except ValueError:
        return math.nan


def _whole(row: dict[str, str], column: str, where: Path) -> int:
    try:
        return max(1, round(float(row[column])))
    except ValueError:
        raise InputError(f"{where}: {row['slug']}: {column}: found {row[column]!r}, which is no number") from None


def _table(path: Path, needed: Iterable[str], what: str) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [cast("dict[str, str]", row) for row in csv.DictReader(file)]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as {what}: {error}") from None
    if not rows or (missing := [column for column in needed if column not in rows[0]]):
        found = f"lacks {', '.join(missing)}" if rows else "has no rows"
        raise InputError(f"{path}: {found}; {what} has at least the columns {', '.join(needed)}")
    return rows
