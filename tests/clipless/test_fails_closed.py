"""Ways to make one row count for more than it was charged, each of which is refused or bounded."""

import dataclasses

import numpy as np
import pytest
import torch

from clipless import KR, SGD, Network, TauCCE, fit, make_plan
from clipless.datasets import Split
from clipless.errors import PlanError, UnsupportedError
from clipless.guards.exact_sums import row_norms
from clipless.layers import ClipGradient, Dense, Flatten, GroupSort, InputBall, LayerCentering, Residual, SwapAxes
from clipless.plans.clipping import AdaptiveClipping
from clipless.plans.freezing import Freezing
from clipless.plans.method import Method
from clipless.projections import Free
from clipless.testing import SeededSource
from clipless.training.trainer import PrivateTrainer
from tests.clipless.factories import accumulate_gradients

ROWS = 64


def generator():
    return torch.Generator().manual_seed(0)


def rows(width=4):
    lots = generator()
    return Split(torch.randn(ROWS, width, generator=lots), torch.randint(0, 3, (ROWS,), generator=lots))


def plan_for(model, loss=None, method=Method.CLIPLESS, **options):
    options = {"population": ROWS, "batch_size": ROWS, "delta": 1e-3, "noise_multiplier": 50.0, "epochs": 3} | options
    if method is Method.DP_SGD:
        options.setdefault("clip_norm", 1.0)
    return make_plan(model, loss or TauCCE(0.1), method=method, **options)


def summed(model, loss, x, y, plan, **options):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    accumulate_gradients(model, loss, x, y, plan, **options)
    return torch.cat([p.grad.flatten().double() for p in model.parameters()])


class Silent(SeededSource):
    """Draws no noise."""

    def normal(self, count, device="cpu"):
        return torch.zeros(count, device=device)


def stepped(model, loss, data, plan, micro_batch_size=512):
    """Return what a step over all rows sums up, before it is divided by the batch size."""
    trainer = PrivateTrainer(model, loss, data, plan, SGD(1e-30), micro_batch_size, Silent(0))
    trainer.step(torch.arange(len(data)))
    return trainer._gradient_D * plan.batch_size


@pytest.mark.parametrize("ghost", [False, True])
def test_clipped_gradients_are_those_whose_norm_was_taken_behind_a_layer_that_is_not_linear_in_cotangents(ghost):
    lots = generator()
    model = Network([Dense(4, 4, Free(), lots), ClipGradient(1.0), Dense(4, 3, Free(), lots)], (4,))
    with torch.no_grad():
        model.layers[2].weight.mul_(100)
    x = torch.randn(1, 4, generator=lots) * 50
    y = (model(x).argmax(1) + 1) % 3
    moved = summed(model, TauCCE(), x, y, plan_for(model, TauCCE(), Method.DP_SGD), ghost=ghost)
    assert 0.99 <= moved.norm() <= 1.0 + 1e-6  # of gradients in float32


@pytest.mark.parametrize("ghost", [False, True])
def test_clipping_looks_at_each_row_once(ghost):
    """A kink of the loss may fall either way when a batch of another shape is passed a second time."""
    passes = []

    def kinked(logits, y):
        passes.append(len(logits))
        return TauCCE()(logits, y) * 1000.0 ** (len(passes) - 1)

    data, model = rows(), Network([Dense(4, 3, Free(), generator())], (4,))
    data.x[0] = float("nan")
    plan = plan_for(model, TauCCE(), Method.DP_SGD)
    assert summed(model, kinked, data.x, data.y, plan, ghost=ghost).norm() <= ROWS - 1
    assert passes == [ROWS]


@pytest.mark.parametrize("mixer", [LayerCentering(), GroupSort(None), InputBall(1.0)], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("depth", [0, 1])
def test_dp_sgd_refuses_layers_that_stand_on_the_batch_axis(mixer, depth):
    front = [Dense(6, 6, Free())] * depth
    model = Network([*front, SwapAxes(), mixer, SwapAxes(), Dense(6, 3, Free())], (6,))
    with pytest.raises(UnsupportedError, match="mixes rows"):
        plan_for(model, method=Method.DP_SGD)


def test_rows_of_another_shape_than_the_network_was_bounded_for_are_refused():
    layers = [InputBall(1e3), SwapAxes(), LayerCentering(), SwapAxes(), Flatten(), Dense(4, 3)]
    model = Network(layers, (1, 4))
    with pytest.raises(PlanError, match=r"shape \(1, 4\) .*, got \(4,\)"):
        fit(model, TauCCE(0.1), rows(), plan_for(model))


@pytest.mark.usefixtures("exact_sums")
@pytest.mark.parametrize("count", [2**13, pytest.param(2**18, marks=pytest.mark.long)])
def test_one_row_among_very_many_moves_their_sum_by_at_most_the_sensitivity(count):
    """Its neighbour holds a null row in its place; the input is tuned to where float32 rounds worst."""
    spacing = float(np.spacing(np.float32(2 * count)))
    radius = (2 + spacing * 0.4) / 2
    model, loss = Network([InputBall(radius), Dense(1, 1)], (1,)), KR()
    plan = plan_for(model, loss, population=count, batch_size=count, delta=1e-9, noise_multiplier=1.0, epochs=1)
    (delta,) = plan.sensitivities.values()
    x, y = torch.full((count, 1), radius * 0.99999), torch.zeros(count, dtype=torch.long)
    for other in (0.1, 0.325, 0.55):
        x[-2] = other
        null = x.clone()
        null[-1] = float("nan")
        moved = stepped(model, loss, Split(x, y), plan) - stepped(model, loss, Split(null, y), plan)
        assert moved.norm() <= delta


@pytest.mark.parametrize("method", [Method.CLIPLESS, Method.DP_SGD])
@pytest.mark.parametrize("change", ["parameters assigned", "an inner layer exchanged", "a layer thawed"])
def test_parameters_that_change_between_epochs_are_refused(method, change):
    """Otherwise their gradients would lie bare on the model, and the noise go elsewhere."""
    layers = [InputBall(1.0), Dense(4, 4), Residual([Dense(4, 4)], 0.5), GroupSort(), Dense(4, 3)]
    model = Network(layers, (4,))
    model.layers[1].weight.requires_grad_(False)
    epochs = fit(model, TauCCE(0.1), rows(), plan_for(model, method=method), source=SeededSource(0))
    next(epochs)
    match change:
        case "parameters assigned":
            model.load_state_dict({name: value.clone() for name, value in model.state_dict().items()}, assign=True)
        case "an inner layer exchanged":
            model.layers[2].layers[0] = Dense(4, 4)
        case _:
            model.layers[1].weight.requires_grad_(True)
    before = [parameter.grad for parameter in model.parameters()]
    with pytest.raises(PlanError, match="layers that training began with"):
        next(epochs)
    assert all(a is b for a, b in zip(before, (p.grad for p in model.parameters()), strict=True))


def test_a_step_that_fails_leaves_no_gradient_without_noise_behind():
    model, data = Network([InputBall(1.0), Dense(4, 3)], (4,)), rows()
    calls = []

    def failing(logits, y):
        calls.append(logits)
        if len(calls) == tested + 2:
            raise RuntimeError("out of memory")
        return TauCCE(0.1)(logits, y)

    tested = float("inf")  # passes of made-up rows come first
    trainer = PrivateTrainer(model, failing, data, plan_for(model), SGD(1e-30), ROWS // 2, SeededSource(0))
    tested = len(calls)
    with pytest.raises(RuntimeError, match="out of memory"):
        trainer.step(torch.arange(ROWS))
    assert [parameter.grad for parameter in model.parameters()] == [None]
    assert not trainer._gradient_D.any()


@pytest.mark.parametrize("length", [1, 4095, 4096, 4097, 2**22, 2**24 + 5])
def test_norms_of_long_rows_of_like_entries_do_not_come_out_too_small(length):
    value = 0.123
    found = row_norms(torch.full((1, length), value)).item()
    exact = float(np.float32(value)) * length**0.5
    assert exact <= found <= 1.001 * exact


def test_a_plan_of_dp_sgd_with_a_count_that_nobody_pays_is_refused():
    model = Network([Dense(4, 4, Free()), ClipGradient(1.0), Dense(4, 3, Free())], (4,))
    plan = plan_for(model, method=Method.DP_SGD)
    with pytest.raises(PlanError, match="clipping=constant"):
        dataclasses.replace(plan, clipping=AdaptiveClipping(share=0.99))


def test_a_quantile_of_gradients_that_no_longer_come_is_refused():
    model = Network([InputBall(1.0), Dense(4, 4), GroupSort(), Dense(4, 3), ClipGradient(1.0), Dense(3, 3)], (4,))
    plan_for(model, clipping=AdaptiveClipping(), freezing=Freezing(layers=1))
    with pytest.raises(PlanError, match="in front of ClipGradient"):
        plan_for(model, clipping=AdaptiveClipping(), freezing=Freezing(layers=2))


def test_sensitivities_at_the_ends_of_float32_are_refused():
    huge = Network([InputBall(1e19), Dense(2, 3)], (2,))
    with pytest.raises(PlanError, match=r"from 1e-25 to 1e\+30 over the batch size"):
        plan_for(huge, KR(priors=(1e-18, 0.5, 0.5)))
    with pytest.raises(PlanError, match="from 1e-25"):
        plan_for(Network([InputBall(1.0), Dense(2, 3)], (2,)), sensitivity_fraction=1.7e-44)
