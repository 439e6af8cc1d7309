"""Convolutional nets in torch: a plain stack of stages, VGG, and the ResNet family as torchvision lays it out."""

from __future__ import annotations

import torch
from torch import nn

from measure.models.chain import Chain


class _ConvNormRelu(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.relu(self.norm(self.conv(images)))
        return outputs


class PlainCnn(Chain):
    """Stages of convolution, batch norm and ReLU, an average and a linear head."""

    head_parts = ("classifier",)

    def __init__(self, stages: tuple[tuple[int, int], ...], classes: int) -> None:
        super().__init__()
        blocks, inputs = [], 3
        for stage, (channels, depth) in enumerate(stages):
            for position in range(depth):
                blocks.append(_ConvNormRelu(inputs, channels, 2 if stage and not position else 1))
                inputs = channels
        self.features = nn.Sequential(*blocks)
        self.classifier = nn.Linear(inputs, classes)

    def blocks(self) -> list[nn.Module]:
        """Each convolution with its norm and ReLU."""
        return list(self.features)

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """``[batch, channels, side, side]`` to ``[batch, classes]``."""
        outputs: torch.Tensor = self.classifier(states.mean(dim=(2, 3)))
        return outputs


class Vgg(nn.Module):
    """VGG without batch norm."""

    def __init__(self, stages: tuple[tuple[int, int], ...], classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for channels, depth in stages:
            for _ in range(depth):
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU()]
                inputs = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 49, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, classes),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """``[batch, 3, 224, 224]`` to ``[batch, classes]``."""
        outputs: torch.Tensor = self.classifier(self.features(images).flatten(1))
        return outputs


class _Block(nn.Module):
    """A residual block: two 3x3 convolutions, or a bottleneck whose 3x3 convolution carries the stride.

    ResNeXt's is ``wider`` inside and divided into ``groups``.
    """

    def __init__(self, inputs: int, width: int, expansion: int, stride: int, groups: int, wider: int) -> None:
        super().__init__()
        outputs, inner = width * expansion, width * wider
        shapes = [(inputs, inner, 1, 1), (inner, inner, 3, stride), (inner, outputs, 1, 1)]
        if expansion == 1:
            shapes = [(inputs, width, 3, stride), (width, width, 3, 1)]
        self.depth = len(shapes)
        for number, (left, right, kernel, step) in enumerate(shapes, start=1):
            self.add_module(f"conv{number}", self._conv(left, right, kernel, step, groups))
            self.add_module(f"bn{number}", nn.BatchNorm2d(right))
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    @staticmethod
    def _conv(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> nn.Conv2d:
        divided = groups if kernel == 3 else 1
        return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=divided, bias=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        outputs = images
        for number in range(1, self.depth + 1):
            outputs = self.get_submodule(f"bn{number}")(self.get_submodule(f"conv{number}")(outputs))
            outputs = self.relu(outputs) if number < self.depth else outputs
        kept = images if self.downsample is None else self.downsample(images)
        summed: torch.Tensor = self.relu(outputs + kept)
        return summed


class ResNet(Chain):
    """ResNet v1.5, and ResNeXt."""

    stem_parts = ("conv1", "bn1")
    head_parts = ("fc",)

    def __init__(
        self, depths: tuple[int, ...], bottleneck: bool, groups: int = 1, wider: int = 1, classes: int = 1000
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs, expansion = 64, 4 if bottleneck else 1
        for stage, depth in enumerate(depths):
            blocks = []
            for position in range(depth):
                stride = 2 if stage and not position else 1
                blocks.append(_Block(inputs, 64 * 2**stage, expansion, stride, groups, wider))
                inputs = 64 * 2**stage * expansion
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
        self.stages = len(depths)
        self.fc = nn.Linear(inputs, classes)

    def stem(self, inputs: torch.Tensor) -> torch.Tensor:
        """``[batch, 3, 224, 224]`` to ``[batch, 64, 56, 56]``."""
        states: torch.Tensor = self.maxpool(self.relu(self.bn1(self.conv1(inputs))))
        return states

    def blocks(self) -> list[nn.Module]:
        """The residual blocks of all stages."""
        return [block for stage in range(self.stages) for block in self.get_submodule(f"layer{stage + 1}").children()]

    def head(self, states: torch.Tensor) -> torch.Tensor:
        """The average over the image, and its classes ``[batch, classes]``."""
        classes: torch.Tensor = self.fc(states.mean(dim=(2, 3)))
        return classes
