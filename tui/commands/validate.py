"""``simscale validate``: runs tables predicted and scored, beside what naive linear scaling would have scored."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tui.arguments import share

if TYPE_CHECKING:
    from simcore.accuracy import Accuracy
    from simcore.validate.score import FileScore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="runs tables (CSV)")
    parser.add_argument("--rows", action="store_true", help="also print every row")
    parser.add_argument("--max-mape", type=share, metavar="0.1", help="exit 1 where the mean error over all is larger")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Predict, score, print; returns 1 where the mean error exceeds ``--max-mape``."""
    from simcore.validate.score import score_file, score_rows

    files = [score_file(path) for path in arguments.files]
    total = score_rows([row for file in files for row in file.rows])
    if arguments.json:
        table = {"files": [{"file": str(file.path), **_figures(file.accuracy), "skipped": sum(file.skipped.values())}
                           for file in files], "total": _figures(total)}  # fmt: skip
        print(json.dumps(table, indent=1))
    else:
        for file in files:
            _print(file, arguments.rows)
        if len(files) > 1:
            print(f"{'all':<32}  {_line(total)}")
    return 1 if arguments.max_mape is not None and (total.mape is None or total.mape > arguments.max_mape) else 0


def _print(file: FileScore, rows: bool) -> None:
    print(f"{file.path.name:<32}  {_line(file.accuracy)}")
    for row in file.rows if rows else ():
        band = f"{row.predicted.p10 * 1e3:.4g} - {row.predicted.p90 * 1e3:.4g}"
        print(f"  {row.run.name:<14} {row.run.gpus:>5} GPUs  {row.run.text('strategy'):<26.26} predicted "
              f"{row.predicted.p50 * 1e3:>8.4g} ms ({band})  measured {row.measured_s * 1e3:>8.4g} ms  "
              f"{row.error:+.1%}")  # fmt: skip
    for reason, count in file.skipped.items():
        print(f"  skipped {count}: {reason}")


def _line(accuracy: Accuracy) -> str:
    if accuracy.mape is None or accuracy.bias is None:
        return "no row scored"
    naive = f"; naive {accuracy.naive_mape:.1%}" if accuracy.naive_mape is not None else ""
    return (f"{accuracy.n} rows: mean error {accuracy.mape:.1%}, bias {accuracy.bias:+.1%}, worst {accuracy.max:.1%}; "
            f"band holds {accuracy.coverage80:.0%}, width {accuracy.width80:.0%}{naive}")  # fmt: skip


def _figures(accuracy: Accuracy) -> dict[str, Any]:
    names = ("n", "mape", "bias", "max", "coverage80", "width80", "naive_mape")
    return {name: getattr(accuracy, name) for name in names}
