"""Rehearsing settings in the lab: calibrate there, measure paced training there, predict, and print both.

    python -m tests.lab.rehearse [--small]

Costs come from the calibration alone; the measured steps are only compared with.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.lab.hosts import lab_hosts, why_unavailable
from tests.lab.settings import CLUSTERS, SMALL, Job
from tests.lab.torchrun import BINARIES, torchrun

MEAN_ERROR = 0.04
WORST_ERROR = 0.10


@dataclass(frozen=True, slots=True)
class Outcome:
    """One setting: predicted band and measured step in seconds, and how well the measurement repeats."""

    hosts: int
    gbit_per_s: float
    job: str
    p10: float
    predicted: float
    p90: float
    measured: float
    repeatability: float

    @property
    def error(self) -> float:
        """Predicted / measured - 1."""
        return self.predicted / self.measured - 1

    @property
    def held(self) -> bool:
        """Whether the 80 % band holds the measured step."""
        return self.p10 <= self.measured <= self.p90


def rehearse(clusters: dict[tuple[int, float], tuple[Job, ...]], folder: Path) -> Iterator[Outcome]:
    """Outcomes of every job on every cluster, as they come; files go to ``folder``."""
    for (hosts, gbit_per_s), jobs in clusters.items():
        with lab_hosts(hosts, gbit_per_s) as made:
            profile = folder / f"profile_{hosts}x{gbit_per_s:g}.json"
            torchrun(made, ["calibrate", "--quick", "-o", str(profile)])
            for number, job in enumerate(jobs):
                scenario = folder / f"scenario_{hosts}x{gbit_per_s:g}_{number}.toml"
                scenario.write_text(job.scenario(hosts, gbit_per_s))
                measured = folder / f"measured_{hosts}x{gbit_per_s:g}_{number}.json"
                torchrun(made, ["measure", str(scenario), "--paced", "-o", str(measured)])
                yield _outcome(hosts, gbit_per_s, job, scenario, profile, measured)


def _outcome(hosts: int, gbit_per_s: float, job: Job, scenario: Path, profile: Path, measured: Path) -> Outcome:
    command = [str(BINARIES / "simscale"), "predict", str(scenario), "--profile", str(profile), "--json"]
    printed = subprocess.run([*command, "--measured", str(measured)], capture_output=True, text=True, check=True).stdout
    point = json.loads(printed)["points"][-1]
    step = point["step_time_s"]
    seen = json.loads(measured.read_text())["points"][-1]
    return Outcome(hosts, gbit_per_s, job.name, step["p10"], step["p50"], step["p90"], point["measured_step_time_s"],
                   seen["repeatability"])  # fmt: skip


COLUMNS = "{:>5} {:>6}  {:<40} {:>9} {:>11} {:>9} {:>7} {:>5} {:>8}"
HEADER = COLUMNS.format("hosts", "Gbit/s", "job", "predicted", "80 % band", "measured", "error", "held", "repeats")


def table_row(outcome: Outcome) -> str:
    """One setting as a line of the table, times in ms."""
    return COLUMNS.format(
        outcome.hosts,
        f"{outcome.gbit_per_s:g}",
        outcome.job,
        f"{outcome.predicted * 1e3:.1f}",
        f"{outcome.p10 * 1e3:.0f}-{outcome.p90 * 1e3:.0f}",
        f"{outcome.measured * 1e3:.1f}",
        f"{outcome.error:+.1%}",
        "yes" if outcome.held else "no",
        f"{outcome.repeatability:.1%}",
    )


def main() -> int:
    """Print the table and its summary; 1 where the errors exceed what the project claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="the few settings that CI runs")
    parser.add_argument("--keep", type=Path, help="keep profiles, scenarios and measured files here")
    arguments = parser.parse_args()
    if (reason := why_unavailable()) is not None:
        print(f"lab skipped: {reason}")
        return 0
    print(f"times in ms\n{HEADER}", flush=True)
    outcomes = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for outcome in rehearse(SMALL if arguments.small else CLUSTERS, folder):
            outcomes.append(outcome)
            print(table_row(outcome), flush=True)
    mean = sum(abs(outcome.error) for outcome in outcomes) / len(outcomes)
    worst = max(abs(outcome.error) for outcome in outcomes)
    held = sum(outcome.held for outcome in outcomes) / len(outcomes)
    repeats = sum(outcome.repeatability for outcome in outcomes) / len(outcomes)
    print(f"{len(outcomes)} settings: mean error {mean:.1%}, worst {worst:.1%}; the 80 % band holds {held:.0%}; "
          f"the measurements repeat to {repeats:.1%}")  # fmt: skip
    return 0 if mean <= MEAN_ERROR and worst <= WORST_ERROR else 1


if __name__ == "__main__":
    sys.exit(main())
