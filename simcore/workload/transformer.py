"""Transformers: GPT (pre-norm, decoder, tied embeddings) and BERT (post-norm, encoder, pre-training heads)."""

from __future__ import annotations

from dataclasses import replace

from simcore.workload.build import attention, elementwise, embedding, linear, norm
from simcore.workload.layer import Layer, Model, Parameter, Role


def gpt(name: str, depth: int, hidden: int, vocabulary: int, positions: int, tokens: int | None = None) -> Model:
    """A GPT-2 layout; the output projection shares the token embedding, whose backward finishes it.

    A sample has ``tokens``, by default as many as there are ``positions``.
    """
    tokens = tokens or positions
    layers = [embedding("wte", vocabulary, hidden, tokens), embedding("wpe", positions, hidden, tokens)]
    for index in range(depth):
        layers += _gpt_block(f"h.{index}", hidden, tokens)
    layers.append(norm("ln_f", hidden, tokens * hidden))
    layers.append(_tied_output(hidden, vocabulary, tokens, "wte.weight"))
    return Model(name, tuple(layers), "seq")


def bert(
    name: str, depth: int, hidden: int, vocabulary: int = 30522, positions: int = 512, tokens: int | None = None
) -> Model:
    """BERT with its pre-training heads (masked words over all tokens, next sentence); dropout is left out.

    A sample has ``tokens``, by default as many as there are ``positions``.
    """
    tokens = tokens or positions
    size = tokens * hidden
    layers = [
        embedding("embeddings.word", vocabulary, hidden, tokens),
        embedding("embeddings.position", positions, hidden, tokens),
        embedding("embeddings.token_type", 2, hidden, tokens),
        norm("embeddings.norm", hidden, size),
    ]
    for index in range(depth):
        layers += _bert_block(f"encoder.{index}", hidden, tokens)
    layers += [
        linear("pooler", hidden, hidden),
        linear("transform", hidden, hidden, tokens),
        elementwise("transform.gelu", size),
        norm("transform_norm", hidden, size),
        _tied_output(hidden, vocabulary, tokens, "embeddings.word.weight", bias="decoder.bias"),
        linear("seq_relationship", hidden, 2),
    ]
    return Model(name, tuple(layers), "seq")


def _gpt_block(block: str, hidden: int, tokens: int) -> list[Layer]:
    size = tokens * hidden
    return [
        _as("sequence", norm(f"{block}.ln_1", hidden, size)),
        _as("column", linear(f"{block}.attn.c_attn", hidden, 3 * hidden, tokens)),
        _as("inside", attention(f"{block}.attn", tokens, hidden)),
        _as("row", linear(f"{block}.attn.c_proj", hidden, hidden, tokens)),
        _as("sequence", elementwise(f"{block}.add_1", 2 * size, size)),
        _as("sequence", norm(f"{block}.ln_2", hidden, size)),
        _as("column", linear(f"{block}.mlp.c_fc", hidden, 4 * hidden, tokens)),
        _as("inside", elementwise(f"{block}.gelu", 4 * size)),
        _as("row", linear(f"{block}.mlp.c_proj", 4 * hidden, hidden, tokens)),
        _as("sequence", elementwise(f"{block}.add_2", 2 * size, size)),
    ]


def _bert_block(block: str, hidden: int, tokens: int) -> list[Layer]:
    size = tokens * hidden
    return [
        _as("column", linear(f"{block}.query", hidden, hidden, tokens)),
        _as("column", linear(f"{block}.key", hidden, hidden, tokens)),
        _as("column", linear(f"{block}.value", hidden, hidden, tokens)),
        _as("inside", attention(f"{block}.attention", tokens, hidden)),
        _as("row", linear(f"{block}.output", hidden, hidden, tokens)),
        _as("sequence", elementwise(f"{block}.add_1", 2 * size, size)),
        _as("sequence", norm(f"{block}.norm_1", hidden, size)),
        _as("column", linear(f"{block}.up", hidden, 4 * hidden, tokens)),
        _as("inside", elementwise(f"{block}.gelu", 4 * size)),
        _as("row", linear(f"{block}.down", 4 * hidden, hidden, tokens)),
        _as("sequence", elementwise(f"{block}.add_2", 2 * size, size)),
        _as("sequence", norm(f"{block}.norm_2", hidden, size)),
    ]


def _as(role: Role, layer: Layer) -> Layer:
    """``layer`` with its role under tensor parallelism."""
    return replace(layer, role=role)


def _tied_output(hidden: int, vocabulary: int, tokens: int, tied_to: str, bias: str | None = None) -> Layer:
    """The projection onto the vocabulary with the embedding's own weight: FLOPs, but at most a bias to learn."""
    parameters = (Parameter(bias, vocabulary),) if bias else ()
    return Layer(
        name="output",
        kind="linear",
        forward_flops=2.0 * tokens * hidden * vocabulary,
        input_elements=tokens * hidden,
        output_elements=tokens * vocabulary,
        parameters=parameters,
        tied_to=tied_to,
    )
