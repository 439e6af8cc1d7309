"""``simscale catalog``: what is known, and where each figure comes from."""

from __future__ import annotations

import argparse
import json

from simcore.catalog.load import gpus, links, nodes, transports
from simcore.units import format_count
from simcore.workload.models import MODELS, build_model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("--json", action="store_true", help="print everything as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print; returns 0."""
    if arguments.json:
        tables = {
            "gpus": {name: gpu.model_dump() for name, gpu in gpus().items()},
            "links": {name: link.model_dump() for name, link in links().items()},
            "nodes": {name: node.model_dump() for name, node in nodes().items()},
            "transports": {name: transport.model_dump() for name, transport in transports().items()},
            "models": {name: {"parameters": build_model(name).parameter_elements} for name in MODELS},
        }
        print(json.dumps(tables, indent=1))
        return 0
    _print_gpus()
    _print_links()
    _print_nodes()
    _print_models()
    return 0


def _print_gpus() -> None:
    print("GPUs")
    for name, gpu in gpus().items():
        peaks = ", ".join(f"{precision} {peak:g}" for precision, peak in gpu.tflops.items())
        print(f"  {name:<18} {gpu.memory_gib:>5.0f} GiB  {gpu.memory_bandwidth_gb_per_s:>6.0f} GB/s  TFLOP/s: {peaks}")
        print(f"    {gpu.source}")


def _print_links() -> None:
    print("\nLinks (GB/s one way: per GPU inside a node, per node between nodes)")
    for name, link in links().items():
        rate = f"{link.bandwidth_gb_per_s:>7.2f} GB/s x {link.efficiency:.0%}"
        print(f"  {name:<20} {link.scope}  {rate}  {link.latency_us:g} us a hop")
        print(f"    {link.source}")


def _print_nodes() -> None:
    print("\nNodes (GB/s one way)")
    for name, node in nodes().items():
        inside = (f"NVSwitch {node.nvswitch_gb_per_s:g}" if node.nvswitch_gb_per_s else
                  f"{sum(count for *_, count in node.nvlinks)} NVLinks x {node.nvlink_gb_per_s:g}" if node.nvlinks else
                  f"PCIe {node.pcie_gb_per_s:g}" + ("" if node.peer_to_peer else " without peers"))  # fmt: skip
        nics = f"{node.nics} NICs x {node.nic_gb_per_s:g}" if node.nics else "no NICs"
        print(f"  {name:<20} {node.gpus:>2} x {node.gpu:<16}  {inside}; {nics}")
        print(f"    {node.source}")
    print("\nTransports between nodes")
    for name, transport in transports().items():
        print(f"  {name:<20} rings keep {transport.efficiency:.0%}, exchanges {transport.exchange_efficiency:.0%}; "
              f"{transport.hop_us:g} us a hop")  # fmt: skip
        print(f"    {transport.source}")


def _print_models() -> None:
    print("\nModels")
    for name in MODELS:
        model = build_model(name)
        flops = format_count(sum(layer.forward_flops for layer in model.layers))
        parameters = format_count(model.parameter_elements)
        print(f"  {name:<18} {parameters:>7} parameters  {flops} FLOPs forward per {model.sample_unit}")
