"""Each catalogue model is its torch twin: same parameters in the same order, same FLOPs, same gradient order."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from measure.models.chain import Chain
from measure.models.table import MODELS as TWINS
from measure.models.table import find_model, load_factory
from simcore.errors import InputError
from simcore.workload.models import MODELS, build_model
from simcore.workload.step import shape_of

PUBLISHED = {
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet101": 44_549_160,
    "resnet152": 60_192_808,
    "vgg16": 138_357_544,
    "gpt2": 124_439_808,
}


def test_both_tables_name_the_same_models() -> None:
    assert set(MODELS) == set(TWINS)


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_those_of_torch_in_registration_order(name: str) -> None:
    with torch.device("meta"):
        twin = TWINS[name].build()
    expected = {parameter: tensor.numel() for parameter, tensor in twin.named_parameters()}
    described = {parameter.name: parameter.elements for parameter in build_model(name).parameters}
    assert described == expected
    assert list(described) == list(expected)


@pytest.mark.parametrize("name", MODELS)
def test_forward_flops_are_those_of_torchs_counter(name: str) -> None:
    counter = FlopCounterMode(display=False)
    with torch.device("meta"):
        twin = TWINS[name].build()
        inputs, _ = TWINS[name].batch(2, torch.device("meta"))
        with counter:
            twin(inputs)
    described = sum(layer.forward_flops for layer in build_model(name).layers)
    assert counter.get_total_flops() / 2 == pytest.approx(described, rel=0.01)


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameter_counts_are_the_published_ones(name: str, parameters: int) -> None:
    assert build_model(name).parameter_elements == parameters


def test_resnet50_has_161_gradients() -> None:
    assert len(build_model("resnet50").parameters) == 161


def test_gpt2s_tied_output_is_learnt_once_in_the_embedding() -> None:
    owners = [
        layer.name
        for layer in build_model("gpt2").layers
        for tensor in layer.parameters
        if tensor.elements == 50257 * 768
    ]
    assert owners == ["wte"]
    assert build_model("gpt2").layers[-1].forward_flops == 2 * 1024 * 768 * 50257


@pytest.mark.parametrize("name", MODELS)
def test_gradients_become_ready_in_the_order_of_the_pieces(name: str) -> None:
    reference = TWINS[name]
    with torch.device("meta"):
        twin = reference.build()
    ready: list[str] = []
    for parameter_name, parameter in twin.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, seen=parameter_name: ready.append(seen))
    with torch.device("meta"):
        inputs, targets = reference.batch(2, torch.device("meta"))
        reference.loss(twin(inputs), targets).backward()
    model = build_model(name)
    names = [parameter.name for parameter in model.parameters]
    pieces = [{names[tensor] for tensor in piece.tensors} for piece in shape_of(model).backward if piece.tensors]
    for piece in pieces:
        assert set(ready[: len(piece)]) == piece
        del ready[: len(piece)]
    assert not ready


@pytest.mark.parametrize("name", ["mlp", "cnn", "resnet18", "gpt-mini", "bert-base"])
def test_a_batch_is_seeded_and_leaves_the_global_generator_alone(name: str) -> None:
    device = torch.device("cpu")
    before = torch.get_rng_state()
    first, again = TWINS[name].batch(2, device), TWINS[name].batch(2, device)
    assert all(len(tensor) == 2 for tensor in first)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder; a ``mymodel`` imported from an earlier one is forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "mymodel", raising=False)
    return tmp_path


def test_a_factory_may_return_a_module_and_each_build_is_a_new_one(here: Path) -> None:
    (here / "mymodel.py").write_text(
        "from torch import nn, randn\n"
        "def factory():\n"
        "    return nn.Linear(4, 2), lambda size, device: (randn(size, 4), randn(size, 2)), nn.functional.mse_loss\n"
    )
    reference = find_model("mymodel:factory")
    first, second = reference.build(), reference.build()
    assert isinstance(first, nn.Linear)
    assert first is not second
    inputs, targets = reference.batch(3, torch.device("cpu"))
    assert reference.loss(first(inputs), targets).ndim == 0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x = (", "cannot import 'mymodel': SyntaxError"),
        ("import torch; torch.nope", "cannot import 'mymodel': AttributeError"),
        ("raise RuntimeError('two\\nlines')", "cannot import 'mymodel': RuntimeError: two lines"),
        ("factory = 3", "has int (not a function) as 'factory'"),
    ],
)
def test_a_module_that_fails_is_refused_in_one_line(text: str, found: str, here: Path) -> None:
    (here / "mymodel.py").write_text(text)
    with pytest.raises(InputError) as caught:
        load_factory("mymodel:factory")
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (":factory", "found no module and function"),
        ("..x:factory", "found no module and function"),
        ("mymodel:", "found no module and function"),
        ("no_such_module_here:factory", "cannot import 'no_such_module_here'"),
        ("tests.factories:missing", "has no 'missing'"),
        ("tests.factories:failing", "RuntimeError: out of ideas"),
        ("tests.factories:wrong", "returned int"),
    ],
)
def test_a_factory_that_is_not_one_is_refused_in_one_line(spec: str, found: str) -> None:
    with pytest.raises(InputError, match="model ") as caught:
        load_factory(spec)
    assert found in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_misspelt_model_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'resnet50'"):
        find_model("resnet_50")


CHAINS = [name for name in MODELS if name != "vgg16"]


@pytest.mark.parametrize("name", CHAINS)
def test_a_chains_blocks_are_those_that_predictions_count(name: str) -> None:
    """Block by block the same parameters, and the rest in stem and head."""
    with torch.device("meta"):
        twin = TWINS[name].build()
    assert isinstance(twin, Chain)
    shape = shape_of(build_model(name))
    sizes = [sum(parameter.numel() for parameter in block.parameters()) for block in twin.blocks()]
    assert [shape.elements_in([block]) for block in range(shape.blocks)] == sizes
    ends = {*twin.stem_parts, *twin.head_parts}
    outside = sum(p.numel() for part in ends for p in twin.get_submodule(part).parameters())
    assert shape.elements_in([-1, shape.blocks]) == outside


def test_a_shorter_sequence_does_less_and_learns_the_same() -> None:
    whole, short = build_model("gpt2"), build_model("gpt2", 128)
    assert whole.parameter_elements == short.parameter_elements
    assert short.layers[-1].forward_flops == whole.layers[-1].forward_flops / 8
    assert TWINS["gpt2"].of_tokens(128).batch(2, torch.device("cpu"))[0].shape == (2, 128)
    with pytest.raises(ValueError, match="at most"):
        build_model("gpt2", 2048)
    with pytest.raises(ValueError, match="sequences"):
        build_model("resnet50", 128)
