"""What torch itself spends on the host where nobody measured it: priors, by part of it and kind of device.

On a GPU the host runs ahead of the device, so a part's own time is mostly hidden and what is left are copies in the
device's memory. On CPU ranks host and device are one, and every call counts.
"""

from __future__ import annotations

from simcore.costs.device import BANDWIDTH_EFFICIENCY
from simcore.profile.fitted import Framework, OverheadFit
from simcore.units import US

SPREAD = 0.5
UNMEASURED_OVERHEAD = OverheadFit(of="ddp", step_s=0.0, tensor_s=0.0, byte_s=0.0, spread=SPREAD)

ON_GPU: dict[Framework, tuple[float, float]] = {
    "ddp": (100 * US, 4 * US),
    "fsdp": (200 * US, 20 * US),
    "dp": (2000 * US, 20 * US),
    "tensor": (0.0, 5 * US),
    "pipeline": (100 * US, 20 * US),
    "powersgd": (100 * US, 60 * US),
    "rpc": (200 * US, 0.0),
}
"""Seconds a step and an event of it.

An event is a gradient of DDP, a gather or scatter of FSDP, a tensor of a replica of DataParallel (made anew every
step), a pass through a column and a row, an action of a pipeline, a compressed gradient.
"""

ON_CPU: dict[Framework, tuple[float, float]] = {
    "ddp": (100 * US, 10 * US),
    "fsdp": (500 * US, 400 * US),
    "dp": (500 * US, 20 * US),
    "tensor": (0.0, 250 * US),
    "pipeline": (1000 * US, 200 * US),
    "powersgd": (300 * US, 300 * US),
    "rpc": (500 * US, 0.0),
}


COPIES = {"ddp": 2.0, "tensor": 4.0}
"""Copies of each byte: of DDP into its bucket and out again, of DTensor's activations forward and back; else one."""


def assumed_overheads(memory_bytes_per_s: float, on_cpu: bool) -> dict[Framework, OverheadFit]:
    """The priors of every part; a byte copied is read and written."""
    copy_s = 2.0 / (memory_bytes_per_s * BANDWIDTH_EFFICIENCY)
    return {
        part: OverheadFit(
            of=part, step_s=step_s, tensor_s=tensor_s, byte_s=copy_s * _copies(part, on_cpu), spread=SPREAD
        )
        for part, (step_s, tensor_s) in (ON_CPU if on_cpu else ON_GPU).items()
    }


def _copies(part: Framework, on_cpu: bool) -> float:
    """On a GPU DTensor copies no activation that the collective itself does not."""
    return 0.0 if part == "tensor" and not on_cpu else COPIES.get(part, 1.0)
