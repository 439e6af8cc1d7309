"""``simscale predict``: a scenario's curve with its band, what each point is made of, and its error where measured."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.predict import Point, Prediction, predict
from simcore.scenario.load import load_scenario, with_gpus
from simcore.units import GIB
from tui.arguments import counts
from tui.measured import measured_points

if TYPE_CHECKING:
    from simcore.profile.measured import MeasuredFile
    from simcore.profile.schema import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("scenario", type=Path)
    parser.add_argument("--profile", type=Path, help="costs measured by simscale calibrate (default: the catalogue's)")
    parser.add_argument("--measured", type=Path, help="points measured by simscale measure, to compare with")
    anchor_help = "counts of --measured that calibrate compute instead of being scored"
    parser.add_argument("--anchor", type=counts, default=(), metavar="1", help=anchor_help)
    parser.add_argument(
        "--gpus", type=counts, metavar="1,2,4", help="counts to predict (default: the scenario's sweep)"
    )
    parser.add_argument("--explain", action="store_true", help="also print what every cost rests on")
    parser.add_argument("--json", action="store_true", help="print the prediction as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Predict and print; returns 0."""
    scenario = load_scenario(arguments.scenario)
    if arguments.gpus:
        scenario = with_gpus(scenario, arguments.gpus)
    profile, file = _evidence(arguments)
    measured = measured_points(file, arguments.measured, arguments.gpus or (), arguments.anchor) if file else ()
    prediction = predict(scenario, profile, measured, where=str(arguments.scenario))
    if arguments.json:
        json.dump(as_json(prediction), sys.stdout, indent=1)
        print()
    else:
        from tui.report import print_prediction

        print_prediction(prediction, file, explain=arguments.explain)
    return 0


def _evidence(arguments: argparse.Namespace) -> tuple[Profile | None, MeasuredFile | None]:
    """The profile and the measured file, where they are named; their tables are heavy, so only then."""
    if not arguments.profile and not arguments.measured:
        return None, None
    from simcore.profile.load import load_profile
    from simcore.profile.measured import load_measured

    profile = load_profile(arguments.profile) if arguments.profile else None
    return profile, load_measured(arguments.measured) if arguments.measured else None


def as_json(prediction: Prediction) -> dict[str, Any]:
    """The prediction with the documented fields of ``predict --json``; times in seconds, memory in GiB."""
    return {
        "title": prediction.scenario.title,
        "points": [_point_json(point, prediction.unit) for point in prediction.points],
        "knee": asdict(prediction.knee),
        "accuracy": asdict(prediction.accuracy),
        "assumptions": [asdict(assumption) for assumption in prediction.assumptions],
    }


def _point_json(point: Point, unit: str) -> dict[str, Any]:
    return {
        "gpus": point.gpus,
        "step_time_s": asdict(point.step_time_s),
        "throughput": asdict(point.throughput) | {"unit": unit},
        "efficiency": point.efficiency,
        "efficiency_band": asdict(point.efficiency_band),
        "breakdown_s": point.breakdown_s,
        "memory_gib": point.memory_gib,
        "memory_parts_gib": {part: size / GIB for part, size in point.memory_bytes.items()},
        "fits": point.fits,
        "bottleneck": point.bottleneck,
        "measured_step_time_s": point.measured_step_time_s,
        "error": point.error,
        "calibrated": point.calibrated,
        "staleness": None if point.staleness is None else asdict(point.staleness),
    }
