"""Running a simscale command on every host of the lab, one torchrun agent each, as a user would on a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.lab.hosts import Host

PORT = "29400"
BINARIES = Path(sys.executable).parent


def torchrun(hosts: Sequence[Host], arguments: Sequence[str], ranks_per_host: int = 1, timeout_s: float = 240.0) -> str:
    """Run ``arguments`` on all hosts at once; returns what the first host's agent printed.

    Raises ``RuntimeError`` with the first host's stderr where an agent fails or takes longer than ``timeout_s``.
    """
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"}
    agents = []
    for index, host in enumerate(hosts):
        command = [str(BINARIES / "torchrun"), "--nnodes", str(len(hosts)), "--nproc-per-node", str(ranks_per_host)]
        command += ["--node-rank", str(index), "--master-addr", hosts[0].address, "--master-port", PORT]
        command += ["--no-python", str(BINARIES / "simscale"), *arguments]
        agents.append(
            subprocess.Popen(
                host.command(command), env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    try:
        outputs = [agent.communicate(timeout=timeout_s) for agent in agents]
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{' '.join(arguments)} took longer than {timeout_s:.0f} s on {len(hosts)} hosts") from None
    finally:
        for agent in agents:
            agent.kill()
    if failed := [index for index, agent in enumerate(agents) if agent.returncode]:
        raise RuntimeError(f"{' '.join(arguments)} failed on host {failed[0]}: {outputs[failed[0]][1][-2000:]}")
    return outputs[0][0]
