"""Norms of clipping layers that move: the noise follows, the quantile is paid for, one row counts for half."""

from math import exp, inf, nan, sqrt

import pytest
import torch

from clipless import SGD, Network, TauCCE, fit, make_plan, zoo
from clipless.datasets import Split
from clipless.errors import PlanError
from clipless.layers import ClipGradient, Dense, InputBall
from clipless.plans.clipping import LEAST_SHARE, AdaptiveClipping, ClipNorms
from clipless.plans.method import Method, Schedule
from clipless.plans.plan import NOISE_INFLATION
from clipless.privacy.allocation import NoiseAllocation
from clipless.testing import SeededSource
from tests.clipless.factories import RecordingSource, accumulate_gradients, rows

ADAPTIVE = AdaptiveClipping(quantile=0.5, share=0.1, rate=0.5)
NORM = 0.5


def network(norm=NORM, clips=1, seed=0):
    plain = zoo.mlp((6,), 3, input_norm=2.0, width=8, generator=torch.Generator().manual_seed(seed))
    return Network([*plain.layers, *(ClipGradient(norm) for _ in range(clips))], (6,))


def plan_for(model, data, clipping, **options):
    numbers = {"batch_size": len(data), "delta": 1e-6, "noise_multiplier": 1.5, "epochs": 4}
    return make_plan(model, TauCCE(), population=len(data), clipping=clipping, **(numbers | options))


@pytest.mark.parametrize("allocation", NoiseAllocation)
@pytest.mark.parametrize("share", [0.01, 0.5])
def test_gradients_and_count_compose_to_the_noise_multiplier(allocation, share):
    model, data = network(), rows(60)
    plan = plan_for(model, data, AdaptiveClipping(share=share), allocation=allocation)
    inverse = sum((plan.sensitivities[name] / std) ** 2 for name, std in plan.noise_stds.items())
    inverse += (0.5 / plan.count_std) ** 2
    assert 1 / sqrt(inverse) == pytest.approx(plan.noise_multiplier * (1 + NOISE_INFLATION))
    assert plan.event() == plan_for(model, data, Schedule.CONSTANT).event()


def test_fixed_norms_release_no_count():
    model, data = network(), rows(60)
    for clipping in (Schedule.CONSTANT, Schedule.LINEAR):
        assert plan_for(model, data, clipping).count_std == 0.0


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.LIP_DP_SGD])
@pytest.mark.parametrize("schedule", [Schedule.LINEAR, Schedule.COSINE])
def test_sensitivities_and_noise_follow_a_schedule(method, schedule):
    model, data, source = network(), rows(60), RecordingSource()
    plan = plan_for(model, data, schedule, method=method)
    zeros = Split(torch.zeros_like(data.x), data.y)  # the weights see no gradient but the noise
    epochs = fit(model, TauCCE(), zeros, plan, optimizer=SGD(1e-30), source=source)
    name, std = next(iter(plan.noise_stds.items()))
    for step, _ in enumerate(epochs):
        gradient = model.get_parameter(name).grad.flatten()
        noise = (source.normals[-1][: len(gradient)] * std / plan.batch_size).float()
        torch.testing.assert_close(gradient, schedule.factor(step, 4) * noise, rtol=1e-4, atol=0)


def clipped_norms(model, data, factor):
    clip = next(layer for layer in model.layers if isinstance(layer, ClipGradient))
    x = data.x.clone().requires_grad_()
    with clip.lowered(factor):
        y = clip(x)
    y.backward(torch.full_like(y, 100.0))
    return x.grad.flatten(1).norm(dim=1)


def test_cotangents_are_clipped_to_the_lowered_norm():
    model, data = network(), rows(60)
    torch.testing.assert_close(clipped_norms(model, data, 0.25), torch.full((60,), 0.25 * NORM))
    torch.testing.assert_close(clipped_norms(model, data, 1.0), torch.full((60,), NORM))


def counted(x, cotangent):
    """The centred count that one pass of these cotangents leaves behind."""
    clip = ClipGradient(1.0)
    norms = ClipNorms(Network([clip], x.shape[1:]), ADAPTIVE, steps=5, batch_size=1.0, count_std=0.0)
    with norms.lowered(0):
        leaf = x.clone().requires_grad_()
        clip(leaf).backward(cotangent)
        norms.count(len(x))
    norms.advance(0.0)
    return norms._centred_count


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9, inf, -inf, nan, 1e-45])
def test_one_row_moves_the_count_by_at_most_a_half(value):
    x = torch.zeros(5, 3)
    cotangent = torch.full((5, 3), 0.1)
    cotangent[2] = value
    others = torch.arange(5) != 2
    assert abs(counted(x, cotangent) - counted(x[others], cotangent[others])) == 0.5


def test_the_count_is_of_rows_at_most_at_the_norm():
    cotangent = torch.tensor([[0.5], [0.9], [1.1], [nan]])
    assert counted(torch.zeros(4, 1), cotangent) == 0.0
    assert counted(torch.zeros(2, 1), cotangent[:2]) == 1.0


@pytest.mark.parametrize("drawn", [0, 1, 4, 30])
def test_the_denominator_of_the_count_is_the_expected_batch_size_whatever_was_drawn(drawn):
    clip = ClipGradient(1.0)
    norms = ClipNorms(Network([clip], (1,)), ADAPTIVE, steps=5, batch_size=10.0, count_std=2.0)
    with norms.lowered(0):
        if drawn:
            clip(torch.zeros(drawn, 1, requires_grad=True)).backward(torch.full((drawn, 1), 0.5))
        norms.count(drawn)
    norms.advance(1.0)
    below = (drawn / 2 + 2.0) / 10.0 + 0.5
    assert norms.factor == pytest.approx(min(1.0, exp(-ADAPTIVE.rate * (below - ADAPTIVE.quantile))))


@pytest.mark.usefixtures("exact_sums")
def test_the_norm_follows_the_noisy_count():
    """The released count is the exact one plus the plan's noise, and the norm its function alone."""
    model, data, source = network(norm=1.1), rows(60), RecordingSource()
    plan = plan_for(model, data, ADAPTIVE, epochs=3)
    clip, expected = model.layers[-1], 1.0
    names = list(plan.noise_stds)
    planned = plan.noise_stds[names[0]]
    for _ in fit(model, TauCCE(), data, plan, optimizer=SGD(1e-30), source=source):
        drawn = torch.cat(source.normals)[: sum(plan.sizes.values())]
        gradient = torch.cat([model.get_parameter(name).grad.flatten() for name in names])
        exact, below = guarded_gradient(model, data, plan, expected)
        added = (gradient * plan.batch_size - exact)[: plan.sizes[names[0]]]
        noise = planned * expected * drawn[: len(added)].float()
        torch.testing.assert_close(added, noise, rtol=1e-3, atol=1e-4)
        assert source.normals[1].shape == (1,)
        noisy = (below - len(data) / 2 + plan.count_std * source.normals[1].item()) / plan.batch_size + 0.5
        expected = min(1.0, max(LEAST_SHARE, expected * exp(-ADAPTIVE.rate * (noisy - ADAPTIVE.quantile))))
        source.normals.clear()
        assert clip.current_norm == 1.1
    assert expected < 0.9


def guarded_gradient(model, data, plan, factor):
    """The summed gradient of one step at the lowered norm, and how many rows were below it."""
    clip = model.layers[-1]
    held = [p.grad for p in model.parameters()]
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    with clip.lowered(factor, counting=True):
        accumulate_gradients(model, TauCCE(), data.x, data.y, plan.at(model, TauCCE()))
        (indicators,) = clip.take_indicators()
    summed = torch.cat([p.grad.flatten() for p in model.parameters()])
    for p, gradient in zip(model.parameters(), held, strict=True):
        p.grad = gradient
    return summed, float((indicators > 0).sum())


@pytest.mark.sampled(3)
@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.8])
def test_the_norm_settles_at_the_quantile(quantile):
    model, data = network(norm=1.4), rows(400)
    clipping = AdaptiveClipping(quantile=quantile, rate=0.3)
    plan = plan_for(model, data, clipping, method=Method.NON_PRIVATE, noise_multiplier=None, epochs=60)
    norms = torch.linalg.vector_norm(cotangents(model, data), dim=1)
    trainer = training_of(model, data, plan)
    for _ in trainer.epochs():
        pass
    settled = trainer.clip_norms.factor * 1.4
    assert float((norms <= settled).double().mean()) == pytest.approx(quantile, abs=0.03)


def training_of(model, data, plan):
    from clipless.training.trainer import PrivateTrainer

    return PrivateTrainer(model, TauCCE(), data, plan, SGD(1e-30), 64, SeededSource(0))


def cotangents(model, data):
    logits = model(data.x).detach().requires_grad_()
    TauCCE()(logits, data.y).sum().backward()
    return logits.grad


def test_the_norm_never_exceeds_the_layers_own():
    norms = ClipNorms(network(), ADAPTIVE, steps=5, batch_size=10.0, count_std=5.0)
    for normal in (-100.0, -1e30, 1e30, 0.0):
        norms.advance(normal)
        with norms.lowered(0):
            assert LEAST_SHARE * NORM <= norms._layers[0].current_norm <= NORM


def test_micro_batches_and_empty_batches_count_alike():
    model, data = network(), rows(60)
    plan = plan_for(model, data, ADAPTIVE, method=Method.NON_PRIVATE, noise_multiplier=None)
    whole, parts, none = (training_of(network(), data, plan) for _ in range(3))
    parts._micro_batch_size = 7
    every = torch.arange(len(data))
    whole.step(every)
    parts.step(every)
    assert whole.clip_norms.factor == parts.clip_norms.factor
    none.step(every[:0])  # n = b/2 of ADAPTIVE.quantile = 1/2: an empty batch says nothing
    assert none.clip_norms.factor == 1.0


@pytest.mark.parametrize("passes", [0, 2])
def test_rows_that_pass_twice_or_never_are_refused(passes):
    clip = ClipGradient(1.0)
    norms = ClipNorms(Network([clip], (2,)), ADAPTIVE, steps=1, batch_size=4.0, count_std=1.0)
    with norms.lowered(0):
        for _ in range(passes):
            clip(torch.zeros(4, 2, requires_grad=True)).sum().backward()
        with pytest.raises(PlanError, match="one backward pass of the drawn rows"):
            norms.count(4)


def test_a_step_that_fails_leaves_the_layer_whole():
    norms = ClipNorms(network(), Schedule.LINEAR, steps=4, batch_size=1.0, count_std=0.0)
    with pytest.raises(RuntimeError), norms.lowered(2):
        raise RuntimeError
    assert norms._layers[0].current_norm == NORM


@pytest.mark.parametrize(
    ("clips", "clipping", "options", "words"),
    [
        (0, ADAPTIVE, {}, "exactly one ClipGradient"),
        (2, ADAPTIVE, {}, "exactly one ClipGradient"),
        (0, Schedule.LINEAR, {}, "a ClipGradient layer for clipping=linear"),
        (1, Schedule.LINEAR, {"method": Method.DP_SGD, "clip_norm": 1.0}, "clipping=constant for dp-sgd"),
    ],
)
def test_norms_that_cannot_move_are_refused(clips, clipping, options, words):
    data = rows(60)
    with pytest.raises(PlanError, match=words):
        plan_for(network(clips=clips), data, clipping, **options)


@pytest.mark.parametrize(
    "layers",
    [
        [InputBall(1.0), ClipGradient(NORM), Dense(6, 3)],
        [InputBall(1.0), Dense(6, 6).requires_grad_(False), ClipGradient(NORM), Dense(6, 3)],
    ],
    ids=["fixed prefix", "frozen by hand"],
)
def test_a_quantile_of_gradients_that_never_come_is_refused(layers):
    """No gradient passes the layer: the first step would fail after private statistics are paid for."""
    with pytest.raises(PlanError, match="in front of ClipGradient that keeps training"):
        plan_for(Network(layers, (6,)), rows(60), ADAPTIVE)


@pytest.mark.parametrize(
    "numbers", [{"quantile": 0.0}, {"quantile": nan}, {"share": 1.0}, {"rate": 0.0}, {"rate": inf}]
)
def test_settings_out_of_range_are_refused(numbers):
    with pytest.raises(PlanError, match=f"{next(iter(numbers))}="):
        AdaptiveClipping(**numbers)


@pytest.mark.parametrize("factor", [0.0, 1.5, nan])
def test_a_factor_out_of_range_is_refused(factor):
    with pytest.raises(ValueError, match="factor"), ClipGradient(1.0).lowered(factor):
        pass
