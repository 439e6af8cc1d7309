"""``simscale import``: what people already have, turned into what simscale reads."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from simcore.errors import InputError
from simcore.files import read_text, write_whole
from simcore.units import GB, US, format_bytes, format_seconds

if TYPE_CHECKING:
    from simcore.collectives.sweep import Sweep
    from simcore.topology.node import NodeTable


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what can be imported, and each one's options."""
    kinds = parser.add_subparsers(dest="kind", metavar="nccl-tests|topo", required=True)
    sweeps = kinds.add_parser("nccl-tests", help="what nccl-tests printed -> a profile of the network",
                              description="What nccl-tests or rccl-tests printed, or an index table of sweeps, becomes "
                                          "a profile: predict --profile takes its network from there.")  # fmt: skip
    sweeps.add_argument("logs", type=Path, nargs="+", metavar="LOG", help="output of *_perf, or an index.csv of sweeps")
    sweeps.add_argument("-o", "--output", type=Path, default=Path("network.json"), help="default: network.json")
    sweeps.add_argument("--keep-flagged", action="store_true", help="use sweeps that look sick, too")
    topo = kinds.add_parser("topo", help="what nvidia-smi topo -m printed -> a type of node",
                            description="What nvidia-smi topo -m printed becomes a type of node for a "
                                        "scenario.")  # fmt: skip
    topo.add_argument("file", type=Path)
    topo.add_argument("--gpu", required=True, help="the GPU of this machine, as simscale catalog lists it")
    topo.add_argument("--nic-gbit", type=float, help="what one NIC carries one way, in Gbit/s (default: no NICs)")
    topo.add_argument("--name", default="imported", help="what to call the node (default: imported)")
    topo.add_argument("-o", "--output", type=Path, help="write here instead of printing")


def run(arguments: argparse.Namespace) -> int:
    """Import one kind; returns 0. Raises ``InputError`` where there is nothing in it to use."""
    return _nccl_tests(arguments) if arguments.kind == "nccl-tests" else _topo(arguments)


def _nccl_tests(arguments: argparse.Namespace) -> int:
    from simcore.collectives.health import complaints
    from simcore.profile.load import save_profile
    from simcore.profile.swept import profile_of

    sweeps = [sweep for log in arguments.logs for sweep in _read(log)]
    sick = {index: lines for index, sweep in enumerate(sweeps) if (lines := complaints(sweep))}
    print(f"{'collective':<15} {'ranks':>6} {'nodes':>6}  {'sizes':<24} {'smallest':>10} {'bus GB/s':>9}")
    for index, sweep in enumerate(sweeps):
        print(_row(sweep))
        for line in sick.get(index, ()):
            print(f"  {'kept' if arguments.keep_flagged else 'left out'}: {line}")
    healthy = [sweep for index, sweep in enumerate(sweeps) if arguments.keep_flagged or index not in sick]
    if not healthy:
        raise InputError("every sweep looks sick; repeat the tests, or use them all the same with --keep-flagged")
    profile = profile_of(healthy)
    save_profile(profile, arguments.output)
    print(f"wrote {arguments.output}: use it with simscale predict SCENARIO --profile {arguments.output}",
          file=sys.stderr)  # fmt: skip
    return 0


def _read(log: Path) -> list[Sweep]:
    from simcore.collectives.nccl_tests import read_log
    from simcore.collectives.sweep import of_run, read_sweeps

    if log.suffix == ".csv" or log.is_dir():
        return read_sweeps(log)[0]
    return [of_run(run, str(log)) for run in read_log(read_text(log), str(log))]


def _row(sweep: Sweep) -> str:
    from simcore.collectives.moved import moved_factor

    sizes = f"{format_bytes(sweep.sizes[0])} - {format_bytes(sweep.sizes[-1])}"
    rate = moved_factor(sweep.collective, sweep.ranks) * sweep.sizes[-1] / sweep.times_s[-1] / GB
    smallest = format_seconds(max(sweep.times_s[0], US))
    return f"{sweep.collective:<15} {sweep.ranks:>6} {sweep.nodes:>6}  {sizes:<24} {smallest:>10} {rate:>9.4g}"


def _topo(arguments: argparse.Namespace) -> int:
    from simcore.topology.nvidia_smi import read_topology

    node = read_topology(read_text(arguments.file), arguments.gpu, str(arguments.file), arguments.nic_gbit)
    text = _as_toml(node, arguments.name)
    if arguments.output:
        write_whole(arguments.output, text)
    else:
        print(text, end="")
    return 0


def _as_toml(node: NodeTable, name: str) -> str:
    """The tables that a scenario takes over."""
    values = node.model_dump(mode="json", exclude_none=True, exclude_defaults=True) | {"source": node.source}
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join([f"[cluster]\nnode = {json.dumps(name)}\n", f"[cluster.nodes.{json.dumps(name)}]", *lines]) + "\n"
