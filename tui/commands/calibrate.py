"""``simscale calibrate``: this machine (or torchrun's world) into a profile."""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.errors import InputError, MeasurementError
from simcore.units import format_seconds
from tui.arguments import counts, devices, positive, seconds
from tui.ranks import choose_devices, inside_torchrun, need_torch, run_as_rank, run_on

if TYPE_CHECKING:
    from simcore.profile.schema import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--gpus", type=devices, metavar="0,1", help="GPUs to use, by number (default: all)")
    which.add_argument("--cpu-ranks", type=positive, metavar="N", help="CPU ranks over gloo instead of GPUs")
    parser.add_argument("-o", "--output", type=Path, default=Path("profile.json"), help="default: profile.json")
    parser.add_argument("--quick", action="store_true", help="about a minute instead of about five")
    parser.add_argument(
        "--model", metavar="PKG.MODULE:FACTORY", help="also take this model apart (yours, or a catalogue name)"
    )
    parser.add_argument("--batches", type=counts, default=(4, 16), metavar="4,16", help="batch sizes for --model")
    parser.add_argument("--resume", action="store_true", help="go on from what an interrupted run has kept")
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="patience with a rank (default: 60 s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, fit, write; returns 0. A run that ends early keeps its samples beside the output for ``--resume``."""
    need_torch()
    output: Path = arguments.output
    if not output.parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.parent}; name one that exists")
    from measure.calibration import Plan

    partial = output.with_name(output.name + ".partial")
    plan = Plan(arguments.quick, _known_model(arguments.model), arguments.batches)
    task: dict[str, Any] = {"plan": plan, "keep_at": str(partial), "resume": arguments.resume}
    try:
        if inside_torchrun():
            table = run_as_rank("measure.calibration:calibrate", task, arguments.timeout, "calibrate")
        else:
            chosen = choose_devices(arguments.gpus, arguments.cpu_ranks, enough=2)
            table = run_on(chosen, "measure.calibration:calibrate", task, arguments.timeout, "calibrate")
    except (MeasurementError, KeyboardInterrupt):
        if partial.exists():
            print(f"simscale calibrate: what was measured is kept in {partial}; go on with --resume", file=sys.stderr)
        raise
    if table is not None:
        _write(table, output)
        partial.unlink(missing_ok=True)
    return 0


def _known_model(name: str | None) -> str | None:
    """``name``, once it is sure that it can be built. Raises ``InputError`` otherwise, before anything starts."""
    if name is not None:
        from measure.models.table import find_model

        find_model(name)
    return name


def _checked(profile: Profile) -> list[str]:
    """The short real runs beside what the profile predicts of them, which has not seen them; a line each."""
    from simcore.predict import Measured, predict
    from simcore.scenario.schema import Scenario

    lines = []
    for step in profile.samples.steps:
        workload = {"model": step.model, "batch_per_gpu": step.batch}
        scenario = Scenario.model_validate({"title": step.model, "workload": workload, "sweep": {"gpus": [step.ranks]}})
        measured = Measured(step.ranks, statistics.median(step.timing.samples_s), "profile", calibrate=False)
        point = predict(scenario, profile, (measured,)).points[0]
        seconds = f"{format_seconds(point.step_time_s.p50)} predicted, {format_seconds(measured.step_time_s)} measured"
        lines.append(f"check: {step.model}, batch {step.batch}, {step.ranks} rank(s): {seconds}, {point.error:+.1%}")
    return lines


def _write(table: dict[str, Any], output: Path) -> None:
    from simcore.files import parse
    from simcore.profile.fit import fit_samples
    from simcore.profile.load import save_profile
    from simcore.profile.schema import Profile

    profile = parse(Profile, table, output, from_json=True)
    profile = profile.model_copy(update={"fit": fit_samples(profile.samples)})
    save_profile(profile, output)
    machine = profile.machine
    sweeps = {(sample.collective, sample.ranks) for sample in profile.samples.collectives}
    models = sorted({sample.model for sample in profile.samples.models})
    for line in _checked(profile):
        print(line)
    print(f"{output}: {machine.world_size} x {machine.device} on {len(machine.hosts)} host(s), torch {machine.torch}; "
          f"{len(models)} models ({', '.join(models)}), {len(sweeps)} collective sweeps")  # fmt: skip
