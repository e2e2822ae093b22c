"""Options of architectures in a spec: biases in a declared ball, activations and poolings wherever they mean something."""

import pytest

from clipless.layers import Conv2d, Dense, MaxPool2d, Tanh
from sweeper.errors import SpecError
from sweeper.specification.fields.choices import ARCHITECTURE_OPTIONS
from sweeper.specification.spec import Spec
from sweeper.trials.build import build_loss, build_model


def model_of(content, digits, **options):
    content["model"] = options
    spec = Spec.from_mapping(content, "mnist.yaml")
    config = spec.space.resolve(spec.space.suggest(None))
    return build_model(config, digits, build_loss(config), 0)


@pytest.mark.parametrize("name", ARCHITECTURE_OPTIONS)
def test_the_radius_of_the_bias_ball_reaches_every_layer(content, digits, name):
    own = {"name": name, "bias": True, "bias_norm": 0.25}
    for options in ({"architecture": name, "bias": True, "bias_norm": 0.25}, {"architecture": own}):
        model = model_of(content, digits, **options)
        layers = [m for m in model.modules() if isinstance(m, Dense | Conv2d)]
        assert len(layers) > 0
        assert {layer.bias_norm for layer in layers} == {0.25}


def test_activation_and_pooling_reach_patch_nets_and_the_hidden_layer_of_scattering(content, digits):
    patch = model_of(content, digits, architecture="patch-net", activation="tanh", pooling="max", depth=1)
    assert sum(type(layer) is Tanh for layer in patch.layers) == 2
    assert sum(type(layer) is MaxPool2d for layer in patch.layers) == 1
    head = {"name": "scattering", "hidden": 8, "activation": "tanh"}
    assert sum(type(layer) is Tanh for layer in model_of(content, digits, architecture=head).layers) == 1


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ({"architecture": "mlp", "bias_norm": 2}, "Expected no bias_norm without bias: true, got bias_norm=2.0 (model.bias_norm in mnist.yaml)"),
        ({"architecture": {"name": "mlp", "bias_norm": 2}}, "Expected no bias_norm without bias: true, got bias_norm=2.0 (model.architecture.mlp.bias_norm in mnist.yaml)"),
        ({"architecture": "mlp", "pooling": "l2"}, "Expected no pooling without an architecture that takes it (convnet, lenet, patch-net, shift-net, vgg), got pooling='l2' (model.pooling in mnist.yaml)"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_are_refused(content, model, sentence):
    content["model"] = model
    with pytest.raises(SpecError) as caught:
        Spec.from_mapping(content, "mnist.yaml")
    assert str(caught.value) == sentence


@pytest.mark.parametrize(
    "model",
    [
        {"architecture": "mlp", "bias": [True, False], "bias_norm": [0.5, 2]},
        {"architecture": [{"name": "mlp", "bias": True}, "convnet"], "bias_norm": 2},
        {"architecture": {"name": "mlp", "bias_norm": 2}, "bias": True},
    ],
)
def test_biases_may_be_searched_with_their_radius(content, model):
    content["model"] = model
    assert Spec.from_mapping(content).dimensions
