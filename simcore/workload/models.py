"""The models of the catalogue, by name. ``measure/models/table.py`` builds the same ones in torch."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from simcore.workload.convolutional import plain_cnn, resnet, vgg
from simcore.workload.layer import Model
from simcore.workload.mlp import mlp
from simcore.workload.transformer import bert, gpt

MODELS: dict[str, Callable[[], Model]] = {
    "mlp": lambda: mlp("mlp", (784, 1024, 1024, 1024, 10)),
    "mlp-wide": lambda: mlp("mlp-wide", (1024, 2048, 2048, 2048, 1000)),
    "cnn": lambda: plain_cnn("cnn", ((32, 2), (64, 2), (128, 2), (256, 2)), 32, 10),
    "cnn-deep": lambda: plain_cnn("cnn-deep", ((48, 3), (96, 3), (192, 3), (384, 3)), 32, 100),
    "gpt-mini": lambda: gpt("gpt-mini", depth=4, hidden=256, vocabulary=4096, tokens=128),
    "gpt-small": lambda: gpt("gpt-small", depth=6, hidden=384, vocabulary=8192, tokens=128),
    "gpt2": lambda: gpt("gpt2", depth=12, hidden=768, vocabulary=50257, tokens=1024),
    "bert-base": lambda: bert("bert-base", depth=12, hidden=768),
    "bert-large": lambda: bert("bert-large", depth=24, hidden=1024),
    "resnet18": lambda: resnet("resnet18", (2, 2, 2, 2), bottleneck=False),
    "resnet34": lambda: resnet("resnet34", (3, 4, 6, 3), bottleneck=False),
    "resnet50": lambda: resnet("resnet50", (3, 4, 6, 3), bottleneck=True),
    "resnet101": lambda: resnet("resnet101", (3, 4, 23, 3), bottleneck=True),
    "resnet152": lambda: resnet("resnet152", (3, 8, 36, 3), bottleneck=True),
    "vgg16": lambda: vgg("vgg16", ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))),
}


@cache
def build_model(name: str) -> Model:
    """The model called ``name``, built once. Raises ``KeyError`` where there is none."""
    return MODELS[name]()
