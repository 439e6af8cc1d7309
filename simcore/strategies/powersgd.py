"""What PowerSGD sends of a bucket: restates ``torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook``.

A matrix of ``n x m`` goes as two factors of rank ``r`` where that is at least half as small; everything else whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

LEAST_COMPRESSION = 2.0
"""torch's ``min_compression_rate``."""


def compressed(elements: Sequence[int], rank: int) -> tuple[int, int, int]:
    """Elements sent whole, in the left factors, and in the right ones.

    Of a parameter only its size is known here, so it counts as the squarest matrix of that size.
    """
    whole = left = right = 0
    for size in elements:
        rows, columns = squarest(size)
        if rows > 1 and (rows + columns) * rank * LEAST_COMPRESSION < size:
            left, right = left + rows * rank, right + columns * rank
        else:
            whole += size
    return whole, left, right


def squarest(size: int) -> tuple[int, int]:
    """Rows and columns of a matrix of ``size`` elements, as square as its root allows; one row where it is none."""
    side = math.isqrt(size)
    return (side, size // side) if side > 1 and size % side == 0 else (1, size)
