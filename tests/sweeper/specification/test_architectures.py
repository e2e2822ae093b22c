# ruff: noqa: ARG001, ARG005
"""Architectures of plug-ins: their options are fields of a spec, and their layers are those of the package."""

import math
import sys
from types import SimpleNamespace
from typing import Annotated

import pytest
import torch
from torch import nn

import clipless
from clipless import layers
from clipless.bounds import bound_network
from clipless.conversion.convert import convert
from clipless.errors import UnsupportedError
from clipless.option_types import Count, Even, Ge, Le
from clipless.testing import neighbour_ratios
from clipless.zoo import ARCHITECTURES, architecture
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.workers.messages import Task
from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.errors import SpecError
from sweeper.search.space import sample
from sweeper.specification import plugins
from sweeper.specification.architectures import architecture_options, find_architecture
from sweeper.specification.plugins import ARCHITECTURE_PLUGINS
from sweeper.specification.spec import Spec, schema
from sweeper.trials.build import build_loss, build_model, build_plan
from tests.factories import install_plugins


@architecture
def tower(
    input_shape, outputs, make, *, floors: Annotated[int, Ge(1), Le(3)] = 2, width: Annotated[int, Ge(2), Le(8)] = 4
):
    """Dense floors of one width."""
    features = torch.Size(input_shape).numel()
    stack: list[nn.Module] = [layers.Flatten()]
    for _ in range(floors):
        stack += [make.dense(features, width), make.activation(width)]
        features = width
    return [*stack, make.dense(features, outputs)]


class Ten(nn.Module):
    """A layer that no rule of the package knows."""

    def forward(self, x):
        return 10 * x


def with_layer(odd_layer):
    @architecture
    def odd(input_shape, outputs, make):
        return [layers.Flatten(), odd_layer(), make.dense(64, outputs)]

    return odd


def replaced():
    layer = layers.ReLU()
    layer.forward = lambda x: 10 * x
    return layer


def text_option(input_shape, outputs, make, *, label: str = "a"):
    return [layers.Flatten()]


THINGS = SimpleNamespace(
    tower=tower,
    ten=with_layer(Ten),
    replaced=with_layer(replaced),
    plain=lambda *_: None,
    text=architecture(text_option),
)


@pytest.fixture
def install(monkeypatch):
    """Install architectures: (name, value)."""
    monkeypatch.setitem(sys.modules, "towers", THINGS)
    return lambda *entries: install_plugins(monkeypatch, *((*entry, ARCHITECTURE_PLUGINS) for entry in entries))


@pytest.fixture
def some(install):
    install(*((name, f"towers:{name}") for name in vars(THINGS)))


def spec_of(**model):
    return Spec.from_mapping(
        {
            "name": "own",
            "data": {"name": "digits"},
            "model": model,
            "training": {"epochs": 1, "batch_size": 64},
            "privacy": {"noise_multiplier": 1.0, "delta": 1e-4},
        },
        "own.yaml",
    )


def model_of(digits, **model):
    spec = spec_of(**model)
    config = spec.space.resolve(spec.space.suggest(None))
    return config, build_model(config, digits, build_loss(config), 0)


def refused(**model):
    with pytest.raises(SpecError) as caught:
        spec_of(**model)
    return str(caught.value)


@pytest.mark.usefixtures("some")
def test_the_options_that_a_plug_in_declares_are_hyperparameters_of_a_spec(digits):
    spec = spec_of(architecture=[{"name": "tower", "floors": [1, 3]}, "mlp"], width=8, activation="relu")
    names = {dimension.name for dimension in spec.dimensions}
    assert {"model.architecture.tower.floors", "model.width", "model.activation"} <= names
    built = {
        (config.model.architecture, sum(type(m) is layers.Dense for m in build_model(config, digits, build_loss(config), 0).layers))
        for config in (spec.space.resolve(proposal) for proposal in sample(spec.space, 30))
    }  # fmt: skip
    assert built == {("tower", 2), ("tower", 4), ("mlp", 2)}


@pytest.mark.usefixtures("some")
def test_a_plug_in_trains_within_its_plan_is_saved_and_certified(digits, tmp_path):
    config, model = model_of(digits, architecture={"name": "tower", "floors": 1}, bias=True)
    loss = build_loss(config)
    plan = build_plan(config, model, loss, len(digits.train))
    x, y = digits.train.x[:8], digits.train.y[:8]
    assert max(neighbour_ratios(model, loss, x, y, plan).values()) <= 1 + 1e-4
    epochs = list(clipless.fit(model, loss, digits.train, plan))
    assert len(epochs) == 1
    clipless.save(model, tmp_path / "m.safetensors")
    assert torch.equal(clipless.load(tmp_path / "m.safetensors")(x), model(x))
    assert clipless.evaluate(model, digits.validation, radii=["0.25"])["certified@0.25"] >= 0


@pytest.mark.usefixtures("some")
def test_values_that_a_plug_in_does_not_take_are_refused_where_they_stand():
    options = "activation, bias, bias_norm, constraint, floors, width"
    assert refused(architecture={"name": "tower", "floors": 4}) == (
        "Expected an integer 1 <= floors <= 3, got floors=4 (model.architecture.floors in own.yaml)"
    )
    assert refused(architecture={"name": "tower", "storeys": 2}) == (
        f"Expected parameters of tower, got storeys=2 (model.architecture.storeys in own.yaml); known: {options}"
    )
    assert refused(architecture="tower", width=64) == (
        "Expected an integer 2 <= width <= 8, got width=64 (model.width in own.yaml)"
    )
    assert refused(architecture="tower", hidden=8).startswith(
        "Expected no hidden without an architecture that takes it"
    )


@pytest.mark.usefixtures("some")
def test_an_architecture_that_nothing_declares_is_refused_with_those_that_are_installed():
    said = refused(architecture="towr")
    assert said.startswith("Expected architecture convnet or ")
    assert "tower" in said.partition(", got ")[0]
    assert said.endswith("did you mean 'tower'?")
    assert "declared by clipless.zoo.architecture from the plug-in plain" in refused(architecture="plain")
    assert "for an option of a spec" in refused(architecture={"name": "text"})


@pytest.mark.usefixtures("some")
def test_a_layer_that_is_not_of_the_package_is_refused(digits):
    with pytest.raises(SpecError, match=r"layers of clipless\.layers .*, got Ten \(model\.architecture=ten"):
        model_of(digits, architecture="ten")


@pytest.mark.usefixtures("some")
def test_a_layer_whose_forward_was_replaced_is_refused_by_the_plan(digits):
    config, model = model_of(digits, architecture="replaced")
    with pytest.raises(UnsupportedError, match="The forward of this ReLU was replaced"):
        build_plan(config, model, build_loss(config), len(digits.train))


def test_a_plug_in_cannot_stand_in_for_an_architecture_of_this_package(install):
    install(("mlp", "towers:tower"))
    assert find_architecture("mlp") is ARCHITECTURES["mlp"]
    assert spec_of(architecture="mlp", width=64)


def test_two_plug_ins_of_one_name_are_refused(install):
    install(("tower", "towers:tower"), ("tower", "other:tower"))
    with pytest.raises(SpecError, match="Expected one architecture 'tower', got other:tower and towers:tower"):
        architecture_options("tower")


def test_a_plug_in_is_imported_only_when_a_spec_names_it(install):
    install(("away", "no_such_module:away"))
    assert spec_of(architecture="mlp")
    named = schema()["$defs"]["ModelSettings"]["properties"]["architecture"]["anyOf"]
    assert "away" in named[0]["enum"]
    expected = "Expected a plug-in that can be imported (no_such_module:away: ModuleNotFoundError"
    assert expected in refused(architecture="away")


@pytest.mark.parametrize(
    ("builder", "said"),
    [
        (lambda shape, outputs: [], r"Expected \(input_shape, outputs, make, \*, \.\.\.\)"),
        (lambda shape, outputs, *, make=None: [], r"Expected \(input_shape, outputs, make, \*, \.\.\.\)"),
        (lambda shape, outputs, make, *, size=1: [], "a default and a type of the option size"),
    ],
)
def test_a_function_of_other_arguments_is_refused(builder, said):
    with pytest.raises(UnsupportedError, match=said):
        architecture(builder)


def test_an_option_that_every_architecture_has_is_not_declared_twice():
    def own(shape, outputs, make, *, bias: bool = True):
        return []

    with pytest.raises(UnsupportedError, match="Expected another name than bias for an option of own"):
        architecture(own)


def test_what_is_no_list_of_layers_is_refused():
    def nothing(shape, outputs, make, *, size: Count = 1, more: Even = 2):
        return None

    with pytest.raises(UnsupportedError, match="Expected a list of layers from the architecture nothing, got None"):
        architecture(nothing)((4,), 2, input_norm=1.0)


class Own(nn.Module):
    def __init__(self, inputs, outputs, width, batch_norm=False):
        super().__init__()
        self.hidden, self.out = nn.Linear(inputs, width), nn.Linear(width, outputs)
        self.between = nn.BatchNorm1d(width) if batch_norm else nn.Identity()

    def forward(self, x):
        return self.out(torch.relu(self.between(self.hidden(x.flatten(1)))))


def own(shape, outputs, make, *, width: Count = 8, batch_norm: bool = False):
    return Own(math.prod(shape), outputs, width, batch_norm)


@pytest.fixture
def declared(monkeypatch):
    """The architecture of a module of one's own, declared by a program for the time of a test."""
    monkeypatch.setattr(plugins, "_declared", {})
    return plugins.architecture(own)


def test_a_module_of_ones_own_is_converted_with_weights_by_the_seed(digits, declared):
    assert declared is find_architecture("own")
    torch.default_generator.manual_seed(5)
    before = torch.get_rng_state()
    _, model = model_of(digits, architecture="own", width=16)
    assert torch.equal(torch.get_rng_state(), before)
    assert [type(layer).__name__ for layer in model.layers] == ["InputBall", "Flatten", "Dense", "ReLU", "Dense"]
    again = model_of(digits, architecture="own", width=16)[1]
    for one, other in zip(model.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
    weights = [own_network(generator=torch.Generator().manual_seed(seed)).layers[2].weight for seed in (1, 2)]
    assert not torch.equal(*weights)
    assert 0 < bound_network(model).lipschitz() < float("inf")


def own_network(**more):
    return architecture(own).build((1, 8, 8), 10, input_norm=8.0, width=8, **more)


@pytest.mark.usefixtures("declared")
def test_a_module_that_cannot_be_bounded_is_refused_by_name(digits):
    with pytest.raises(SpecError, match=r"Cannot convert between: BatchNorm1d is no layer .*model\.architecture=own"):
        model_of(digits, architecture={"name": "own", "batch_norm": True})


def test_a_network_stands_behind_the_input_ball_of_the_sweep():
    def converted(shape, outputs, make):
        return convert(Own(math.prod(shape), outputs, 8), shape, input_norm=1.0)

    network = architecture(converted)((1, 8, 8), 10, input_norm=8.0)
    assert [type(layer).__name__ for layer in network.layers] == ["InputBall", "Flatten", "Dense", "ReLU", "Dense"]
    assert network.layers[0].radius == 8.0


def test_a_declared_architecture_is_known_to_specs_and_named_like_no_other(declared, install):
    assert spec_of(architecture="own", width=[8, 16])
    assert "own" in schema()["$defs"]["ModelSettings"]["properties"]["architecture"]["anyOf"][0]["enum"]
    assert plugins.architecture(own) is not declared  # as when a cell is run again
    install(("tower", "towers:tower"))
    for name in ("mlp", "tower", "Own"):
        with pytest.raises(SpecError, match="Expected an architecture under a name of its own"):
            plugins.architecture(empty(name))


def empty(name):
    def made(shape, outputs, make):
        return []

    made.__name__ = name
    return made


def test_workers_know_what_the_program_has_declared(declared, monkeypatch):
    task = Task.of(CliplessTrial, {}, 1)
    monkeypatch.setattr(plugins, "_declared", {})
    assert task.unpack() is CliplessTrial
    assert find_architecture("own").builder is declared.builder


@pytest.mark.usefixtures("declared")
def test_a_cluster_does_not_know_it(tmp_path):
    spec = spec_of(architecture="own")
    with pytest.raises(SpecError, match="Expected an architecture that every node of a cluster knows"):
        run_sweep(spec, Options(out=tmp_path, cluster="10.0.0.1"))
