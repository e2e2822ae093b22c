"""Certificates: never above what an attack refutes, exact where the network is linear, lower for larger weights."""

import math
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
import torch

from clipless import Network, TauBCE, TauCCE, evaluate, row_independence, zoo
from clipless.bounds import NetworkBounds, WeightNorms, bound_network
from clipless.bounds._rules import LayerBound, Signal
from clipless.bounds.composition.compose import compose, composed_error
from clipless.certificates import certify as certify_module
from clipless.certificates.certify import (
    Measured,
    certified_auroc,
    certified_radii,
    certify,
    decisions,
    float64_features,
    float64_logits,
    forward_error,
    measured_bounds,
    row_by_row,
)
from clipless.datasets import Split
from clipless.errors import InvalidBoundError
from clipless.evaluation import attacked_accuracy
from clipless.layers import (
    ClipGradient,
    Conv2d,
    Dense,
    Flatten,
    GlobalL2Pool2d,
    GroupSort,
    InputBall,
    Residual,
    Softplus,
)
from clipless.norms import conv2d_norm_upper, lengths_upper, spectral_norm_upper
from clipless.projections import Free, SpectralBall

RADIUS = 0.25


@pytest.mark.parametrize("classes", [2, 5])
def test_the_radius_of_a_linear_network_is_the_distance_to_the_nearest_hyperplane(classes):
    generator = torch.Generator().manual_seed(0)
    model = Network([InputBall(100.0), Flatten(), Dense(6, classes, generator=generator)], (2, 3))
    x = torch.randn(50, 2, 3, generator=generator)
    w = model.layers[2].weight.detach().double()
    logits = x.flatten(1).double() @ w.T
    y = logits.argmax(dim=1)
    distance = (
        torch.stack(
            [(logits.gather(1, y[:, None])[:, 0] - logits[:, j]) / (w[y] - w[j]).norm(dim=1) for j in range(classes)]
        )
        .nan_to_num(nan=torch.inf)
        .amin(dim=0)
    )
    radii = certified_radii(model, float64_logits(model, x), y)
    torch.testing.assert_close(radii, distance, rtol=1e-6, atol=0)
    assert (radii <= distance).all()


def test_a_step_of_the_radius_towards_the_hyperplane_changes_a_linear_decision_and_no_less_does():
    model = Network([InputBall(100.0), Dense(4, 2)], (4,))
    w = model.layers[1].weight.detach().double()
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(0))
    y = float64_logits(model, x).argmax(dim=1)
    radii = certified_radii(model, float64_logits(model, x), y)
    normal = (w[1 - y] - w[y]) / (w[1 - y] - w[y]).norm(dim=1, keepdim=True)
    for factor, changed in ((1 - 1e-6, False), (1 + 1e-6, True)):
        moved = float64_logits(model, x.double() + factor * radii[:, None] * normal).argmax(dim=1)
        assert ((moved != y) == changed).all()


def test_one_logit_is_decided_at_zero():
    model = Network([InputBall(100.0), Dense(4, 1)], (4,))
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.tensor([[3.0, 0.0, 4.0, 0.0]]))
    logits = torch.tensor([[10.0], [10.0], [-2.5], [-2.5], [0.0]], dtype=torch.float64)
    radii = certified_radii(model, logits, torch.tensor([1, 0, 0, 1, 1]))
    assert radii.tolist() == pytest.approx([2.0, 0.0, 0.5, 0.0, 0.0], rel=1e-6)
    assert radii.dtype == torch.float64


def test_the_general_bound_serves_where_the_last_layer_is_not_dense():
    model = Network([InputBall(10.0), Dense(4, 4, SpectralBall(2.0)), GroupSort()], (4,))
    logits = torch.tensor([[0.0, 1.0, 3.0, 7.0]], dtype=torch.float64)
    radii = certified_radii(model, logits, torch.tensor([3]))
    assert radii.tolist() == pytest.approx([4.0 / (sqrt(2) * 2.0)], rel=1e-5)


def test_pairwise_constants_are_never_larger_than_the_general_one():
    model = zoo.mlp((4,), 3, input_norm=10.0, width=8)
    logits = torch.randn(100, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = logits.argmax(dim=1)
    top = logits.topk(2, dim=1).values
    lipschitz = bound_network(model, WeightNorms.MEASURED, torch.float64).lipschitz()
    assert (certified_radii(model, logits, y) >= (top[:, 0] - top[:, 1]) / (sqrt(2) * lipschitz) - 1e-8).all()


@pytest.mark.parametrize("layer", [2, 4])
def test_larger_weights_lower_the_certificate_of_the_same_logits(layer):
    """Norms are those of the weights as they are, not those that a projection should have given them."""
    model = zoo.mlp((4,), 3, input_norm=10.0, width=8)
    logits = torch.tensor([[2.0, 0.5, -1.0]], dtype=torch.float64)
    y = torch.tensor([0])
    before = certified_radii(model, logits, y)
    with torch.no_grad():
        model.layers[layer].weight.mul_(4.0)
    torch.testing.assert_close(certified_radii(model, logits, y), before / 4.0, rtol=1e-6, atol=0)


@pytest.mark.sampled(2)
def test_scaling_a_network_does_not_change_its_certificates(trained, digits):
    """Margins and norms grow together: a projection that was skipped buys nothing."""
    x, y = digits.x[:100], digits.y[:100]
    before = certified_radii(trained, float64_logits(trained, x), y)
    weights = list(trained.parameters())
    with torch.no_grad():
        weights[0].mul_(3.0)
    try:
        after = certified_radii(trained, float64_logits(trained, x), y)
    finally:
        with torch.no_grad():
            weights[0].div_(3.0)
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-6)


def test_wrong_decisions_and_ties_certify_nothing():
    model = zoo.mlp((4,), 3, input_norm=1.0)
    logits = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 0.0], [2.0 + 1e-13, 2.0, 0.0]], dtype=torch.float64)
    assert certified_radii(model, logits, torch.tensor([0, 0, 0])).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("outputs", [1, 2, 4])
def test_logits_that_are_not_finite_certify_nothing(bad, outputs):
    model = zoo.mlp((4,), outputs, input_norm=1.0)
    for position in range(outputs):
        logits = torch.arange(outputs, dtype=torch.float64)[None] + 1
        logits[0, position] = bad
        for target in range(max(outputs, 2)):
            assert certified_radii(model, logits, torch.tensor([target])).item() == 0.0


def test_classes_with_equal_weights_certify_nothing():
    model = Network([InputBall(10.0), Dense(3, 3)], (3,))
    with torch.no_grad():
        model.layers[1].weight[1] = model.layers[1].weight[0]
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    logits = float64_logits(model, x)
    radii = certified_radii(model, logits, logits.argmax(dim=1))
    assert (radii[logits.argmax(dim=1) != 2] == 0).all()
    assert radii.isfinite().all()


def test_weights_that_are_not_finite_are_refused():
    model = zoo.mlp((4,), 3, input_norm=1.0)
    with torch.no_grad():
        model.layers[2].weight[0, 0] = float("nan")
    with pytest.raises(InvalidBoundError, match="finite"):
        certified_radii(model, torch.ones(1, 3), torch.tensor([0]))


def test_logits_come_from_a_float64_forward_pass():
    model = zoo.mlp((6,), 3, input_norm=2.0, width=8)
    x = torch.randn(30, 6, generator=torch.Generator().manual_seed(0))
    a, b = (model.layers[i].weight.detach().double().numpy() for i in (2, 4))
    inputs = x.double().numpy()
    inputs = inputs * np.minimum(1.0, 2.0 / np.linalg.norm(inputs, axis=1, keepdims=True))
    hidden = inputs @ a.T
    low, high = np.minimum(hidden[:, :4], hidden[:, 4:]), np.maximum(hidden[:, :4], hidden[:, 4:])
    expected = np.concatenate([low, high], axis=1) @ b.T
    logits = float64_logits(model, x)
    assert logits.dtype == torch.float64
    np.testing.assert_allclose(logits.numpy(), expected, rtol=0, atol=1e-13)
    assert not torch.equal(logits, model(x).double())


def test_the_network_itself_stays_as_it_is():
    model = zoo.mlp((6,), 3, input_norm=2.0)
    before = {name: p.clone() for name, p in model.state_dict().items()}
    float64_logits(model, torch.ones(3, 6))
    assert all(p.dtype == torch.float32 and torch.equal(p, before[name]) for name, p in model.state_dict().items())


def apart_by_the_last_bit(width):
    """Two logits that are equal but for the order of their sums, so that rounding decides between them."""
    generator = torch.Generator().manual_seed(3)
    hidden, last = Dense(width, 64), Dense(64, 2)
    w, u = torch.randn(width, generator=generator), torch.randn(64, generator=generator)
    with torch.no_grad():
        hidden.weight.copy_(torch.stack([w[torch.randperm(width, generator=generator)] for _ in range(64)]))
        last.weight.copy_(torch.stack([u, u[torch.randperm(64, generator=generator)]]))
    return Network([hidden, last], (width,))


ALONE = {
    "dense": lambda: apart_by_the_last_bit(200),
    "convolutions": lambda: zoo.convnet((1, 8, 8), 3, input_norm=3.0, width=4, depth=2, hidden=8),
    "fixed prefix": lambda: zoo.scattering((1, 8, 8), 3, input_norm=3.0),
}


@pytest.mark.parametrize("count", [1, 7, 32, 33])
def test_passes_have_one_shape_however_many_rows_there_are(count):
    """Kernels are chosen by it, whether they round otherwise on this machine or not."""
    shapes, x = [], torch.randn(count, 5, dtype=torch.float64)
    found = row_by_row(lambda rows: shapes.append(tuple(rows.shape)) or 2.0 * rows, x, 32)
    assert set(shapes) == {(32, 5)}
    assert torch.equal(found, 2.0 * x)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ALONE)
def test_the_logits_of_a_row_depend_in_no_bit_on_the_number_of_others_nor_on_its_place(name):
    """A release of private rows is priced for it: where one row more decides by which kernel all are multiplied,
    rounding flips ties."""
    model = ALONE[name]()
    x = torch.randn(1, *model.input_shape, generator=torch.Generator().manual_seed(0)).expand(600, *model.input_shape)
    expected = float64_logits(model, x[:1])[0]
    for rows in (1, 2, 3, 4, 5, 56, 57, 255, 256, 257, 600):
        assert bool((float64_logits(model, x[:rows]) == expected).all()), rows


def one_by_one(model, x):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certify_module, "_pass_size", lambda _: 1)
        row_independence.forget()
        return float64_logits(model, x)


PLANTED = {
    "place": lambda logits: logits + 1e-15 * torch.arange(len(logits))[:, None],
    "last place": lambda logits: logits + 1e-15 * (torch.arange(len(logits)) == 255)[:, None],
    "others": lambda logits: logits + 1e-15 * logits.sum(),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PLANTED)
def test_rows_of_passes_that_do_not_treat_each_alone_are_passed_one_by_one(name, monkeypatch):
    model = zoo.mlp((6,), 3, input_norm=2.0)
    x = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    expected = one_by_one(model, x)
    whole, changed = certify_module._through, PLANTED[name]
    monkeypatch.setattr(
        certify_module, "_through", lambda layers, x: changed(whole(layers, x)) if len(x) > 1 else whole(layers, x)
    )
    row_independence.forget()
    assert not bool((float64_logits(model, x) == expected).all())
    assert bool((float64_logits(model, x, alone=True) == expected).all())
    row_independence.forget()


@pytest.mark.long
def test_what_one_set_of_weights_has_passed_is_tested_again_with_another(monkeypatch):
    """Where rounding shows depends on weights: an answer for some is none for others."""
    first, later = (zoo.mlp((6,), 3, input_norm=2.0) for _ in range(2))
    x = torch.randn(300, 6, generator=torch.Generator().manual_seed(0))
    expected = one_by_one(later, x)
    row_independence.forget()
    float64_logits(first, x, alone=True)
    whole = certify_module._through
    monkeypatch.setattr(
        certify_module,
        "_through",
        lambda layers, x: whole(layers, x) + 1e-15 * (len(x) > 1) * torch.arange(len(x))[:, None],
    )
    assert bool((float64_logits(later, x, alone=True) == expected).all())
    row_independence.forget()


def test_many_rows_are_handled_in_pieces():
    model = zoo.mlp((6,), 3, input_norm=2.0)
    x = torch.randn(4500, 6, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(float64_logits(model, x)[4400:], float64_logits(model, x[4400:]), rtol=1e-12, atol=1e-13)


def test_a_skipped_projection_is_noticed_by_certified_accuracy(trained, digits):
    """Weights doubled behind the projection's back do not double any certified radius."""
    split = Split(digits.x[1500:], digits.y[1500:])
    honest = evaluate(trained, split, [str(RADIUS)])
    with torch.no_grad():
        for p in trained.parameters():
            p.mul_(2.0)
    doubled = evaluate(trained, split, [str(RADIUS)])
    with torch.no_grad():
        for p in trained.parameters():
            p.div_(2.0)
    assert doubled[f"certified@{RADIUS}"] <= honest[f"certified@{RADIUS}"] + 0.01
    assert doubled["accuracy"] == pytest.approx(honest["accuracy"], abs=0.02)


@pytest.fixture(scope="module", params=[1, 2])
def binary(request, digits):
    """A small network that tells even digits from odd ones, with one or two logits."""
    x, y = digits.x, digits.y % 2
    generator = torch.Generator().manual_seed(0)
    model = zoo.mlp((1, 8, 8), request.param, input_norm=8.0, width=32, generator=generator)
    loss = TauCCE(0.5) if request.param == 2 else TauBCE(0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(60):
        batch = torch.arange(step * 256, (step + 1) * 256) % 1500
        optimizer.zero_grad()
        loss(model(x[batch]), y[batch]).mean().backward()
        optimizer.step()
        model.project()
    return model, x[1500:], y[1500:]


def score(logits):
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def pairs_in_order(scores, y):
    return (scores[y == 1][:, None] > scores[y == 0]).double().mean().item()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("radius", [0.05, 0.2])
def test_certified_auroc_is_at_most_that_of_attacked_rows_is_at_most_the_auroc(binary, radius):
    """Rows pushed down or up in score by descent in the ball, every pair attacked on both sides at once."""
    model, x, y = binary
    logits = float64_logits(model, x)
    (certified,) = certified_auroc(model, logits, y, [radius])
    model = model.double()
    sign = torch.where(y == 1, -1.0, 1.0).double()
    moved = torch.zeros_like(x, dtype=torch.float64)
    for _ in range(20):
        moved.requires_grad_()
        (gradient,) = torch.autograd.grad((sign * score(model(x.double() + moved))).sum(), moved)
        with torch.no_grad():
            moved = moved + radius / 5 * gradient / gradient.flatten(1).norm(dim=1).clamp(min=1e-12).view(-1, 1, 1, 1)
            size = moved.flatten(1).norm(dim=1).clamp(min=1e-12).view(-1, 1, 1, 1)
            moved = moved * (radius / size).clamp(max=1.0)
    with torch.no_grad():
        attacked = pairs_in_order(score(model(x.double() + moved)), y)
    model.float()
    assert 0.1 < certified <= attacked <= pairs_in_order(score(logits), y)


def test_certified_auroc_counts_gaps_strictly():
    model = Network([InputBall(100.0), Dense(2, 1)], (2,))
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.tensor([[1.0, 0.0]]))
    logits = torch.tensor([[3.0], [1.0], [1.0]], dtype=torch.float64)
    y = torch.tensor([1, 0, 1])
    assert certified_auroc(model, logits, y, [0.0, 1.0 - 1e-8, 1.0, 1.1]) == [0.5, 0.5, 0.0, 0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_pairs_with_logits_that_are_not_finite_are_not_certified(bad):
    model = Network([InputBall(100.0), Dense(2, 1)], (2,))
    logits = torch.tensor([[50.0], [40.0], [-50.0], [-40.0]], dtype=torch.float64)
    y = torch.tensor([1, 1, 0, 0])
    assert certified_auroc(model, logits, y, [0.01]) == [1.0]
    for row in range(4):
        broken = logits.clone()
        broken[row] = bad
        assert certified_auroc(model, broken, y, [0.01]) == [0.5]


def test_a_certified_auroc_needs_two_classes_and_radii():
    model = zoo.mlp((4,), 3, input_norm=1.0)
    with pytest.raises(ValueError, match="Expected 1 or 2 logits for a certified AUROC, got 3"):
        certified_auroc(model, torch.ones(2, 3), torch.tensor([0, 1]), [0.1])
    model = zoo.mlp((4,), 1, input_norm=1.0)
    for bad in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="Expected radii >= 0"):
            certified_auroc(model, torch.ones(2, 1), torch.tensor([0, 1]), [bad])
    (none,) = certified_auroc(model, torch.ones(2, 1), torch.tensor([1, 1]), [0.1])
    assert none != none


def test_rounding_is_bounded_by_the_size_of_signals_not_of_what_cancellation_leaves():
    """Weights whose large products cancel: the float64 logit is off by far more than its own rounding."""
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(1, 300, generator=generator)
    model = Network([InputBall(1e6), Dense(300, 1)], (300,))
    with torch.no_grad():
        model.layers[1].weight.copy_(row)
    x = 1e3 * torch.randn(50, 300, generator=generator)
    w = model.layers[1].weight.detach()[0]
    last = (x.double()[:, :-1] @ w.double()[:-1]) / w.double()[-1]
    x = torch.cat([x[:, :-1].double(), -last[:, None]], dim=1)
    logits = float64_logits(model, x)[:, 0]
    exact = torch.tensor(
        [float(sum(Fraction(a) * Fraction(b) for a, b in zip(r.tolist(), w.tolist(), strict=True))) for r in x]
    )
    bounds = measured_bounds(model)
    error = forward_error(model, bounds)
    off = (logits - exact).abs()
    assert off.max() > 1e-10 * logits.abs().max()
    assert off.max() <= error < 1e-10 * bounds.output.norm
    assert (certified_radii(model, logits[:, None], (logits > 0).long())[logits.abs() < 2 * error] == 0).all()


def test_deeper_networks_have_a_larger_forward_error(trained):
    shallow = Network([InputBall(8.0), Flatten(), Dense(64, 10)], (1, 8, 8))
    errors = [forward_error(model, measured_bounds(model)) for model in (shallow, trained)]
    assert 0 < errors[0] < errors[1] < 1e-6


def test_the_error_of_a_block_counts_the_layers_inside():
    """Norms inside a block may exceed the norm of its output, and errors there are enlarged by what follows."""
    generator = torch.Generator().manual_seed(0)

    def dense():
        return Dense(6, 6, SpectralBall(5.0), generator=generator)

    inner = [dense(), dense(), dense()]
    block, plain = Network([InputBall(2.0), Residual(inner, 0.999)], (6,)), Network([InputBall(2.0), *inner], (6,))
    inside = measured_bounds(plain).layers[1:]
    (_, whole) = measured_bounds(block).layers[1]
    assert whole.output.norm < inside[-1][1].output.norm
    assert whole.error > composed_error(inside)


def test_clipped_cotangents_leave_the_pairwise_constants(trained):
    clipped = Network([*trained.layers, ClipGradient(0.5)], trained.input_shape)
    x = torch.randn(8, *trained.input_shape, generator=torch.Generator().manual_seed(0))
    logits = float64_logits(trained, x)
    target = logits.argmax(dim=1)
    plain, same = (certified_radii(model, logits, target) for model in (trained, clipped))
    torch.testing.assert_close(plain, same, rtol=1e-6, atol=0)


# --- the last bits: thresholds, underflow, overflow


def test_softplus_has_no_step_that_its_constant_does_not_allow():
    """Torch returns t itself above a threshold, by default 20, where log(1 + exp t) is 2e-9 more."""
    layer = Softplus()
    for start in (*range(-45, 50, 5), 19.0, 36.0, 40.0, 41.0):
        t = torch.linspace(start - 1e-9, start + 1e-9, 2001, dtype=torch.float64)
        y = layer(t)
        exact = torch.where(t > 0, t, 0.0) + torch.log1p(torch.exp(-t.abs()))
        torch.testing.assert_close(y, exact, rtol=4e-16, atol=0)
        rounding = 4 * torch.finfo(torch.float64).eps * (1.0 + abs(start))
        assert ((y[1:] - y[:-1]).abs() <= (t[1:] - t[:-1]) + rounding).all()


@pytest.mark.parametrize("scale", [1.0, 1e-9])
def test_a_certified_decision_beside_a_threshold_of_softplus_stands(scale):
    layers = [InputBall(30.0 / scale), Dense(1, 2), Softplus(), Dense(2, 1, bias=True, bias_norm=30.0)]
    model = Network(layers, (1,))
    with torch.no_grad():
        layers[1].weight.fill_(scale)
        layers[3].weight.copy_(torch.tensor([[1.0, -5e-11]]))
        layers[3].bias.fill_(-20.0)
    weight = layers[1].weight[0, 0].item()
    x = torch.tensor([[20.0 / weight]], dtype=torch.float64)
    radius = float(certify(model, x, torch.tensor([1])))
    assert radius > 0
    moved = x + radius * torch.linspace(-0.999, 0.999, 2001, dtype=torch.float64)[:, None]
    assert (decisions(float64_logits(model, moved)) == 1).all()


def chain(weights, radius=3e38, dtype=torch.float32):
    model = Network([InputBall(radius), *(Dense(1, 1) for _ in weights)], (1,)).to(dtype)
    with torch.no_grad():
        for layer, weight in zip(model.layers[1:], weights, strict=True):
            layer.weight.fill_(weight)
    return model


@pytest.mark.sampled(5)
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
@pytest.mark.parametrize("weights", [[1e-45] * 8, [1e-45] * 7 + [1e-30], [1e-30] * 10 + [1e30] * 9, [0.0]])
def test_constants_that_underflow_certify_nothing_beyond_the_border(weights, norm):
    """The decision is another one at -x: no radius may reach further than x is from 0."""
    model, x = chain(weights), torch.tensor([[1e38]], dtype=torch.float64)
    assert 0.0 < measured_bounds(model).lipschitz() < torch.inf
    assert certify(model, x, torch.tensor([1]), norm=norm).item() <= 1e38


def test_a_product_that_underflows_on_the_way_is_no_small_constant():
    bounds = measured_bounds(chain([1e-30] * 11 + [1e38] * 8, 1.0))
    assert bounds.lipschitz() >= 0.999e-26  # 1e-30 in float32 is less
    assert compose(bounds.layers).input_gain >= 0.999e-26


def test_the_length_of_a_row_is_no_matter_of_the_rows_beside_it():
    rows = torch.tensor(
        [[1.0, 0.0], [1e-170, 1e-170], [1e-161, 0.0], [1e308, 1e308], [1e-310, 0.0], [0.0, 0.0], [float("inf"), 0.0]],
        dtype=torch.float64,
    )
    found = lengths_upper(rows)
    assert all(length >= math.hypot(*row) for length, row in zip(found.tolist(), rows.tolist(), strict=True))
    assert found[:4].tolist() == pytest.approx([math.hypot(*row) for row in rows[:4].tolist()], rel=1e-12)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_norms_survive_squares_that_underflow_or_overflow(size):
    """Of a network in float64, whose weights may be of any size."""
    weight = torch.tensor([[3.0, 4.0]], dtype=torch.float64) * size
    assert spectral_norm_upper(weight) == pytest.approx(5 * size, rel=1e-12)
    assert spectral_norm_upper(weight) >= 5 * size
    kernel = weight[:, :, None, None].expand(1, 2, 2, 2)
    assert conv2d_norm_upper(kernel, (4, 4), (1, 1)) == pytest.approx(
        size * conv2d_norm_upper(kernel / size, (4, 4), (1, 1))
    )
    assert lengths_upper(weight).item() == pytest.approx(5 * size, rel=1e-12)
    model = Network([InputBall(1.0), Dense(2, 2, SpectralBall(1.0))], (2,)).double()
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64) * size)
    x = torch.tensor([[0.3, 0.4]], dtype=torch.float64)
    for norm in (1.0, 2.0, float("inf")):
        assert certify(model, x, torch.tensor([0]), norm=norm).item() <= 0.5


def test_no_radius_is_infinite():
    model = chain([1e-45] * 4, 1.0)
    for row in ([1e300], [1e308, -1e308]):
        logits = torch.tensor([row], dtype=torch.float64)
        network = model if logits.shape[1] == 1 else Network([InputBall(1.0), Dense(1, 2)], (1,))
        target = torch.tensor([1 if logits.shape[1] == 1 else 0])
        found = certified_radii(network, logits, target)
        assert 0.0 < found.item() < torch.inf


def test_an_error_that_has_no_bound_orders_no_pair():
    """Signals whose squares may overflow have none: 0 x inf would otherwise be a gap of NaN, below which all lie."""
    model = Network([InputBall(1e160), Dense(1, 1)], (1,))
    logits, y = torch.tensor([[3.0], [1.0]], dtype=torch.float64), torch.tensor([1, 0])
    assert forward_error(model, measured_bounds(model)) == torch.inf
    assert certified_auroc(model, logits, y, [0.0, 0.1]) == [0.0, 0.0]
    bounds = NetworkBounds((("0", LayerBound(output=Signal((1,), 1.0), input_gain=1e308, error=0.0)),) * 2, 1e-9)
    measured = Measured(bounds, 0.0, torch.tensor([[bounds.lipschitz()]]))
    assert certified_auroc(chain([1.0], 1.0), logits, y, [0.0], measured=measured) == [0.0]


def test_what_underflows_in_a_forward_pass_counts_as_its_error():
    """Far more than the smallest number: squares underflow below 1e-154."""
    model = chain([1e-45] * 4, 1.0)
    assert 1e-150 <= forward_error(model, measured_bounds(model)) <= 1e-130


def of_any_size():
    """A network that takes maps of any size, bounded for one of two pixels: its kernel gains 2 on longer ones."""
    layers = [Conv2d(1, 1, (1, 2), padding=(0, 1), constraint=Free()), GlobalL2Pool2d()]
    model = Network([InputBall(100.0), *layers, Dense(1, 1, constraint=Free(), bias=True)], (1, 1, 2))
    with torch.no_grad():
        model.layers[1].weight.copy_(torch.tensor([1.0, -1.0]).view(1, 1, 1, 2))
        model.layers[3].weight.fill_(1.0)
        model.layers[3].bias.fill_(-3.0)
    return model


def test_rows_of_another_shape_than_the_bounds_hold_for_are_refused():
    model, x = of_any_size(), torch.zeros(4, 1, 1, 64)
    y, own = torch.zeros(4, dtype=torch.int64), torch.zeros(4, 1, 1, 2)
    for scored in (
        lambda: certify(model, x, y),
        lambda: float64_logits(model, x),
        lambda: float64_features(model, x),
        lambda: float64_logits(model, own, features=x.double()),
        lambda: evaluate(model, Split(x, y), ["24/10"]),
        lambda: evaluate(model, Split(x, y), ["24/10"], features=x.double()),
        lambda: attacked_accuracy(model, Split(x, y), "24/10"),
    ):
        with pytest.raises(ValueError, match=r"Expected rows of shape \(1, 1, 2\), got \(1, 1, 64\)"):
            scored()
    assert certify(model, own, y).min() > 0
    assert (float64_logits(model, own) == float64_logits(model, own, features=float64_features(model, own))).all()


@pytest.mark.parametrize("classes", [1, 2, 3])
@pytest.mark.parametrize("label", [-5, -1, 3, 7])
def test_a_label_of_no_class_is_certified_nowhere(classes, label):
    """With one logit a label of -1 would otherwise count three times, and one of 7 thirteen times, the distance."""
    model = Network([InputBall(10.0), Dense(3, classes)], (3,))
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    try:
        radii = certify(model, x, torch.full((20,), label))
    except (IndexError, RuntimeError):  # no such logit
        assert classes > 1
    else:
        assert (radii == 0).all()
