"""``simscale measure``: a scenario's real training, timed step by step."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simcore.errors import InputError
from simcore.files import write_whole
from simcore.scenario.load import load_scenario, with_gpus
from simcore.scenario.schema import Scenario
from simcore.scenario.strategy import DDP_BASED
from simcore.units import format_count, format_seconds
from tui.arguments import counts, devices, positive, seconds
from tui.ranks import choose_devices, inside_torchrun, need_torch, run_as_rank, run_on, torchrun_device

if TYPE_CHECKING:
    from measure.paced import PacedLayer
    from measure.train.job import PacedWork
    from simcore.costs.compute import ComputeCosts
    from simcore.profile.measured import MeasuredFile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("scenario", type=Path)
    parser.add_argument(
        "--paced", action="store_true", help="each layer waits for its costed time instead of computing"
    )
    parser.add_argument(
        "--gpus", type=counts, metavar="1,2", help="counts to train at (default: those of the sweep that fit)"
    )
    parser.add_argument("--devices", type=devices, metavar="0,1", help="GPUs to use, by number (default: all)")
    parser.add_argument("--cpu-ranks", type=positive, metavar="N", help="CPU ranks over gloo instead of GPUs")
    parser.add_argument("--profile", type=Path, help="costs for --paced (default: the catalogue's)")
    parser.add_argument("-o", "--output", type=Path, help="write the measured file here")
    parser.add_argument("--json", action="store_true", help="print the measured file")
    parser.add_argument(
        "--blocks", type=positive, default=3, help="blocks of steps per count, taken in turn (default: 3)"
    )
    parser.add_argument(
        "--block-seconds", type=seconds, default=3.0, metavar="S", help="length of a block (default: 3)"
    )
    parser.add_argument(
        "--timeout", type=seconds, default=60.0, metavar="S", help="patience with a rank (default: 60 s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Train, time, print or write; returns 0."""
    scenario = load_scenario(arguments.scenario)
    where = str(arguments.scenario)
    if arguments.gpus:
        scenario = with_gpus(scenario, arguments.gpus)
    _check_runs(scenario, arguments.paced, where)
    need_torch()
    output: Path | None = arguments.output
    if output is not None and not output.parent.is_dir():
        raise InputError(f"{output}: there is no folder {output.parent}; name one that exists")
    servers = scenario.strategy.ranks(0)
    if inside_torchrun():
        workers = int(os.environ["WORLD_SIZE"]) - servers
        _check_device(scenario, torchrun_device(), where)
        chosen = _counts(arguments.gpus or (workers,), workers, where)
        task = _task(scenario, chosen, arguments, where)
        table = run_as_rank("measure.train.run:measure_scenario", task, arguments.timeout, "measure")
    else:
        place = choose_devices(arguments.devices, arguments.cpu_ranks, enough=_cpu_ranks(scenario, arguments.gpus))
        _check_device(scenario, place.kind, where)
        chosen = _counts(scenario.sweep.gpus, place.ranks, where, strict=arguments.gpus is not None)
        task = _task(scenario, chosen, arguments, where)
        ranks = scenario.strategy.ranks(max(chosen))
        place = type(place)(place.kind, ranks, place.gpus and place.gpus[:ranks])
        table = run_on(place, "measure.train.run:measure_scenario", task, arguments.timeout, "measure")
    if table is not None:
        _report(table, scenario, output, arguments.json)
    return 0


def _check_runs(scenario: Scenario, paced: bool, where: str) -> None:
    if scenario.workload.layers is not None and not paced:
        raise InputError(f"{where}: workload.layers: spelled-out layers have times but nothing to compute; "
                         "add --paced, or name a model")  # fmt: skip
    if scenario.cluster.stragglers and not paced:
        raise InputError(f"{where}: cluster.stragglers: real devices are as fast as they are; add --paced to rehearse "
                         "stragglers, or leave them out")  # fmt: skip
    if scenario.workload.model is None and not paced:
        raise InputError(f"{where}: workload.model: is missing; measure needs a model to train (or --paced)")


def _check_device(scenario: Scenario, kind: str, where: str) -> None:
    if kind == "cpu" and scenario.strategy.compression == "bf16":
        raise InputError(f"{where}: strategy.compression: torch's bf16 hook needs NCCL, but this runs on CPU ranks "
                         "over gloo; use fp16 or none")  # fmt: skip


def _cpu_ranks(scenario: Scenario, asked: tuple[int, ...] | None) -> int:
    """CPU ranks to start: as many as asked for, else the largest count of the sweep that has a core each."""
    cores = os.cpu_count() or 1
    return max(asked) if asked else max([count for count in scenario.sweep.gpus if count <= cores], default=1)


def _counts(asked: tuple[int, ...], available: int, where: str, strict: bool = True) -> list[int]:
    fitting = [count for count in asked if count <= available]
    if not fitting or (strict and len(fitting) < len(asked)):
        raise InputError(
            f"{where}: counts {', '.join(map(str, asked))} do not fit on {available} rank(s); choose with --gpus"
        )
    return fitting


def _task(scenario: Scenario, chosen: list[int], arguments: argparse.Namespace, where: str) -> dict[str, Any]:
    from measure.models.table import find_model
    from measure.train.run import Extent

    if not arguments.paced and scenario.workload.model is not None:
        find_model(scenario.workload.model)
    return {
        "scenario": scenario,
        "counts": chosen,
        "paced": {count: _paced_work(scenario, count, arguments.profile, where) for count in chosen}
        if arguments.paced
        else None,
        "extent": Extent(arguments.blocks, arguments.block_seconds),
    }


def _paced_work(scenario: Scenario, count: int, profile_path: Path | None, where: str) -> PacedWork:
    """The scenario's layers as waits: what each takes for a sample at this count, and the parameters it learns."""
    from measure.train.job import PacedWork
    from simcore.costs.resolve import resolve_compute
    from simcore.profile.load import load_profile

    compute = resolve_compute(scenario, load_profile(profile_path) if profile_path else None, where)
    strategy = scenario.strategy
    divided = strategy.data not in DDP_BASED or strategy.gpus_per_copy > 1 or strategy.expert_parallel > 1
    layers = _paced_blocks if divided else _paced_pieces
    return PacedWork(layers(compute, scenario.microbatch(count)), compute.optimizer_s)


def _paced_pieces(compute: ComputeCosts, batch: int) -> tuple[PacedLayer, ...]:
    """A layer for each piece of backward, which is what DDP tells apart; forward has no order of its own to keep."""
    from measure.paced import PacedLayer

    forward_s = float(compute.forward.at(batch).sum()) / len(compute.shape.backward) / batch
    backward = zip(compute.shape.backward, compute.backward.at(batch).tolist(), strict=True)
    layers = [
        PacedLayer(forward_s, piece_s / batch, tuple(compute.shape.elements[tensor] for tensor in piece.tensors))
        for piece, piece_s in backward
    ]
    return tuple(layers[::-1])


def _paced_blocks(compute: ComputeCosts, batch: int) -> tuple[PacedLayer, ...]:
    """A layer for each block, which is what sharding and pipelines tell apart; the ends go with their neighbours."""
    from measure.paced import PacedLayer

    shape, forward, backward = compute.shape, compute.forward.at(batch), compute.backward.at(batch)
    layers = []
    for block in range(max(1, shape.blocks)):
        own = {block} | ({-1} if block == 0 else set()) | ({shape.blocks} if block >= shape.blocks - 1 else set())
        forward_s = float(forward[list(shape.layers_in(own))].sum())
        backward_s = float(backward[list(shape.pieces_in(own))].sum())
        parameters = tuple(shape.elements[tensor] for tensor in shape.tensors_in(own))
        layers.append(
            PacedLayer(forward_s / batch, backward_s / batch, parameters, max(1, round(shape.handed_on(block))))
        )
    return tuple(layers)


def _report(table: dict[str, Any], scenario: Scenario, output: Path | None, as_json: bool) -> None:
    from simcore.files import parse
    from simcore.profile.measured import MeasuredFile

    measured = parse(MeasuredFile, table, "measured", from_json=True)
    text = measured.model_dump_json(indent=1) + "\n"
    if output is not None:
        write_whole(output, text)
    if as_json:
        print(text, end="")
    else:
        print(_table(measured, scenario))


def _table(measured: MeasuredFile, scenario: Scenario) -> str:
    lines = [f"{measured.title}: measured{' (paced)' if measured.paced else ''} on {measured.machine.device}, "
             f"{measured.machine.backend}"]  # fmt: skip
    lines.append(f"{'GPUs':>6}  {'step':>9}  {'80 % of steps':>21}  {'samples/s':>10}  {'repeats to':>10}")
    for point in measured.points:
        step = point.step_time_s
        band = f"{format_seconds(step.p10)} - {format_seconds(step.p90)}"
        rate = format_count(scenario.samples_per_step(point.gpus) / step.p50)
        repeats = f"±{point.repeatability:.1%}" if point.repeatability is not None else ""
        lines.append(f"{point.gpus:>6}  {format_seconds(step.p50):>9}  {band:>21}  {rate:>10}  {repeats:>10}")
        if (stale := point.staleness) is not None:
            lines.append(f"        stale by {stale.mean:.1f} updates in the mean, 80 % within {stale.p10:.0f} and "
                         f"{stale.p90:.0f}, at most {stale.most:.0f}")  # fmt: skip
    return "\n".join(lines)
