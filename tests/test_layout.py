"""The architecture, held: who may import whom, that predicting stays light, and that strategies have their twins."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from measure.train.mesh import AXES
from measure.train.pipeline import SCHEDULES as RUN_SCHEDULES
from measure.train.pipeline import stages_of_rank
from measure.train.table import TRAINERS
from simcore.graph.tasks import Axis
from simcore.scenario.strategy import DataParallel, Schedule, StrategyTable
from simcore.strategies.groups import groups_of
from simcore.strategies.pipeline import SCHEDULES, placed_on
from simcore.strategies.table import STRATEGIES

ROOT = Path(__file__).parent.parent
FORBIDDEN = {
    "simcore": {"torch", "textual", "measure", "tui", "rich", "plotext"},
    "measure": {"textual", "tui", "rich"},
}
SHARED_WITH_MEASURE = {
    "simcore.errors",
    "simcore.files",
    "simcore.units",
    "simcore.profile.fitted",
    "simcore.profile.schema",
    "simcore.profile.measured",
    "simcore.scenario.schema",
    "simcore.scenario.strategy",
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@pytest.mark.parametrize(
    "path", [*modules("simcore"), *modules("measure")], ids=lambda path: str(path.relative_to(ROOT))
)
def test_rooms_import_only_what_they_may(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    for name in imports(path):
        assert name.split(".")[0] not in FORBIDDEN[room], f"{path}: {name}"
        if room == "measure" and name.startswith("simcore"):
            assert name in SHARED_WITH_MEASURE, f"{path}: {name}"


def test_only_the_fit_imports_scipy() -> None:
    users = [
        path.relative_to(ROOT).as_posix()
        for path in modules("simcore")
        if any(n.startswith("scipy") for n in imports(path))
    ]
    assert users == ["simcore/profile/fit.py"]


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["predict", "--help"],
        ["predict", "scenarios/8xA100.toml"],
        ["predict", "scenarios/large.toml", "--json"],
    ],
)
def test_predicting_loads_neither_torch_nor_textual_nor_scipy(words: list[str]) -> None:
    script = (
        "import sys\nfrom tui.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "loaded = {'torch', 'textual', 'scipy'} & set(sys.modules)\n"
        "sys.exit(f'loaded {loaded}' if loaded else 0)"
    )
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


def test_every_strategy_predicted_is_run_and_every_one_run_is_predicted() -> None:
    assert STRATEGIES.keys() == TRAINERS.keys() == set(get_args(DataParallel))
    assert SCHEDULES.keys() == RUN_SCHEDULES.keys() == set(get_args(Schedule))


@pytest.mark.parametrize("schedule", get_args(Schedule))
def test_stages_lie_on_the_same_ranks_where_they_run_and_where_they_are_predicted(schedule: Schedule) -> None:
    strategy = StrategyTable(pipeline_parallel=4, schedule=schedule)
    for rank in range(4):
        assert all(placed_on(strategy, stage) == rank for stage in stages_of_rank(strategy, rank))


def test_a_mesh_is_laid_out_where_it_runs_as_where_it_is_predicted() -> None:
    strategy = StrategyTable(pipeline_parallel=2, tensor_parallel=2, data="fsdp", shard_size=2)
    groups = groups_of(strategy, 16)
    ranks = np.arange(16).reshape(2, 2, 2, 1, 2)
    axes: tuple[Axis, ...] = ("pipeline", "replicate", "shard", "context", "tensor")
    assert axes == AXES
    for place, axis in enumerate(axes):
        members = np.moveaxis(ranks, place, 0)[:, 0, 0, 0, 0]
        assert groups[axis].ranks == len(members)
        if len(members) > 1:
            assert groups[axis].stride == members[1] - members[0]
