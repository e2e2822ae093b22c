"""What bounds the contribution of one example: every method against neighbouring batches."""

import dataclasses
import math
from itertools import pairwise

import pytest
import torch
from torch.nn.functional import unfold

from clipless import Adam, TauCCE, load, save, zoo
from clipless.bounds import WeightNorms, bound_network
from clipless.datasets import Split
from clipless.errors import InvalidBoundError, PlanError, UnsupportedError
from clipless.guards.guard import guarded
from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall
from clipless.network import Network
from clipless.plans.method import Method
from clipless.plans.plan import NOISE_INFLATION
from clipless.privacy.allocation import NoiseAllocation
from clipless.projections import FixedNorm, Free, SpectralBall
from clipless.testing import SeededSource, broken_weights, neighbour_ratios
from clipless.training.batch_sums import sum_gradients
from clipless.training.per_example import accumulate_clipped
from clipless.training.trainer import fit
from tests.clipless.factories import accumulate_gradients, images, plan_of_step

ROUNDING = 1 + 1e-4  # of passes over batches of other shapes
NAN, INF = float("nan"), float("inf")
CLIP = 0.2


def network(constraint=None, ball=3.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    options = {"constraint": constraint, "generator": generator}
    front = [] if ball is None else [InputBall(ball)]
    body = [Conv2d(1, 4, 3, padding=1, **options), GroupSort(), Flatten(), Dense(256, 6, **options), GroupSort()]
    return Network([*front, *body, Dense(6, 4, **options)], (1, 8, 8))


def gradients_of(model, loss, x, y, clip_norm=CLIP, **options):
    totals = {name: torch.zeros_like(p, dtype=torch.float64) for name, p in model.named_parameters()}
    accumulate_clipped(model, lambda: loss(model(x), y).sum().backward(), clip_norm, totals, **options)
    return list(totals.values())


def whole_norm(gradients):
    return torch.cat([g.flatten() for g in gradients]).double().norm().item()


@pytest.mark.sampled(5)
@pytest.mark.parametrize("ghost", [False, True])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6, 3e38, 1e-25, NAN, INF])
@pytest.mark.parametrize("factor", [1.0, 1e12, NAN, INF])
@pytest.mark.parametrize("ball", [3.0, None])
def test_no_neighbour_moves_the_clipped_sum_by_more_than_the_clipping_norm(ghost, scale, factor, ball):
    model, loss = network(Free(), ball), TauCCE(0.1)
    x, y = images()
    x[0] = x[0] * scale
    with broken_weights(model, factor):
        full = gradients_of(model, loss, x, y, ghost=ghost)
        fewer = gradients_of(model, loss, x[1:], y[1:], ghost=ghost)
    assert whole_norm([a - b for a, b in zip(full, fewer, strict=True)]) <= CLIP * ROUNDING


@pytest.mark.parametrize("ghost", [False, True])
def test_clipping_gives_the_sum_of_clipped_gradients(ghost):
    model, loss = network(Free()), TauCCE(0.1)
    x, y = images()
    expected = [torch.zeros_like(p) for p in model.parameters()]
    norms = []
    for i in range(len(x)):
        one = torch.autograd.grad(loss(model(x[i : i + 1]), y[i : i + 1]).sum(), list(model.parameters()))
        norms.append(whole_norm(one))
        expected = [e + g * min(1.0, 1.0 / norms[-1]) for e, g in zip(expected, one, strict=True)]
    assert min(norms) < 1.0 < max(norms)
    for e, g in zip(expected, gradients_of(model, loss, x, y, 1.0, ghost=ghost), strict=True):
        assert (g - e).norm() <= 1e-2 * e.norm()


def test_ghost_norms_of_tiny_cotangents_and_huge_inputs_clip_too():
    """Squares of the cotangent underflow, the gradient does not: its norm must not come out as zero."""
    model = Network([Dense(4, 2, constraint=Free())], (4,))
    x, y = torch.full((3, 4), 1e18), torch.zeros(3, dtype=torch.int64)

    def tiny(logits, target):
        return logits.sum(dim=1) * 1e-17 * (target + 1)

    full = gradients_of(model, tiny, x, y, ghost=True)
    assert whole_norm(full) == pytest.approx(3 * CLIP, rel=2e-2)


@pytest.mark.parametrize("ghost", [False, True])
def test_clipping_leaves_no_trace_on_the_model(ghost):
    model = network(Free())
    before = {name: sorted(vars(module)) for name, module in model.named_modules()}
    gradients_of(model, TauCCE(), *images(), ghost=ghost)
    assert {name: sorted(vars(module)) for name, module in model.named_modules()} == before
    assert all(not hasattr(p, "grad_sample") for p in model.parameters())
    assert not any(module._forward_hooks or module._backward_hooks for module in model.modules())


def test_clipping_that_fails_leaves_the_gathered_gradients():
    model = network(Free())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)

    def broken():
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"):
        accumulate_clipped(model, broken, CLIP, {})
    assert all(bool((p.grad == 1).all()) for p in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_a_parameter_without_per_example_gradients_is_refused():
    """As one that the loss does not depend on: nothing would be known of its contributions."""
    model = network(Free())
    with pytest.raises(UnsupportedError, match=r"layers\.1\.weight"):
        gradients_of(model, lambda logits, _: logits.detach().sum(1) + model.layers[-1].weight.sum(), *images())


def test_the_noise_of_dp_sgd_is_that_of_one_gaussian_mechanism():
    model = network(Free())
    for allocation in NoiseAllocation:
        plan = plan_of_step(model, method=Method.DP_SGD, clip_norm=CLIP, noise_multiplier=2.0, allocation=allocation)
        assert set(plan.noise_stds.values()) == {2.0 * CLIP * (1 + NOISE_INFLATION)}
        assert plan.event().noise_multiplier == 2.0


def test_free_weights_have_no_bounds():
    with pytest.raises(InvalidBoundError, match="finite"):
        plan_of_step(network(Free()), method=Method.CLIPLESS)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        (Method.DP_SGD, {"clip_norm": None}, "clip_norm with dp-sgd"),
        (Method.DP_SGD, {"clip_norm": 0.0}, "0 < clip_norm"),
        (Method.DP_SGD, {"clip_norm": INF}, "0 < clip_norm"),
        (Method.DP_SGD, {"clip_norm": NAN}, "0 < clip_norm"),
        (Method.CLIPLESS, {"clip_norm": 1.0}, "clip_norm with dp-sgd"),
        (Method.NON_PRIVATE, {}, "nothing else without privacy"),
        (Method.NON_PRIVATE, {"noise_multiplier": None, "epsilon": 3.0}, "nothing else without privacy"),
    ],
)
def test_settings_of_another_method_are_refused(method, options, message):
    with pytest.raises(PlanError, match=message):
        plan_of_step(network(SpectralBall()), method=method, **options)


@pytest.mark.parametrize("method", list(Method))
def test_layers_that_may_mix_examples_are_refused_by_every_method(method):
    model = Network([InputBall(1.0), Flatten(), torch.nn.BatchNorm1d(64, affine=False), Dense(64, 4)], (1, 8, 8))
    options = {"noise_multiplier": None} if method is Method.NON_PRIVATE else {}
    with pytest.raises(UnsupportedError, match="BatchNorm1d"):
        plan_of_step(model, method=method, **options)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("example", [0.0, 1.0, 1e6, 3e38, 1e-25, 1e-41, NAN, INF])
@pytest.mark.parametrize("factor", [1.0, 30.0, 1e30, NAN, INF])
def test_no_neighbour_moves_a_normalised_sum_by_more_than_its_sensitivity(example, factor):
    model, loss = network(SpectralBall(1.3)), TauCCE(0.1)
    plan = plan_of_step(model, loss, method=Method.LIP_DP_SGD)
    x, y = images(scale=5.0)
    x[0] = x[0] * example
    with broken_weights(model, factor):
        ratios = neighbour_ratios(model, loss, x, y, plan)
    assert all(ratio <= ROUNDING for ratio in ratios.values()), ratios


def test_normalised_sensitivities_do_not_depend_on_the_size_of_the_input():
    loss = TauCCE(1e-6)  # at which the size of the logits does not matter
    small, large = (plan_of_step(network(ball=r), loss, method=Method.LIP_DP_SGD).sensitivities for r in (0.1, 100.0))
    assert dict(small) == pytest.approx(dict(large))
    last = plan_of_step(network(SpectralBall(5.0)), method=Method.LIP_DP_SGD).sensitivities["layers.6.weight"]
    assert last == pytest.approx(math.sqrt(2), rel=1e-3)  # gains start behind the layer


def test_normalising_divides_by_the_norm_of_the_layers_own_input():
    model, loss = network(SpectralBall()), TauCCE()
    x, y = images(4)
    plan = plan_of_step(model, loss, method=Method.LIP_DP_SGD)
    found = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for i in range(len(x)):
        inputs = {}
        handles = [
            layer.register_forward_hook(lambda _m, a, _y, n=name, seen=inputs: seen.__setitem__(n, a[0]))
            for name, layer in model.named_layers()
        ]
        value = loss(model(x[i : i + 1]), y[i : i + 1]).sum()
        for handle in handles:
            handle.remove()
        for (name, _), g in zip(
            model.named_parameters(), torch.autograd.grad(value, list(model.parameters())), strict=True
        ):
            source = inputs[name.removesuffix(".weight")]
            size = unfold(source, 3, padding=1).norm() if source.dim() == 4 else source.norm()
            found[name] += g / size
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    accumulate_gradients(model, loss, x, y, plan)
    for name, parameter in model.named_parameters():
        assert (parameter.grad - found[name]).norm() <= 1e-2 * found[name].norm()


def test_dividing_by_the_largest_norm_of_the_batch_is_not_private():
    """Algorithm 8 as printed (Barczewski 2025): one example with a large input moves everybody's contribution."""
    loss = TauCCE(0.01)
    model = Network([InputBall(100.0), Dense(4, 3, SpectralBall())], (4,))
    sensitivity = plan_of_step(model, loss, method=Method.LIP_DP_SGD).sensitivities["layers.1.weight"]
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(1, 4, generator=generator), dim=1).repeat(101, 1)
    x[0] *= 10.0
    y = (model(x).argmax(dim=1) + 1) % 3

    def batch_maximum(a, b):
        (g,) = torch.autograd.grad(loss(model(a), b).sum(), [model.layers[1].weight])
        return g / a.norm(dim=1).max()

    moved = (batch_maximum(x, y) - batch_maximum(x[1:], y[1:])).norm().item()
    assert moved > 50 * sensitivity
    plan = plan_of_step(model, loss, method=Method.LIP_DP_SGD)
    assert neighbour_ratios(model, loss, x, y, plan)["layers.1.weight"] <= ROUNDING


def test_a_parameter_without_a_normalised_rule_is_refused(monkeypatch):
    model = network()
    real = bound_network(model)

    class Bounds:
        output = real.output

        def sensitivities(self, _lipschitz, *, normalised):
            found = real.sensitivities(1.0, normalised=normalised)
            return {name: value for name, value in found.items() if not (normalised and name == "layers.4.weight")}

    monkeypatch.setattr("clipless.plans.sensitivities.bound_network", lambda *_: Bounds())
    with pytest.raises(PlanError, match=r"layers\.4\.weight"):
        plan_of_step(model, method=Method.LIP_DP_SGD)


def separable(rows=400):
    generator = torch.Generator().manual_seed(3)
    y = torch.randint(0, 4, (rows,), generator=generator)
    x = torch.randn(rows, 1, 8, 8, generator=generator) * 0.3
    x[torch.arange(rows), 0, 2 * y, 2 * y] += 2.0
    return Split(x, y)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("method", "constraint"),
    [
        *((method, constraint) for method in Method for constraint in (SpectralBall(), FixedNorm())),
        (Method.DP_SGD, Free()),
        (Method.NON_PRIVATE, Free()),
    ],
)
def test_every_method_learns(method, constraint):
    data = separable()
    model, loss = network(constraint), TauCCE(0.1)
    options = {"epochs": 12, "population": 400, "delta": 1e-4, "batch_size": 100}
    options |= {"noise_multiplier": None if method is Method.NON_PRIVATE else 0.3}
    options |= {"clip_norm": 0.5} if method is Method.DP_SGD else {}
    plan = plan_of_step(model, loss, method=method, **options)
    epochs = list(fit(model, loss, data, plan, optimizer=Adam(0.02), source=SeededSource(0)))
    assert (model(data.x).argmax(1) == data.y).double().mean() > 0.9
    assert math.isinf(epochs[-1].epsilon) == (method is Method.NON_PRIVATE)
    assert all(a.epsilon <= b.epsilon for a, b in pairwise(epochs))


def test_a_plan_of_another_method_is_refused():
    model = network(SpectralBall())
    plan = plan_of_step(model, method=Method.LIP_DP_SGD)
    with pytest.raises(PlanError, match="plan was made for"):
        next(fit(model, TauCCE(0.1), separable(1000), dataclasses.replace(plan, method=Method.CLIPLESS)))


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_no_neighbour_moves_what_is_noised_by_more_than_the_plan_of_any_method_says(method, factor):
    """Without privacy nothing is promised, and epsilon says so."""
    model, loss = network(SpectralBall()), TauCCE(0.1)
    if method is Method.NON_PRIVATE:
        plan = plan_of_step(model, method=method, noise_multiplier=None)
        assert (dict(plan.sensitivities), plan.epsilon_curve()) == ({}, [INF])
        return
    plan = plan_of_step(model, method=method)
    x, y = images()
    x[0] *= 1e3
    with broken_weights(model, factor):
        ratios = neighbour_ratios(model, loss, x, y, plan)
    together = math.hypot(*ratios.values()) if method is Method.DP_SGD else max(ratios.values())
    assert 0 < together <= ROUNDING


def test_training_without_privacy_draws_no_noise_and_costs_everything():
    model, data = network(SpectralBall()), separable()
    plan = plan_of_step(model, method=Method.NON_PRIVATE, noise_multiplier=None, population=400)
    assert plan.event().noise_multiplier == 0.0
    assert plan.epsilon_curve() == [INF]
    assert plan.noise_stds == {}

    class NoNoise(SeededSource):
        def normal(self, *_):
            raise AssertionError("noise drawn")

    assert len(list(fit(model, TauCCE(0.1), data, plan, source=NoNoise(0)))) == 1


@pytest.mark.parametrize("constraint", [Free(), FixedNorm(2.0)])
def test_constraints_survive_saving(constraint, tmp_path):
    model = network(constraint)
    save(model, tmp_path / "m.safetensors")
    assert load(tmp_path / "m.safetensors").layers[1].constraint == constraint


def test_the_guard_is_told_to_normalise():
    model = zoo.mlp((1, 8, 8), 4, input_norm=1.0, width=4, depth=1)
    deltas = plan_of_step(model, method=Method.CLIPLESS).sensitivities
    layer = next(layer for layer in model.layers if isinstance(layer, Dense))
    with guarded(model, deltas, normalise=True):
        assert layer.guards["weight"].normalise
    assert layer.guards is None


@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.LIP_DP_SGD])
@pytest.mark.parametrize("shrink", [1.0, 0.4, 0.0])
def test_sensitivities_that_follow_the_weights_hold_and_lower_the_noise(method, shrink):
    loss = TauCCE(0.05)
    model = network(SpectralBall(1.5))
    plan = plan_of_step(model, loss, method=method, follow_weights=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(shrink)
    now = plan.at(model, loss)
    assert now.event() == plan.event()
    assert all(now.sensitivities[name] <= plan.sensitivities[name] for name in plan.sensitivities)
    composed = sum((now.sensitivities[name] / std) ** 2 for name, std in now.noise_stds.items()) ** -0.5
    assert composed == pytest.approx(1 + NOISE_INFLATION)  # the multiplier that is priced
    if shrink < 1:
        assert now.sensitivities["layers.1.weight"] < 0.5 * plan.sensitivities["layers.1.weight"]
    x, y = images()
    assert all(ratio <= ROUNDING for ratio in neighbour_ratios(model, loss, x, y, now).values())
    if method is Method.CLIPLESS and shrink:
        free = bound_network(model, WeightNorms.MEASURED).sensitivities(math.sqrt(2))
        assert all(now.sensitivities[name] >= 0.99 * min(free[name], plan.sensitivities[name]) for name in free)


def test_every_step_follows_the_weights_of_the_one_before(monkeypatch):
    data, loss, seen = separable(), TauCCE(0.1), []
    model = network(SpectralBall(2.0))
    plan = plan_of_step(model, loss, method=Method.CLIPLESS, population=400, epochs=2, follow_weights=True)

    def spy(network, loss, x, y, plan, totals, **options):
        assert dict(plan.sensitivities) == dict(planned.at(network, loss).sensitivities)
        seen.append(plan.sensitivities["layers.1.weight"])
        return sum_gradients(network, loss, x, y, plan, totals, **options)

    planned = plan
    monkeypatch.setattr("clipless.training.trainer.sum_gradients", spy)
    list(fit(model, loss, data, plan, optimizer=Adam(0.05), source=SeededSource(0)))
    assert len(set(seen)) > 1


def test_only_bounds_can_follow_weights():
    with pytest.raises(PlanError, match="follow_weights"):
        plan_of_step(network(Free()), method=Method.DP_SGD, follow_weights=True)
