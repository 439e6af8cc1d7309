"""A catalogue GPU as rates by kind of layer: peaks times the part of them that real training reaches.

The efficiencies are priors, seen across published single-GPU training; a profile or a measured point replaces them.
"""

from __future__ import annotations

from dataclasses import replace

from simcore.catalog.load import Gpu
from simcore.costs.compute import DeviceRates
from simcore.errors import InputError
from simcore.scenario.schema import Precision
from simcore.units import GB, TERA, US

PEAK_EFFICIENCY = {"linear": 0.60, "conv": 0.50, "attention": 0.40}
BANDWIDTH_EFFICIENCY = 0.75
KERNEL_S = 5 * US
KERNELS = {"linear": 1, "conv": 1, "attention": 4, "norm": 1, "elementwise": 2, "embedding": 1}
BACKWARD_RATIO = 2.0
COMPUTE_SPREAD = 0.25

PEAK_OF = {"amp-fp16": "fp16", "amp-bf16": "bf16"}


FUSED_KINDS = ("norm", "elementwise")
FUSED_TRAFFIC = 0.4
"""torch.compile fuses such layers with their neighbours, which saves most of their trips to memory: a prior."""


def compiled(rates: DeviceRates) -> DeviceRates:
    """The rates of the same device for a model under ``torch.compile``: matrix products stay as they are."""
    kinds = tuple(
        (kind, (call_s, flops_per_s, bytes_per_s / FUSED_TRAFFIC) if kind in FUSED_KINDS else rate)
        for kind, rate in rates.kinds
        for call_s, flops_per_s, bytes_per_s in (rate,)
    )
    return replace(rates, kinds=kinds)


def catalog_rates(gpu: Gpu, name: str, precision: Precision, where: str) -> DeviceRates:
    """What ``gpu`` does in ``precision``. Raises ``InputError`` where it cannot compute so."""
    peak = PEAK_OF.get(precision, precision)
    if peak not in gpu.tflops:
        raise InputError(
            f"{where}: workload.precision: {name} has no {peak} arithmetic; it has {', '.join(sorted(gpu.tflops))}"
        )
    bytes_per_s = gpu.memory_bandwidth_gb_per_s * GB * BANDWIDTH_EFFICIENCY
    flops_per_s = gpu.tflops[peak] * TERA
    kinds = tuple(
        (kind, (kernels * KERNEL_S, flops_per_s * PEAK_EFFICIENCY.get(kind, 1.0), bytes_per_s))
        for kind, kernels in KERNELS.items()
    )
    return DeviceRates(kinds, BACKWARD_RATIO, bytes_per_s)
