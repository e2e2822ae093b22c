"""The scattering transform: its constant is one, computed from the numbers that are applied."""

import pytest
import torch
import torch.nn.functional as F

from clipless.bounds import Signal, bound_layer
from clipless.errors import InvalidBoundError
from clipless.layers import Scattering2d
from clipless.layers._wavelets import average, average_padding, scattering_lipschitz, wavelet_radius, wavelets
from clipless.testing import coupled_rows, worst_ratios


def normal(*shape, seed=0, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), **options)


def linear_part(size, scales, orientations, gain0, gain1):
    """The matrix of (gain0 P, gain1 W) on images of ``size``: W the first wavelets, without modulus and average."""
    basis = torch.eye(size[0] * size[1], dtype=torch.float64).view(-1, 1, *size)
    smooth = F.conv2d(basis, average(scales).double(), stride=2**scales, padding=average_padding(scales))
    parts = [gain0 * smooth.flatten(1)]
    for scale in range(scales):
        bank, radius = wavelets(scale, orientations).double(), wavelet_radius(scale, orientations)
        parts.append(gain1 * F.conv2d(basis, bank, stride=2**scale, padding=radius).flatten(1))
    return torch.cat(parts, dim=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [(16, 16), (12, 20)])
@pytest.mark.parametrize("scales", [1, 2])
def test_the_constant_of_averages_alone_is_their_operator_norm(size, scales):
    exact = torch.linalg.matrix_norm(linear_part(size, scales, 4, 1.0, 0.0), ord=2).item()
    bound = Scattering2d(size, scales, 4, (1.0, 0.0)).lipschitz
    assert exact <= bound <= 1.1 * exact


@pytest.mark.sampled(5)
@pytest.mark.parametrize("scales", [1, 2])
@pytest.mark.parametrize("gains", [(1.0, 1.0), (0.2, 1.0), (1.0, 0.3)])
def test_the_first_order_constant_is_the_norm_of_averages_and_wavelets_together(scales, gains):
    """With the average's own constant for each wavelet's path, as in equation (2) of clipless.layers._wavelets."""
    size = (16, 16)
    bound = Scattering2d(size, scales, 4, gains).lipschitz
    paths = [
        Scattering2d((n, n), scales - j, 4, (gains[1], 0.0)).lipschitz
        for j, n in enumerate(16 // 2**k for k in range(scales))
    ]
    assert bound <= (torch.linalg.matrix_norm(linear_part(size, scales, 4, gains[0], max(paths)), ord=2) * 1.1)
    assert bound >= torch.linalg.matrix_norm(linear_part(size, scales, 4, gains[0], min(paths)), ord=2) * (1 - 1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (Scattering2d((16, 16), 2, 4, (1.0, 1.0, 1.0)), (1, 16, 16)),
        (Scattering2d((14, 9), 2, 3, (0.2, 1.0, 2.0)), (1, 14, 9)),
        (Scattering2d((8, 8), 3, 2, (0.0, 0.0, 1.0)), (2, 8, 8)),
        (Scattering2d((12, 12), 1, 8, (0.0, 1.0)), (1, 12, 12)),
    ],
)
def test_no_search_exceeds_the_constant(layer, shape):
    found = worst_ratios(layer, shape, starts=3, steps=60)
    assert 0.3 <= max(found.values()) <= 1 + 1e-6, found


def test_distances_grow_by_at_most_the_constant():
    """Between two images, not only from zero: gradient ascent on the pair."""
    layer = Scattering2d((16, 16), 2, 4, (0.5, 1.0, 1.5)).double()
    x, y = (normal(1, 1, 16, 16, seed=s, dtype=torch.float64).requires_grad_() for s in (1, 2))
    optimizer = torch.optim.Adam([x, y], lr=0.05)
    worst = 0.0
    for _ in range(80):
        ratio = (layer(x) - layer(y)).norm() / (x - y).norm()
        worst = max(worst, ratio.item())
        optimizer.zero_grad()
        (-ratio).backward()
        optimizer.step()
    assert 0.5 * layer.lipschitz <= worst <= layer.lipschitz


def test_the_usual_front_has_a_constant_a_little_above_one():
    assert 1.0 < Scattering2d((28, 28)).lipschitz < 1.25
    assert Scattering2d((28, 28), gains=(0.2, 1.0)).lipschitz < Scattering2d((28, 28), gains=(1.0, 1.0)).lipschitz


def test_the_constant_scales_with_the_gains():
    one = scattering_lipschitz((16, 16), 2, 4, (0.5, 1.0, 1.5))
    assert scattering_lipschitz((16, 16), 2, 4, (1.0, 2.0, 3.0)) == pytest.approx(2 * one, rel=1e-9)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("size", [(28, 28), (30, 17), (5, 5), (1, 1)])
@pytest.mark.parametrize("gains", [(1.0, 1.0), (1.0, 1.0, 1.0)])
@pytest.mark.parametrize("scales", [1, 2, 3])
def test_shapes_are_as_announced(size, gains, scales):
    layer = Scattering2d(size, scales, 4, gains)
    x = normal(2, 3, *size)
    assert tuple(layer(x).shape[1:]) == layer.output_shape(3) == bound_layer(layer, Signal((3, *size))).output.shape


def test_a_constant_image_keeps_its_norm_in_the_averages_and_excites_no_wavelet():
    layer = Scattering2d((32, 32), 2, 4, (1.0, 1.0))
    y = layer(torch.ones(1, 1, 32, 32))[0, :, 3:5, 3:5]
    assert torch.allclose(y[0], torch.full((2, 2), 4.0), atol=1e-4)
    assert y[1:].abs().max() < 1e-4


def test_an_oriented_wave_excites_its_own_orientation_most():
    layer = Scattering2d((32, 32), 1, 4, (0.0, 1.0))
    columns = torch.arange(32, dtype=torch.float32).expand(1, 1, 32, 32)
    for k, wave in ((0, columns), (2, columns.mT)):
        y = layer(torch.cos(2.0 * wave))[0, 1:, 4:12, 4:12]
        assert int(y.sum(dim=(1, 2)).argmax()) == k


def test_channels_are_treated_alone_and_come_in_order():
    layer, x = Scattering2d((8, 8), 2, 3), normal(2, 2, 8, 8)
    both, second = layer(x), layer(x[:, 1:])
    torch.testing.assert_close(both[:, both.shape[1] // 2 :], second)


def test_gains_scale_the_channels_of_their_order():
    x = normal(2, 1, 8, 8)
    plain, weighted = (Scattering2d((8, 8), 2, 2, gains)(x) for gains in ((1.0, 1.0, 1.0), (0.2, 3.0, 5.0)))
    factors = (weighted.flatten(2).norm(dim=2) / plain.flatten(2).norm(dim=2)).tolist()
    # Each modulus of the finer scale is followed by the two that come from it; the coarser scale has none.
    orders = [0, 1, 2, 2, 1, 2, 2, 1, 1]
    assert factors == [pytest.approx([(0.2, 3.0, 5.0)[order] for order in orders], rel=1e-4)] * 2


def test_zeros_have_a_zero_gradient():
    x = torch.zeros(2, 1, 8, 8, requires_grad=True)
    layer = Scattering2d((8, 8), gains=(0.0, 1.0, 1.0))
    layer(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros_like(x))


def test_the_gradient_is_that_of_finite_differences():
    layer = Scattering2d((8, 8), 2, 2).double()
    x = normal(1, 1, 8, 8, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), atol=1e-6)


def test_no_row_depends_on_another():
    layer, x = Scattering2d((8, 8)), normal(6, 1, 8, 8)
    assert coupled_rows(layer, x, 2, torch.full((1, 8, 8), float("inf"))) == []


def test_many_rows_are_worked_through_in_pieces(monkeypatch):
    layer, x = Scattering2d((8, 8)), normal(7, 2, 8, 8)
    whole = layer(x)
    monkeypatch.setattr("clipless.layers.scattering._ENTRIES", 1)
    torch.testing.assert_close(layer(x), whole)


def test_float32_and_float64_apply_the_same_filters():
    layer = Scattering2d((16, 16))
    double = Scattering2d((16, 16)).double()
    for name, buffer in layer.named_buffers():
        assert torch.equal(buffer.double(), double.get_buffer(name))
    assert layer.state_dict() == {}
    x = normal(2, 1, 16, 16)
    torch.testing.assert_close(layer(x).double(), double(x.double()), rtol=1e-5, atol=1e-5)


def test_two_layers_do_not_share_filters():
    first, second = Scattering2d((8, 8)), Scattering2d((8, 8))
    first.wavelets_0.zero_()
    assert second.wavelets_0.abs().sum() > 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"size": (8,)},
        {"size": 8},
        {"size": (0, 8)},
        {"size": (8, 1000)},
        {"size": (8.0, 8)},
        {"scales": 0},
        {"scales": 5},
        {"scales": 2.0},
        {"orientations": 0},
        {"orientations": True},
        {"gains": (1.0,)},
        {"gains": (1.0, 1.0, 1.0, 1.0)},
        {"gains": (0.0, 0.0)},
        {"gains": (1.0, -1.0)},
        {"gains": (1.0, float("nan"))},
        {"gains": (1.0, float("inf"))},
        {"gains": 1.0},
    ],
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="Expected"):
        Scattering2d(**({"size": (8, 8)} | arguments))


@pytest.mark.parametrize("shape", [(1, 9, 8), (64,), (8, 8)])
def test_images_of_another_size_are_refused(shape):
    layer = Scattering2d((8, 8))
    with pytest.raises(InvalidBoundError, match=r"Expected a \(C, 8, 8\) map"):
        bound_layer(layer, Signal(shape, 1.0))
    with pytest.raises(ValueError, match="Expected images of size"):
        layer(torch.zeros(2, *shape))
