"""Noise that a plan may not have, and how far sensitivities may fall until it would."""

from math import sqrt

import pytest
import torch

from clipless import Network, TauCCE, make_plan
from clipless.errors import PlanError
from clipless.guards.exact_sums import grid
from clipless.layers import ClipGradient, Dense, InputBall
from clipless.plans.clipping import AdaptiveClipping
from clipless.plans.method import Method
from clipless.plans.noise_range import check_noise, largest_multiplier, least_sensitivities
from clipless.plans.plan import check_plan
from clipless.plans.sensitivities import limit_sensitivity
from clipless.privacy.allocation import NoiseAllocation, noise_multipliers
from clipless.privacy.noise_grid import MOST_STEPS

SIZES = {"a": 100, "b": 4, "c": 30}
PLANNED = {"a": 1.0, "b": 3.0, "c": 0.02}


def network(clip=1.0):
    """The first layer's sensitivity falls with the norm of what reaches it from above."""
    return Network([InputBall(1.0), Dense(4, 4), ClipGradient(clip), Dense(4, 2)], (4,))


def plan(model=None, **options):
    numbers = {"population": 1000, "batch_size": 100, "delta": 1e-4, "noise_multiplier": 2.0, "epochs": 1}
    return make_plan(model or network(), TauCCE(), **(numbers | options))


def deviation_in_steps(made, copies=16):
    return {name: copies * std / grid(made.sensitivities[name]) for name, std in made.noise_stds.items()}


@pytest.mark.parametrize("allocation", list(NoiseAllocation))
@pytest.mark.parametrize("multiplier", [1.0, 1e3, 1e5, 1e9])
def test_every_plan_that_is_made_has_noise_that_is_exact(allocation, multiplier):
    if multiplier > 5e3:
        with pytest.raises(PlanError, match="Expected a noise multiplier of at most 16384 for every parameter, got "):
            plan(noise_multiplier=multiplier, allocation=allocation)
    else:
        made = plan(noise_multiplier=multiplier, allocation=allocation)
        assert all(steps <= MOST_STEPS for steps in deviation_in_steps(made).values())


def test_global_noise_beside_a_very_small_sensitivity_is_refused():
    shares = {"clip": 1e-6}
    with pytest.raises(
        PlanError, match=r"at most 16384 .*, got .*e\+06 for layers.1.weight: .*share the noise per-lay"
    ):
        plan(network(**shares), allocation=NoiseAllocation.GLOBAL)
    made = plan(network(**shares), allocation=NoiseAllocation.PER_LAYER)
    assert max(deviation_in_steps(made).values()) <= MOST_STEPS


@pytest.mark.parametrize(
    "options",
    [
        {"method": Method.DP_SGD, "clip_norm": 1.0, "noise_multiplier": 2e4},
        {"clipping": AdaptiveClipping(share=1e-8), "noise_multiplier": 2.0},
        {"noise_multiplier": 2e4, "allocation": NoiseAllocation.PER_LAYER},
    ],
)
def test_noise_that_is_too_loud_for_its_grid_is_refused_for_every_method(options):
    with pytest.raises(PlanError, match="Expected a noise multiplier of at most 16384 for every parameter"):
        plan(**options)


def test_more_copies_than_every_plan_has_room_for_are_refused_where_the_noise_is_loud():
    model = network()
    made = plan(model, noise_multiplier=1500.0)
    assert check_plan(made, model, TauCCE(), 1000) is model
    assert check_plan(made, model, TauCCE(), 1000, copies=16) is model
    with pytest.raises(PlanError, match="at most 256 for every parameter"):
        check_plan(made, model, TauCCE(), 1000, copies=1024)


@pytest.mark.parametrize("allocation", list(NoiseAllocation))
@pytest.mark.parametrize("fallen", [{"c": 1e-3}, {"a": 1e-3, "b": 1e-3}, {"a": 1e-3, "b": 1e-3, "c": 1e-3}, {}])
def test_sensitivities_that_move_never_make_noise_too_loud(allocation, fallen):
    sigma = 60.0 if allocation is NoiseAllocation.GLOBAL else 300.0
    check_noise(noise_multipliers(allocation, sigma, PLANNED, SIZES))
    least = least_sensitivities(allocation, sigma, PLANNED, SIZES)
    now = {
        name: limit_sensitivity(delta * fallen.get(name, 1.0), delta, least[name]) for name, delta in PLANNED.items()
    }
    found = noise_multipliers(allocation, sigma, now, SIZES)
    assert max(found.values()) <= largest_multiplier() * (1 + 1e-12)
    assert all(least[name] <= now[name] <= delta for name, delta in PLANNED.items())


def test_a_plan_that_follows_weights_keeps_its_noise_exact():
    model = network()
    made = plan(model, follow_weights=True, allocation=NoiseAllocation.GLOBAL, noise_multiplier=2000.0)
    with torch.no_grad():
        for parameter in model.layers[3].parameters():
            parameter.mul_(1e-6)
    now = made.at(model, TauCCE())
    assert now.sensitivities["layers.1.weight"] < made.sensitivities["layers.1.weight"]
    assert all(steps <= MOST_STEPS for steps in deviation_in_steps(now).values())


@pytest.mark.parametrize("multiplier", [float("nan"), float("inf"), 16384.1])
def test_what_is_no_multiplier_of_exact_noise_is_refused(multiplier):
    with pytest.raises(PlanError, match="Expected a noise multiplier of at most 16384"):
        check_noise({"w": multiplier})
    check_noise({"w": 16384.0})
    assert largest_multiplier(64) * 64 == largest_multiplier() * 16
    assert sqrt(largest_multiplier()) == 128.0
