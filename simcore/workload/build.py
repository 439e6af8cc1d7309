"""Building blocks of the generators: layers with their parameters, FLOPs and elements, named as torch names them."""

from __future__ import annotations

from simcore.workload.layer import Layer, LayerKind, Parameter


def linear(name: str, inputs: int, outputs: int, tokens: int = 1, bias: bool = True) -> Layer:
    """``nn.Linear`` over ``tokens`` vectors a sample: 2·inputs·outputs FLOPs each."""
    parameters = _weight_and_bias(name, inputs * outputs, outputs if bias else 0)
    return Layer(name, "linear", 2.0 * tokens * inputs * outputs, tokens * inputs, tokens * outputs, parameters)


def conv(
    name: str, inputs: int, outputs: int, kernel: int, in_side: int, out_side: int, bias: bool = False, groups: int = 1
) -> Layer:
    """A square ``nn.Conv2d``: 2·kernel²·inputs·outputs/groups FLOPs for each place of the output."""
    weights = kernel * kernel * inputs * outputs // groups
    parameters = _weight_and_bias(name, weights, outputs if bias else 0)
    places = out_side * out_side
    return Layer(name, "conv", 2.0 * weights * places, inputs * in_side * in_side, outputs * places, parameters)


def norm(name: str, channels: int, elements: int) -> Layer:
    """A normalisation with a weight and a bias per channel, over ``elements`` of a sample."""
    return Layer(name, "norm", 0.0, elements, elements, _weight_and_bias(name, channels, channels))


def elementwise(name: str, inputs: int, outputs: int | None = None) -> Layer:
    """Activations, residual sums and pooling: reads ``inputs`` elements, writes ``outputs`` (by default as many)."""
    return Layer(name, "elementwise", 0.0, inputs, inputs if outputs is None else outputs)


def attention(name: str, tokens: int, hidden: int) -> Layer:
    """Scores, softmax and values of ``tokens`` over ``tokens``: two products of 2·tokens²·hidden FLOPs."""
    return Layer(name, "attention", 4.0 * tokens * tokens * hidden, 3 * tokens * hidden, tokens * hidden)


def embedding(name: str, entries: int, hidden: int, tokens: int) -> Layer:
    """A table of ``entries`` vectors, ``tokens`` of which a sample looks up."""
    kind: LayerKind = "embedding"
    return Layer(name, kind, 0.0, tokens, tokens * hidden, (Parameter(f"{name}.weight", entries * hidden),))


def _weight_and_bias(name: str, weights: int, biases: int) -> tuple[Parameter, ...]:
    weight = Parameter(f"{name}.weight", weights)
    return (weight, Parameter(f"{name}.bias", biases)) if biases else (weight,)
