"""Convolutional nets: a plain stack of stages, VGG, and the ResNet family as torchvision lays it out."""

from __future__ import annotations

from dataclasses import replace

from simcore.workload.build import conv, elementwise, linear, norm
from simcore.workload.layer import Layer, Model

Stage = tuple[int, int]
"""Channels and layers of a stage; each stage but the first halves the side."""


def plain_cnn(name: str, stages: tuple[Stage, ...], side: int, classes: int) -> Model:
    """Convolution, batch norm and ReLU in stages, then one average and a linear head; images ``3 x side x side``."""
    layers: list[Layer] = []
    inputs, index = 3, 0
    for stage, (channels, depth) in enumerate(stages):
        for position in range(depth):
            out_side = side // 2 if stage and not position else side
            layers += _conv_norm(
                f"features.{index}.conv", f"features.{index}.norm", inputs, channels, 3, side, out_side
            )
            layers.append(elementwise(f"features.{index}.relu", channels * out_side * out_side))
            inputs, side, index = channels, out_side, index + 1
    layers.append(elementwise("pool", inputs * side * side, inputs))
    layers.append(linear("classifier", inputs, classes))
    return Model(name, tuple(layers), "img")


def vgg(name: str, stages: tuple[Stage, ...], classes: int = 1000) -> Model:
    """VGG without batch norm: 3x3 convolutions with bias, max pooling after each stage, three linear layers."""
    layers: list[Layer] = []
    inputs, side, index = 3, 224, 0
    for channels, depth in stages:
        for _ in range(depth):
            layers.append(conv(f"features.{index}", inputs, channels, 3, side, side, bias=True))
            layers.append(elementwise(f"features.{index + 1}", channels * side * side))
            inputs, index = channels, index + 2
        layers.append(elementwise(f"features.{index}", channels * side * side, channels * (side // 2) ** 2))
        side, index = side // 2, index + 1
    flat = inputs * side * side
    for index, (left, right) in zip((0, 3, 6), ((flat, 4096), (4096, 4096), (4096, classes)), strict=True):
        layers.append(linear(f"classifier.{index}", left, right))
        if index < 6:
            layers.append(elementwise(f"classifier.{index + 1}", right))
    return Model(name, tuple(layers), "img")


def resnet(
    name: str, depths: tuple[int, int, int, int], bottleneck: bool, classes: int = 1000, groups: int = 1, wider: int = 1
) -> Model:
    """ResNet v1.5 (the stride in the 3x3 convolution) on images of 224 x 224.

    ResNeXt divides the 3x3 convolution into ``groups`` and makes it ``wider``.
    """
    layers = _conv_norm("conv1", "bn1", 3, 64, 7, 224, 112)
    layers.append(elementwise("relu+maxpool", 64 * 112 * 112, 64 * 56 * 56))
    inputs, side, expansion = 64, 56, 4 if bottleneck else 1
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for position in range(depth):
            out_side = side // 2 if stage and not position else side
            block = f"layer{stage + 1}.{position}"
            layers += _block(block, inputs, width, expansion, side, out_side, groups, wider)
            inputs, side = width * expansion, out_side
    layers.append(elementwise("avgpool", inputs * side * side, inputs))
    layers.append(linear("fc", inputs, classes))
    return Model(name, tuple(layers), "img")


def _block(
    block: str, inputs: int, width: int, expansion: int, side: int, out_side: int, groups: int, wider: int
) -> list[Layer]:
    outputs, inner = width * expansion, width * wider
    if expansion > 1:
        shapes = [
            (inputs, inner, 1, side, side),
            (inner, inner, 3, side, out_side),
            (inner, outputs, 1, out_side, out_side),
        ]
    else:
        shapes = [(inputs, width, 3, side, out_side), (width, width, 3, out_side, out_side)]
    layers: list[Layer] = []
    for number, shape in enumerate(shapes, start=1):
        divided = groups if shape[2] == 3 else 1
        layers += _conv_norm(f"{block}.conv{number}", f"{block}.bn{number}", *shape, divided)
        if number < len(shapes):
            layers.append(elementwise(f"{block}.relu{number}", shape[1] * shape[4] ** 2))
    if inputs != outputs or side != out_side:
        layers += _conv_norm(f"{block}.downsample.0", f"{block}.downsample.1", inputs, outputs, 1, side, out_side)
    places = outputs * out_side * out_side
    return [*layers, elementwise(f"{block}.add+relu", 2 * places, places)]


def _conv_norm(
    conv_name: str, norm_name: str, inputs: int, outputs: int, kernel: int, side: int, out_side: int, groups: int = 1
) -> list[Layer]:
    return [
        conv(conv_name, inputs, outputs, kernel, side, out_side, groups=groups),
        replace(norm(norm_name, outputs, outputs * out_side * out_side), batch_channels=outputs),
    ]
