"""Context parallelism for real, by torch's ring attention: each rank keeps a part of every sequence.

The twin of the ring in ``simcore/strategies/tensor.py``. torch has ring attention for GPUs only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch.distributed.tensor.experimental import context_parallel

from measure.models.chain import Chain
from measure.train.job import Job
from measure.train.mesh import Mesh

SEQUENCE = 1
"""The dimension of ``[batch, tokens]`` that is spread."""


def spread_context(job: Job, mesh: Mesh) -> AbstractContextManager[None]:
    """The context in which a pass sees only this rank's part of the sequences; one that does nothing for one rank."""
    if mesh.size("context") == 1:
        return nullcontext()
    own = job.model.sequence_tensors(job.device) if isinstance(job.model, Chain) else []
    return context_parallel(
        mesh.grid["context"],
        buffers=[job.inputs, job.targets, *own],
        buffer_seq_dims=[SEQUENCE, SEQUENCE, *(0 for _ in own)],
    )
