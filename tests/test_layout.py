"""The architecture, held: who may import whom, that predicting stays light, and that strategies have their twins."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from measure.train.table import TRAINERS
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
    assert STRATEGIES.keys() == TRAINERS.keys()
