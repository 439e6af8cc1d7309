"""Models as chains: a stem, blocks that hand one tensor on to the next, and a head.

That is what every way of dividing a model needs to know of it: FSDP shards block by block, a pipeline cuts between
blocks, recomputation repeats them. A model that is no chain can still be trained whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

TensorPlan = dict[str, str]
"""How a block is split over tensor-parallel ranks: each part is a ``column``, a ``row`` or a ``norm``."""


class Chain(nn.Module):
    """A model whose forward is ``head(blocks(stem(inputs)))``.

    ``stem_parts`` and ``head_parts`` name the submodules that only the first and the last stage of a pipeline need; one
    that both name is tied, and each keeps a copy of it.
    """

    stem_parts: Sequence[str] = ()
    head_parts: Sequence[str] = ()

    def stem(self, inputs: torch.Tensor) -> torch.Tensor:
        """What the first block gets."""
        return inputs

    def blocks(self) -> list[nn.Module]:
        """The blocks in forward order."""
        raise NotImplementedError

    def head(self, states: torch.Tensor) -> Any:
        """The outputs that the loss takes."""
        return states

    def sequence_tensors(self, device: torch.device) -> list[torch.Tensor]:
        """Tensors of its own, on ``device``, whose first dimension goes along the sequence."""
        return []

    def forward(self, inputs: torch.Tensor) -> Any:
        """The whole chain."""
        states = self.stem(inputs)
        for block in self.blocks():
            states = block(states)
        return self.head(states)

    @property
    def tied_parts(self) -> list[str]:
        """Submodules that stem and head share."""
        return [name for name in self.stem_parts if name in self.head_parts]


class Stage(nn.Module):
    """A run of a chain's blocks, with its stem where it is the first and its head where it is the last.

    It takes the chain apart: what it does not need is dropped from it.
    """

    def __init__(self, chain: Chain, blocks: tuple[int, int], first: bool, last: bool) -> None:
        super().__init__()
        self._first, self._last = first, last
        self.run = nn.ModuleList(chain.blocks()[slice(*blocks)])
        kept = [*(chain.stem_parts if first else ()), *(chain.head_parts if last else ())]
        self.ends = nn.ModuleDict({name: chain.get_submodule(name) for name in dict.fromkeys(kept)})
        self.tied_parts = chain.tied_parts
        # The chain itself is not a part of the stage, or its parameters would be.
        object.__setattr__(self, "_ends_of", chain)

    def forward(self, states: torch.Tensor) -> Any:
        """From the stage's input to its output."""
        chain: Chain = self.__dict__["_ends_of"]
        if self._first:
            states = chain.stem(states)
        for block in self.run:
            states = block(states)
        return chain.head(states) if self._last else states
