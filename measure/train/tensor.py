"""Tensor and sequence parallelism for real, by ``parallelize_module``: the twin of ``simcore/strategies/tensor.py``."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from measure.models.chain import Chain
from measure.train.mesh import Mesh
from simcore.errors import InputError

SEQUENCE = 1
"""The dimension of ``[batch, tokens, features]`` that sequence parallelism shards."""


def split_tensors(model: nn.Module, mesh: Mesh, sequence: bool) -> None:
    """Split the blocks of ``model`` over the mesh's tensor-parallel ranks, in place; stem and head stay whole.

    Raises ``InputError`` where the model has no plan for it.
    """
    blocks = model.blocks() if isinstance(model, Chain) else []
    if not blocks or not all(hasattr(block, "tensor_plan") for block in blocks):
        raise InputError("strategy.tensor_parallel: this model has no plan for it; transformers of the table have, and "
                         "a model of yours gets one as a Chain whose blocks have a tensor_plan")  # fmt: skip
    grid = mesh.grid["tensor"]
    for block in blocks:
        parallelize_module(block, grid, _styles(block.tensor_plan, sequence))  # type: ignore[arg-type]
    if sequence:
        blocks[0].register_forward_pre_hook(lambda _, inputs: (_moved(inputs[0], grid, Replicate(), Shard(SEQUENCE)),))
        blocks[-1].register_forward_hook(lambda _, __, output: _moved(output, grid, Shard(SEQUENCE), Replicate()))


def _styles(plan: dict[str, str], sequence: bool) -> dict[str, ParallelStyle]:
    between = Shard(SEQUENCE) if sequence else Replicate()
    makers: dict[str, ParallelStyle] = {
        "column": ColwiseParallel(input_layouts=between),
        "row": RowwiseParallel(output_layouts=between),
        "norm": SequenceParallel(use_local_output=True),
    }
    return {name: makers[role] for name, role in plan.items() if sequence or role != "norm"}


def _moved(states: torch.Tensor, grid: DeviceMesh, before: Any, after: Any) -> torch.Tensor:
    """``states`` laid out otherwise over the ranks, with the gradient's way back."""
    laid = DTensor.from_local(states, grid, [before], run_check=False).redistribute(placements=[after])
    return laid.to_local()
