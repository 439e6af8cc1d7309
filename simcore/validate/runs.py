"""A runs table: measured training steps as public sources state them, one CSV row each."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

from simcore.errors import InputError

NEEDED = ("case_id", "use", "model", "gpu", "n_gpus", "strategy")
ITEMS = ("img/s", "images/s", "seq/s", "sequences/s", "samples/s", "sample/s")
"""Units in which a throughput counts what the batch counts."""


@dataclass(frozen=True)
class Run:
    """One row: its cells by column, empty ones left out."""

    cells: dict[str, str]

    def text(self, column: str) -> str:
        """A cell, empty where unknown."""
        return self.cells.get(column, "")

    def number(self, column: str) -> float | None:
        """A cell as a number, None where unknown. Raises ``InputError`` where it is none."""
        text = self.text(column)
        try:
            return float(text) if text else None
        except ValueError:
            raise InputError(f"{self.name}: {column}: found {text!r}, which is no number") from None

    def count(self, column: str) -> int | None:
        """A cell as a whole number, None where unknown."""
        number = self.number(column)
        return None if number is None else round(number)

    @property
    def name(self) -> str:
        """The row's own name."""
        return self.text("case_id")

    @property
    def calibrates(self) -> bool:
        """Whether it may be used to calibrate; others are predicted and scored."""
        return self.text("use") == "calibrate"

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return self.count("n_gpus") or 1

    @property
    def batch(self) -> int | None:
        """Samples of a step over all GPUs."""
        per_gpu = self.count("batch_per_gpu")
        return self.count("global_batch") or (per_gpu * self.gpus if per_gpu else None)

    @property
    def step_time_s(self) -> float | None:
        """The measured step in seconds: as stated, else from a throughput that counts what the batch counts."""
        stated, throughput = self.number("step_time_s"), self.number("throughput")
        if stated is not None or throughput is None or self.batch is None:
            return stated
        return self.batch / throughput if self.text("throughput_unit").startswith(ITEMS) else None


def read_runs(path: Path) -> list[Run]:
    """The rows of a runs table. Raises ``InputError`` where the file is none."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a runs table: {error}") from None
    if not rows or (missing := [column for column in NEEDED if column not in rows[0]]):
        found = f"lacks {', '.join(missing)}" if rows else "has no rows"
        raise InputError(f"{path}: {found}; a runs table has at least the columns {', '.join(NEEDED)}")
    return [Run({key: value for key, value in row.items() if key and value}) for row in rows]
