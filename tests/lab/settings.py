"""The lab's settings: hosts, link speed and a spelled-out job, each asking something else of the prediction."""

from __future__ import annotations

from dataclasses import dataclass

EQUAL = """
[[workload.layers]]
name = "block"
repeat = 20
parameters = 250_000
forward_ms = 5.0
backward_ms = 10.0
"""

UNEQUAL = """
[[workload.layers]]
name = "stem"
repeat = 6
parameters = 10_000
forward_ms = 8.0
backward_ms = 16.0
[[workload.layers]]
name = "body"
repeat = 8
parameters = 150_000
forward_ms = 4.0
backward_ms = 9.0
[[workload.layers]]
name = "wide"
repeat = 2
parameters = 1_500_000
forward_ms = 6.0
backward_ms = 14.0
[[workload.layers]]
name = "head"
parameters = 1_000
forward_ms = 1.0
backward_ms = 2.0
"""


@dataclass(frozen=True, slots=True)
class Job:
    """A job to rehearse: its name, its layers and its ``[strategy]`` table."""

    name: str
    layers: str
    strategy: str

    def scenario(self, hosts: int, gbit_per_s: float) -> str:
        """The scenario file of this job on such a cluster."""
        return (
            f'title = "{self.name} on {hosts} hosts at {gbit_per_s:g} Gbit/s"\n'
            f"[workload]\nbatch_per_gpu = 1\n{self.layers}\n"
            f"[strategy]\n{self.strategy}\n[sweep]\ngpus = [{hosts}]\n"
        )


EQUAL_1 = Job("equal layers, 1 MB buckets", EQUAL, "bucket_cap_mb = 1")
EQUAL_5 = Job("equal layers, 5 MB buckets", EQUAL, "bucket_cap_mb = 5")
EQUAL_25 = Job("equal layers, 25 MB buckets", EQUAL, "bucket_cap_mb = 25")
UNEQUAL_1 = Job("unequal layers, 1 MB buckets", UNEQUAL, "bucket_cap_mb = 1")
UNEQUAL_5 = Job("unequal layers, 5 MB buckets", UNEQUAL, "bucket_cap_mb = 5")
UNEQUAL_DEFAULT = Job("unequal layers, torch's default buckets", UNEQUAL, "")
ACCUMULATED = Job("equal layers, 4 accumulated passes", EQUAL, "bucket_cap_mb = 5\ngradient_accumulation = 4")

CLUSTERS: dict[tuple[int, float], tuple[Job, ...]] = {
    (2, 0.25): (EQUAL_5, UNEQUAL_1, ACCUMULATED),
    (2, 1.0): (EQUAL_1, UNEQUAL_DEFAULT),
    (4, 0.5): (EQUAL_25, EQUAL_5, UNEQUAL_5, ACCUMULATED),
    (4, 1.0): (EQUAL_1, UNEQUAL_1),
    (8, 0.25): (EQUAL_5, UNEQUAL_5),
    (8, 0.5): (EQUAL_25, ACCUMULATED),
    (8, 1.0): (EQUAL_1, EQUAL_5, UNEQUAL_DEFAULT),
}

SMALL: dict[tuple[int, float], tuple[Job, ...]] = {(2, 0.5): (EQUAL_5, UNEQUAL_1)}
"""The lab that CI runs."""
