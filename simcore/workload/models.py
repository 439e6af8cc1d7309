"""The models of the catalogue, by name. ``measure/models/table.py`` builds the same ones in torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from simcore.workload.convolutional import plain_cnn, resnet, vgg
from simcore.workload.layer import Model
from simcore.workload.mlp import mlp
from simcore.workload.transformer import bert, gpt

GPT_VOCABULARY = 50257

TRANSFORMERS: dict[str, tuple[int, Callable[[int], Model]]] = {
    "gpt-mini": (128, lambda tokens: gpt("gpt-mini", 4, 256, 4096, 128, tokens)),
    "gpt-small": (128, lambda tokens: gpt("gpt-small", 6, 384, 8192, 128, tokens)),
    "gpt2": (1024, lambda tokens: gpt("gpt2", 12, 768, GPT_VOCABULARY, 1024, tokens)),
    "gpt2-medium": (1024, lambda tokens: gpt("gpt2-medium", 24, 1024, GPT_VOCABULARY, 1024, tokens)),
    "gpt2-large": (1024, lambda tokens: gpt("gpt2-large", 36, 1280, GPT_VOCABULARY, 1024, tokens)),
    "gpt2-xl": (1024, lambda tokens: gpt("gpt2-xl", 48, 1600, GPT_VOCABULARY, 1024, tokens)),
    "gpt3-6.7b": (2048, lambda tokens: gpt("gpt3-6.7b", 32, 4096, GPT_VOCABULARY, 2048, tokens)),
    "bert-base": (512, lambda tokens: bert("bert-base", 12, 768, tokens=tokens)),
    "bert-large": (512, lambda tokens: bert("bert-large", 24, 1024, tokens=tokens)),
}
"""Models over sequences: the longest one, and the model of samples of so many tokens."""

OTHERS: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp("mlp", (784, 1024, 1024, 1024, 10)),
    "mlp-wide": lambda: mlp("mlp-wide", (1024, 2048, 2048, 2048, 1000)),
    "cnn": lambda: plain_cnn("cnn", ((32, 2), (64, 2), (128, 2), (256, 2)), 32, 10),
    "cnn-deep": lambda: plain_cnn("cnn-deep", ((48, 3), (96, 3), (192, 3), (384, 3)), 32, 100),
    "resnet18": lambda: resnet("resnet18", (2, 2, 2, 2), bottleneck=False),
    "resnet34": lambda: resnet("resnet34", (3, 4, 6, 3), bottleneck=False),
    "resnet50": lambda: resnet("resnet50", (3, 4, 6, 3), bottleneck=True),
    "resnet101": lambda: resnet("resnet101", (3, 4, 23, 3), bottleneck=True),
    "resnet152": lambda: resnet("resnet152", (3, 8, 36, 3), bottleneck=True),
    "resnext50": lambda: resnet("resnext50", (3, 4, 6, 3), bottleneck=True, groups=32, wider=2),
    "vgg16": lambda: vgg("vgg16", ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))),
}

MODELS = (*OTHERS, *TRANSFORMERS)


@cache
def build_model(name: str, tokens: int | None = None) -> Model:
    """The model called ``name``, built once; of samples of so many ``tokens`` where it is one over sequences.

    Raises ``KeyError`` where there is none, ``ValueError`` where it takes no such sequence.
    """
    if name in OTHERS:
        if tokens is not None:
            raise ValueError(f"'{name}' is no model over sequences; leave sequence_length out")
        return OTHERS[name]()
    longest, make = TRANSFORMERS[name]
    if tokens is not None and tokens > longest:
        raise ValueError(f"'{name}' takes sequences of {longest} tokens at most, found {tokens}")
    return make(tokens or longest)
