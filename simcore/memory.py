"""Memory of one rank: parameters, gradients, optimizer state, buckets and the activations kept for backward."""

from __future__ import annotations

from simcore.costs.compute import STATE_BYTES, ComputeCosts
from simcore.scenario.schema import Scenario

FRAMEWORK_BYTES = 0.8e9  # CUDA context, cuDNN/cuBLAS workspaces and fragmentation on a GPU: a prior


def memory_bytes(scenario: Scenario, compute: ComputeCosts, gpus: int, on_gpu: bool) -> dict[str, float]:
    """Peak bytes of one rank by what fills them. DDP keeps whole copies; its buckets double the gradients."""
    parameters = 4.0 * compute.shape.parameter_elements
    half_copies = parameters / 2 if scenario.workload.precision.startswith("amp") else 0.0
    return {
        "parameters": parameters + half_copies,
        "gradients": parameters,
        "optimizer_state": STATE_BYTES[scenario.workload.optimizer] * float(compute.shape.parameter_elements),
        "buckets": 0.0 if scenario.strategy.gradient_as_bucket_view else parameters,
        "activations": compute.activation_bytes_per_sample * scenario.local_batch(gpus),
        "framework": FRAMEWORK_BYTES if on_gpu else 0.0,
    }
