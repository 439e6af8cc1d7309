"""``simscale validate``: measured runs and measured collectives predicted and scored, beside naive answers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from simcore.errors import InputError
from tui.arguments import share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from simcore.accuracy import Accuracy
    from simcore.validate.collectives import CollectiveScore
    from simcore.validate.score import FileScore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE", help="runs tables (CSV)")
    parser.add_argument("--collectives", type=Path, metavar="INDEX.csv|DIR",
                        help="measured sweeps instead: an index table, or a folder of nccl-tests logs")  # fmt: skip
    parser.add_argument("--rows", action="store_true", help="also print every row")
    parser.add_argument("--max-mape", type=share, metavar="0.1", help="exit 1 where the mean error over all is larger")
    parser.add_argument("--json", action="store_true", help="print the scores as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Predict, score, print; returns 1 where the mean error exceeds ``--max-mape``.

    Raises ``InputError`` where there is nothing to validate, or both kinds at once.
    """
    if (arguments.collectives is None) == (not arguments.files):
        found = "nothing to validate" if arguments.collectives is None else "both runs tables and --collectives"
        raise InputError(f"{found}; give runs tables, or --collectives with an index or a folder of sweeps")
    if arguments.collectives is not None:
        return _collectives(arguments)
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


def _collectives(arguments: argparse.Namespace) -> int:
    from simcore.validate.collectives import score_collectives

    scored = score_collectives(arguments.collectives)
    if arguments.json:
        print(json.dumps(_collective_figures(scored), indent=1))
    else:
        _print_collectives(scored, arguments.rows)
    worst = max((_quantiles(errors)["median"] or 0.0 for errors in (
        scored.between.values(), [one.error for one in scored.beyond], [abs(one.error) for one in scored.catalogue]
    )), default=0.0)  # fmt: skip
    return 1 if arguments.max_mape is not None and worst > arguments.max_mape else 0


def _collective_figures(scored: CollectiveScore) -> dict[str, Any]:
    return {
        "sweeps": len(scored.sweeps),
        "healthy": sum(sweep.healthy for sweep in scored.sweeps),
        "heldout_sizes": {"n": len(scored.between), **_quantiles(scored.between.values())},
        "extrapolation": {"families": len(scored.beyond), **_quantiles(one.error for one in scored.beyond)},
        "catalogue": {"n": len(scored.catalogue), **_quantiles(abs(one.error) for one in scored.catalogue)},
        "flagged": scored.complaints,
        "skipped": sum(scored.skipped.values()),
    }


def _print_collectives(scored: CollectiveScore, rows: bool) -> None:
    figures = _collective_figures(scored)
    naive = _quantiles(scored.between_naive.values())
    frozen = _quantiles(one.naive for one in scored.beyond)
    print(
        f"{figures['sweeps']} sweeps, {figures['healthy']} of them healthy; errors of time, median and 90th percentile"
    )
    print(f"  other sizes     {_pair(figures['heldout_sizes'])}  of {len(scored.between)} sweeps, fitted on every "
          f"second size; a latency and a bandwidth: {_pair(naive)}")  # fmt: skip
    print(f"  more ranks      {_pair(figures['extrapolation'])}  of {len(scored.beyond)} families, fitted on all but "
          f"the largest count; as at the count before: {_pair(frozen)}")  # fmt: skip
    print(f"  catalogue only  {_pair(figures['catalogue'])}  of {len(scored.catalogue)} sweeps on known machines, at "
          "their largest size; nothing fitted")  # fmt: skip
    for one in sorted(scored.beyond, key=lambda one: one.error) if rows else ():
        print(f"    {one.family}: {', '.join(map(str, one.fitted))} -> {one.ranks} ranks  {one.error:.1%}")
    for entry in sorted(scored.catalogue, key=lambda one: abs(one.error)) if rows else ():
        sweep, measured = entry.sweep, entry.measured_gb_per_s
        print(f"    {sweep.name:<52.52} {sweep.ranks:>5} ranks  {measured:>7.4g} GB/s measured, "
              f"{measured / (1 + entry.error):>7.4g} expected ({entry.how})  {entry.error:+.1%}")  # fmt: skip
    for name, lines in scored.complaints.items():
        for line in lines:
            print(f"  flagged {name}: {line}")
    for reason, count in scored.skipped.items():
        print(f"  skipped {count}: {reason}")


def _quantiles(errors: Iterable[float]) -> dict[str, float | None]:
    ordered = sorted(errors)
    if not ordered:
        return {"median": None, "p90": None}
    return {"median": median(ordered), "p90": ordered[min(len(ordered) - 1, round(0.9 * (len(ordered) - 1)))]}


def _pair(figures: dict[str, Any]) -> str:
    return "none" if figures["median"] is None else f"{figures['median']:>5.1%}, {figures['p90']:.1%}"


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
