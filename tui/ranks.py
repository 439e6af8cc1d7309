"""Running a function of the measuring room on ranks: launched here, or as one rank of the world torchrun made."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from typing import Any

from simcore.errors import InputError, MeasurementError, SimscaleError
from tui.progress import ShownBeat, progress_bar


@dataclass(frozen=True, slots=True)
class Devices:
    """What ranks run on: so many of ``cuda`` (with their numbers) or of ``cpu``."""

    kind: str
    ranks: int
    gpus: tuple[int, ...] | None = None


def need_torch() -> None:
    """Raise ``InputError`` where torch is not installed: measuring is an extra."""
    if importlib.util.find_spec("torch") is None:
        raise InputError(
            "measuring needs torch, which is not installed; install it with: pip install 'simscale[measure]'"
        )


def choose_devices(gpus: tuple[int, ...] | None, cpu_ranks: int | None, enough: int) -> Devices:
    """The devices asked for, else every GPU, else (saying so) ``enough`` CPU ranks over gloo."""
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if gpus is not None:
        if missing := [gpu for gpu in gpus if gpu >= found]:
            raise InputError(f"--gpus: there is no GPU {missing[0]}: this machine has {found or 'none'}; "
                             "give --cpu-ranks 2 to use CPU ranks over gloo")  # fmt: skip
        return Devices("cuda", len(gpus), gpus)
    if cpu_ranks is not None:
        return Devices("cpu", cpu_ranks)
    if found:
        return Devices("cuda", found, tuple(range(found)))
    print(f"no GPU found: using {enough} CPU ranks over gloo", file=sys.stderr)
    return Devices("cpu", enough)


def inside_torchrun() -> bool:
    """Whether torchrun started this process as one of its ranks."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def torchrun_device() -> str:
    """What the ranks of torchrun's world run on: ``cuda`` where there is any, else ``cpu``."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def run_on(devices: Devices, target: str, arguments: dict[str, Any], timeout_s: float, title: str) -> Any:
    """Rank 0's result of ``pkg.module:function(world, **arguments)`` on ranks launched on this machine."""
    from measure.launch import run_ranks

    with progress_bar(title) as watch:
        return run_ranks(target, arguments, devices.ranks, devices.kind, timeout_s, watch, devices.gpus)


def run_as_rank(target: str, arguments: dict[str, Any], timeout_s: float, title: str) -> Any:
    """This rank's part in torchrun's world: rank 0 gets the result and draws progress, the others get None.

    Raises ``MeasurementError`` naming this rank where another one has gone or nothing moves.
    """
    from measure.pulse import Beat
    from measure.world import join_world, leave_world

    rank = os.environ["RANK"]
    module, _, name = target.partition(":")
    with progress_bar(title) as show:
        beat = ShownBeat(show) if rank == "0" else Beat()
        try:
            world = join_world(torchrun_device(), timeout_s, beat)
            result = getattr(importlib.import_module(module), name)(world, **arguments)
        except SimscaleError:
            raise
        except RuntimeError as error:
            first = str(error).strip().splitlines()[0]
            raise MeasurementError(f"rank {rank} failed while '{beat.label}': {first}") from None
        leave_world()
    return result
