"""A user's own module becomes a network of layers that computes the same, or is refused by name."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import clipless
from clipless import Adam, Network, TauCCE, convert, layers
from clipless.bounds import bound_network
from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.layers import Conv1d, Conv2d, Dense, Flatten, InputBall, ReLU, Residual
from clipless.plans.trainable import check_trainable
from clipless.projections import Free, SpectralBall

SHAPE = (2, 8, 8)


def own(setup, forward):
    """A module of one's own: ``setup`` gives its parts, ``forward`` gets it and the rows."""

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            for name, part in setup().items():
                setattr(self, name, part)

        def forward(self, x):
            return forward(self, x)

    return Own()


class Block(nn.Module):
    """Two convolutions and the identity around them."""

    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x):
        return F.relu(x + self.second(torch.relu(self.first(x))))


class ResNet(nn.Module):
    """As users write them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, stride=2), nn.ReLU())
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.head = nn.Linear(4 * 2 * 2, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = F.max_pool2d(x, 2)
        return self.head(x.view(x.size(0), -1))


def dense():
    return {"a": nn.Linear(128, 16), "b": nn.Linear(16, 16), "c": nn.Linear(16, 3), "relu": nn.ReLU()}


ACCEPTED = {
    "sequential": lambda: nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.Tanh(), nn.Identity(), nn.Linear(8, 3)),
    "resnet": ResNet,
    "functions": lambda: own(dense, lambda m, x: m.c(torch.sigmoid(m.b(F.softplus(m.a(torch.flatten(x, 1))))))),
    "methods": lambda: own(dense, lambda m, x: m.c(m.b(m.a(x.reshape(x.shape[0], -1)).abs()).relu())),
    "a module without weights applied twice": lambda: own(
        dense, lambda m, x: m.c(m.relu(m.b(m.relu(m.a(x.flatten(1))))))
    ),
    "a sum whose first term is f": lambda: own(dense, lambda m, x: m.c(torch.add(m.b(y := m.a(x.flatten(1))), y))),
    "nested sums": lambda: own(
        lambda: dense() | {"d": nn.Linear(16, 16)},
        lambda m, x: m.c((y := m.a(x.flatten(1))) + m.b(y + m.d(torch.relu(y)))),
    ),
    "circular, grouped and pooled": lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular", groups=2),
        nn.AvgPool2d((2, 2)),
        nn.PixelUnshuffle(2),
        nn.Flatten(),
        nn.Linear(64, 3, bias=False),
    ),
    "layers of the package": lambda: nn.Sequential(
        Conv2d(2, 4, 3, padding=1, bias=True), layers.GroupSort(), layers.L2Pool2d(2), Flatten(), nn.Linear(64, 3)
    ),
    "a network": lambda: Network([Flatten(), Dense(128, 4), ReLU(), Dense(4, 3)], SHAPE),
}


def rows(shape=SHAPE, count=6, norm=5.0):
    x = torch.randn(count, *shape, generator=torch.Generator().manual_seed(2))
    return x / x.flatten(1).norm(dim=1).view(-1, *[1] * len(shape)) * norm


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_has_layers_computes_the_same(name):
    module = ACCEPTED[name]()
    before = {key: value.clone() for key, value in module.state_dict().items()}
    network = convert(module, SHAPE, input_norm=6.0, constraint=Free(), bias_norm=1e6)
    assert type(network) is Network
    if name not in ("layers of the package", "a network"):  # those keep constraints of their own
        torch.testing.assert_close(network(rows()), module(rows()), rtol=1e-5, atol=1e-5)
    assert all(torch.equal(value, module.state_dict()[key]) for key, value in before.items())
    shared = {p.data_ptr() for p in network.parameters()} & {p.data_ptr() for p in module.parameters()}
    assert shared == set()


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_made_has_bounds_that_hold_and_weights_in_their_sets(name):
    network = convert(ACCEPTED[name](), SHAPE, input_norm=6.0, constraint=SpectralBall(1.5), bias_norm=0.5)
    assert check_trainable(network) is network
    bounds, x = bound_network(network), rows(norm=6.0)
    assert (network(x).norm(dim=1) <= bounds.output.norm).all()
    before = {key: value.clone() for key, value in network.state_dict().items()}
    network.project()
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=1e-3, atol=1e-4)


def test_a_resnet_of_one_s_own_trains_privately_is_saved_and_certified(tmp_path):
    model, loss = convert(ResNet(), SHAPE, input_norm=6.0), TauCCE(0.5)
    assert sum(type(layer) is Residual for layer in model.layers) == 2
    data = Split(rows(count=12), torch.arange(12) % 3)
    plan = clipless.make_plan(model, loss, population=12, batch_size=6, delta=0.01, noise_multiplier=1.0, epochs=1)
    assert len(list(clipless.fit(model, loss, data, plan, optimizer=Adam(0.01)))) == 1
    clipless.save(model, tmp_path / "m.safetensors")
    assert torch.equal(clipless.load(tmp_path / "m.safetensors")(data.x), model(data.x))
    assert clipless.evaluate(model, data, radii=["0.01"])["certified@0.01"] >= 0


def test_one_axis_and_vectors_are_converted_too():
    series = nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(40, 2))
    network = convert(series, (2, 10), input_norm=3.0, constraint=Free(), bias_norm=1e6)
    assert any(type(layer) is Conv1d for layer in network.layers)
    torch.testing.assert_close(network(rows((2, 10), norm=2.0)), series(rows((2, 10), norm=2.0)))
    assert convert(nn.Linear(5, 2), (5,), input_norm=1.0)(torch.ones(3, 5)).shape == (3, 2)


def test_the_ball_is_given_or_the_module_s_own():
    module = nn.Sequential(InputBall(2.0), nn.Flatten(), nn.Linear(128, 3))
    assert convert(module, SHAPE).layers[0].radius == 2.0
    with pytest.raises(
        UnsupportedError, match="Expected input_norm for a module that does not begin with an InputBall"
    ):
        convert(module[1:], SHAPE)


def shared():
    parts = dense()
    parts["d"] = nn.Linear(16, 16)
    parts["d"].weight = parts["b"].weight
    return parts


def viewed():
    parts = dense()
    parts["d"] = nn.Linear(16, 16)
    parts["d"].weight = nn.Parameter(parts["b"].weight.detach().T)
    return parts


def hooked():
    parts = dense()
    parts["b"].register_forward_hook(lambda _module, _args, output: output * 2)
    return parts


def replaced():
    parts = dense()
    parts["b"].forward = lambda x: 2 * x
    return parts


def counting(m, x):
    m.calls = getattr(m, "calls", 0) + 1
    return m.c(m.a(x.flatten(1)) if m.calls % 2 else torch.relu(m.a(x.flatten(1))))


class Positional(nn.Module):
    def __init__(self):
        super().__init__()
        self.offset = nn.Parameter(torch.ones(128))
        self.a = nn.Linear(128, 3)

    def forward(self, x):
        return self.a(x.flatten(1) + self.offset)


A = "Cannot convert"
REFUSED = {
    "shared weights": (shared, lambda m, x: m.c(m.d(m.b(m.a(x.flatten(1))))), r"d\.weight: it shares its weights with b\.weight"),
    "a view of other weights": (viewed, lambda m, x: m.c(m.d(m.b(m.a(x.flatten(1))))), r"d\.weight: it shares its weights with b\.weight"),
    "weights applied twice": (dense, lambda m, x: m.c(m.b(m.b(m.a(x.flatten(1))))), "b: its weights are applied twice; build two"),
    "an in-place module": (lambda: dense() | {"relu": nn.ReLU(inplace=True)}, lambda m, x: m.c(m.relu(m.a(x.flatten(1)))), "relu: ReLU with inplace=True has no layer"),
    "an in-place function": (dense, lambda m, x: m.c(F.relu(m.a(x.flatten(1)), inplace=True)), "relu: with inplace=True it has no layer"),
    "an in-place method": (dense, lambda m, x: m.c(m.a(x.flatten(1)).relu_()), "relu_: no layer computes it; it works in place"),
    "an in-place sum": (dense, lambda m, x: (lambda y: m.c(y.__iadd__(m.b(y))))(m.a(x.flatten(1))), "it works in place"),
    "rows that are subtracted": (dense, lambda m, x: m.c((y := m.a(x.flatten(1))) - y.mean(dim=0)), A),
    "a softmax over the batch": (dense, lambda m, x: m.c(m.a(x.flatten(1)).softmax(dim=0)), "softmax: no layer computes it"),
    "rows flattened together": (dense, lambda m, x: m.a(x.flatten()), "start_dim=0 and end_dim=-1 .*; flatten each example"),
    "a view that moves rows": (dense, lambda m, x: m.a(x.view(-1, 128)), r"view: with the shape \(-1, 128\) it has no layer; flatten each"),
    "rows in another order": (dense, lambda m, x: m.a(x.flatten(1).flip(0)), "flip: no layer"),
    "a branch on the data": (dense, lambda m, x: m.c(m.a(x.flatten(1))) if x.sum() > 0 else x, "Cannot follow the forward of Own: .*without branches"),
    "a loop over the rows": (dense, lambda m, x: torch.stack([m.c(m.a(row.flatten())) for row in x]), "Cannot follow the forward of Own"),
    "a branch on the mode": (dense, lambda m, x: m.c(m.a(x.flatten(1))) if m.training else m.c(torch.relu(m.a(x.flatten(1)))), "compute something else"),
    "another function at every call": (dense, counting, "compute something else; its forward has to be the same"),
    "dropout": (lambda: dense() | {"drop": nn.Dropout(0.5)}, lambda m, x: m.c(m.drop(m.a(x.flatten(1)))), "drop: Dropout is no layer .*; leave it out"),
    "dropout as a function": (dense, lambda m, x: m.c(F.dropout(m.a(x.flatten(1)), training=m.training)), "dropout: no layer computes it; leave it out"),
    "batch norm": (lambda: dense() | {"norm": nn.BatchNorm1d(16)}, lambda m, x: m.c(m.norm(m.a(x.flatten(1)))), "norm: BatchNorm1d is no layer .*; it mixes the rows of a batch"),
    "layer norm": (lambda: dense() | {"norm": nn.LayerNorm(16)}, lambda m, x: m.c(m.norm(m.a(x.flatten(1)))), "norm: LayerNorm .*its slope has no bound"),
    "a product": (dense, lambda m, x: m.c((y := m.a(x.flatten(1))) * torch.sigmoid(y)), "mul: no layer computes it; a residual block is the plain sum"),
    "a weighted sum": (dense, lambda m, x: m.c((y := m.a(x.flatten(1))) + 0.5 * m.b(y)), "mul: no layer computes it"),
    "a sum with a factor": (dense, lambda m, x: m.c(torch.add(y := m.a(x.flatten(1)), m.b(y), alpha=2)), "add: no layer computes it"),
    "a sum of two branches": (dense, lambda m, x: m.c(m.b(y := m.a(x.flatten(1))) + torch.relu(y)), r"add: it is no sum x \+ f\(x\)"),
    "a doubled value": (dense, lambda m, x: m.c((y := m.a(x.flatten(1))) + y), r"add: it is no sum x \+ f\(x\)"),
    "a sum with a constant": (dense, lambda m, x: m.c(m.a(x.flatten(1)) + 1.0), "add: no layer computes it"),
    "a sum with noise": (dense, lambda m, x: m.c(m.a(x.flatten(1)) + torch.zeros(16)), "it is not computed from one tensor"),
    "weights in a function": (dense, lambda m, x: F.linear(m.a(x.flatten(1)), m.c.weight, m.c.bias), "linear: no layer computes it; use the module"),
    "a result that is dropped": (dense, lambda m, x: (m.b(y := m.a(x.flatten(1))), m.c(y))[1], "b: its result is not used; remove it"),
    "two results": (dense, lambda m, x: (x, m.c(m.a(x.flatten(1)))), "Expected a forward that returns one tensor"),
    "a hook": (hooked, lambda m, x: m.c(m.b(m.a(x.flatten(1)))), "b: it has forward_hooks; remove them"),
    "a replaced forward": (replaced, lambda m, x: m.c(m.b(m.a(x.flatten(1)))), "b: its forward was replaced"),
    "dilation": (lambda: {"a": nn.Conv2d(2, 2, 3, dilation=2)}, lambda m, x: m.a(x), r"a: Conv2d with dilation=\(2, 2\) has no layer"),
    "padding by name": (lambda: {"a": nn.Conv2d(2, 2, 3, padding="same")}, lambda m, x: m.a(x), "padding='same'"),
    "overlapping windows": (dense, lambda m, x: m.a(F.max_pool2d(x, 3, stride=1).flatten(1)), "max_pool2d: with stride=1"),
    "another slope": (dense, lambda m, x: m.c(F.softplus(m.a(x.flatten(1)), beta=2)), "softplus: with beta=2"),
    "shapes that do not fit": (dense, lambda m, x: m.c(x.flatten(1)), "Cannot apply Own to"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_layer_is_refused_by_name_with_the_remedy(name):
    setup, forward, said = REFUSED[name]
    with pytest.raises(UnsupportedError, match=said) as caught:
        convert(own(setup, forward), SHAPE, input_norm=6.0)
    assert "; " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_parameter_of_a_module_s_own_and_parametrizations_are_refused():
    with pytest.raises(UnsupportedError, match="Cannot convert offset: it is not computed from one tensor"):
        convert(Positional(), SHAPE, input_norm=1.0)
    tied = nn.Sequential(nn.Flatten(), nn.utils.parametrizations.spectral_norm(nn.Linear(128, 3)))
    with pytest.raises(UnsupportedError, match="ParametrizedLinear is no layer"):
        convert(tied, SHAPE, input_norm=1.0)


def test_the_place_of_an_operation_inside_a_block_is_named():
    class Gate(nn.Module):
        def forward(self, x):
            return x.softmax(dim=1)

    with pytest.raises(UnsupportedError, match=r"Cannot convert softmax in 1\.0: no layer computes it"):
        convert(nn.Sequential(nn.Flatten(), nn.Sequential(Gate()), nn.Linear(128, 3)), SHAPE, input_norm=1.0)


def test_a_subclass_of_a_known_module_is_followed_by_what_it_computes():
    class Ten(nn.Linear):
        def forward(self, x):
            return 10 * super().forward(x)

    with pytest.raises(UnsupportedError, match="mul"):
        convert(nn.Sequential(nn.Flatten(), Ten(128, 3)), SHAPE, input_norm=1.0)


def test_a_function_that_only_has_the_name_of_one_that_is_known_is_refused():
    def relu(x):
        return 10 * x

    module = own(dense, lambda m, x: m.c(relu(m.a(x.flatten(1)))))
    with pytest.raises(UnsupportedError, match="mul: no layer"):
        convert(module, SHAPE, input_norm=1.0)


def test_two_inputs_are_refused():
    class Two(nn.Module):
        def forward(self, x, scale=1.0):
            return x * scale

    with pytest.raises(UnsupportedError, match="Expected a forward with one input, got 2"):
        convert(Two(), (3,), input_norm=1.0)


def test_what_is_frozen_stays_frozen_and_lies_in_its_set():
    module = nn.Sequential(nn.Flatten(), nn.Linear(128, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        module[1].weight.mul_(100.0)
    module[1].requires_grad_(False)
    network = convert(module, SHAPE, input_norm=2.0, constraint=SpectralBall(0.5))
    assert [p.requires_grad for p in network.parameters()] == [False, False, True, True]
    assert torch.linalg.matrix_norm(network.layers[2].weight, 2) <= 0.5001
    assert (network(rows(norm=2.0)).norm(dim=1) <= bound_network(network).output.norm).all()


def test_no_generator_of_torch_is_drawn_from():
    before = torch.get_rng_state()
    convert(ACCEPTED["sequential"]().eval(), SHAPE, input_norm=1.0)
    torch.manual_seed(0)
    state = torch.get_rng_state()
    module = ResNet()
    torch.set_rng_state(state)
    convert(module, SHAPE, input_norm=1.0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(before)
