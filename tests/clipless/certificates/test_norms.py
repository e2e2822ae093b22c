"""Certificates in l1 and l-infinity: never above what an attack refutes, exact where the network is linear."""

from math import inf, prod, sqrt

import pytest
import torch

from clipless import Network, TauCCE, zoo
from clipless.certificates.certify import certified_radii, certify, float64_logits
from clipless.layers import ClipGradient, Conv2d, Dense, Flatten, GroupNorm, GroupSort, InputBall, Residual
from clipless.projections import SpectralBall
from tests.clipless.factories import seeded

NORMS = [1.0, inf]
DUAL = {1.0: inf, inf: 1.0}


def built(name, outputs=3, **options):
    shape = (1, 8, 8) if name == "scattering" else (1, 4, 4)
    small = {"mlp": {"width": 8, "depth": 3}, "scattering": {"orientations": 2, "scales": 1, "hidden": 8}}
    options = {"width": 4} | small.get(name, {}) | options
    if name in ("mixer", "scattering"):
        options.pop("width", None)
    return zoo.build(name, shape, outputs, input_norm=6.0, generator=seeded(), **options)


def normalised():
    g = seeded()
    layers = [InputBall(6.0), Conv2d(1, 4, 3, padding=1, generator=g), GroupNorm(2, alpha=0.3), Flatten()]
    return Network([*layers, Dense(64, 8, SpectralBall(3.0), generator=g), GroupSort(), ClipGradient(0.1)], (1, 4, 4))


NETWORKS = {
    "mlp": lambda: built("mlp"),
    "one-logit": lambda: built("mlp", outputs=1),
    "biased": lambda: built("mlp", activation="softplus", bias=True),
    "convnet": lambda: built("convnet", hidden=8, depth=1),
    "patch-net": lambda: built("patch-net", hidden=8, depth=1, activation="householder"),
    "resnet": lambda: built("resnet", depth=1, learned_skip=True),
    "mixer": lambda: built("mixer", patch=2, depth=1, skip=0.3),
    "scattering": lambda: built("scattering"),
    "normalised": normalised,
}


def network(name):
    """Weights a few steps from their start, so that no symmetry of the initialisation helps."""
    model = NETWORKS[name]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=seeded(1)))
    return model


def rows(model, count=24, scale=0.4):
    return scale * torch.randn(count, *model.input_shape, generator=seeded(2))


def decided(model, x):
    logits = float64_logits(model, x)
    return (logits[:, 0] > 0).long() if logits.shape[1] == 1 else logits.argmax(dim=1)


def margins(logits, y):
    if logits.shape[1] == 1:
        return logits[:, 0] * (2.0 * y - 1.0)
    own = torch.nn.functional.one_hot(y, logits.shape[1]).bool()
    return logits.gather(1, y[:, None])[:, 0] - logits.masked_fill(own, -inf).amax(dim=1)


def projected(moved, norm, radius):
    """Scale each row into the ball of its own radius."""
    flat = moved.flatten(1)
    length = flat.norm(norm, dim=1).clamp(min=1e-300)
    return (flat * (radius / length).clamp(max=1.0)[:, None]).view_as(moved)


def attacked(model, x, y, norm, radius, steps=40):
    """The smallest margin that steepest descent in that norm finds within each row's radius, in float64."""
    model, x = model.double(), x.double()
    worst = torch.full((len(x),), inf, dtype=torch.float64)
    for start in (0.0, 1.0):
        moved = projected(torch.randn(x.shape, dtype=torch.float64, generator=seeded(3)) * start, norm, radius)
        for step in range(steps):
            moved.requires_grad_()
            margin = margins(model(x + moved), y)
            worst = torch.minimum(worst, margin.detach())
            (g,) = torch.autograd.grad(margin.sum(), moved)
            flat = g.flatten(1)
            if norm == inf:
                direction = flat.sign()
            else:
                best = flat.abs().argmax(dim=1, keepdim=True)
                direction = torch.zeros_like(flat).scatter(1, best, flat.gather(1, best).sign())
            with torch.no_grad():
                size = radius * (1.0 if step == 0 else 0.5 / (1 + step // 4))
                moved = projected(moved - (direction * size[:, None]).view_as(moved), norm, radius)
    model.float()
    return worst


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", NORMS)
def test_no_attack_within_a_certified_radius_changes_a_decision(name, norm):
    model = network(name)
    x = rows(model)
    y = decided(model, x)
    for radii in (certify(model, x, y, norm=norm), certified_radii(model, float64_logits(model, x), y, norm=norm)):
        assert (radii > 0).all()
        assert (attacked(model, x, y, norm, radii * (1 - 1e-9)) > 0).all()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("norm", NORMS)
def test_an_attack_far_outside_of_it_does(name, norm):
    """The attack above is one: a hundred radii away it finds another decision somewhere."""
    model = network(name)
    x = rows(model)
    y = decided(model, x)
    assert (attacked(model, x, y, norm, certify(model, x, y, norm=norm) * 100) <= 0).any()


@pytest.mark.parametrize("classes", [1, 2, 5])
@pytest.mark.parametrize("norm", NORMS)
def test_the_radius_of_a_linear_network_is_the_distance_to_the_nearest_hyperplane(classes, norm):
    model = Network([InputBall(1000.0), Flatten(), Dense(6, classes, SpectralBall(2.0), generator=seeded())], (2, 3))
    x = torch.randn(50, 2, 3, generator=seeded(1))
    y = decided(model, x)
    w = model.layers[2].weight.detach().double()
    logits = float64_logits(model, x)
    if classes == 1:
        distance = logits[:, 0].abs() / w[0].norm(DUAL[norm])
    else:
        gaps = logits.gather(1, y[:, None]) - logits
        away = (w[y][:, None, :] - w[None]).norm(DUAL[norm], dim=2)
        distance = (gaps / away).nan_to_num(nan=inf).amin(dim=1)
    radii = certify(model, x, y, norm=norm)
    torch.testing.assert_close(radii, distance, rtol=1e-6, atol=1e-7)
    assert (radii <= distance).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NETWORKS)
def test_radii_are_at_least_what_the_euclidean_ones_give(name):
    model = network(name)
    x, elements = rows(model), prod(model.input_shape)
    y = decided(model, x)
    euclidean, one, largest = (certify(model, x, y, norm=norm) for norm in (2.0, 1.0, inf))
    assert (one >= euclidean * (1 - 1e-6)).all()
    assert (largest >= euclidean / sqrt(elements) * (1 - 1e-6)).all()


def test_induced_norms_beat_the_euclidean_conversion_where_weights_are_sparse():
    """Each output looks at one input: rows sum to 1, while l2 pays the root of the dimension."""
    model = Network([InputBall(100.0), Dense(16, 16), GroupSort(), Dense(16, 2)], (16,))
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.eye(16))
        model.layers[3].weight.zero_()
        model.layers[3].weight[0, 0] = 1.0
    x = torch.full((1, 16), -1.0)
    x[0, 0] = x[0, 8] = 2.0
    y = decided(model, x)
    euclidean, largest = (certify(model, x, y, norm=norm).item() for norm in (2.0, inf))
    assert largest == pytest.approx(euclidean, rel=1e-6)
    assert largest > 3.9 * euclidean / sqrt(16)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("norm", NORMS)
def test_the_room_inside_the_input_ball_ends_at_its_border(norm):
    """On the border nothing is gained from knowing the inputs; beyond it the ball's own constants count."""
    model = Network([InputBall(1.0), Dense(4, 2, generator=seeded())], (4,))
    border = torch.nn.functional.normalize(torch.randn(20, 4, generator=seeded(1)), dim=1)
    for scale, gained in ((0.5, True), (1.0, False), (2.0, False)):
        x = scale * border
        logits, y = float64_logits(model, x), decided(model, x)
        known, unknown = (certified_radii(model, logits, y, norm=norm, inputs=given) for given in (x, None))
        assert (known >= unknown).all()
        assert bool((known > unknown * 1.001).any()) == gained
        assert (attacked(model, x, y, norm, known * (1 - 1e-9)) > 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_no_radius_reaches_further_than_the_room_unless_the_balls_own_constants_let_it(norm):
    """With weights for which the Euclidean norm is of no help: of equal entries for l1, of a single one for l-infinity."""
    model = Network([InputBall(1.0), Dense(16, 1)], (16,))
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.full((1, 16), 0.25) if norm == 1.0 else torch.eye(1, 16))
    x = 0.75 * torch.nn.functional.normalize(torch.randn(1, 16, generator=seeded(1)), dim=1)
    room = (1.0 - x.double().norm().item()) / (1.0 if norm == 1.0 else 4.0)
    gain = model.layers[1].weight.detach().double().norm(DUAL[norm]).item()
    for share, expected in ((0.5, 0.5), (1.5, 1.0), (4.0, 4.0 / 2.5)):  # (1 + sqrt 16) / 2 = 2.5
        logits = torch.tensor([[share * room * gain]], dtype=torch.float64)
        radius = certified_radii(model, logits, torch.tensor([1]), norm=norm, inputs=x).item()
        assert radius / room == pytest.approx(expected, rel=1e-6)


def test_inputs_that_are_not_finite_gain_nothing():
    model = Network([InputBall(1.0), Dense(4, 2, generator=seeded())], (4,))
    logits, y = torch.tensor([[2.0, 1.0]] * 3, dtype=torch.float64), torch.zeros(3, dtype=torch.int64)
    x = torch.tensor([[0.1] * 4, [float("nan")] * 4, [inf] * 4])
    known, unknown = (certified_radii(model, logits, y, norm=inf, inputs=given) for given in (x, None))
    assert known[0] > unknown[0]
    assert torch.equal(known[1:], unknown[1:])


@pytest.mark.parametrize("norm", [1.0, 2.0, inf])
def test_wrong_decisions_and_broken_logits_certify_nothing(norm):
    model = built("mlp")
    logits = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 0.0], [3.0, inf, 0.0], [3.0, float("nan"), 0.0]])
    x = rows(model, 4)
    radii = certified_radii(model, logits, torch.zeros(4, dtype=torch.int64), norm=norm, inputs=x)
    assert radii.tolist() == [0.0] * 4


@pytest.mark.parametrize("norm", [0.0, 3.0, -1.0, float("nan")])
def test_other_norms_are_refused(norm):
    with pytest.raises(ValueError, match="Expected norm 1, 2 or inf, got norm="):
        certified_radii(built("mlp"), torch.ones(1, 3), torch.tensor([0]), norm=norm)


@pytest.mark.parametrize("norm", NORMS)
def test_larger_weights_lower_the_radius_of_the_same_logits(norm):
    model = built("mlp")
    x, y = rows(model, 1), torch.tensor([0])
    logits = torch.tensor([[0.2, 0.05, -0.1]], dtype=torch.float64)
    before = certified_radii(model, logits, y, norm=norm, inputs=x)
    with torch.no_grad():
        model.layers[2].weight.mul_(4.0)
    torch.testing.assert_close(certified_radii(model, logits, y, norm=norm, inputs=x), before / 4.0, rtol=1e-5, atol=0)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("norm", NORMS)
def test_what_was_trained_is_certified_and_stands(norm):
    """Two classes along one axis: certified in l-infinity to a useful radius, and the attack does not refute it."""
    generator = seeded()
    model = zoo.mlp((8,), 2, input_norm=10.0, width=16, generator=generator)
    y = torch.arange(200) % 2
    x = 0.1 * torch.randn(200, 8, generator=generator)
    x[:, 0] += 2.0 * y - 1.0
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(50):
        optimizer.zero_grad()
        TauCCE(0.2)(model(x), y).mean().backward()
        optimizer.step()
        model.project()
    radii = certify(model, x, y, norm=norm)
    assert radii.median() > 0.1
    assert (attacked(model, x, y, norm, radii * (1 - 1e-9))[radii > 0] > 0).all()


@pytest.mark.long
def test_a_residual_network_without_a_dense_end_is_certified_too():
    model = Network([InputBall(5.0), Residual([Dense(4, 4, generator=seeded())], 0.5), GroupSort()], (4,))
    x = torch.randn(10, 4, generator=seeded(1))
    y = decided(model, x)
    for norm in NORMS:
        radii = certify(model, x, y, norm=norm)
        assert (attacked(model, x, y, norm, radii * (1 - 1e-9))[radii > 0] > 0).all()
