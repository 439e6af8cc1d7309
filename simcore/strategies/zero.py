"""ZeRO stage 1 on the task graph: after its own share of the optimizer, each rank broadcasts what it updated.

Source: ``ZeroRedundancyOptimizer``, which by default broadcasts parameter by parameter, all started together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from simcore.graph.tasks import Transfer
from simcore.strategies.rank import COLLECTIVES_IN_FLIGHT, Rank
from simcore.strategies.widths import Widths
from simcore.workload.step import StepShape


def hand_out(rank: Rank, shape: StepShape, tensors: Iterable[int], widths: Widths) -> None:
    """Broadcast each parameter from the rank that updated it; latencies overlap as far as the backend lets them."""
    in_flight = COLLECTIVES_IN_FLIGHT[rank.backend]
    sizes = Counter(shape.elements[tensor] * widths.parameter for tensor in tensors)
    transfers: list[Transfer] = []
    for size_bytes, count in sizes.items():
        transfers.append(Transfer("broadcast", size_bytes, "wire", "copies", times=count))
        transfers.append(Transfer("broadcast", size_bytes, "latency", "copies", times=count / in_flight))
    rank.block_on("hand out parameters", tuple(transfers))
