"""Every architecture: shapes, rules, determinism, and what does not fit is refused."""

import pytest
import torch

from clipless import zoo
from clipless.bounds import WeightNorms, bound_network
from clipless.errors import UnsupportedError
from clipless.inspection import check_trainable
from clipless.layers import Conv2d, Dense
from clipless.projections import Orthogonal, SpectralBall

SMALL = {"convnet": {"width": 4, "hidden": 8}, "mlp": {"width": 8}, "patch-net": {"width": 4, "hidden": 8}}


def build(name, shape=(2, 8, 8), outputs=3, **options):
    generator = torch.Generator().manual_seed(0)
    return zoo.build(name, shape, outputs, **({"input_norm": 2.0, "generator": generator} | SMALL[name] | options))


def inputs(shape=(2, 8, 8), rows=5):
    return torch.randn(rows, *shape, generator=torch.Generator().manual_seed(1))


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
    bounds = bound_network(build(name))
    assert bounds.output.shape == (3,)
    assert bounds.output.norm <= 2.0 * 1.001
    assert bounds.lipschitz() <= 1.001


@pytest.mark.parametrize("name", SMALL)
def test_measured_norms_do_not_exceed_those_of_the_constraints(name):
    model = build(name)
    assert bound_network(model, WeightNorms.MEASURED).lipschitz() <= bound_network(model).lipschitz() * 1.001


@pytest.mark.parametrize("name", SMALL)
def test_two_inputs_are_mapped_no_further_apart(name):
    model, x = build(name), inputs(rows=64)
    distances = (model(x[:32]) - model(x[32:])).norm(dim=1)
    assert (distances <= (x[:32] - x[32:]).flatten(1).norm(dim=1) * (1 + 1e-5)).all()


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
    weighted = [m for m in build(name, constraint=ball).layers if type(m) in (Dense, Conv2d)]
    assert [layer.constraint for layer in weighted] == [ball] * len(weighted)
    default = [m.constraint for m in build(name).layers if type(m) in (Dense, Conv2d)]
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


def test_an_unknown_architecture_is_refused_with_a_hint():
    with pytest.raises(UnsupportedError, match="did you mean 'convnet'"):
        zoo.build("convet", (1, 8, 8), 3, input_norm=1.0)
    with pytest.raises(UnsupportedError, match=r"Expected an architecture among convnet, mlp, patch-net, got 'qqq'$"):
        zoo.build("qqq", (1, 8, 8), 3, input_norm=1.0)


@pytest.mark.parametrize("name", SMALL)
def test_an_option_of_another_architecture_is_refused_by_name(name):
    with pytest.raises(UnsupportedError, match=f"Expected an option of {name} among .*, got 'dropout'"):
        build(name, dropout=0.5)


def test_the_table_of_architectures_cannot_be_changed():
    with pytest.raises(TypeError):
        zoo.ARCHITECTURES["mlp"] = None
