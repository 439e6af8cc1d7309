"""Transformers in torch: GPT with tied embeddings, BERT with its pre-training heads."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import nn
from torch.nn import functional

from measure.models.chain import Chain, TensorPlan


class _SelfAttention(nn.Module):
    """Queries, keys and values of a head lie together, so that a shard of ``c_attn`` is a number of whole heads."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.width = hidden // heads
        self.c_attn = nn.Linear(hidden, 3 * hidden)
        self.c_proj = nn.Linear(hidden, hidden)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        query, key, value = _split(self.c_attn(states), 3 * self.width).chunk(3, dim=-1)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        outputs: torch.Tensor = self.c_proj(_join(attended))
        return outputs


class _FeedForward(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(hidden, 4 * hidden)
        self.c_proj = nn.Linear(4 * hidden, hidden)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.c_proj(functional.gelu(self.c_fc(states)))
        return outputs


class _GptBlock(nn.Module):
    tensor_plan: ClassVar[TensorPlan] = {
        "attn.c_attn": "column",
        "attn.c_proj": "row",
        "mlp.c_fc": "column",
        "mlp.c_proj": "row",
        "ln_1": "norm",
        "ln_2": "norm",
    }

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(hidden)
        self.attn = _SelfAttention(hidden, heads)
        self.ln_2 = nn.LayerNorm(hidden)
        self.mlp = _FeedForward(hidden)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        states = states + self.attn(self.ln_1(states))
        outputs: torch.Tensor = states + self.mlp(self.ln_2(states))
        return outputs


class Gpt(Chain):
    """A GPT-2 layout; the output projection shares the token embedding."""

    stem_parts = ("wte", "wpe")
    head_parts = ("wte", "ln_f")

    def __init__(self, depth: int, hidden: int, heads: int, vocabulary: int, tokens: int) -> None:
        super().__init__()
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(tokens, hidden)
        self.h = nn.ModuleList(_GptBlock(hidden, heads) for _ in range(depth))
        self.ln_f = nn.LayerNorm(hidden)
        self._places = torch.arange(tokens)  # no buffer: copies must not be given one rank's part of it

    def stem(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens]`` of token numbers to ``[batch, tokens, hidden]``."""
        (places,) = self.sequence_tensors(inputs.device)
        states: torch.Tensor = self.wte(inputs) + self.wpe(places[: inputs.shape[1]])
        return states

    def sequence_tensors(self, device: torch.device) -> list[torch.Tensor]:
        """The positions of a sequence, ``[tokens]``."""
        if self._places.device != device:
            self._places = self._places.to(device)
        return [self._places]

    def blocks(self) -> list[nn.Module]:
        """The transformer's blocks."""
        return list(self.h)

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens, hidden]`` to ``[batch, tokens, vocabulary]``."""
        return functional.linear(self.ln_f(states), self.wte.weight)


class _BertBlock(nn.Module):
    tensor_plan: ClassVar[TensorPlan] = {
        "query": "column",
        "key": "column",
        "value": "column",
        "output": "row",
        "up": "column",
        "down": "row",
        "norm_1": "norm",
        "norm_2": "norm",
    }

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.width = hidden // heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.output = nn.Linear(hidden, hidden)
        self.norm_1 = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)
        self.norm_2 = nn.LayerNorm(hidden)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        query, key, value = (_split(part(states), self.width) for part in (self.query, self.key, self.value))
        attended = functional.scaled_dot_product_attention(query, key, value)
        states = self.norm_1(states + self.output(_join(attended)))
        outputs: torch.Tensor = self.norm_2(states + self.down(functional.gelu(self.up(states))))
        return outputs


class _BertEmbeddings(nn.Module):
    def __init__(self, hidden: int, vocabulary: int, tokens: int) -> None:
        super().__init__()
        self.word = nn.Embedding(vocabulary, hidden)
        self.position = nn.Embedding(tokens, hidden)
        self.token_type = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        outputs: torch.Tensor = self.norm(
            self.word(tokens) + self.position(places) + self.token_type(torch.zeros_like(tokens))
        )
        return outputs


class _TiedDecoder(nn.Module):
    """The projection onto the vocabulary by the embedding's weight, with a bias of its own."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, states: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return functional.linear(states, weight, self.bias)


class Bert(Chain):
    """BERT with masked-word and next-sentence heads; without dropout."""

    stem_parts = ("embeddings",)
    head_parts = ("embeddings", "pooler", "transform", "transform_norm", "decoder", "seq_relationship")

    def __init__(self, depth: int, hidden: int, heads: int, vocabulary: int = 30522, tokens: int = 512) -> None:
        super().__init__()
        self.embeddings = _BertEmbeddings(hidden, vocabulary, tokens)
        self.encoder = nn.ModuleList(_BertBlock(hidden, heads) for _ in range(depth))
        self.pooler = nn.Linear(hidden, hidden)
        self.transform = nn.Linear(hidden, hidden)
        self.transform_norm = nn.LayerNorm(hidden)
        self.decoder = _TiedDecoder(vocabulary)
        self.seq_relationship = nn.Linear(hidden, 2)

    def stem(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[batch, tokens]`` of token numbers to ``[batch, tokens, hidden]``."""
        states: torch.Tensor = self.embeddings(inputs)
        return states

    def blocks(self) -> list[nn.Module]:
        """The encoder's blocks."""
        return list(self.encoder)

    def head(self, states: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Words ``[batch, tokens, vocabulary]`` and sentence order ``[batch, 2]``."""
        pooled = torch.tanh(self.pooler(states[:, 0]))
        words = self.transform_norm(functional.gelu(self.transform(states)))
        return self.decoder(words, self.embeddings.word.weight), self.seq_relationship(pooled)


def _split(states: torch.Tensor, width: int) -> torch.Tensor:
    """``[batch, tokens, heads · width]`` to ``[batch, heads, tokens, width]``, for as many heads as there are."""
    batch, tokens, features = states.shape
    return states.view(batch, tokens, features // width, width).transpose(1, 2)


def _join(states: torch.Tensor) -> torch.Tensor:
    return states.transpose(1, 2).flatten(2)
