"""Diagnostics against closed forms, plain autograd and the training step itself."""

from dataclasses import replace
from math import cos, inf, isnan, pi, radians, sqrt

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from clipless import TauBCE, TauCCE, make_plan, zoo
from clipless.datasets import Dataset, Evaluation, Metadata, Split
from clipless.datasets.raw_rows import PIXEL_UNIT
from clipless.diagnostics import colour_norms, diagnose, input_norms, public_rows
from clipless.diagnostics.clipping_bias import FRACTIONS
from clipless.diagnostics.passes import passes
from clipless.diagnostics.records import linear_norms, log_norms
from clipless.errors import DataError, PlanError
from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall, Residual
from clipless.losses import HKR
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import NOISE_INFLATION
from clipless.projections import Free
from clipless.testing import SeededSource
from clipless.training.optimizers import Adam
from clipless.training.trainer import fit
from tests.clipless.factories import accumulate_gradients

NAN, INF = float("nan"), float("inf")
SHARP = TauBCE(0.001)  # its derivative is 1 for every logit of the wrong sign that is used here
ROUNDED_UP = 5e-3  # what bounds add for rounding, and inputs of 8 bits, generously


def plan_for(model, loss, **options):
    settings = {"population": 1000, "batch_size": 100, "delta": 1e-4, "noise_multiplier": 2.0, "epochs": 1} | options
    if settings.get("method") is Method.NON_PRIVATE:
        settings["noise_multiplier"] = None
    return make_plan(model, loss, **settings)


def one_logit(radius=2.0, features=2, **options):
    """``x -> w x`` behind a ball, w the first unit vector."""
    layer = Dense(features, 1, **options)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(1, features))
    return Network([InputBall(radius), layer], (features,))


def rows(*x, y=0):
    return Split(torch.tensor(x, dtype=torch.float32), torch.full((len(x),), y))


def network(name, seed=0):
    generator = torch.Generator().manual_seed(seed)
    if name == "mlp":
        return zoo.mlp((2, 6, 6), 4, input_norm=3.0, width=12, depth=3, generator=generator)
    if name == "convnet":
        return zoo.convnet((2, 6, 6), 4, input_norm=3.0, width=4, depth=2, hidden=8, generator=generator)
    inside = [Conv2d(2, 2, 3, padding=1, generator=generator, bias=True), GroupSort(2)]
    block = Residual(inside, 0.3, learned=True)
    return Network([InputBall(3.0), block, Flatten(), Dense(72, 4, generator=generator, bias=True)], (2, 6, 6))


def batch(count=9, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 2, 6, 6, generator=generator) * torch.linspace(0.05, 3.0, count).view(-1, 1, 1, 1)
    return Split(x, torch.randint(0, 4, (count,), generator=generator))


METHODS = {
    "clipless": {"sensitivity_fraction": 0.2},
    "lip-dp-sgd": {"method": Method.LIP_DP_SGD, "sensitivity_fraction": 0.2},
    "dp-sgd": {"method": Method.DP_SGD, "clip_norm": 0.7},
    "non-private": {"method": Method.NON_PRIVATE},
}


def by_name(items):
    return {item.name: item for item in items}


def test_every_bound_is_reached_where_it_is_tight():
    """A wrong decision of full confidence on an input of full norm that the weight looks along."""
    model = one_logit()
    found = diagnose(model, SHARP, rows([5.0, 0.0], [2.0, 0.0]), plan_for(model, SHARP))
    (weight,) = found.parameters
    ball, dense = found.layers
    reached = (weight.tightness, ball.forward_tightness, dense.forward_tightness, dense.backward_tightness)
    assert all(1.0 - ROUNDED_UP < share <= 1.0 for share in reached)
    assert weight.own.largest == pytest.approx(2.0) == weight.guard_bound.largest
    assert weight.acted == 0.0


@pytest.mark.parametrize("share", [0.5, 0.125])
def test_a_bound_is_reached_to_the_share_of_the_ball_that_inputs_use(share):
    model = one_logit()
    found = diagnose(model, SHARP, rows([2.0 * share, 0.0], [share, 0.0]), plan_for(model, SHARP))
    assert found.parameters[0].tightness == pytest.approx(share, rel=ROUNDED_UP)
    assert [layer.forward_tightness for layer in found.layers] == pytest.approx([share, share], rel=ROUNDED_UP)
    assert found.layers[0].backward_tightness == pytest.approx(1.0, rel=ROUNDED_UP)


def test_a_loss_that_is_not_saturated_takes_its_share():
    """At logit z of wrong sign the derivative is sigmoid(z), of a worst case of sigmoid(R)."""
    model, loss = one_logit(), TauBCE(1.0)
    found = diagnose(model, loss, rows([0.0, 2.0]), plan_for(model, loss))
    expected = 0.5 / (1.0 / (1.0 + torch.tensor(-2.0).exp().item()))
    assert found.layers[1].backward_tightness == pytest.approx(expected, rel=ROUNDED_UP)
    assert found.parameters[0].tightness == pytest.approx(expected, rel=ROUNDED_UP)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["mlp", "convnet", "residual"])
@pytest.mark.parametrize("method", METHODS)
def test_norms_are_those_of_autograd_one_row_at_a_time(name, method):
    model, loss, data = network(name), TauCCE(0.2), batch()
    exact = model.double()
    expected = {path: [] for path, _ in model.named_parameters()}
    for i in range(len(data)):
        total = loss(exact(data.x[i : i + 1].double()), data.y[i : i + 1]).sum()
        gradients = torch.autograd.grad(total, list(exact.parameters()))
        for path, gradient in zip(expected, gradients, strict=True):
            expected[path].append(gradient.norm().item())
    found = list(passes(model.float(), loss, data, normalise=False))
    for path, norms in expected.items():
        got = torch.cat([some.gradients[path].norm(dim=1) for some in found])
        assert got.tolist() == pytest.approx(norms, rel=1e-9, abs=1e-30)
    if method != "lip-dp-sgd":
        seen = by_name(diagnose(model, loss, data, plan_for(model, loss, **METHODS[method])).parameters)
        for path, norms in expected.items():
            assert seen[path].own.largest == pytest.approx(max(norms), rel=1e-9)
            assert seen[path].own.median == pytest.approx(torch.tensor(norms).quantile(0.5).item(), rel=1e-6)


@pytest.mark.parametrize("name", ["mlp", "convnet", "residual"])
def test_no_row_reaches_more_than_any_bound(name):
    model, loss, data = network(name), TauCCE(0.05), batch(40)
    found = diagnose(model, loss, data, plan_for(model, loss))
    for parameter in found.parameters:
        assert 0.0 < parameter.tightness <= 1.0
        assert parameter.acted == 0.0
        assert parameter.own.largest <= parameter.guard_bound.largest * (1 + ROUNDED_UP)
        assert parameter.guard_bound.largest <= parameter.worst_case * (1 + ROUNDED_UP)
    for layer in found.layers:
        assert 0.0 < layer.forward_tightness <= 1.0
        assert layer.backward_tightness is None or 0.0 < layer.backward_tightness <= 1.0


def test_rows_that_a_guard_takes_in_parts_are_all_measured(monkeypatch):
    model, loss, data = network("convnet"), TauCCE(0.2), batch()
    (whole,) = passes(model, loss, data, normalise=False)
    monkeypatch.setattr("clipless.guards.convolution._DIGITS_AT_ONCE", 1)
    (parts,) = passes(model, loss, data, normalise=False)
    for path, bounds_B in whole.guard_bounds.items():
        torch.testing.assert_close(parts.guard_bounds[path], bounds_B)


def test_the_guard_sees_the_norm_of_patches_times_that_of_the_cotangent():
    """From above: for a convolution it is larger than the exact norm, by what is computed here a second time."""
    model, loss, data = network("convnet"), TauCCE(0.2), batch()
    convolution = next(layer for layer in model.layers if isinstance(layer, Conv2d))
    entered, left = [], []

    def remember(_, x, y):
        entered.append(x[0])
        left.append(y)

    for i in range(len(data)):
        hook = convolution.register_forward_hook(remember)
        total = loss(model(data.x[i : i + 1]), data.y[i : i + 1]).sum()
        hook.remove()
        left[-1] = torch.autograd.grad(total, left[-1])[0]
    scale = convolution.scale
    patches = [
        F.unfold(x, convolution.kernel_size, padding=convolution.padding, stride=convolution.stride) for x in entered
    ]
    expected = [scale * (p.norm() * g.norm()).item() for p, g in zip(patches, left, strict=True)]
    (some,) = passes(model, loss, data, normalise=False)
    path = next(path for path, _ in model.named_parameters())
    assert some.guard_bounds[path].tolist() == pytest.approx(expected, rel=ROUNDED_UP)
    assert (some.own[path].norm(dim=1) < 0.9 * some.guard_bounds[path]).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["mlp", "convnet", "residual"])
@pytest.mark.parametrize("method", METHODS)
def test_the_signal_is_what_the_training_step_sums_up(name, method):
    model, loss, data = network(name), TauCCE(0.2), batch()
    plan = plan_for(model, loss, **METHODS[method])
    found = diagnose(model, loss, data, plan)
    model.zero_grad()
    accumulate_gradients(model, loss, data.x, data.y, plan)
    for parameter in found.parameters:
        summed = model.get_parameter(parameter.name).grad.norm().item()
        assert parameter.signal == pytest.approx(100 * summed / len(data), rel=ROUNDED_UP)
    whole = torch.cat([p.grad.flatten() for p in model.parameters()])
    plain = torch.autograd.grad(loss(model(data.x), data.y).sum(), list(model.parameters()))
    reference = torch.cat([gradient.flatten() for gradient in plain])
    used = [bias for bias in found.clipping if bias.in_use]
    if method == "non-private":
        assert used == []
        assert found.noise_to_gradient == 0.0
        return
    assert used[0].cosine == pytest.approx(F.cosine_similarity(whole, reference, dim=0).item(), abs=1e-3)
    assert used[0].kept == pytest.approx((whole.norm() / reference.norm()).item(), rel=ROUNDED_UP)
    noise = sqrt(sum(plan.sizes[path] * std**2 for path, std in plan.noise_stds.items()))
    assert found.noise_to_gradient == pytest.approx(noise / (100 * whole.norm().item() / len(data)), rel=ROUNDED_UP)
    assert used[0].noise_norm * plan.noise_multiplier * (1 + NOISE_INFLATION) == pytest.approx(noise, rel=1e-9)


def test_under_lip_dp_sgd_contributions_are_divided_by_the_norm_of_the_input():
    model = one_logit()
    plan = plan_for(model, SHARP, method=Method.LIP_DP_SGD)
    (weight,) = diagnose(model, SHARP, rows([2.0, 0.0], [0.1, 0.0]), plan).parameters
    assert (weight.own.largest, weight.own.median) == pytest.approx((1.0, 1.0))
    assert weight.guard_bound.largest == pytest.approx(1.0)
    assert weight.worst_case == pytest.approx(1.0, rel=ROUNDED_UP)


def test_noise_against_equal_gradients_is_a_quotient():
    model = one_logit()
    plan = plan_for(model, SHARP, sensitivity_fraction=0.25)
    found = diagnose(model, SHARP, rows(*[[2.0, 0.0]] * 5), plan)
    (weight,) = found.parameters
    assert weight.noise_std == plan.noise_stds["layers.1.weight"]
    assert weight.signal == pytest.approx(100 * 0.5, rel=ROUNDED_UP)  # clipped to a quarter of 2
    assert weight.noise_to_gradient == pytest.approx(2.0 * 0.5 * sqrt(2) / 50, rel=ROUNDED_UP)
    assert weight.acted == 1.0


def test_without_a_signal_noise_is_all_there_is():
    model = one_logit()
    found = diagnose(model, SHARP, rows([0.0, 0.0]), plan_for(model, SHARP))
    (weight,) = found.parameters
    assert (weight.own.largest, weight.guard_bound.largest, weight.noise_to_gradient) == (0.0, 0.0, inf)
    assert found.noise_to_gradient == inf
    assert isnan(found.clipping[0].cosine)


@pytest.mark.parametrize(
    "options", [{"sensitivity_fraction": 0.25}, {"method": Method.DP_SGD, "clip_norm": 1.0}], ids=["guard", "flat"]
)
def test_the_bias_of_clipping_two_orthogonal_gradients_is_known(options):
    """Of (4, 0) and (0, 1), clipped to norm 1 each: the sum turns from (4, 1) to (1, 1)."""
    model = one_logit(4.0)
    found = diagnose(model, SHARP, rows([4.0, 0.0], [1e-9, 1.0]), plan_for(model, SHARP, **options))
    (used,) = [bias for bias in found.clipping if bias.in_use]
    derivative_at_0 = 0.5
    expected = torch.tensor([[4.0, derivative_at_0], [1.0, derivative_at_0]])
    cosine = F.cosine_similarity(expected[0], expected[1], dim=0).item()
    assert used.cosine == pytest.approx(cosine, rel=ROUNDED_UP)
    assert used.parameters[0].cosine == pytest.approx(cosine, rel=ROUNDED_UP)
    assert (used.acted, used.parameters[0].acted, found.parameters[0].acted) == (0.5, 0.5, 0.5)
    assert used.kept == pytest.approx((expected[1].norm() / expected[0].norm()).item(), rel=ROUNDED_UP)


def test_scaling_every_row_alike_bends_nothing():
    model = one_logit()
    found = diagnose(model, SHARP, rows([2.0, 0.0], [2.0, 0.0]), plan_for(model, SHARP, sensitivity_fraction=0.1))
    assert all(bias.cosine == pytest.approx(1.0) for bias in found.clipping)
    harsh = [bias for bias in found.clipping if bias.method is Method.CLIPLESS][-1]
    assert (harsh.acted, harsh.level) == (1.0, pytest.approx(min(FRACTIONS)))


@pytest.mark.parametrize("method", ["clipless", "lip-dp-sgd", "dp-sgd", "non-private"])
def test_both_kinds_of_clipping_are_compared_at_the_same_noise(method):
    model, loss = network("mlp"), TauCCE(0.2)
    found = diagnose(model, loss, batch(), plan_for(model, loss, **METHODS[method]))
    guard = Method.LIP_DP_SGD if method == "lip-dp-sgd" else Method.CLIPLESS
    noises = {m: [b.noise_norm for b in found.clipping if b.method is m] for m in (guard, Method.DP_SGD)}
    assert noises[guard] == pytest.approx(noises[Method.DP_SGD])
    assert len(noises[guard]) >= len(FRACTIONS)
    assert noises[guard] == sorted(noises[guard], reverse=True)
    entries = sum(p.numel() for p in model.parameters())
    for bias in found.clipping:
        if bias.method is Method.DP_SGD:
            assert bias.level * sqrt(entries) == pytest.approx(bias.noise_norm)
    gentle = next(bias for bias in found.clipping if bias.method is guard)
    assert (gentle.level, gentle.acted) == (pytest.approx(1.0), 0.0)
    if guard is Method.CLIPLESS:
        assert gentle.cosine == pytest.approx(1.0)
        assert gentle.kept == pytest.approx(1.0)


def test_without_bounds_there_is_flat_clipping_alone():
    model = Network([Flatten(), Dense(72, 4, constraint=Free())], (2, 6, 6))
    loss = TauCCE()
    found = diagnose(model, loss, batch(), plan_for(model, loss, method=Method.DP_SGD, clip_norm=0.5))
    (weight,) = found.parameters
    assert (weight.worst_case, weight.tightness, weight.sensitivity) == (None, None, 0.5)
    assert all(layer.activation_bound is None and layer.forward_tightness is None for layer in found.layers)
    assert {bias.method for bias in found.clipping} == {Method.DP_SGD}
    assert [bias.level for bias in found.clipping if bias.in_use] == [0.5]
    acted = [bias.acted for bias in found.clipping]
    assert acted == sorted(acted)


def test_sensitivities_that_follow_the_weights_are_those_of_this_moment():
    model, loss = network("mlp"), TauCCE(0.2)
    plan = plan_for(model, loss, follow_weights=True, sensitivity_fraction=0.5)
    with torch.no_grad():
        model.layers[-1].weight.mul_(0.5)
    found = by_name(diagnose(model, loss, batch(), plan).parameters)
    for path, delta in plan.at(model, loss).sensitivities.items():
        assert found[path].sensitivity == delta
        assert found[path].worst_case == pytest.approx(2 * plan.sensitivities[path])
    assert min(p.sensitivity / p.worst_case for p in found.values()) < 0.3


@pytest.mark.parametrize("hard", [NAN, INF, -INF])
def test_rows_that_are_not_finite_are_left_out(hard):
    """Without an input ball in front such a row reaches the gradient."""
    model = Network([Flatten(), Dense(72, 4, constraint=Free())], (2, 6, 6))
    loss, clean = TauCCE(), batch(6)
    plan = plan_for(model, loss, method=Method.DP_SGD, clip_norm=0.5)
    x = torch.cat([clean.x[:3], torch.full_like(clean.x[:1], hard), clean.x[3:]])
    y = torch.cat([clean.y[:3], clean.y[:1], clean.y[3:]])
    found, expected = diagnose(model, loss, Split(x, y), plan), diagnose(model, loss, clean, plan)
    assert (found.rows, found.left_out) == (6, 1)
    assert replace(found, left_out=0) == expected
    with pytest.raises(DataError, match="at least one row with finite gradients, got 2 without"):
        diagnose(model, loss, Split(x[3:4].repeat(2, 1, 1, 1), y[:2]), plan)


def test_behind_an_input_ball_a_row_that_is_not_finite_is_the_zero_row():
    model = one_logit()
    found = diagnose(model, SHARP, rows([2.0, 0.0], [NAN, INF]), plan_for(model, SHARP))
    assert (found.rows, found.left_out) == (2, 0)
    assert found.parameters[0].own.histogram.below == 1


def test_rows_are_spread_evenly_over_the_split():
    model = one_logit(8.0)
    plan = plan_for(model, SHARP)
    data = rows(*[[float(i), 0.0] for i in range(1, 8)])
    found = diagnose(model, SHARP, data, plan, rows=3)
    assert found.rows == 3
    (weight,) = found.parameters
    assert (weight.own.largest, weight.own.median) == pytest.approx((7.0, 4.0))
    with pytest.raises(ValueError, match="rows >= 1, got rows=0"):
        diagnose(model, SHARP, data, plan, rows=0)
    with pytest.raises(DataError, match="at least one row to look at, got none"):
        diagnose(model, SHARP, Split(data.x[:0], data.y[:0]), plan)


def test_many_rows_are_passed_in_chunks():
    model = one_logit(1.0)
    data = rows(*[[i / 300, 0.0] for i in range(1, 301)])
    found = diagnose(model, SHARP, data, plan_for(model, SHARP))
    histogram = found.parameters[0].own.histogram
    assert found.rows == 300 == sum(histogram.counts) + histogram.below
    assert found.parameters[0].own.median == pytest.approx(0.5, abs=0.01)


def test_the_model_is_left_as_it_was():
    model, loss = network("residual"), TauCCE(0.2)
    plan = plan_for(model, loss)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    diagnose(model, loss, batch(), plan)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())
    assert all(getattr(layer, "guards", None) is None for layer in model.modules())
    assert len(list(fit(model, loss, batch(1000), plan, optimizer=Adam(0.01), source=SeededSource(0)))) == 1


def test_a_plan_for_another_loss_is_refused():
    model = network("mlp")
    with pytest.raises(PlanError, match="the model and loss that the plan was made for"):
        diagnose(model, HKR(alpha=3.0), batch(), plan_for(model, TauCCE(0.2)))


def dataset(x, evaluation=Evaluation.PUBLIC, unit=PIXEL_UNIT):
    x = torch.as_tensor(x, dtype=torch.float32)
    facts = Metadata(
        name="pictures",
        input_shape=tuple(x.shape[1:]),
        classes=("a", "b"),
        evaluation=evaluation,
        unit="row",
        input_norm=sqrt(x[0].numel()),
        input_gain=1.0,
        radius_unit=unit,
        public_facts=(),
        conditions=(),
    )
    split = Split(x, torch.zeros(len(x), dtype=torch.int64))
    return Dataset(facts, split, split, split)


@pytest.mark.parametrize("evaluation", [Evaluation.PRIVATE, Evaluation.EXPLORATORY])
@pytest.mark.parametrize("look", [public_rows, colour_norms, lambda data: input_norms(data, "x")])
def test_rows_that_are_not_public_are_refused(evaluation, look):
    data = dataset(torch.rand(3, 3, 2, 2), evaluation)
    with pytest.raises(DataError, match=rf"evaluation: public .* got evaluation: {evaluation.value} for pictures"):
        look(data)


def test_norms_in_each_colour_space_are_those_of_its_formula():
    red = torch.zeros(1, 3, 1, 1)
    red[0, 0] = 1.0
    found = {one.space: one for one in colour_norms(dataset(torch.cat([red, torch.ones(1, 3, 1, 1)])))}
    assert list(found) == ["rgb", "gray", "yiq", "yuv", "hsv"]
    assert found["rgb"].norms.largest == pytest.approx(sqrt(3))
    assert found["gray"].norms.largest == pytest.approx(1.0)
    assert found["gray"].norms.median == pytest.approx((1.0 + 0.299) / 2)
    assert found["hsv"].norms.largest == pytest.approx(sqrt(2))  # red: hue 0, saturation 1, value 1
    assert found["yiq"].norms.median == pytest.approx((1.0 + sqrt(0.299**2 + 0.596**2 + 0.211**2)) / 2, rel=1e-3)
    assert all(one.norms.largest <= one.bound for one in found.values())


@pytest.mark.parametrize(("shape", "unit"), [((1, 2, 2), PIXEL_UNIT), ((6,), "units"), ((3, 2, 2), "units")])
def test_what_has_no_colours_has_no_colour_spaces(shape, unit):
    data = dataset(torch.rand(3, *shape), unit=unit)
    assert colour_norms(data) == ()
    assert input_norms(data, "as trained").norms.largest == pytest.approx(
        data.validation.x.flatten(1).norm(dim=1).max().item()
    )


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-30, 1e30)), min_size=1, max_size=30))
def test_a_histogram_counts_every_norm_once(values):
    for norms in (log_norms(torch.tensor(values, dtype=torch.float64)), linear_norms(torch.tensor(values), 1.0)):
        histogram = norms.histogram
        assert sum(histogram.counts) + histogram.below == len(values)
        assert len(histogram.edges) == (len(histogram.counts) + 1 if histogram.counts else 0)
        assert all(low < high for low, high in zip(histogram.edges, histogram.edges[1:], strict=False))
        assert norms.median <= norms.largest == pytest.approx(max(values), rel=1e-6)
    if max(values) > 0:
        assert log_norms(torch.tensor(values, dtype=torch.float64)).histogram.edges[-1] == max(values)


def test_histograms_of_two_models_share_their_inner_edges():
    one, other = (log_norms(torch.tensor([a, 3.0 * a])).histogram.edges[1:-1] for a in (1.0, 1.37))
    assert set(one) & set(other)
    assert all(min(abs(b / a - 1) for a in (10.0 ** (k / 10) for k in range(-1, 12))) < 1e-6 for b in (*one, *other))


def test_a_cosine_is_that_of_the_angle():
    """Rows at plus and minus 60 degrees, of norms 2 and 1: clipping to 1 makes the mean point along 0."""
    model = one_logit(2.0)
    c, s = cos(radians(60)), cos(pi / 6)
    data = rows([2 * c, 2 * s], [c, -s])
    found = diagnose(model, SHARP, data, plan_for(model, SHARP, sensitivity_fraction=0.5))
    (used,) = [bias for bias in found.clipping if bias.in_use]
    raw = torch.tensor([3 * c, s])
    assert used.cosine == pytest.approx((raw[0] / raw.norm()).item(), rel=ROUNDED_UP)
