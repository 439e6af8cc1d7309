"""What predicting costs: ``python -m tests.bench`` prints medians beside the limits the project keeps.

Nothing here is a test: machines are noisy, so figures are compared within one run and quoted as medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from simcore.catalog.load import find_node, find_transport
from simcore.predict import predict
from simcore.scenario.load import load_scenario, with_gpus
from simcore.scenario.schema import Scenario
from simcore.strategies.plan import plan_step
from simcore.topology.fabric import FabricTable
from simcore.topology.graph import ClusterGraph

ROOT = Path(__file__).parent.parent
LEAVES = FabricTable(kind="leaf-spine", nodes_per_leaf=16, oversubscription=2.0)
IMPORTS = "import networkx, pydantic, numpy"
FIRST = """
import time
from simcore.predict import predict
from simcore.scenario.load import load_scenario
scenario = load_scenario("scenarios/8xA100.toml")
begun = time.perf_counter()
predict(scenario)
print(time.perf_counter() - begun)
"""


def median_s(work: Callable[[], object], repeats: int) -> float:
    """The median seconds of ``work``, after one warm-up."""
    work()
    samples = []
    for _ in range(repeats):
        begun = time.perf_counter()
        work()
        samples.append(time.perf_counter() - begun)
    return statistics.median(samples)


def command_s(*commands: list[str], repeats: int = 9) -> list[float]:
    """The median seconds of whole commands, run in turn."""
    samples: list[list[float]] = [[] for _ in commands]
    for _ in range(repeats):
        for taken, command in zip(samples, commands, strict=True):
            begun = time.perf_counter()
            subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
            taken.append(time.perf_counter() - begun)
    return [statistics.median(taken) for taken in samples]


def deep_pipeline() -> Scenario:
    """A pipeline of 64 ranks and 256 microbatches, two stages a rank."""
    table = load_scenario(ROOT / "scenarios/pipeline-4-stages.toml").model_dump(exclude_none=True)
    table["workload"] = {
        "layers": [{"name": "block", "repeat": 128, "parameters": 10_000_000, "forward_ms": 1.0, "backward_ms": 2.0,
                    "activation_kib": 1024}], "batch_per_gpu": 256,
    }  # fmt: skip
    table["strategy"] = {"pipeline_parallel": 64, "schedule": "interleaved", "microbatches": 256}
    table["sweep"] = {"gpus": [64]}
    return Scenario.model_validate(table)


def once_s(work: Callable[[], object]) -> float:
    """Seconds of doing something for the first time."""
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def first_s(scenario: Scenario) -> float:
    """Seconds of a prediction whose plan is not there yet."""
    plan_step.cache_clear()
    return once_s(lambda: predict(scenario))


def main() -> None:
    """Print every figure beside its limit."""
    resnet = load_scenario(ROOT / "scenarios/8xA100.toml")
    table = resnet.model_dump()
    table["cluster"]["inter_node"] = "ib-hdr-8x200"
    spread = type(resnet).model_validate(table)
    point = with_gpus(spread, (8,))
    curve = with_gpus(spread, tuple(2**power for power in range(13)))
    huge = with_gpus(spread, (100_000,))
    show("ResNet-50 DDP, one point with its band", median_s(lambda: predict(point), 200), "1 ms")
    show("ResNet-50 DDP, 13 points to 4,096 with 200 samples", median_s(lambda: predict(curve), 100), "10 ms")
    pairs = [(median_s(lambda: predict(huge), 20), median_s(lambda: predict(point), 20)) for _ in range(7)]
    ratio = statistics.median(large / small for large, small in pairs)
    print(f"{'100,000 GPUs against 8':<52} {ratio:>8.2f} x   limit 1.2 x")
    deep, product = deep_pipeline(), load_scenario(ROOT / "scenarios/three-axes.toml")
    show("64 stages x 256 microbatches, interleaved, first", first_s(deep), "1000 ms")
    show("64 stages x 256 microbatches, interleaved, again", median_s(lambda: predict(deep), 5), "1000 ms")
    show("three axes, 7 points to 1,024 GPUs, first", first_s(product), "80 ms a point")
    show("three axes, 7 points to 1,024 GPUs, again", median_s(lambda: predict(product), 20), "10 ms a point")
    graph = ClusterGraph(find_node("hgx-h100", {}, "bench"), 128, LEAVES, find_transport("infiniband", "bench"))
    show("explicit graph of 1,024 GPUs with its rings", once_s(graph.ring_load), "2000 ms")
    fat_tree = load_scenario(ROOT / "scenarios/fat-tree-100k.toml")
    show("100,000 GPUs on a three-level fat tree, first", first_s(fat_tree), "50 ms")
    first = [subprocess.run([sys.executable, "-c", FIRST], cwd=ROOT, check=True, capture_output=True, text=True).stdout
             for _ in range(5)]  # fmt: skip
    show("first prediction of a process, graph built", statistics.median(map(float, first)), "15 ms")
    cold, imports = command_s(
        [str(Path(sys.executable).parent / "simscale"), "predict", "scenarios/8xA100.toml"],
        [sys.executable, "-c", IMPORTS],
    )
    show("simscale predict, cold", cold, f"1.6 x imports = {1.6 * imports * 1e3:.0f} ms")
    print(f"{'  against importing networkx, pydantic and numpy':<52} {cold / imports:>8.2f} x   limit 1.6 x")


def show(what: str, seconds: float, limit: str) -> None:
    """One line."""
    print(f"{what:<52} {seconds * 1e3:>8.2f} ms  limit {limit}")


if __name__ == "__main__":
    main()
