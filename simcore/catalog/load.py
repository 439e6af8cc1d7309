"""Looking things up in the catalogue, with the nearest name where there is no such thing."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from simcore.errors import InputError
from simcore.fields import Name, PositiveFloat, PositiveInt
from simcore.files import Table, nearest
from simcore.scenario.schema import LinkTable
from simcore.topology.fabric import Transport
from simcore.topology.node import NodeTable

HEADER = re.compile(r'^\["?(?P<name>[^"\]]+)"?\]$', re.MULTILINE)


class Gpu(Table):
    """A device of the catalogue; peaks are dense and by the precision that torch would use."""

    aliases: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    memory_gib: PositiveFloat
    memory_bandwidth_gb_per_s: PositiveFloat
    sm_count: PositiveInt
    boost_clock_mhz: PositiveFloat
    l2_mib: PositiveFloat
    board_power_w: PositiveFloat
    tflops: dict[str, PositiveFloat]
    source: Name


def gpus() -> dict[str, Gpu]:
    """Every GPU by its canonical name."""
    return {name: _gpu(name) for name in _sections("gpus.toml")}


def links() -> dict[str, LinkTable]:
    """Every link by its name."""
    return {name: _link(name) for name in _sections("links.toml")}


def nodes() -> dict[str, NodeTable]:
    """Every type of machine by its name."""
    return {name: _node(name) for name in _sections("nodes.toml")}


def transports() -> dict[str, Transport]:
    """Everything that carries collectives between nodes, by its name."""
    return {name: _transport(name) for name in _sections("transports.toml")}


def find_transport(name: str, where: str) -> Transport:
    """What carries collectives between nodes. Raises ``InputError`` with the nearest name."""
    if name not in _sections("transports.toml"):
        known = _sections("transports.toml")
        raise InputError(f"{where}: unknown transport '{name}'{nearest(name, known)}; known: {', '.join(known)}")
    return _transport(name)


def find_gpu(name: str, where: str) -> tuple[str, Gpu]:
    """The canonical name and the facts of a GPU, by name or alias. Raises ``InputError`` with the nearest name."""
    canonical = name if name in _sections("gpus.toml") else _gpu_names().get(name.lower())
    if canonical is None:
        raise InputError(f"{where}: unknown GPU '{name}'{nearest(name, _gpu_names())}; simscale catalog lists all")
    return canonical, _gpu(canonical)


def known_gpu(device: str) -> Gpu | None:
    """The facts of a GPU as CUDA names it (``NVIDIA A100-SXM4-40GB``), or None where the catalogue lacks it."""
    canonical = _gpu_names().get(device.removeprefix("NVIDIA ").replace(" ", "-").lower())
    return _gpu(canonical) if canonical else None


def find_link(name: str, scope: str, own: dict[str, LinkTable], where: str) -> LinkTable:
    """A link of the scenario's own or of the catalogue. Raises ``InputError`` where unknown or of the other scope."""
    known = own.get(name) or (_link(name) if name in _sections("links.toml") else None)
    if known is None:
        fitting = [other for other, link in (links() | own).items() if link.scope == scope]
        raise InputError(f"{where}: unknown link '{name}'{nearest(name, fitting)}; simscale catalog lists all")
    if known.scope != scope:
        role = "inside a node" if scope == "intra" else "between nodes"
        raise InputError(f"{where}: link '{name}' has scope {known.scope}; a link {role} (scope {scope}) is needed")
    return known


def find_node(name: str, own: dict[str, NodeTable], where: str) -> NodeTable:
    """A type of machine of the scenario's own or of the catalogue. Raises ``InputError`` with the nearest name."""
    known = own.get(name) or (_node(name) if name in _sections("nodes.toml") else None)
    if known is None:
        names = [*_sections("nodes.toml"), *own]
        raise InputError(f"{where}: unknown node '{name}'{nearest(name, names)}; simscale catalog lists all")
    return known


@cache
def _gpu(name: str) -> Gpu:
    return Gpu.model_validate(_table("gpus.toml", name))


@cache
def _link(name: str) -> LinkTable:
    return LinkTable.model_validate(_table("links.toml", name))


@cache
def _node(name: str) -> NodeTable:
    return NodeTable.model_validate(_table("nodes.toml", name))


@cache
def _transport(name: str) -> Transport:
    return Transport.model_validate(_table("transports.toml", name))


@cache
def _gpu_names() -> dict[str, str]:
    """Canonical names by every name in lower case."""
    return {known.lower(): name for name, gpu in gpus().items() for known in (name, *gpu.aliases)}


def _table(file: str, name: str) -> dict[str, Any]:
    (table,) = tomllib.loads(_sections(file)[name]).values()
    entry: dict[str, Any] = table
    return entry


@cache
def _sections(file: str) -> dict[str, str]:
    """The text of each top-level table by its name: a prediction needs a few of a hundred, so each is parsed alone."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    starts = [*HEADER.finditer(text)]
    ends = [start.start() for start in starts[1:]] + [len(text)]
    return {start["name"]: text[start.start() : end] for start, end in zip(starts, ends, strict=True)}
