"""Every architecture: shapes, rules, determinism, and what does not fit is refused."""

from math import prod

import pytest
import torch

import clipless
from clipless import zoo
from clipless.bounds import WeightNorms, bound_network
from clipless.certificates.certify import certified_radii, float64_logits
from clipless.datasets import Split
from clipless.errors import UnsupportedError
from clipless.layers import Conv2d, ConvexPotential, Dense, Scattering2d
from clipless.network import split_fixed_prefix
from clipless.plans.trainable import check_trainable
from clipless.projections import Orthogonal, SpectralBall
from clipless.saving import architecture as described
from clipless.testing import broken_weights, neighbour_ratios

SMALL = {
    "convnet": {"width": 4, "hidden": 8},
    "mlp": {"width": 8},
    "patch-net": {"width": 4, "hidden": 8},
    "scattering": {"orientations": 2, "hidden": 8},
    "lenet": {"width": 6, "hidden": 20},
    "vgg": {"width": 4, "hidden": 8},
    "resnet": {"width": 4},
    "wide-resnet": {"width": 2, "widening": 3},
    "mixer": {"patch": 4, "depth": 1},
    "cpl": {"width": 8},
    "shift-net": {"width": 4, "hidden": 8},
}


def build(name, shape=(2, 8, 8), outputs=3, **options):
    generator = torch.Generator().manual_seed(0)
    return zoo.build(name, shape, outputs, **({"input_norm": 2.0, "generator": generator} | SMALL[name] | options))


def inputs(shape=(2, 8, 8), rows=5):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1))


def expansion(model):
    """What fixed layers in front may enlarge a distance by; trained layers do not."""
    return prod(layer.lipschitz for layer in model.layers if type(layer) is Scattering2d)


def test_every_architecture_has_a_case_here():
    assert set(SMALL) == set(zoo.ARCHITECTURES)


@pytest.mark.parametrize("name", SMALL)
def test_logits_come_out(name):
    assert build(name)(inputs()).shape == (5, 3)


@pytest.mark.parametrize("name", SMALL)
def test_private_training_can_vouch_for_it(name):
    assert check_trainable(model := build(name)) is model


@pytest.mark.parametrize("name", SMALL)
def test_the_output_is_bounded_by_the_input_ball(name):
    model = build(name)
    bounds, gain = bound_network(model), expansion(model) * 1.001
    assert bounds.output.shape == (3,)
    assert bounds.output.norm <= 2.0 * gain
    assert bounds.lipschitz() <= gain


@pytest.mark.parametrize("name", SMALL)
def test_measured_norms_do_not_exceed_those_of_the_constraints(name):
    model = build(name)
    assert bound_network(model, WeightNorms.MEASURED).lipschitz() <= bound_network(model).lipschitz() * 1.001


@pytest.mark.parametrize("name", SMALL)
def test_two_inputs_are_mapped_no_further_apart(name):
    model, x = build(name), inputs(rows=64)
    distances = (model(x[:32]) - model(x[32:])).norm(dim=1)
    assert (distances <= (x[:32] - x[32:]).flatten(1).norm(dim=1) * expansion(model) * (1 + 1e-5)).all()


@pytest.mark.parametrize("name", SMALL)
def test_the_generator_fixes_the_initial_weights(name):
    first, second, third = (
        build(name, generator=torch.Generator().manual_seed(seed)).state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not all(torch.equal(first[key], third[key]) for key in first)


@pytest.mark.parametrize("name", SMALL)
def test_the_constraint_reaches_every_weight(name):
    ball = SpectralBall(0.5)
    kinds = (ConvexPotential, Conv2d, Dense)
    weighted = [m for m in build(name, constraint=ball).layers if type(m) in kinds]
    assert [layer.constraint for layer in weighted] == [ball] * len(weighted)
    default = [m.constraint for m in build(name).layers if type(m) in kinds]
    assert default == [Orthogonal()] * len(default)


def test_a_patch_net_of_tall_kernels_preserves_norms_backwards():
    """Stride = kernel, and no layer with fewer outputs than inputs before the dense ones."""
    model = build("patch-net", (1, 4, 4), outputs=64, width=4, depth=2, hidden=64, input_norm=100.0)
    x = inputs((1, 4, 4)).requires_grad_()
    y = model(x)
    torch.testing.assert_close(y.norm(dim=1), x.flatten(1).norm(dim=1))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_depth_is_the_number_of_blocks(depth):
    assert sum(type(layer) is Dense for layer in build("mlp", depth=depth).layers) == depth
    for name in ("convnet", "patch-net"):
        assert sum(type(layer) is Conv2d for layer in build(name, depth=depth).layers) == depth


def test_tables_and_images_go_into_an_mlp():
    assert build("mlp", (7,))(inputs((7,))).shape == (5, 3)


def test_maps_that_halving_does_not_divide_are_handled():
    assert build("convnet", (1, 7, 9))(inputs((1, 7, 9))).shape == (5, 3)
    assert build("patch-net", (1, 7, 9))(inputs((1, 7, 9))).shape == (5, 3)


@pytest.mark.parametrize("name", ["convnet", "patch-net"])
@pytest.mark.parametrize("shape", [(64,), (1, 3, 3), (1, 2, 8)])
def test_maps_that_are_too_small_are_refused(name, shape):
    with pytest.raises(ValueError, match=r"Expected \(C, H, W\) maps of at least 4"):
        build(name, shape)


def test_an_mlp_without_layers_is_refused():
    with pytest.raises(ValueError, match="depth >= 1"):
        build("mlp", depth=0)


@pytest.mark.parametrize("hidden", [0, 8])
@pytest.mark.parametrize("order", [1, 2])
def test_a_scattering_network_has_one_dense_layer_or_two(order, hidden):
    model = build("scattering", order=order, hidden=hidden)
    assert sum(type(layer) is Dense for layer in model.layers) == 1 + (hidden > 0)
    assert model.layers[1].order == order
    assert model(inputs()).shape == (5, 3)


def test_features_can_be_clipped():
    bounds = bound_network(build("scattering", feature_clip=0.25, hidden=0))
    assert bounds.output.norm <= 0.25 * 1.001
    assert [bound.parameter_gains for _, bound in bounds.layers][-1]["weight"] <= 0.25 * 1.001


def test_groups_of_features_are_normalised_by_their_own_deviation_or_the_floor():
    normal, faint = (
        split_fixed_prefix(build("scattering", feature_groups=5, feature_floor=floor, hidden=0))[0](inputs())
        for floor in (1e-4, 10.0)
    )
    plain_BGN = split_fixed_prefix(build("scattering", hidden=0))[0](inputs()).unflatten(1, (5, -1))
    centred_BGN = plain_BGN - plain_BGN.mean(dim=2, keepdim=True)
    assert torch.allclose(faint.unflatten(1, (5, -1)), centred_BGN / 10.0, atol=1e-6)
    deviation_BG1 = plain_BGN.std(dim=2, correction=0, keepdim=True)
    assert torch.allclose(normal.unflatten(1, (5, -1)), centred_BGN / deviation_BG1, atol=1e-4)


def test_a_certificate_divides_by_the_floor_of_normalised_features():
    plain = bound_network(build("scattering", hidden=0)).lipschitz()
    model = build("scattering", feature_groups=5, feature_floor=0.25, hidden=0)
    assert bound_network(model).lipschitz() == pytest.approx(4 * plain, rel=1e-3)


def test_a_scattering_network_refuses_what_it_cannot_take():
    with pytest.raises(ValueError, match=r"Expected \(C, H, W\) maps"):
        build("scattering", (64,))
    with pytest.raises(ValueError, match="Expected order 1 or 2, got order=3"):
        build("scattering", order=3)
    with pytest.raises(ValueError, match="Expected feature_groups to divide the 10 channels, got 3"):
        build("scattering", feature_groups=3)


def test_an_unknown_architecture_is_refused_with_a_hint():
    with pytest.raises(UnsupportedError, match="did you mean 'convnet'"):
        zoo.build("convet", (1, 8, 8), 3, input_norm=1.0)
    with pytest.raises(
        UnsupportedError,
        match=r"Expected an architecture among convnet, cpl, lenet, mixer, mlp, patch-net, resnet, scattering, shift-net, vgg, wide-resnet, got 'qqq'$",
    ):
        zoo.build("qqq", (1, 8, 8), 3, input_norm=1.0)


@pytest.mark.parametrize("name", SMALL)
def test_an_option_of_another_architecture_is_refused_by_name(name):
    with pytest.raises(UnsupportedError, match=f"Expected an option of {name} among .*, got 'dropout'"):
        build(name, dropout=0.5)


def test_the_table_of_architectures_cannot_be_changed():
    with pytest.raises(TypeError):
        zoo.ARCHITECTURES["mlp"] = None


NATURAL = {
    "lenet": [(1, 28, 28), (3, 32, 32), (1, 8, 8)],
    "vgg": [(3, 32, 32), (1, 9, 7)],
    "resnet": [(3, 32, 32), (1, 28, 28)],
    "wide-resnet": [(3, 32, 32)],
    "mixer": [(3, 32, 32), (1, 28, 28), (1, 8, 8)],
    "convnet": [(1, 28, 28)],
    "mlp": [(14,)],
    "patch-net": [(3, 32, 32)],
    "scattering": [(1, 28, 28)],
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "shape"), [(name, shape) for name, shapes in NATURAL.items() for shape in shapes])
def test_each_trains_privately_on_its_natural_shapes_and_is_saved_and_certified(name, shape, tmp_path):
    model, loss = build(name, shape), clipless.TauCCE(0.5)
    x, y = inputs(shape, rows=6), torch.tensor([0, 1, 2] * 2)
    plan = clipless.make_plan(model, loss, population=6, batch_size=3, delta=0.1, noise_multiplier=1.0, epochs=1)
    before = [p.clone() for p in model.parameters()]
    list(clipless.fit(model, loss, Split(x, y), plan, optimizer=clipless.SGD(0.1)))
    changed = [not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True)]
    assert all(changed)
    assert all(p.isfinite().all() for p in model.parameters())
    clipless.save(model, tmp_path / "m.safetensors")
    loaded = clipless.load(tmp_path / "m.safetensors")
    assert torch.equal(loaded(x), model(x))
    logits = float64_logits(loaded, x)
    radii = certified_radii(loaded, logits, logits.argmax(dim=1))
    assert radii.isfinite().all()
    assert (radii > 0).any()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("activation", zoo.ACTIVATIONS)
def test_every_activation_fits_every_architecture(name, activation):
    model = build(name, activation=activation, bias=True)
    plan = clipless.make_plan(
        model, clipless.TauCCE(0.1), population=100, batch_size=10, delta=1e-3, noise_multiplier=1.0, epochs=1,
        sensitivity_fraction=0.3,
    )  # fmt: skip
    with broken_weights(model, 20.0):
        ratios = neighbour_ratios(model, clipless.TauCCE(0.1), inputs(), torch.tensor([0, 1, 2, 0, 1]), plan)
    assert any("bias" in name for name in ratios)
    assert max(ratios.values()) <= 1 + 1e-4


@pytest.mark.parametrize("name", ["convnet", "lenet", "vgg", "patch-net"])
@pytest.mark.parametrize("pooling", zoo.POOLINGS)
def test_every_pooling_keeps_the_constant(name, pooling):
    options = {"depth": 1} if name == "patch-net" else {}
    model = build(name, pooling=pooling, **options)
    assert any(type(layer) is type(POOLED[pooling]) for layer in model.layers)
    assert model(inputs()).shape == (5, 3)
    assert bound_network(model).lipschitz() <= 1.001


POOLED = {name: make(2) for name, make in zoo.POOLINGS.items()}


def test_a_pooled_patch_net_needs_maps_that_pooling_leaves_something_of():
    assert build("patch-net", (1, 16, 17), pooling="max", depth=2)(inputs((1, 16, 17))).shape == (5, 3)
    with pytest.raises(ValueError, match=r"maps of at least 16 for patch=2, pooling=max and depth=2"):
        build("patch-net", (1, 16, 15), pooling="max", depth=2)


@pytest.mark.parametrize("name", SMALL)
def test_biases_are_kept_in_the_ball_that_is_declared(name):
    """Pushed far out, every bias comes back to exactly that radius; without biases there is nothing to keep."""
    model = build(name, bias=True, bias_norm=0.125)
    biases = {path: p for path, p in model.named_parameters() if path.endswith("bias")}
    assert len(biases) == sum(path.endswith("weight") for path, _ in model.named_parameters())
    with torch.no_grad():
        for bias in biases.values():
            bias.fill_(3.0)
    model.project()
    assert [b.norm().item() for b in biases.values()] == pytest.approx([0.125] * len(biases), rel=1e-6)
    assert not any(path.endswith("bias") for path, _ in build(name, bias_norm=0.125).named_parameters())


@pytest.mark.parametrize("name", SMALL)
def test_a_larger_bias_ball_only_raises_the_bound_of_the_output(name):
    small, large = (bound_network(build(name, bias=True, bias_norm=norm)) for norm in (0.5, 2.0))
    assert small.output.norm < large.output.norm
    assert small.lipschitz() == large.lipschitz()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", SMALL)
def test_a_bias_ball_of_no_radius_is_refused(name, bad):
    with pytest.raises(ValueError, match="Expected 0 < bias_norm < inf"):
        build(name, bias=True, bias_norm=bad)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_the_hidden_layer_of_a_scattering_network_takes_an_activation(activation):
    kinds = [type(layer) for layer in build("scattering", hidden=8, activation=activation).layers]
    assert kinds.count(type(zoo.ACTIVATIONS[activation](8))) == 1
    assert kinds[-3:] == [Dense, type(zoo.ACTIVATIONS[activation](8)), Dense]


def test_unknown_activations_and_poolings_are_refused():
    with pytest.raises(UnsupportedError, match=r"Expected an activation among groupsort, .*, got 'gelu'"):
        build("mlp", activation="gelu")
    with pytest.raises(UnsupportedError, match="Expected a pooling among l2, max, avg, got 'min'"):
        build("convnet", pooling="min")


@pytest.mark.parametrize("activation", ["groupsort", "fullsort", "abs", "householder"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 16)])
def test_a_mixer_preserves_norms_forwards_and_backwards(activation, shape):
    model = build("mixer", shape, outputs=prod(shape), input_norm=100.0, depth=2, activation=activation)
    x = inputs(shape).requires_grad_()
    y = model(x)
    torch.testing.assert_close(y.norm(dim=1), x.flatten(1).norm(dim=1))
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(y, x, g)
    torch.testing.assert_close(gradient.flatten(1).norm(dim=1), g.norm(dim=1))


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mixer", (1, 9, 8), {}),
        ("mixer", (64,), {}),
        ("lenet", (1, 3, 3), {}),
        ("vgg", (1, 4, 4), {"depth": 3}),
        ("resnet", (1, 2, 2), {"depth": 3}),
        ("resnet", (1, 8, 8), {"skip": 1.0}),
    ],
)
def test_maps_and_options_that_do_not_fit_are_refused(name, shape, options):
    with pytest.raises(ValueError, match="Expected"):
        build(name, shape, **options)


@pytest.mark.parametrize("name", ["resnet", "wide-resnet"])
def test_a_residual_network_may_learn_its_skips(name):
    model = build(name, learned_skip=True, blocks=2)
    mixes = [path for path, _ in model.named_parameters() if path.endswith("mix")]
    assert len(mixes) == 4
    assert check_trainable(model) is model


def test_options_of_layers_are_one_frozen_value_of_every_architecture():
    options = zoo.LayerOptions(activation="tanh", bias=True, bias_norm=0.5, constraint=SpectralBall(0.7))
    flat = {"activation": "tanh", "bias": True, "bias_norm": 0.5, "constraint": SpectralBall(0.7)}
    for name in SMALL:
        generators = (torch.Generator().manual_seed(3) for _ in range(2))
        shared = {"input_norm": 2.0} | SMALL[name]
        first = zoo.ARCHITECTURES[name]((2, 8, 8), 3, options=options, generator=next(generators), **shared)
        second = zoo.build(name, (2, 8, 8), 3, generator=next(generators), **flat, **shared)
        assert described(first) == described(second)
        assert all(torch.equal(first.state_dict()[key], value) for key, value in second.state_dict().items())
    with pytest.raises(AttributeError):
        options.bias = False


def test_the_options_of_an_architecture_are_its_own_keywords():
    assert set(zoo.mixer.own_options) == {"patch", "depth", "skip"}
    assert zoo.wide_resnet.name == "wide-resnet"
    assert "Dense layers" in zoo.mlp.__doc__
