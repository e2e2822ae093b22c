"""The guarded linear map and convolution alone, against contributions written out in float64."""

import pytest
import torch
import torch.nn.functional as F

from clipless.guards.convolution import guarded_conv2d, patch_counts
from clipless.guards.guard import Guard, guarded_linear
from tests.clipless.factories import gradients, held, random

GEOMETRIES = {
    "3x3": ((20, 20), (3, 3), (1, 1), (1, 1)),
    "5x3-unpadded": ((24, 16), (5, 3), (1, 1), (0, 0)),
    "3x3-stride-2": ((21, 21), (3, 3), (2, 2), (1, 1)),
    "5x5-stride-2-by-3": ((19, 22), (5, 5), (2, 3), (2, 2)),
    "patches": ((8, 8), (2, 2), (2, 2), (0, 0)),
    "sparse": ((9, 9), (2, 2), (3, 3), (1, 1)),
}


def close(found, expected, share=2e-2):
    """Whole numbers of 8 and 15 bits stand for inputs and cotangents."""
    assert (found - expected).norm() <= share * expected.norm()


def convolve(geometry, x, g, sensitivity, scale=0.7, channels=3, groups=1, **options):
    """Gradients of a guarded convolution in input and kernel."""
    _, window, stride, padding = geometry
    weight = random(channels, x.shape[1] // groups, *window)
    return held(
        lambda a, w, guard: guarded_conv2d(a, w, scale, stride, padding, guard, groups),
        (x, weight),
        g,
        Guard(sensitivity, **options),
    )


def output_shape(geometry):
    size, window, stride, padding = geometry
    return [(n + 2 * p - k) // s + 1 for n, k, s, p in zip(size, window, stride, padding, strict=True)]


@pytest.mark.parametrize("name", GEOMETRIES)
def test_flat_maps_and_combs_are_held_to_the_sensitivity(name):
    """Inputs that most patches see: a norm that counts every element once would let sqrt(m) times as much pass."""
    geometry = GEOMETRIES[name]
    size, window, stride, padding = geometry
    counts = patch_counts(size, window, stride, padding)
    g = torch.ones(1, 3, *output_shape(geometry))
    for x in (torch.ones(1, 2, *size), (counts == counts.max()).float().expand(1, 2, *size).contiguous()):
        _, found = convolve(geometry, x, g, sensitivity=0.5)
        assert found.norm() <= 0.5


def test_a_flat_map_nearly_attains_the_sensitivity():
    geometry = GEOMETRIES["3x3"]
    _, found = convolve(geometry, torch.ones(1, 2, 20, 20), torch.ones(1, 3, 20, 20), sensitivity=0.5)
    assert found.norm() >= 0.9 * 0.5


@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("sensitivity", [1e-3, 1e3])
def test_each_row_of_a_convolution_is_scaled_by_its_own_factor(name, sensitivity):
    geometry = GEOMETRIES[name]
    size, window, stride, padding = geometry
    x, g = random(4, 2, *size), random(4, 3, *output_shape(geometry), seed=1)
    weight = random(3, 2, *window).double()
    counts = patch_counts(size, window, stride, padding).double()
    expected = torch.zeros_like(weight)
    for i in range(4):
        (own,) = gradients(
            lambda w, i=i: F.conv2d(x[i : i + 1].double(), 0.7 * w, stride=stride, padding=padding),
            [weight],
            g[i : i + 1].double(),
        )
        bound = 0.7 * (x[i].double().square() * counts).sum().sqrt() * g[i].double().norm()
        assert own.norm() <= bound
        expected += own * min(1.0, sensitivity / bound.item())
    of_input, found = convolve(geometry, x, g, sensitivity)
    close(found, expected)
    (free,) = gradients(lambda a: F.conv2d(a, 0.7 * weight.float(), stride=stride, padding=padding), [x], g)
    torch.testing.assert_close(of_input, free, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(), (5,)], ids=["vector", "tokens"])
@pytest.mark.parametrize("sensitivity", [1e-3, 1e3])
def test_each_row_of_a_linear_map_is_scaled_by_its_own_factor(shape, sensitivity):
    x, g, weight = random(4, *shape, 6), random(4, *shape, 3, seed=1), random(3, 6, seed=2)
    expected = torch.zeros(3, 6, dtype=torch.float64)
    for i in range(4):
        own = g[i].double().view(-1, 3).mT @ x[i].double().view(-1, 6)
        bound = x[i].double().norm() * g[i].double().norm()
        expected += own * min(1.0, sensitivity / bound.item())
    of_input, found = held(guarded_linear, (x, weight), g, Guard(sensitivity))
    close(found, expected)
    torch.testing.assert_close(of_input, g @ weight)


def clipped_sum(contributions, sensitivity, input_norms, normalise):
    """Contributions, each divided by its input's norm if asked for, clipped by their own norms, summed."""
    total = torch.zeros_like(contributions[0])
    for own, input_norm in zip(contributions, input_norms, strict=True):
        own = own / input_norm if normalise else own
        total += own * min(1.0, sensitivity / own.norm().item())
    return total


@pytest.fixture(params=[2**22, 100], ids=["at once", "in parts"])
def formed_entries(request, monkeypatch):
    monkeypatch.setattr("clipless.guards.guard._FORMED_ENTRIES", request.param)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("sensitivity", [0.3, 1e3])
@pytest.mark.usefixtures("formed_entries")
def test_exact_norms_clip_each_row_of_a_convolution_by_its_own_gradient(name, groups, normalise, sensitivity):
    geometry = GEOMETRIES[name]
    size, window, stride, padding = geometry
    x, g = random(4, 2, *size), random(4, 4, *output_shape(geometry), seed=1)
    weight = random(4, 2 // groups, *window)
    counts = patch_counts(size, window, stride, padding).double()
    contributions = [
        gradients(
            lambda w, i=i: F.conv2d(x[i : i + 1].double(), 0.7 * w, None, stride, padding, groups=groups),
            [weight.double()],
            g[i : i + 1].double(),
        )[0]
        for i in range(4)
    ]
    input_norms = (x.double().square() * counts).sum(dim=(1, 2, 3)).sqrt()
    expected = clipped_sum(contributions, sensitivity, input_norms, normalise)
    options = {"channels": 4, "groups": groups, "normalise": normalise, "exact": True}
    of_input, found = convolve(geometry, x, g, sensitivity, **options)
    close(found, expected, share=1e-3)
    (free,) = gradients(lambda a: F.conv2d(a, 0.7 * weight, None, stride, padding, groups=groups), [x], g)
    torch.testing.assert_close(of_input, free, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("sensitivity", [0.3, 1e3])
@pytest.mark.usefixtures("formed_entries")
def test_exact_norms_clip_each_row_of_tokens_by_its_own_gradient(normalise, sensitivity):
    x, g, weight = random(9, 5, 6), random(9, 5, 3, seed=1), random(3, 6, seed=2)
    contributions = [b.double().mT @ a.double() for a, b in zip(x, g, strict=True)]
    expected = clipped_sum(contributions, sensitivity, x.double().flatten(1).norm(dim=1), normalise)
    of_input, found = held(guarded_linear, (x, weight), g, Guard(sensitivity, normalise, exact=True))
    close(found, expected, share=1e-3)
    torch.testing.assert_close(of_input, g @ weight)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 3e38])
@pytest.mark.parametrize("operand", ["input", "cotangent"])
@pytest.mark.usefixtures("formed_entries")
def test_exact_norms_leave_rows_out_that_are_not_finite(bad, operand):
    geometry, others = GEOMETRIES["3x3"], [0, 2, 3]
    maps, cotangent = random(4, 2, 20, 20), random(4, 3, 20, 20, seed=1)
    (maps if operand == "input" else cotangent)[1] = bad
    _, found = convolve(geometry, maps, cotangent, 0.2, exact=True)
    _, expected = convolve(geometry, maps[others], cotangent[others], 0.2, exact=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    x, g, weight = random(4, 5, 6), random(4, 5, 3, seed=1), random(3, 6, seed=2)
    (x if operand == "input" else g)[1] = bad
    _, found = held(guarded_linear, (x, weight), g, Guard(0.2, exact=True))
    _, expected = held(guarded_linear, (x[others], weight), g[others], Guard(0.2, exact=True))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("tiny", [1e-19, 1e-21, 1e-23, 1e-25, 1e-30])
def test_squares_that_underflow_are_counted(tiny):
    """Tiny inputs times huge cotangents: with a norm rounded down to zero anything would pass."""
    huge, sensitivity = 1e17, 1e-9
    x, g = torch.full((1, 6), tiny), torch.full((1, 3), huge)
    for a, b in ((x, g), (g, x)):
        weight = torch.zeros(b.shape[1], a.shape[1])
        _, found = held(guarded_linear, (a, weight), b, Guard(sensitivity))
        assert found.norm() <= sensitivity
    geometry = GEOMETRIES["3x3"]
    for a, b in ((tiny, huge), (huge, tiny)):
        maps, cotangent = torch.full((1, 2, 20, 20), a), torch.full((1, 3, 20, 20), b)
        for exact in (False, True):
            assert convolve(geometry, maps, cotangent, sensitivity, exact=exact)[1].norm() <= sensitivity


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("operand", ["input", "cotangent"])
def test_a_row_that_is_not_finite_leaves_the_sum_of_the_others(bad, operand):
    x, g, weight = random(4, 6), random(4, 3, seed=1), random(3, 6, seed=2)
    (x if operand == "input" else g)[1] = bad
    others = [0, 2, 3]
    _, found = held(guarded_linear, (x, weight), g, Guard(0.2))
    _, expected = held(guarded_linear, (x[others], weight), g[others], Guard(0.2))
    assert found.isfinite().all()
    assert (found - expected).norm() <= 0.2
    geometry = GEOMETRIES["3x3"]
    maps, cotangent = random(4, 2, 20, 20), random(4, 3, 20, 20, seed=1)
    (maps if operand == "input" else cotangent)[1] = bad
    _, found = convolve(geometry, maps, cotangent, 0.2)
    _, expected = convolve(geometry, maps[others], cotangent[others], 0.2)
    assert found.isfinite().all()
    assert (found - expected).norm() <= 0.2


@pytest.mark.parametrize("name", GEOMETRIES)
def test_patch_counts_are_those_of_looking_at_every_patch(name):
    size, window, stride, padding = GEOMETRIES[name]
    rows, columns = output_shape(GEOMETRIES[name])
    counts = torch.zeros(size[0] + 2 * padding[0], size[1] + 2 * padding[1])
    for i in range(rows):
        for j in range(columns):
            top, left = i * stride[0], j * stride[1]
            counts[top : top + window[0], left : left + window[1]] += 1
    inner = counts[padding[0] : padding[0] + size[0], padding[1] : padding[1] + size[1]]
    assert torch.equal(patch_counts(size, window, stride, padding), inner)
