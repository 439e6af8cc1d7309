"""Expert parallelism for real: tokens go to the ranks that hold their experts and come back, by two all-to-alls.

The twin of ``simcore/strategies/expert.py``. Autograd sends the gradients the same ways back.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd, wait_tensor

from measure.paced import PacedBlock, PacedModel
from measure.train.mesh import Mesh
from simcore.errors import InputError
from simcore.scenario.strategy import StrategyTable

ROUNDING = 0.05
"""How far from the imbalance that was asked for whole tokens may come."""


class Exchange(nn.Module):
    """An all-to-all of tokens: towards the experts, or back from them (``inverse``)."""

    def __init__(self, sent: list[int], received: list[int], group: dist.ProcessGroup) -> None:
        super().__init__()
        self._sent, self._received, self._group = sent, received, group

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, features]``, or the flat tokens of an earlier exchange, to ``[1, tokens, features]``."""
        tokens = states.flatten(0, 1).contiguous()
        moved = all_to_all_single_autograd(tokens, self._received, self._sent, self._group)
        # Experts that compute wait when they read their tokens; those that only take time must be told to.
        waited: torch.Tensor = wait_tensor(moved)  # type: ignore[no-untyped-call]
        return waited.unsqueeze(0)


def spread_experts(model: nn.Module, strategy: StrategyTable, mesh: Mesh, batch: int) -> None:
    """Put the two exchanges round every paced layer of ``model``, whose parameters count as its experts'.

    Raises ``InputError`` for a model that really computes: the catalogue has none with experts.
    """
    if not isinstance(model, PacedModel):
        raise InputError("strategy.expert_parallel: the models that measure trains have no experts; rehearse layers of "
                         "your own with --paced")  # fmt: skip
    ranks, place = strategy.expert_parallel, mesh.place("shard")
    shares = split_tokens(batch * model.tokens, ranks, strategy.expert_imbalance)
    received = [shares[place]] * ranks
    for block in model.blocks():
        assert isinstance(block, PacedBlock)
        block.entry = Exchange(shares, received, mesh.group("shard"))
        block.exit = _Return(received, shares, mesh.group("shard"), batch)
        block.load = shares[place] * ranks / (batch * model.tokens) * batch


class _Return(Exchange):
    """The exchange back, which restores the batch."""

    def __init__(self, sent: list[int], received: list[int], group: dist.ProcessGroup, batch: int) -> None:
        super().__init__(sent, received, group)
        self._batch = batch

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        """Flat tokens ``[1, tokens, features]`` to ``[batch, tokens, features]``."""
        back = super().forward(states)
        return back.reshape(self._batch, -1, back.shape[-1])


def split_tokens(tokens: int, ranks: int, imbalance: float) -> list[int]:
    """Tokens that one rank sends to each: the first rank's experts get ``imbalance`` times the mean.

    Raises ``InputError`` where whole tokens come further from that than ``ROUNDING``.
    """
    wanted = tokens / ranks * imbalance
    hot = min(tokens, round(wanted))
    if abs(hot / wanted - 1) > ROUNDING:
        raise InputError(f"strategy.expert_imbalance: {imbalance:g} of {tokens} tokens over {ranks} ranks is "
                         f"{wanted:g} tokens for the busiest; at so few, whole tokens miss it by more than "
                         f"{ROUNDING:.0%}: raise the batch or activation_kib")  # fmt: skip
    least, more = divmod(tokens - hot, ranks - 1)
    return [hot, *(least + (rank < more) for rank in range(ranks - 1))]
