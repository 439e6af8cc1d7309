"""Small valid scenarios and profiles that tests start from."""

from __future__ import annotations

import tomllib
from typing import Any

from simcore.files import parse
from simcore.scenario.schema import Scenario

SCENARIO = """
title = "test"

[workload]
model = "resnet50"
batch_per_gpu = 256
precision = "amp-fp16"

[cluster]
gpu = "A100-SXM4-40GB"
gpus_per_node = 8
intra_node = "nvswitch-a100"

[strategy]
data = "ddp"

[sweep]
gpus = [1, 2, 4, 8]
"""

LAYERS = """
title = "layers"

[workload]
batch_per_gpu = 1
[[workload.layers]]
name = "block"
repeat = 20
parameters = 250_000
forward_ms = 5.0
backward_ms = 10.0

[strategy]
bucket_cap_mb = 5

[sweep]
gpus = [1, 2, 4]
"""

PROFILE: dict[str, Any] = {
    "format": "simscale-profile",
    "version": 2,
    "complete": True,
    "machine": {
        "device": "CPU",
        "device_count": 4,
        "backend": "gloo",
        "world_size": 4,
        "hosts": [
            {"name": "a", "ranks": [0]},
            {"name": "b", "ranks": [1]},
            {"name": "c", "ranks": [2]},
            {"name": "d", "ranks": [3]},
        ],
        "threads_per_rank": 1,
        "cpu": "test",
        "cores": 4,
        "platform": "Linux x86_64",
        "python": "3.11",
        "torch": "2.13.0",
        "created": "2026-01-01T00:00:00+00:00",
    },
    "samples": {},
    "fit": {
        "version": 2,
        "overheads": [
            {"of": part, "step_s": 0.0, "tensor_s": 0.0, "byte_s": 0.0, "spread": 0.2}
            for part in ("ddp", "fsdp", "dp", "tensor", "pipeline", "powersgd", "rpc")
        ],
        "curves": [
            {
                "collective": "all_reduce",
                "ranks": ranks,
                "hosts": ranks,
                "size_bytes": [1_000_000, 10_000_000],
                "time_s": [2 * (ranks - 1) / ranks * size / 50e6 for size in (1_000_000, 10_000_000)],
                "wire_share": [1.0, 1.0],
                "spread": 0.01,
            }
            for ranks in (2, 4)
        ],
        "laws": [
            {
                "collective": "all_reduce",
                "crosses_hosts": True,
                "launch_s": 0.0002,
                "latency_s": 0.0001,
                "bandwidth_bytes_per_s": 50e6,
                "spread": 0.02,
            }
        ],
    },
}
"""A profile of four hosts on links of 50 MB/s, by the ring's closed form; torch itself costs nothing, and no compute was measured."""


def scenario_of(text: str, **edits: dict[str, Any]) -> Scenario:
    """The scenario in ``text``, with some keys of its tables replaced."""
    table = tomllib.loads(text)
    for name, values in edits.items():
        table[name] = table.get(name, {}) | values
    return parse(Scenario, table, "test")
