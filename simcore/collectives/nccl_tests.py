"""Reads what nccl-tests and rccl-tests print (``all_reduce_perf`` and its siblings), in their old and new formats."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from simcore.errors import InputError

COLLECTIVES = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "send_recv",
    "broadcast": "broadcast",
    "reduce": "reduce",
}

# What launchers put before a line: Open MPI's tag, Ray's and SkyPilot's "(head, rank=0, pid=1)", the "0: " of srun and
# PALS, MPICH's "[0] ", the time that kubectl adds.
_PREFIX = re.compile(
    r"^(?:.*?<std(?:out|err)>:|\([^()]*pid=\d+[^()]*\)\s?|\s*(?:[\w.-]+ )?\d+:\s|\[\d+\]\s|\d{4}-\d\d-\d\dT\S+\s)+"
)
# NCCL writes its own lines into the same stream, even right behind the root column of a row that is being timed.
_NOISE = re.compile(r"(-1)?(?:\[\d{4}-[^\]]*\]\s)?[^\s\[\]]*:\d+:\d+ \[-?\d+\] [NR]CCL (?:INFO|WARN|TRACE)\b.*")
_RANK = re.compile(
    r"#\s*Rank\s+(?P<rank>\d+)\s+(?:Group\s+(?P<group>\d+)\s+)?Pid\s+\d+\s+on\s+(?P<host>\S+)\s+"
    r"device\s+\d+\s+\[[^\]]*\]\s+(?P<gpu>\S.*?)\s*$"
)
_NRANKS = re.compile(r"\bnranks (\d+)\b")
_VERSION = re.compile(r"\b[NR]CCL version\s*:?\s*(\d[\w.+-]*)")
_VERSION_CODE = re.compile(r"\bnccl-library=(\d+)")
# A path with an option behind it is a command; a bare path may as well be a compiler's or a directory's listing.
_COMMAND = re.compile(r"\b([a-z_]+)_perf(?:\s+-{1,2}[a-zA-Z]|\s*\\$)")
_STARTING = re.compile(r"Collective test starting: (?:\S*/)?([a-z_]+)_perf\b")
_CONCLUDED = re.compile(r"Collective test concluded: (?:\S*/)?([a-z_]+)_perf\b")
_FOOTER = re.compile(r"#\s*(?:Out of bounds|Avg bus bandwidth)")
_ERROR_COLUMNS = ("error", "#wrong", "wrong")
_PRINTED_HALF_STEP = 0.005  # GB/s: the tests print bandwidths with two decimals


@dataclass(frozen=True, slots=True)
class LogRun:
    """A table of one type and one reduction; sizes in bytes as printed (for all_gather the whole buffer), times in us.

    ``collective`` is None where the text doesn't say which it is, or names one that is not in COLLECTIVES. ``ranks``
    and ``nodes`` are those of one communicator; the GPUs of a mixed run are joined with " + ". ``wrong`` holds the
    sizes at which the tests found wrong results.
    """

    collective: str | None
    ranks: int | None
    nodes: int | None
    gpu: str | None
    version: str | None
    dtype: str
    size_bytes: tuple[int, ...]
    out_of_place_us: tuple[float, ...]
    in_place_us: tuple[float | None, ...]
    wrong: tuple[int, ...]


def read_log(text: str, where: str) -> tuple[LogRun, ...]:
    """The runs in a log, in its order; ``where`` names the log in messages. A last row that was cut off is dropped.

    Raises InputError where the text holds no table, or a row lacks columns or has a time that is no time.
    """
    reader = _Reader(where)
    for number, line in enumerate(text.splitlines(), start=1):
        reader.take(number, line)
    runs = tuple(run for draft in reader.drafts for run in _runs(draft))
    if not runs:
        raise InputError(
            f"{where}: found {_found(text, reader)}; a log holds the table that nccl-tests print, with its heading "
            "'# size count type ... time algbw busbw'; give the whole output of, say, all_reduce_perf -b 8 -e 1G -f 2"
        )
    return runs


@dataclass(frozen=True, slots=True)
class _Row:
    """One row of a table: size in bytes, times in us, bandwidths in GB/s; root is None where no column names it."""

    size: int
    dtype: str
    redop: str
    root: int | None
    out_of_place_us: float
    in_place_us: float | None
    algbw: float
    busbw: float
    wrong: bool


@dataclass(slots=True)
class _Draft:
    """What is known so far of one invocation of a test."""

    name: str | None = None
    version: str | None = None
    version_code: str | None = None
    nranks: int | None = None
    devices: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)  # (group, rank): (host, GPU)
    rows: list[_Row] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Partial:
    """A row of which only the first columns have come."""

    number: int
    tokens: list[str]


class _Reader:
    """Takes a log line by line and sorts what it says into drafts, one for each invocation of a test."""

    def __init__(self, where: str) -> None:
        self.drafts = [_Draft()]
        self.columns: list[str] = []  # of the table that is being read
        self.headed = False
        self._where = where
        self._partial: _Partial | None = None
        self._next_name: str | None = None

    def take(self, number: int, line: str) -> None:
        """Takes the next line. Raises InputError where it shows that a row is wrong."""
        self._take_facts(line)
        line = _without_noise(_PREFIX.sub("", line, count=1))
        tokens = line.replace("#wrong", " #wrong").lstrip("# \t").split()
        if tokens[:1] == ["size"] and {"type", "time"} <= set(tokens):
            self._take_heading(tokens)
        elif rank := _RANK.search(line):
            self._take_device(rank)
        elif "# nThread" in line:
            self._draft_before_table().devices.clear()
        elif _FOOTER.search(line):
            self._refuse_partial()
            self.columns = []
        elif self.columns:
            self._take_row(number, line.split())

    def _take_facts(self, line: str) -> None:
        """Takes what any line may say: the test's name, the library's version, the number of ranks."""
        if concluded := _CONCLUDED.search(line):
            self.drafts[-1].name = self.drafts[-1].name or concluded[1]
        elif starting := _STARTING.search(line):
            self._draft_before_table().name = starting[1]
        elif command := _COMMAND.search(line):
            self._take_name(command[1])
        draft = self.drafts[-1]
        if version := _VERSION.search(line):
            draft.version = draft.version or version[1].rstrip(".-+")
        if code := _VERSION_CODE.search(line):
            draft = self._draft_before_table()
            draft.version_code = _decoded(int(code[1]))
        if nranks := _NRANKS.search(line):
            draft.nranks = max(draft.nranks or 0, int(nranks[1]))

    def _take_name(self, name: str) -> None:
        # A command behind rows starts the next run, unless rows go on: then something merely mentioned it.
        if self.drafts[-1].rows:
            self._next_name = name
        else:
            self.drafts[-1].name = name

    def _take_heading(self, tokens: list[str]) -> None:
        self._draft_before_table()
        self._partial, self.headed = None, True
        errors = [index for index, token in enumerate(tokens) if token in _ERROR_COLUMNS]
        self.columns = tokens[: errors[-1] + 1] if errors else tokens

    def _take_device(self, match: re.Match[str]) -> None:
        draft = self._draft_before_table()
        draft.devices[int(match["group"] or 0), int(match["rank"])] = (match["host"], match["gpu"])

    def _take_row(self, number: int, tokens: list[str]) -> None:
        partial, self._partial = self._partial, None
        if partial and _continues(tokens, len(self.columns) - len(partial.tokens)):
            number, tokens = partial.number, partial.tokens + tokens
        elif not _starts_row(tokens):
            self._partial = partial
            return
        elif partial:
            self._partial = partial
            self._refuse_partial()
        if len(tokens) < len(self.columns):
            self._partial = _Partial(number, tokens)
            return
        self.drafts[-1].rows.append(_row(self.columns, tokens, f"{self._where}: line {number}"))
        self._next_name = None

    def _refuse_partial(self) -> None:
        if self._partial:
            raise InputError(
                f"{self._where}: line {self._partial.number}: found {len(self._partial.tokens)} columns; a row of this "
                f"table has {len(self.columns)} ({' '.join(self.columns)}); restore the row, or take the line out"
            )

    def _draft_before_table(self) -> _Draft:
        """The draft that a line ahead of a table speaks of: a new one where the last already has its rows."""
        if self.drafts[-1].rows:
            self.drafts.append(_Draft(name=self._next_name))
            # The last run ended without its footer, so a row cut off there was the last that it printed.
            self._next_name, self._partial, self.columns = None, None, []
        return self.drafts[-1]


def _without_noise(line: str) -> str:
    noise = _NOISE.search(line)
    return line[: noise.start()] + (noise[1] or "") if noise else line


def _starts_row(tokens: list[str]) -> bool:
    return bool(tokens) and tokens[0].isdecimal() and (len(tokens) == 1 or tokens[1].isdecimal())


def _continues(tokens: list[str], missing: int) -> bool:
    """Whether the tokens are just the columns that a row still lacks."""
    return len(tokens) == missing and all(token == "N/A" or _number(token) is not None for token in tokens)


def _number(token: str) -> float | None:
    try:
        value = float(token.rstrip("*"))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _decoded(code: int) -> str:
    """The version behind NCCL_VERSION_CODE, whose digits moved with 2.9."""
    major = 10000 if code >= 10000 else 1000
    return f"{code // major}.{code % major // 100}.{code % 100}"


def _row(columns: list[str], tokens: list[str], where: str) -> _Row:
    """The row in the tokens. Raises InputError where a time is no number above 0."""
    cells = dict(zip(reversed(columns), reversed(tokens[: len(columns)]), strict=True))  # the first of a name wins
    times = [token for name, token in zip(columns, tokens, strict=False) if name == "time"]
    out_of_place = _time(times[0], where, "out-of-place")
    in_place = None if len(times) < 2 or times[1] == "N/A" else _time(times[1], where, "in-place")
    verdicts = [(name, token) for name, token in zip(columns, tokens, strict=False) if name in _ERROR_COLUMNS]
    return _Row(
        size=int(tokens[0]),
        dtype=cells["type"],
        redop=cells.get("redop", "none"),
        root=int(cells["root"]) if re.fullmatch(r"-?\d+", cells.get("root", "")) else None,
        out_of_place_us=out_of_place,
        in_place_us=in_place,
        algbw=_number(cells.get("algbw", "")) or 0.0,
        busbw=_number(cells.get("busbw", "")) or 0.0,
        wrong=any(_is_wrong(name, token) for name, token in verdicts),
    )


def _time(token: str, where: str, side: str) -> float:
    """A time in us. Raises InputError where it is no number above 0."""
    value = _number(token)
    if value is None or value <= 0:
        raise InputError(f"{where}: {side} time: found '{token}'; a time is a number of us above 0; run the test again "
                         "or take the line out")  # fmt: skip
    return value


def _is_wrong(column: str, token: str) -> bool:
    """Whether a cell reports wrong results; the old tests print a deviation, and an asterisk where it is too large."""
    if column == "error":
        return token.endswith("*")
    return (_number(token) or 0.0) > 0


def _runs(draft: _Draft) -> Iterable[LogRun]:
    """The runs of one invocation: tests told to try all types or reductions print them under one heading."""
    groups: dict[tuple[str, str, int | None], list[_Row]] = {}
    for row in draft.rows:
        groups.setdefault((row.dtype, row.redop, row.root), []).append(row)
    for (dtype, _, _), rows in groups.items():
        yield _run(draft, dtype, rows)


def _run(draft: _Draft, dtype: str, rows: list[_Row]) -> LogRun:
    first = min((group for group, _ in draft.devices), default=0)
    devices = [device for (group, _), device in draft.devices.items() if group == first]
    ranks = len(devices) or draft.nranks
    return LogRun(
        # A name that is none of ours is still a name: the numbers must not talk it into another collective.
        collective=COLLECTIVES.get(draft.name) if draft.name else _inferred(rows, ranks),
        ranks=ranks,
        nodes=len({host for host, _ in devices}) or None,
        gpu=" + ".join(dict.fromkeys(gpu for _, gpu in devices)) or None,
        version=draft.version or draft.version_code,
        dtype=dtype,
        size_bytes=tuple(row.size for row in rows),
        out_of_place_us=tuple(row.out_of_place_us for row in rows),
        in_place_us=tuple(row.in_place_us for row in rows),
        wrong=tuple(row.size for row in rows if row.wrong),
    )


def _inferred(rows: list[_Row], ranks: int | None) -> str | None:
    """The one collective whose ratio of bus to algorithm bandwidth the largest row shows, or None where several fit."""
    row = max(rows, key=lambda row: row.size)
    if min(row.algbw, row.busbw) <= 0 or ranks is None or ranks < 2:
        return None
    ratio = row.busbw / row.algbw
    slack = ratio * _PRINTED_HALF_STEP * (1 / row.algbw + 1 / row.busbw)
    fitting = [name for name, factor in _factors(row, ranks) if abs(ratio - factor) <= slack]
    return fitting[0] if len(fitting) == 1 else None


def _factors(row: _Row, ranks: int) -> list[tuple[str, float]]:
    """The collectives that may print such a row, each with its bus bandwidth over its algorithm bandwidth."""
    share = (ranks - 1) / ranks
    rooted = row.root is not None and row.root >= 0
    rootless = row.root is None or row.root < 0
    if row.redop == "none":
        # gather and scatter print the same share with a root, so only rootless rows can be these two.
        return [("broadcast", 1.0)] if rooted else [("all_gather", share), ("all_to_all", share)]
    factors = [("reduce", 1.0)] if row.root is None or rooted else []
    if rootless:
        factors += [("all_reduce", 2 * share), ("reduce_scatter", share), ("send_recv", 1.0)]
    return factors


def _found(text: str, reader: _Reader) -> str:
    if not text.strip():
        return "an empty text"
    return "the heading of a table without a whole row" if reader.headed else "no table"
