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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.lab.hosts import Host, lab_hosts, slow_down, why_unavailable
from tests.lab.settings import CLUSTERS, NOT_ON_GLOO, SMALL, Cluster, Job
from tests.lab.torchrun import BINARIES, torchrun

MEAN_ERROR = 0.06
WORST_ERROR = 0.15


@dataclass(frozen=True, slots=True)
class Outcome:
    """One setting: predicted band and measured step in seconds, and how well the measurement repeats."""

    cluster: Cluster
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


@dataclass(frozen=True, slots=True)
class Failure:
    """A setting that could not be measured, and why."""

    cluster: Cluster
    job: str
    reason: str


def rehearse(clusters: dict[Cluster, tuple[Job, ...]], folder: Path) -> Iterator[Outcome | Failure]:
    """Outcomes of every job on every cluster, as they come; files go to ``folder``."""
    for cluster, jobs in clusters.items():
        trunk = cluster.gbit_per_s if cluster.shared else None
        with lab_hosts(cluster.hosts * (2 if cluster.shared else 1), cluster.gbit_per_s, trunk) as made:
            ours, theirs = made[: cluster.hosts], made[cluster.hosts :]
            profile = folder / f"profile_{cluster.name}.json"
            torchrun(ours, ["calibrate", "--quick", "-o", str(profile)], cluster.ranks_per_host)
            if cluster.slow:
                slow_down(made[cluster.slow[0]], cluster.slow[1])
            for number, job in enumerate(jobs):
                scenario = folder / f"scenario_{cluster.name}_{number}.toml"
                scenario.write_text(job.scenario(cluster))
                measured = folder / f"measured_{cluster.name}_{number}.json"
                try:
                    with _beside(theirs, scenario, cluster):
                        command = ["measure", str(scenario), "--paced", "-o", str(measured)]
                        torchrun(ours, command, cluster.ranks_per_host)
                except RuntimeError as error:
                    yield Failure(cluster, job.name, str(error))
                    continue
                yield _outcome(cluster, job, scenario, profile, measured)


@contextmanager
def _beside(hosts: Sequence[Host], scenario: Path, cluster: Cluster) -> Iterator[None]:
    """Another job runs the same scenario on ``hosts`` meanwhile, where there are any."""
    if not hosts:
        yield
        return
    elsewhere = ["measure", str(scenario), "--paced", "-o", str(scenario.with_suffix(".beside.json"))]
    with ThreadPoolExecutor(1) as background:
        running = background.submit(torchrun, hosts, elsewhere, cluster.ranks_per_host)
        yield
        running.result()


def _outcome(cluster: Cluster, job: Job, scenario: Path, profile: Path, measured: Path) -> Outcome:
    command = [str(BINARIES / "simscale"), "predict", str(scenario), "--profile", str(profile), "--json"]
    printed = subprocess.run([*command, "--measured", str(measured)], capture_output=True, text=True, check=True).stdout
    point = json.loads(printed)["points"][-1]
    step = point["step_time_s"]
    seen = json.loads(measured.read_text())["points"][-1]
    return Outcome(cluster, job.name, step["p10"], step["p50"], step["p90"], point["measured_step_time_s"],
                   seen["repeatability"])  # fmt: skip


COLUMNS = "{:>5} {:>6}  {:<46} {:>9} {:>11} {:>9} {:>7} {:>5} {:>8}"
HEADER = COLUMNS.format("hosts", "Gbit/s", "job", "predicted", "80 % band", "measured", "error", "held", "repeats")


def table_row(outcome: Outcome) -> str:
    """One setting as a line of the table, times in ms."""
    return COLUMNS.format(
        outcome.cluster.hosts,
        f"{outcome.cluster.gbit_per_s:g}",
        outcome.job,
        f"{outcome.predicted * 1e3:.1f}",
        f"{outcome.p10 * 1e3:.0f}-{outcome.p90 * 1e3:.0f}",
        f"{outcome.measured * 1e3:.1f}",
        f"{outcome.error:+.1%}",
        "yes" if outcome.held else "no",
        f"{outcome.repeatability:.1%}",
    )


def _chosen(clusters: dict[Cluster, tuple[Job, ...]], word: str) -> dict[Cluster, tuple[Job, ...]]:
    chosen = {cluster: tuple(job for job in jobs if word in job.name) for cluster, jobs in clusters.items()}
    return {cluster: jobs for cluster, jobs in chosen.items() if jobs}


def main() -> int:
    """Print the table and its summary; 1 where the errors exceed what the project claims."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="the few settings that CI runs")
    parser.add_argument("--only", default="", help="only jobs whose name holds this")
    parser.add_argument("--keep", type=Path, help="keep profiles, scenarios and measured files here")
    arguments = parser.parse_args()
    if (reason := why_unavailable()) is not None:
        print(f"lab skipped: {reason}")
        return 0
    print(f"times in ms\n{HEADER}", flush=True)
    outcomes: list[Outcome] = []
    failures: list[Failure] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for outcome in rehearse(_chosen(SMALL if arguments.small else CLUSTERS, arguments.only), folder):
            if isinstance(outcome, Failure):
                failures.append(outcome)
                print(f"{outcome.cluster.hosts:>5} {outcome.cluster.gbit_per_s:>6g}  {outcome.job}: {outcome.reason}")
                continue
            outcomes.append(outcome)
            print(table_row(outcome), flush=True)
    for what, reason in NOT_ON_GLOO.items():
        print(f"not rehearsed: {what} ({reason})")
    mean = sum(abs(outcome.error) for outcome in outcomes) / len(outcomes)
    worst = max(abs(outcome.error) for outcome in outcomes)
    held = sum(outcome.held for outcome in outcomes) / len(outcomes)
    repeats = sum(outcome.repeatability for outcome in outcomes) / len(outcomes)
    print(f"{len(outcomes)} settings: mean error {mean:.1%}, worst {worst:.1%}; the 80 % band holds {held:.0%}; "
          f"the measurements repeat to {repeats:.1%}")  # fmt: skip
    return 0 if mean <= MEAN_ERROR and worst <= WORST_ERROR and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
