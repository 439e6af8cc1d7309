"""Logs of nccl-tests and rccl-tests are read in every format, and a wrong one is refused in one line."""

from __future__ import annotations

import pytest

from simcore.collectives.nccl_tests import LogRun, read_log
from simcore.errors import InputError

HEADING = """\
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
FOOTER = """\
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 25.1
#
"""

OLD = """\
$ ./build/all_reduce_perf -b 8M -e 16M -f 2 -g 2
# nThread 1 nGpus 2 minBytes 8388608 maxBytes 16777216 step: 2(factor) warmup iters: 5 iters: 20 validation: 1
#
# Using devices
#   Rank  0 Pid  12878 on dgx1 device  0 [0x06] Tesla V100-SXM2-32GB
#   Rank  1 Pid  12878 on dgx1 device  1 [0x07] Tesla V100-SXM2-32GB
NCCL version 2.7.8+cuda10.2
#
#                                                     out-of-place                       in-place
#       size         count    type   redop     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)                     (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     8388608       2097152   float     sum    190.6   44.01   44.01  0e+00    189.9   44.17   44.17  0e+00
    16777216       4194304   float     sum    362.4   46.29   46.29  5e-07    361.8   46.37   46.37  5e-07
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 45.21
#
"""

DEVICES = "".join(
    f"#  Rank {rank:2} Group  0 Pid {4000 + rank} on node{rank // 4} device  {rank % 4} [0x0{rank % 4}] NVIDIA A100-SXM4-40GB\n"
    for rank in range(8)
)
BARE = "# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n#\n# Using devices\n"
NEW = (
    "# nccl-tests version 2.17.6 nccl-headers=22807 nccl-library=22807\n# Collective test starting: all_gather_perf\n"
    + BARE + DEVICES + "#\n" + HEADING +
    "        1024            32     float    none      -1    28.39    0.04    0.03      0    28.07    0.04    0.03      0\n"
    "   134217728       4194304     float    none      -1  1342.18  100.00   87.50      2  1340.00  100.16   87.64      0\n"
    + FOOTER + "# Collective test concluded: all_gather_perf\n#\n"
)  # fmt: skip


def table(rows: str, ahead: str = BARE + DEVICES) -> str:
    return ahead + HEADING + rows + FOOTER


def one(text: str) -> LogRun:
    (run,) = read_log(text, "a.log")
    return run


def test_old_format() -> None:
    assert read_log(OLD, "a.log") == (
        LogRun(
            collective="all_reduce", ranks=2, nodes=1, gpu="Tesla V100-SXM2-32GB", version="2.7.8+cuda10.2",
            dtype="float", size_bytes=(8388608, 16777216), out_of_place_us=(190.6, 362.4),
            in_place_us=(189.9, 361.8), wrong=(),
        ),
    )  # fmt: skip


def test_old_format_without_redop() -> None:
    """The old all_gather has neither redop nor root, and an asterisk marks a deviation that is too large."""
    text = OLD.replace("all_reduce_perf", "all_gather_perf").replace("   redop  ", "  ").replace("     sum ", " ")
    run = one(text.replace("5e-07    361.8", "5e-01*   361.8"))
    assert (run.collective, run.out_of_place_us, run.wrong) == ("all_gather", (190.6, 362.4), (16777216,))


NEW_RUN = LogRun(
    collective="all_gather", ranks=8, nodes=2, gpu="NVIDIA A100-SXM4-40GB", version="2.28.7", dtype="float",
    size_bytes=(1024, 134217728), out_of_place_us=(28.39, 1342.18), in_place_us=(28.07, 1340.0), wrong=(134217728,),
)  # fmt: skip


def test_new_format() -> None:
    assert read_log(NEW, "a.log") == (NEW_RUN,)


@pytest.mark.parametrize(
    "prefix",
    [
        "[1,0]<stdout>:",
        "[1,0]<stdout>: ",
        "0: ",
        " 0: ",
        "[prterun-host-77@1,0]<stdout>:",
        "(head, rank=0, pid=3808) [1,0]<stdout>:",
        "x3005c0s13b0n0 0: ",
        "[0] ",
        "2024-05-01T10:00:00.123456Z ",
        "\t",
    ],
)
def test_launcher_prefixes(prefix: str) -> None:
    assert read_log("".join(f"{prefix}{line}\n" for line in NEW.splitlines()), "a.log") == (NEW_RUN,)


def test_windows_line_ends() -> None:
    assert read_log(NEW.replace("\n", "\r\n"), "a.log") == (NEW_RUN,)


def test_nccl_info_between_and_inside_rows() -> None:
    """NCCL connects while the first size is timed, so its lines split that row."""
    noise = "node0:4000:4100 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
    text = table(
        f"        1024           256     float     sum      -1{noise}"
        f"{noise}    45.80    0.02    0.04      0    43.80    0.02    0.04      0\n"
        f"{noise}"
        f"        2048           512     float     sum      -1 {noise}"
        "    90330  118.87  222.88      0    91945  116.78  218.96      0\n",
        BARE + "node0:4000:4000 [0] NCCL INFO comm 0x55 rank 0 nranks 16 cudaDev 0 busId a4000 - Init START\n"
        "node0:4000:4000 [0] NCCL INFO NCCL version 2.18.3+cuda12.2\n",
    )
    assert one("+ mpirun -np 16 /opt/nccl-tests/build/all_reduce_perf -b 1K -e 2K -f 2 -g 1\n" + text) == LogRun(
        collective="all_reduce", ranks=16, nodes=None, gpu=None, version="2.18.3+cuda12.2", dtype="float",
        size_bytes=(1024, 2048), out_of_place_us=(45.8, 90330.0), in_place_us=(43.8, 91945.0), wrong=(),
    )  # fmt: skip


def test_two_runs_in_one_file() -> None:
    """Each run keeps its own facts; the end of the first does not name the second, nor does its missing footer."""
    assert [(run.collective, run.ranks, run.version) for run in read_log(OLD + NEW, "a.log")] == [
        ("all_reduce", 2, "2.7.8+cuda10.2"),
        ("all_gather", 8, "2.28.7"),
    ]
    killed = OLD[: OLD.index("# Out of bounds")]
    second = OLD.replace("all_reduce_perf", "sendrecv_perf").replace("NCCL version 2.7.8+cuda10.2\n", "")
    runs = read_log(killed + second, "a.log")
    assert [(run.collective, run.version) for run in runs] == [("all_reduce", "2.7.8+cuda10.2"), ("send_recv", None)]


def test_row_cut_off_by_a_kill_ends_its_run() -> None:
    killed = OLD[: OLD.index("   361.8")] + "\nslurmstepd: error: *** JOB 7 CANCELLED ***\n"
    assert [run.size_bytes for run in read_log(killed + NEW, "a.log")] == [(8388608,), (1024, 134217728)]


def test_rccl_on_mi300x() -> None:
    devices = "".join(
        f"#  Rank {rank:2} Group  0 Pid 25652{rank:02} on      node0 device  {rank} [0000:{rank:02}:00] AMD Instinct MI300X\n"
        for rank in range(8)
    )
    rows = (
        "     8388608       2097152     float     sum      -1    235.4   35.64   62.36    N/A    220.6   38.02   66.54    N/A\n"
        "    16777216       4194304     float     sum      -1    315.5   53.18   93.06    N/A    317.1   52.90   92.58    N/A\n"
    )
    text = table(
        rows, BARE + "rccl-tests: Version develop:3f7f785\n" + devices + "RCCL version : 2.22.3-develop:d0bb1b6\n"
    )
    assert one(text) == LogRun(
        collective="all_reduce", ranks=8, nodes=1, gpu="AMD Instinct MI300X", version="2.22.3-develop", dtype="float",
        size_bytes=(8388608, 16777216), out_of_place_us=(235.4, 315.5), in_place_us=(220.6, 317.1), wrong=(),
    )  # fmt: skip


def test_in_place_that_was_not_timed() -> None:
    row = "16777216 4194304 half none -1 315.5 53.18 46.53 0 N/A N/A N/A N/A\n"
    assert (one(table(row)).in_place_us, one(table(row)).dtype) == ((None,), "half")


def test_out_of_place_only_and_further_columns() -> None:
    heading = "# size count type redop root time algbw busbw #wrong timestamp\n"
    run = one(heading + "1024 256 float sum -1 10.5 0.10 0.17 0 2025-01-01 10:00:00\n")
    assert (run.out_of_place_us, run.in_place_us, run.ranks) == ((10.5,), (None,), None)


@pytest.mark.parametrize("end", ["1340.00  100.16", "1342.1", "  none      -1", "   4194304", "134217728", "1342"])
def test_truncated_last_line_is_dropped(end: str) -> None:
    last = NEW.rindex("   134217728")
    assert one(NEW[: NEW.index(end, last) + len(end)]).size_bytes == (1024,)


def test_all_types_under_one_heading() -> None:
    row = "1024 256 {} sum -1 10.5 0.10 0.17 0 10.0 0.10 0.18 0\n"
    runs = read_log(table(row.format("half") + row.format("float")), "a.log")
    assert [(run.dtype, run.size_bytes) for run in runs] == [("half", (1024,)), ("float", (1024,))]


@pytest.mark.parametrize(
    ("cells", "collective"),
    [
        ("sum -1 1000.0 100.00 175.00", "all_reduce"),
        ("sum -1 1000.0 100.00 87.50", "reduce_scatter"),
        ("sum -1 1000.0 100.00 100.00", "send_recv"),
        ("sum 0 1000.0 100.00 100.00", "reduce"),
        ("none 0 1000.0 100.00 100.00", "broadcast"),
        ("none -1 1000.0 100.00 87.50", None),  # all_gather or all_to_all
        ("none 0 1000.0 100.00 87.50", None),  # gather or scatter
        ("sum -1 1000.0 100.00 140.00", None),
        ("sum -1 1000.0 0.00 0.00", None),
    ],
)
def test_collective_from_bandwidths(cells: str, collective: str | None) -> None:
    """Eight ranks: the largest size decides, for the small ones are rounded away."""
    redop, root, timing = cells.split(maxsplit=2)
    rows = (
        f"8 2 float {redop} {root} 9.0 0.00 0.00 0 9.0 0.00 0.00 0\n"
        f"100000000 25000000 float {redop} {root} {timing} 0 {timing} 0\n"
    )
    assert one(table(rows)).collective == collective


def test_two_ranks_leave_all_reduce_and_send_recv_apart_by_name_only() -> None:
    rows = "100000000 25000000 float sum -1 1000.0 100.00 100.00 0 1000.0 100.00 100.00 0\n"
    assert one(table(rows, BARE + "".join(DEVICES.splitlines(keepends=True)[:2]))).collective is None


@pytest.mark.parametrize(
    ("name", "collective"), [("alltoall", "all_to_all"), ("sendrecv", "send_recv"), ("gather", None)]
)
def test_named_collectives(name: str, collective: str | None) -> None:
    assert one(NEW.replace("all_gather", name)).collective == collective


def test_a_build_is_no_run() -> None:
    """Linking sendrecv_perf ahead of an unnamed table does not name it."""
    built = "Linking  /src/build/sendrecv.o > /src/build/sendrecv_perf\n"
    rows = "100000000 25000000 float sum -1 1000.0 100.00 175.00 0 1000.0 100.00 175.00 0\n"
    assert one(built + table(rows)).collective == "all_reduce"


GOOD = "1024 256 float sum -1 10.5 0.10 0.17 0 10.0 0.10 0.18 0\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "a.log: found an empty text; a log holds the table"),
        ("step 1 loss 2.3\n", "a.log: found no table; a log holds the table"),
        (GOOD, "a.log: found no table; a log holds the table"),
        (table(""), "a.log: found the heading of a table without a whole row; a log holds the table"),
        (HEADING + GOOD + "2048 512 float sum -1 10.5\n" + GOOD, "a.log: line 5: found 6 columns; a row of this table has 13"),
        (HEADING + GOOD + "2048 512 float sum -1 10.5\n" + FOOTER, "a.log: line 5: found 6 columns; a row of this table has 13"),
        (HEADING + GOOD.replace("10.5", "0.00"), "a.log: line 4: out-of-place time: found '0.00'; a time is a number of us above 0"),
        (HEADING + GOOD.replace("10.5", "-3"), "a.log: line 4: out-of-place time: found '-3'; a time is a number"),
        (HEADING + GOOD.replace("10.5", "XXXX"), "a.log: line 4: out-of-place time: found 'XXXX'; a time is a number"),
        (HEADING + GOOD.replace("10.5", "nan"), "a.log: line 4: out-of-place time: found 'nan'; a time is a number"),
        (HEADING + GOOD.replace("10.0", "inf"), "a.log: line 4: in-place time: found 'inf'; a time is a number"),
    ],
)  # fmt: skip
def test_wrong_text(text: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        read_log(text, "a.log")
    assert len(caught.value.faults) == 1
    assert caught.value.faults[0].startswith(found)
    assert "\n" not in caught.value.faults[0]
