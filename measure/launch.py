"""Starting ranks on this machine through torch's elastic launcher, and ending them cleanly however it goes.

A rank that dies or hangs ends the run within its timeout with that rank's error; no process is left behind.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from measure.pulse import WAITING, Pulse, Vitals
from measure.world import join_world, leave_world
from simcore.errors import InputError, MeasurementError, SimscaleError

START_S = 60.0
"""How long ranks may take to import torch and report, before the run is given up."""

STALE_S = 3.0
"""A rank whose heartbeat is older than this is stopped or dead, whatever its last word was."""

SECONDARY = ("Connection closed", "Connection reset", "timed out", "Timed out", "Broken pipe", "Connection refused",
             "NCCL", "Application timeout")  # fmt: skip
"""Errors that tell of another rank's end."""

Watcher = Callable[[float, str], None]
"""Called with the part done (0 to 1) and what is being measured."""


def run_ranks(
    target: str, arguments: dict[str, Any], ranks: int, device: str, timeout_s: float, watch: Watcher,
    gpus: tuple[int, ...] | None = None,
) -> Any:  # fmt: skip
    """Run ``pkg.module:function(world, **arguments)`` on ``ranks`` ranks of this machine; returns rank 0's result.

    Raises ``MeasurementError`` naming the rank where one dies, or where none moves for ``timeout_s``; ``InputError``
    where a rank finds the input wrong; ``KeyboardInterrupt`` where the user stops it. All ranks are gone in every case.
    """
    with tempfile.TemporaryDirectory(prefix="simscale-") as folder:
        pulse = Pulse(Path(folder) / "pulse", ranks, create=True)
        guard = _Guard(pulse, timeout_s, watch)
        environment = {"GLOO_SOCKET_IFNAME": "lo"} if device == "cpu" and sys.platform == "linux" else {}
        if gpus:
            environment["SIMSCALE_GPUS"] = ",".join(map(str, gpus))
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id=Path(folder).name,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=0,
            monitor_interval=0.1,
            start_method="spawn",
            logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=Std.ALL),
        )
        saved = {key: os.environ.get(key) for key in environment}
        os.environ.update(environment)
        guard.start()
        logging.disable(logging.CRITICAL)  # what went wrong is said once, by us
        try:
            results = elastic_launch(config, _rank_main)(target, arguments, folder, ranks, device, timeout_s)
        except SignalException:
            raise KeyboardInterrupt from None
        except ChildFailedError as error:
            time.sleep(0.2)  # the others' last words
            if wrong := [rank for rank in pulse.vitals() if rank.is_input]:
                raise InputError(wrong[0].error) from None
            raise MeasurementError(guard.verdict or _post_mortem(pulse, error, guard.died)) from None
        finally:
            logging.disable(logging.NOTSET)
            guard.stop()
            _kill_all(pulse)
            for key, value in saved.items():
                os.environ.pop(key, None) if value is None else os.environ.update({key: value})
        return results[0]


def _rank_main(target: str, arguments: dict[str, Any], folder: str, ranks: int, device: str, timeout_s: float) -> Any:
    """What a launched rank runs: it dies with its parent and at an interrupt, and says why it fails."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # at once, also inside a collective, and without a traceback
    if sys.platform == "linux":
        die_with_parent = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(die_with_parent, signal.SIGKILL, 0, 0, 0)
    rank = int(os.environ["RANK"])
    beat = Pulse(Path(folder) / "pulse", ranks).writer(rank)
    module, _, name = target.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
        result = function(join_world(device, timeout_s, beat), **arguments)
    except Exception as error:
        text = str(error) if isinstance(error, SimscaleError) else f"{type(error).__name__}: {error}"
        line = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        beat.fail(line, is_input=isinstance(error, InputError))
        raise
    leave_world()
    return result if rank == 0 else None


class _Guard(threading.Thread):
    """Watches the pulse: hands progress on, and ends a run in which nothing moves, naming the rank at fault."""

    def __init__(self, pulse: Pulse, timeout_s: float, watch: Watcher) -> None:
        super().__init__(daemon=True)
        self._pulse, self._timeout_s, self._watch = pulse, timeout_s, watch
        self._over = threading.Event()
        self._since = time.monotonic()
        self.verdict: str | None = None
        self.died: list[int] = []

    def stop(self) -> None:
        """End the watch."""
        self._over.set()
        self.join()

    def run(self) -> None:
        """Look ten times a second until stopped or until a verdict is due."""
        while not self._over.wait(0.1):
            vitals = self._pulse.vitals()
            self.died += [rank.rank for rank in vitals if rank.rank not in self.died and _has_died(rank.pid)]
            self._watch(vitals[0].done, vitals[0].label or "starting ranks")
            if (verdict := self._judge(vitals)) is not None:
                self.verdict = verdict
                _kill_all(self._pulse)
                return

    def _judge(self, vitals: list[Vitals]) -> str | None:
        now = time.monotonic()
        if any(rank.failed for rank in vitals):
            return None  # the launcher sees it end
        if silent := [rank.rank for rank in vitals if not rank.pid]:
            late = now - self._since > START_S
            return f"rank {silent[0]} did not start within {START_S:.0f} s" if late else None
        if now - max(rank.moved for rank in vitals) < self._timeout_s:
            return None
        stopped = [rank for rank in vitals if now - rank.heartbeat > STALE_S]
        busy = [rank for rank in vitals if rank.label != WAITING] or vitals
        culprit = stopped[0] if stopped else min(busy, key=lambda rank: (rank.count, rank.moved))
        how = "is stopped" if stopped else "hangs"
        return (
            f"rank {culprit.rank} {how} while '{culprit.label}': nothing moved for {self._timeout_s:.0f} s; "
            "all ranks were ended (--timeout sets the patience)"
        )


def _post_mortem(pulse: Pulse, error: ChildFailedError, died: list[int]) -> str:
    """The rank at fault: the first whose error is its own, else the first that died without a word."""
    vitals = pulse.vitals()
    spoken = sorted((rank for rank in vitals if rank.failed), key=lambda rank: rank.failed)
    if own := [rank for rank in spoken if not any(phrase in rank.error for phrase in SECONDARY)]:
        return f"rank {own[0].rank} failed while '{own[0].label}': {own[0].error}"
    by_signal = [
        rank for rank, failure in error.failures.items() if failure.exitcode < 0 and -failure.exitcode != signal.SIGTERM
    ]
    order = dict.fromkeys([*by_signal, *died, *error.failures])  # the launcher itself ends the others, by SIGTERM
    if speechless := [vitals[rank] for rank in order if not vitals[rank].failed]:
        failure = error.failures.get(speechless[0].rank)
        by = f" by {signal.Signals(-failure.exitcode).name}" if failure and failure.exitcode < 0 else ""
        return f"rank {speechless[0].rank} was killed{by} while '{speechless[0].label}'"
    if spoken:
        return f"rank {spoken[0].rank} failed while '{spoken[0].label}': {spoken[0].error}"
    return f"a rank ended without a word: {error.get_first_failure()[1].message}"


def _has_died(pid: int) -> bool:
    """Whether a child has ended, without taking its exit status from the launcher."""
    return bool(pid) and _child_state(pid) != "alive"


def _child_state(pid: int) -> str:
    """``alive``, ``ended``, or ``gone`` where it is no child of this process (any more)."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13: a number that answers is taken for the child
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return "gone"
        return "alive"
    try:
        return "alive" if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None else "ended"
    except ChildProcessError:
        return "gone"


def _kill_all(pulse: Pulse) -> None:
    for rank in pulse.vitals():
        # Only children: the number of a process that is gone may already belong to another.
        if rank.pid and _child_state(rank.pid) == "alive":
            os.kill(rank.pid, signal.SIGKILL)
