"""``simscale explore``: the terminal app on a scenario."""

from __future__ import annotations

import argparse
from pathlib import Path

from simcore.predict import predict
from simcore.profile.load import load_profile
from simcore.profile.measured import load_measured
from simcore.scenario.load import load_scenario
from simcore.scenario.schema import Scenario
from tui.measured import measured_points

DEFAULT = {
    "title": "ResNet-50, DDP, one DGX A100",
    "workload": {"model": "resnet50", "batch_per_gpu": 256, "precision": "amp-fp16"},
    "cluster": {
        "gpu": "A100-SXM4-40GB",
        "gpus_per_node": 8,
        "intra_node": "nvswitch-a100",
        "inter_node": "ib-hdr-8x200",
    },
    "sweep": {"gpus": [1, 2, 4, 8, 16, 32, 64]},
}
"""What is shown where no scenario is named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("scenario", type=Path, nargs="?")
    parser.add_argument("--profile", type=Path, help="costs measured by simscale calibrate (default: the catalogue's)")
    parser.add_argument("--measured", type=Path, help="points measured by simscale measure, to compare with")


def run(arguments: argparse.Namespace) -> int:
    """Open the app; returns 0 when it is closed. What cannot be predicted is said before the screen is taken."""
    scenario = load_scenario(arguments.scenario) if arguments.scenario else Scenario.model_validate(DEFAULT)
    profile = load_profile(arguments.profile) if arguments.profile else None
    file = load_measured(arguments.measured) if arguments.measured else None
    measured = measured_points(file, arguments.measured)
    predict(scenario, profile, measured, str(arguments.scenario or "scenario"))
    from tui.app.explorer import Explorer

    Explorer(scenario, profile, measured).run()
    return 0
