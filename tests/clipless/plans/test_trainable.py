"""What private training cannot vouch for is refused by name."""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as torch_module

from clipless import Network, zoo
from clipless.errors import InvalidBoundError, UnsupportedError
from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall
from clipless.plans.trainable import check_arithmetic, check_rows_apart, check_trainable
from tests.clipless.factories import Loud

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def network():
    return Network([InputBall(1.0), Dense(4, 4), GroupSort(), Dense(4, 2)], (4,))


def refused(model, match, error=UnsupportedError):
    with pytest.raises(error, match=match):
        check_trainable(model)


@pytest.mark.parametrize("name", zoo.ARCHITECTURES)
def test_networks_of_the_zoo_pass(name):
    model = zoo.build(name, (1, 8, 8), 3, input_norm=1.0)
    assert check_trainable(model) is model


class Doubling(Network):  # type: ignore[misc]
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize("name", ["forward", "project"])
def test_a_replaced_method_of_the_network_is_refused(name):
    model = network()
    setattr(model, name, lambda *_: None)
    refused(model, f"The {name} of this Network was replaced")


def test_a_replaced_forward_of_a_layer_is_refused():
    model = network()
    model.layers[1].forward = lambda x: x
    refused(model, "forward of this Dense was replaced")


@pytest.mark.parametrize("layer", [Loud(4, 4), nn.Linear(4, 4), nn.Sequential(Dense(4, 4)), nn.ReLU()])
def test_a_layer_without_a_rule_of_its_own_is_refused(layer):
    model = Network([InputBall(1.0), layer, Dense(4, 2)], (4,))
    refused(model, f"No bound rule for layer {type(layer).__name__}")


def test_a_parametrised_layer_is_refused():
    model = network()
    nn.utils.parametrizations.orthogonal(model.layers[1])
    refused(model, "No bound rule for layer ParametrizedDense")


HOOKS = {
    "forward": lambda m: m.register_forward_hook(lambda *_: None),
    "forward_pre": lambda m: m.register_forward_pre_hook(lambda *_: None),
    "backward": lambda m: m.register_full_backward_hook(lambda *_: None),
    "backward_pre": lambda m: m.register_full_backward_pre_hook(lambda *_: None),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("path", ["", "layers.1"])
def test_hooks_on_a_module_are_refused_until_removed(hook, path):
    model = network()
    handle = HOOKS[hook](model.get_submodule(path))
    refused(model, f"Expected no hooks on {path or 'the network'}, found {hook}_hooks")
    handle.remove()
    assert check_trainable(model) is model


GLOBAL_HOOKS = {
    "forward": lambda: torch_module.register_module_forward_hook(lambda *_: None),
    "forward_pre": lambda: torch_module.register_module_forward_pre_hook(lambda *_: None),
    "backward": lambda: torch_module.register_module_full_backward_hook(lambda *_: None),
    "backward_pre": lambda: torch_module.register_module_full_backward_pre_hook(lambda *_: None),
}


@pytest.mark.parametrize("hook", GLOBAL_HOOKS)
def test_global_hooks_are_refused_until_removed(hook):
    model = network()
    handle = GLOBAL_HOOKS[hook]()
    try:
        refused(model, f"Expected no global module hooks in private training, found global_{hook}_hooks")
    finally:
        handle.remove()
    assert check_trainable(model) is model


@pytest.mark.parametrize("register", ["register_hook", "register_post_accumulate_grad_hook"])
def test_hooks_on_a_parameter_are_refused_until_removed(register):
    model = network()
    handle = getattr(model.layers[3].weight, register)(lambda *_: None)
    refused(model, r"Expected no hooks on parameter layers\.3\.weight")
    handle.remove()
    assert check_trainable(model) is model


def test_tied_parameters_are_refused():
    model = network()
    model.layers[3] = Dense(4, 4)
    model.layers[3].weight = model.layers[1].weight
    refused(model, r"found layers\.3\.weight tied to layers\.1\.weight")


def test_parameters_that_share_memory_are_refused():
    model = network()
    model.layers[3].weight = nn.Parameter(model.layers[1].weight.detach()[:2])
    refused(model, r"found layers\.3\.weight tied to layers\.1\.weight")


def with_attribute(place, name, parameter):
    model = network()
    setattr(model.get_submodule(place), name, nn.Parameter(parameter))
    return model


LAYER = Dense(4, 4)
REFUSED = {
    "a module": (nn.Sequential(InputBall(1.0), Dense(4, 2)), "Expected a clipless.Network, got Sequential"),
    "a subclass": (Doubling([InputBall(1.0), Dense(4, 2)], (4,)), "got Doubling"),
    "a layer used twice": (Network([InputBall(1.0), LAYER, LAYER], (4,)), "one layer object in two places"),
    "a parameter outside": (with_attribute("", "scale", torch.ones(1)), "own scale, got Network"),
    "one unknown to its layer": (with_attribute("layers.1", "bias", torch.zeros(4)), r"layers\.1\.bias"),
    **{
        str(dtype): (network().to(dtype), rf"Expected float32 parameters, got layers\.1\.weight in {dtype}")
        for dtype in (torch.float64, torch.float16, torch.bfloat16)
    },
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_network_that_the_guard_cannot_vouch_for_is_refused(name):
    refused(*REFUSED[name])


@pytest.mark.parametrize(
    ("layers", "shape", "match"),
    [
        ([Dense(4, 2)], (4,), "put an InputBall"),
        ([InputBall(1.0), Flatten(), Dense(5, 2)], (4,), "Expected an input of shape"),
        ([InputBall(1.0), Conv2d(1, 2, 3)], (2, 5, 5), "Expected an input of shape"),
    ],
)
def test_a_network_without_a_bound_is_refused(layers, shape, match):
    refused(Network(layers, shape), match, InvalidBoundError)


def test_autocast_is_refused_and_nothing_else(monkeypatch):
    check_arithmetic(CPU)
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(UnsupportedError, match="autocast"):
        check_arithmetic(CPU)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda kind: kind == "cuda")
    with pytest.raises(UnsupportedError, match="autocast"):
        check_arithmetic(CUDA)
    check_arithmetic(CPU)


@pytest.mark.parametrize("precision", ["medium", "high", "highest"])
@pytest.mark.parametrize("rows", [3, 70])
def test_rows_stay_apart_in_passes_of_any_precision(precision, rows):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        check_rows_apart(network(), [rows])
        check_arithmetic(CPU)
    finally:
        torch.set_float32_matmul_precision(before)


class Mixing(torch.autograd.Function):
    """Rows apart forwards, and mixed backwards."""

    @staticmethod
    def forward(_, x):
        return x.clone()

    @staticmethod
    def backward(_, g):
        return g + g.sum(dim=0) * 1e-9


def test_a_network_whose_gradients_mix_rows_is_refused(monkeypatch):
    check_rows_apart(network())
    monkeypatch.setattr(InputBall, "forward", lambda _, x: Mixing.apply(x * x))
    with pytest.raises(UnsupportedError, match="mixes rows"):
        check_rows_apart(network())
