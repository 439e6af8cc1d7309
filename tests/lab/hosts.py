"""Hosts of the lab: network namespaces on one Linux machine, joined by a bridge, each link shaped with ``tc``.

Every host has one interface, ``eth0``, whose two directions are limited by a token bucket (tbf). What crosses them
is real TCP between real processes; only the wire's speed is chosen.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

BURST_BYTES = 128 * 1024  # two GSO packets: smaller bursts make the kernel split every packet
QUEUE_S = 0.1  # how much traffic a shaped link may queue before it drops, as seconds of its rate


def why_unavailable() -> str | None:
    """The reason why no lab can be built on this machine, or None where one can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "the lab needs Linux network namespaces"
    if os.geteuid() != 0:
        return "the lab needs root, to make network namespaces"
    missing = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"the lab needs {' and '.join(missing)} (Debian: iproute2)"
    probe = f"sslab{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return None if made.returncode == 0 else f"this kernel refuses network namespaces: {made.stderr.strip()}"


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the lab: its namespace, its address, and the switch's namespace with the port that it hangs on."""

    namespace: str
    address: str
    switch: str
    port: str

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The command line that runs ``arguments`` on this host."""
        return ["ip", "netns", "exec", self.namespace, *arguments]


@contextmanager
def lab_hosts(count: int, gbit_per_s: float, trunk_gbit_per_s: float | None = None) -> Iterator[list[Host]]:
    """``count`` hosts whose links each carry ``gbit_per_s`` in either direction; removed on the way out.

    With a trunk they hang in turn on two bridges, and what goes from one to the other shares it. Raises ``subprocess.CalledProcessError`` where the kernel refuses, after removing what was made.
    """
    prefix = f"sslab{os.getpid()}"
    switch = f"{prefix}sw"
    hosts = [Host(f"{prefix}h{index}", f"10.77.0.{index + 1}", switch, f"port{index}") for index in range(count)]
    bridges = ["bridge"] if trunk_gbit_per_s is None else ["bridge", "bridge2"]
    try:
        _ip("netns", "add", switch)
        for bridge in bridges:
            _ip("-n", switch, "link", "add", bridge, "type", "bridge")
            _ip("-n", switch, "link", "set", bridge, "up")
        if trunk_gbit_per_s is not None:
            _ip("-n", switch, "link", "add", "trunk", "type", "veth", "peer", "name", "trunk2")
            for end, bridge in (("trunk", "bridge"), ("trunk2", "bridge2")):
                _ip("-n", switch, "link", "set", end, "master", bridge, "up")
                _shape(switch, end, trunk_gbit_per_s)
        for index, host in enumerate(hosts):
            _connect(host, bridges[index % len(bridges)], gbit_per_s)
        yield hosts
    finally:
        _remove(hosts, switch)


def slow_down(host: Host, gbit_per_s: float) -> None:
    """Let the host's link carry only ``gbit_per_s`` from now on, in either direction."""
    _shape(host.namespace, "eth0", gbit_per_s)
    _shape(host.switch, host.port, gbit_per_s)


def _connect(host: Host, bridge: str, gbit_per_s: float) -> None:
    switch, port = host.switch, host.port
    _ip("netns", "add", host.namespace)
    _ip("-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
    _ip("-n", switch, "link", "set", port, "master", bridge, "up")
    _ip("-n", host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
    _ip("-n", host.namespace, "link", "set", "eth0", "up")
    _ip("-n", host.namespace, "link", "set", "lo", "up")
    _shape(host.namespace, "eth0", gbit_per_s)
    _shape(switch, port, gbit_per_s)


def _shape(namespace: str, device: str, gbit_per_s: float) -> None:
    rate = f"{round(gbit_per_s * 1e6)}kbit"
    limit = str(round(gbit_per_s * 1e9 / 8 * QUEUE_S) + BURST_BYTES)
    bucket = ["tbf", "rate", rate, "burst", str(BURST_BYTES), "limit", limit]
    _run(["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", *bucket])


def _remove(hosts: Sequence[Host], switch: str) -> None:
    # A namespace lingers after its deletion and keeps its devices, so each link goes first, by name.
    subprocess.run(["ip", "-n", switch, "link", "del", "trunk"], capture_output=True, check=False)
    for host in hosts:
        subprocess.run(["ip", "-n", switch, "link", "del", host.port], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", host.namespace], capture_output=True, check=False)
    subprocess.run(["ip", "netns", "del", switch], capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    _run(["ip", *arguments])


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
