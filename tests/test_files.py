"""Files are written whole or not at all, and units print as people expect."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.errors import InputError
from simcore.files import write_whole
from simcore.units import format_bytes, format_count, format_seconds


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    write_whole(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(self: Path, target: Path) -> Path:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(tmp_path / "nowhere" / "file", "x")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1.234, "1.23 s"), (0.0456, "45.6 ms"), (123e-6, "123 µs"), (2e-9, "2.00 ns"), (0, "0 s"), (61.0, "61.0 s")],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("count", "text"), [(16621, "16.6k"), (2.47e6, "2.47M"), (12, "12.0"), (999, "999")])
def test_counts(count: float, text: str) -> None:
    assert format_count(count) == text


def test_bytes() -> None:
    assert format_bytes(25 * 2**20) == "25.0 MiB"
    assert format_bytes(100) == "100 B"
