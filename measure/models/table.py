"""The models that can be trained here, by name, and the factory protocol for a user's own.

A user's model is named ``pkg.module:factory``: a function without arguments that returns a ``ReferenceModel``, or the
same three things as a tuple ``(build, batch, loss)``, or ``(module, batch, loss)`` with a module already built. The
current folder is searched first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from measure.models.convolutional import PlainCnn, ResNet, Vgg
from measure.models.mlp import Mlp
from measure.models.transformer import Bert, Gpt
from simcore.errors import InputError
from simcore.files import nearest

PROTOCOL = "a function without arguments that returns (build, batch, loss) or (module, batch, loss)"
SEED = 0


@dataclass(frozen=True)
class ReferenceModel:
    """A model that can be trained: how to build it, how to make a batch of so many samples, and its loss.

    ``build()`` returns a new module; ``batch(size, device)`` the pair (inputs, targets) with ``size`` samples, the
    same at every call for the models of the table; ``loss(outputs, targets)`` a scalar. ``sequences(tokens)`` is
    another ``batch``, where samples are sequences.
    """

    build: Callable[[], nn.Module]
    batch: Callable[[int, torch.device], tuple[Any, Any]]
    loss: Callable[[Any, Any], torch.Tensor]
    sequences: Callable[[int], Callable[[int, torch.device], tuple[Any, Any]]] | None = None

    def of_tokens(self, tokens: int | None) -> ReferenceModel:
        """The same model on samples of so many tokens. Raises ``InputError`` where it has no sequences."""
        if tokens is None:
            return self
        if self.sequences is None:
            raise InputError("workload.sequence_length: this model is none over sequences of the table; leave it out")
        return replace(self, batch=self.sequences(tokens))


def find_model(name: str) -> ReferenceModel:
    """The model called ``name``, of the table or of the user. Raises ``InputError`` where there is none."""
    if ":" in name:
        return load_factory(name)
    if name not in MODELS:
        raise InputError(f"model: unknown model '{name}'{nearest(name, MODELS)}; known: {', '.join(MODELS)}; "
                         "your own is named pkg.module:factory")  # fmt: skip
    return MODELS[name]


def load_factory(name: str) -> ReferenceModel:
    """The user's model ``pkg.module:factory``. Raises ``InputError`` where it is not there or not what it must be."""
    module_name, _, function_name = name.partition(":")
    if not (all(map(str.isidentifier, module_name.split("."))) and function_name.isidentifier()):
        raise InputError(f"model {name}: found no module and function in it; your own is named pkg.module:factory")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way as it is imported
        raise InputError(
            f"model {name}: cannot import '{module_name}': {_said(error)}; it must be importable from here"
        ) from None
    factory = getattr(module, function_name, None)
    if not callable(factory):
        found = "no" if factory is None else f"{type(factory).__name__} (not a function) as"
        raise InputError(f"model {name}: '{module_name}' has {found} '{function_name}'; it must be {PROTOCOL}")
    try:
        made = factory()
    except Exception as error:
        raise InputError(f"model {name}: the factory failed with {_said(error)}; it must be {PROTOCOL}") from None
    if isinstance(made, ReferenceModel):
        return made
    if not (isinstance(made, tuple) and len(made) == 3 and all(map(callable, made))):
        raise InputError(f"model {name}: the factory returned {type(made).__name__}; it must be {PROTOCOL}")
    build, batch, loss = made
    if isinstance(build, nn.Module):  # callable too, but to build is to ask the factory anew: runs share no weights
        return ReferenceModel(lambda: factory()[0], batch, loss)
    return ReferenceModel(build, batch, loss)


def _said(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _vectors(width: int, classes: int) -> Callable[[int, torch.device], tuple[Any, Any]]:
    return lambda size, device: (_normal((size, width), device), _classes((size,), classes, device))


def _images(side: int, classes: int) -> Callable[[int, torch.device], tuple[Any, Any]]:
    return lambda size, device: (_normal((size, 3, side, side), device), _classes((size,), classes, device))


def _sequences(tokens: int, vocabulary: int) -> Callable[[int, torch.device], tuple[Any, Any]]:
    def batch(size: int, device: torch.device) -> tuple[Any, Any]:
        words = _classes((size, tokens + 1), vocabulary, device)
        return words[:, :-1].contiguous(), words[:, 1:].contiguous()

    return batch


def _normal(shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return torch.randn(shape, device=device, generator=_generator(device))


def _classes(shape: tuple[int, ...], classes: int, device: torch.device) -> torch.Tensor:
    return torch.randint(classes, shape, device=device, generator=_generator(device))


def _generator(device: torch.device) -> torch.Generator:
    """A seeded generator of its own, so that a batch neither reads nor moves the global one; meta has none."""
    return torch.Generator("cpu" if device.type == "meta" else device).manual_seed(SEED)


def _word_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def _bert_loss(outputs: tuple[torch.Tensor, torch.Tensor], targets: torch.Tensor) -> torch.Tensor:
    words, order = outputs
    return _word_loss(words, targets) + functional.cross_entropy(order, targets[:, 0] % 2)


def _mlp(*widths: int) -> ReferenceModel:
    return ReferenceModel(lambda: Mlp(widths), _vectors(widths[0], widths[-1]), functional.cross_entropy)


def _cnn(stages: tuple[tuple[int, int], ...], classes: int) -> ReferenceModel:
    return ReferenceModel(lambda: PlainCnn(stages, classes), _images(32, classes), functional.cross_entropy)


def _gpt(depth: int, hidden: int, heads: int, vocabulary: int, tokens: int) -> ReferenceModel:
    return ReferenceModel(
        lambda: Gpt(depth, hidden, heads, vocabulary, tokens),
        _sequences(tokens, vocabulary),
        _word_loss,
        partial(_sequences, vocabulary=vocabulary),
    )


def _bert(depth: int, hidden: int, heads: int) -> ReferenceModel:
    return ReferenceModel(
        lambda: Bert(depth, hidden, heads), _sequences(512, 30522), _bert_loss, partial(_sequences, vocabulary=30522)
    )


def _resnet(depths: tuple[int, ...], bottleneck: bool, groups: int = 1, wider: int = 1) -> ReferenceModel:
    return ReferenceModel(
        lambda: ResNet(depths, bottleneck, groups, wider), _images(224, 1000), functional.cross_entropy
    )


def _vgg(stages: tuple[tuple[int, int], ...]) -> ReferenceModel:
    return ReferenceModel(lambda: Vgg(stages), _images(224, 1000), functional.cross_entropy)


MODELS: dict[str, ReferenceModel] = {
    "mlp": _mlp(784, 1024, 1024, 1024, 10),
    "mlp-wide": _mlp(1024, 2048, 2048, 2048, 1000),
    "cnn": _cnn(((32, 2), (64, 2), (128, 2), (256, 2)), 10),
    "cnn-deep": _cnn(((48, 3), (96, 3), (192, 3), (384, 3)), 100),
    "gpt-mini": _gpt(4, 256, 4, 4096, 128),
    "gpt-small": _gpt(6, 384, 6, 8192, 128),
    "gpt2": _gpt(12, 768, 12, 50257, 1024),
    "gpt2-medium": _gpt(24, 1024, 16, 50257, 1024),
    "gpt2-large": _gpt(36, 1280, 20, 50257, 1024),
    "gpt2-xl": _gpt(48, 1600, 25, 50257, 1024),
    "gpt3-6.7b": _gpt(32, 4096, 32, 50257, 2048),
    "bert-base": _bert(12, 768, 12),
    "bert-large": _bert(24, 1024, 16),
    "resnet18": _resnet((2, 2, 2, 2), bottleneck=False),
    "resnet34": _resnet((3, 4, 6, 3), bottleneck=False),
    "resnet50": _resnet((3, 4, 6, 3), bottleneck=True),
    "resnet101": _resnet((3, 4, 23, 3), bottleneck=True),
    "resnet152": _resnet((3, 8, 36, 3), bottleneck=True),
    "resnext50": _resnet((3, 4, 6, 3), bottleneck=True, groups=32, wider=2),
    "vgg16": _vgg(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))),
}
