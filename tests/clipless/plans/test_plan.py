"""The plan: numbers that belong together come from one object, and what does not fit is refused."""

import dataclasses
import json
from math import ceil, sqrt

import pytest
import torch
from torch import nn

from clipless import Network, TauBCE, TauCCE, make_plan, zoo
from clipless.bounds import bound_network
from clipless.errors import AccountingError, CliplessError, InvalidBoundError, PlanError, UnsupportedError
from clipless.layers import Conv2d, Dense, Flatten, GroupSort, InputBall
from clipless.losses import loss_lipschitz
from clipless.plans.method import Method
from clipless.plans.plan import NOISE_INFLATION, Plan, check_plan
from clipless.privacy.accounting.claim import claim
from clipless.privacy.allocation import NoiseAllocation, noise_multipliers
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.projections import SpectralBall

NAN, INF = float("nan"), float("inf")
ROWS = 1000


def network(seed=0, outputs=4):
    return zoo.mlp((1, 6, 6), outputs, input_norm=3.0, width=8, generator=torch.Generator().manual_seed(seed))


def plan(model=None, loss=None, **options):
    numbers = {"population": ROWS, "batch_size": 100, "delta": 1e-4, "noise_multiplier": 2.0, "epochs": 3}
    return make_plan(model or network(), loss or TauCCE(), **(numbers | options))


@pytest.fixture(scope="module")
def calibrated():
    return plan(epsilon=3.0, noise_multiplier=None)


def test_epsilon_and_epochs_give_the_noise_and_never_overshoot(calibrated):
    epsilon = claim(calibrated.event(), 1e-4).epsilon
    assert 0.99 * 3.0 <= epsilon <= 3.0
    assert calibrated.epochs == 3


def test_epsilon_and_noise_give_the_largest_number_of_epochs():
    made = plan(epsilon=2.0, noise_multiplier=2.0, epochs=None)
    assert claim(made.event(), 1e-4).epsilon <= 2.0
    assert claim(made.event(made.epochs + 1), 1e-4).epsilon > 2.0


def test_noise_and_epochs_give_the_epsilon():
    made = plan()
    assert made.epsilon_curve()[-1] == claim(made.event(), 1e-4).epsilon
    assert (made.noise_multiplier, made.epochs) == (2.0, 3)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", [0.5, 8.0])
@pytest.mark.parametrize("batch_size", [10, 400, 1000])
def test_calibration_never_overshoots(target, batch_size):
    made = plan(epsilon=target, noise_multiplier=None, batch_size=batch_size, epochs=2)
    assert 0.99 * target <= made.epsilon_curve()[-1] <= target


@pytest.mark.parametrize("batch_size", [100, 250, 300.5, 999, 1000, 7])
def test_sampling_rate_and_steps_follow_from_batch_and_population(batch_size):
    made = plan(batch_size=batch_size)
    assert made.sampling_rate == batch_size / ROWS
    assert made.steps_per_epoch == ceil(ROWS / batch_size)
    assert made.event(2) == PoissonGaussian(
        noise_multiplier=2.0,
        sampling_rate=batch_size / ROWS,
        steps=2 * ceil(ROWS / batch_size),
        relation=Relation.ADD_OR_REMOVE_ONE,
    )
    assert made.event() == made.event(3)
    assert made.event(0).steps == 0


def test_the_curve_is_the_claim_for_each_number_of_epochs_and_rises():
    made = plan(epochs=6)
    curve = made.epsilon_curve()
    assert len(curve) == 6
    assert sorted(curve) == curve
    assert curve == [claim(made.event(t + 1), 1e-4).epsilon for t in range(6)]


def test_replace_one_is_priced_as_such_and_costs_more():
    replaced, added = plan(relation=Relation.REPLACE_ONE, epochs=2), plan(epochs=2)
    assert replaced.event().relation is Relation.REPLACE_ONE
    curve = replaced.epsilon_curve()
    assert len(curve) == 2
    assert curve[-1] == claim(replaced.event(), 1e-4).epsilon
    assert curve[-1] > added.epsilon_curve()[-1]


def test_sensitivities_are_the_bounds_times_the_constant_of_the_loss():
    model = Network([InputBall(3.0), Flatten(), Dense(36, 8), GroupSort(), Dense(8, 4)], (1, 6, 6))
    made = plan(model, TauCCE(0.1))
    assert made.sensitivities == {
        "layers.2.weight": pytest.approx(3.0 * sqrt(2.0), rel=1e-4),
        "layers.4.weight": pytest.approx(3.0 * sqrt(2.0), rel=1e-4),
    }
    assert made.sizes == {"layers.2.weight": 8 * 36, "layers.4.weight": 32}
    binary = plan(zoo.mlp((5,), 1, input_norm=2.0), TauBCE(0.1))
    assert list(binary.sensitivities.values()) == pytest.approx([2.0, 2.0], rel=1e-4)


def test_sensitivities_are_rounded_up():
    model = network()
    exact = {"layers.2.weight": 3.0 * sqrt(2.0), "layers.4.weight": 3.0 * sqrt(2.0)}
    assert all(plan(model, TauCCE(1e-3)).sensitivities[name] > exact[name] for name in exact)


def test_small_logits_lower_the_sensitivities():
    """No logit exceeds the input ball: at a high temperature the softmax stays away from mistakes made with confidence."""
    model = network()
    for loss in (TauCCE(5.0), TauCCE(0.5)):
        norm = bound_network(model).output.norm
        ratio = loss_lipschitz(loss, 4, logit_norm=norm) / sqrt(2.0)
        for name, delta in plan(model, loss).sensitivities.items():
            assert delta == pytest.approx(ratio * plan(model, TauCCE(1e-3)).sensitivities[name], rel=1e-4)
    assert ratio < 0.999


@pytest.mark.parametrize("fraction", [0.01, 0.3, 1.0])
def test_the_fraction_scales_sensitivities_and_noise_alike(fraction):
    model = network()
    whole, part = plan(model), plan(model, sensitivity_fraction=fraction)
    for name in whole.sensitivities:
        assert part.sensitivities[name] == pytest.approx(fraction * whole.sensitivities[name])
        assert part.noise_stds[name] == pytest.approx(fraction * whole.noise_stds[name])
    assert part.event() == whole.event()


@pytest.mark.parametrize("allocation", NoiseAllocation)
def test_noise_composes_to_the_multiplier_that_is_priced(allocation):
    made = plan(allocation=allocation)
    relative = {name: made.noise_stds[name] / made.sensitivities[name] for name in made.sensitivities}
    composed = 1 / sqrt(sum(sigma**-2 for sigma in relative.values()))
    assert composed == pytest.approx(made.event().noise_multiplier * (1 + NOISE_INFLATION))
    expected = noise_multipliers(allocation, 2.0, made.sensitivities, made.sizes)
    assert relative == pytest.approx({name: sigma * (1 + NOISE_INFLATION) for name, sigma in expected.items()})


def test_a_plan_is_frozen():
    made = plan()
    for field in dataclasses.fields(made):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, field.name, 0)


@pytest.mark.parametrize("field", ["sensitivities", "sizes"])
def test_what_a_plan_holds_is_frozen_too(field):
    made = plan()
    with pytest.raises(TypeError):
        getattr(made, field)["layers.2.weight"] = 1e6


def test_a_plan_travels_as_json(calibrated):
    content = json.loads(json.dumps(calibrated.to_json(), allow_nan=False))
    assert content["sampling_rate"] == 0.1
    assert content["steps_per_epoch"] == 10
    assert content["relation"] == "add-or-remove-one"
    assert content["allocation"] == "min-variance"
    assert content["sensitivities"] == calibrated.sensitivities
    assert content["noise_stds"] == calibrated.noise_stds
    assert PoissonGaussian.from_json(content["event"]) == calibrated.event()


def test_the_same_choices_make_the_same_plan():
    assert plan() == plan()
    assert plan() == plan(network(seed=1))  # weights are no part of a plan
    assert plan() != plan(epochs=4)


GIVEN = {"epsilon": 2.0, "noise_multiplier": 1.5, "epochs": 2}


@pytest.mark.parametrize("count", [0, 1, 3])
@pytest.mark.parametrize("first", GIVEN)
def test_any_number_but_two_of_three_is_refused(count, first):
    names = sorted(GIVEN, key=lambda name: name != first)[:count]
    chosen = {name: GIVEN[name] if name in names else None for name in GIVEN}
    with pytest.raises(PlanError, match="Expected exactly two of epsilon, noise_multiplier and epochs"):
        plan(**chosen)


@pytest.mark.parametrize("name", GIVEN)
def test_a_zero_is_not_a_choice(name):
    other = "epochs" if name != "epochs" else "epsilon"
    chosen = dict.fromkeys(GIVEN) | {name: 0, other: GIVEN[other]}
    with pytest.raises(PlanError, match=f"Expected 0 < {name} < inf, got {name}=0"):
        plan(**chosen)


@pytest.mark.parametrize("zero", [0, 0.0])
@pytest.mark.parametrize("name", GIVEN)
def test_a_zero_beside_two_choices_is_a_third(name, zero):
    """A budget of nothing is no budget left out: the noise alone would decide what is spent."""
    with pytest.raises(PlanError, match="Expected exactly two of epsilon, noise_multiplier and epochs"):
        plan(**(GIVEN | {name: zero}))


def test_a_training_without_privacy_may_say_that_it_adds_no_noise():
    made = plan(method=Method.NON_PRIVATE, noise_multiplier=None)
    assert plan(method=Method.NON_PRIVATE, noise_multiplier=made.noise_multiplier) == made


@pytest.mark.parametrize("option", [{"allocation": "global"}, {"relation": "replace-one"}, {"method": "clipless"}])
def test_the_value_of_a_choice_is_not_the_choice(option):
    """A step would fail after private statistics are paid for."""
    (value,) = option.values()
    with pytest.raises(PlanError, match=f"Expected a [A-Z][A-Za-z]+, got '{value}'"):
        plan(**option)


@pytest.mark.parametrize("bad", [-1.0, NAN, INF])
@pytest.mark.parametrize(("name", "other"), [(n, o) for n in GIVEN for o in GIVEN if n != o])
def test_a_number_out_of_range_is_refused(name, other, bad):
    chosen = dict.fromkeys(GIVEN) | {other: GIVEN[other], name: bad}
    with pytest.raises(CliplessError, match="Expected"):
        plan(**chosen)


OUT_OF_RANGE = {
    "epochs": [1.5],
    "delta": [0.0, 1.0, -1e-5, NAN, INF],
    "batch_size": [0, -1, ROWS + 1, NAN, INF],
    "population": [0, -5, NAN],
    "sensitivity_fraction": [0.0, -0.5, 1.1, NAN],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
)
def test_a_setting_out_of_range_is_refused_by_name(name, value):
    for accept in (False, True):
        with pytest.raises(PlanError, match=name):
            plan(accept_large_delta=accept, **{name: value})


def test_part_of_an_epoch_is_refused_beside_an_epsilon():
    with pytest.raises(PlanError, match="epochs"):
        plan(epsilon=2.0, noise_multiplier=None, epochs=1.5)


def test_a_budget_below_one_epoch_is_refused():
    with pytest.raises(PlanError, match="budget for at least one epoch"):
        plan(epsilon=0.6, noise_multiplier=2.0, epochs=None)
    with pytest.raises(AccountingError, match=r"what one step costs|epsilon of at least"):
        plan(epsilon=0.01, noise_multiplier=2.0, epochs=None)


@pytest.mark.parametrize("delta", [1 / ROWS, 0.01])
def test_a_delta_that_permits_publishing_a_row_is_refused_unless_accepted(delta):
    with pytest.raises(PlanError, match=r"Expected delta < 1/N = 0\.001 for N = 1000 rows"):
        plan(delta=delta)
    assert plan(delta=delta, accept_large_delta=True).delta == delta


UNFIT = {
    "a module": (lambda: nn.Sequential(InputBall(1.0), Dense(4, 2)), UnsupportedError, "Expected a clipless.Network"),
    "no input ball": (lambda: Network([Dense(4, 2)], (4,)), InvalidBoundError, "InputBall"),
    "no parameter": (lambda: Network([InputBall(1.0), Flatten()], (4,)), PlanError, "at least one trainable parameter"),
    "a frozen one": (lambda: network().requires_grad_(False), PlanError, "at least one trainable parameter"),
    "maps": (lambda: Network([InputBall(1.0), Conv2d(1, 2, 3)], (1, 5, 5)), PlanError, r"got shape \(2, 3, 3\)"),
    "one logit": (lambda: network(outputs=1), ValueError, "at least 2 logits"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_network_that_does_not_fit_is_refused(name):
    """`clipless.plans.trainable` refuses the others; its tests have them."""
    build, error, match = UNFIT[name]
    with pytest.raises(error, match=match):
        plan(build())


def test_a_loss_that_does_not_fit_is_refused():
    with pytest.raises(UnsupportedError, match="No Lipschitz constant for loss CrossEntropyLoss"):
        plan(loss=nn.CrossEntropyLoss())
    with pytest.raises(ValueError, match="1 logit"):
        plan(loss=TauBCE())


def test_a_plan_passes_for_what_it_was_made_for():
    model = network()
    assert check_plan(plan(model), model, TauCCE(), ROWS) is model
    assert check_plan(plan(model), network(seed=5), TauCCE(), ROWS)  # same bounds, same sensitivities


@pytest.mark.parametrize("rows", [ROWS - 1, ROWS + 1, 0])
def test_other_rows_than_planned_are_refused(rows):
    model = network()
    with pytest.raises(PlanError, match=f"Expected the 1000 rows that the plan was made for, got {rows}"):
        check_plan(plan(model), model, TauCCE(), rows)


def other_ball(model):
    model.layers[0].radius = 30.0


def other_constraint(model):
    model.layers[2].constraint = SpectralBall(2.0)


def frozen_layer(model):
    model.layers[2].weight.requires_grad_(False)


def more_layers(model):
    model.layers.append(Dense(4, 4))


@pytest.mark.parametrize("change", [other_ball, other_constraint, frozen_layer, more_layers])
def test_a_model_that_changed_after_planning_is_refused(change):
    model = network()
    made = plan(model)
    change(model)
    with pytest.raises(PlanError, match="model and loss that the plan was made for"):
        check_plan(made, model, TauCCE(), ROWS)


def test_hooks_added_after_planning_are_refused():
    model = network()
    made = plan(model)
    model.layers[2].register_forward_hook(lambda *_: None)
    with pytest.raises(UnsupportedError, match="hooks"):
        check_plan(made, model, TauCCE(), ROWS)


def test_a_plan_whose_sensitivities_were_edited_is_refused():
    model = network()
    smaller = {name: delta / 2 for name, delta in plan(model).sensitivities.items()}
    forged = dataclasses.replace(plan(model), sensitivities=smaller)
    assert type(forged) is Plan
    with pytest.raises(PlanError, match="model and loss that the plan was made for"):
        check_plan(forged, model, TauCCE(), ROWS)
