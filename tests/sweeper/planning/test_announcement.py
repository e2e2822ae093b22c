"""The price of a sweep in one line before it trains, and what other cuts of its budget would buy."""

from dataclasses import replace

import pytest
from rich.console import Console

import clipless
from clipless.privacy.noisy_counts import scores_event
from sweeper.cli.check_tables import render_check
from sweeper.planning import make
from sweeper.planning.check import count_trials
from sweeper.planning.make import state_resumed
from sweeper.planning.preview import preview
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.pricing import price
from sweeper.privacy.spending import Resumed
from sweeper.rounding import round_up
from sweeper.specification.spec import Spec
from tests.factories import plan_first_configuration, plan_sweep, small_content


@pytest.fixture
def spec(content):
    content["model"] |= {"width": 16}
    content["training"] |= {"batch_size": 256, "epochs": 5, "learning_rate": {"log": [0.01, 0.1]}}
    content["privacy"] = {"noise_multiplier": 2.0, "delta": 1e-4}
    content["search"] = {"trials": 6, "sampler": "random"}
    return Spec.from_mapping(content, "digits.yaml")


@pytest.fixture
def within(spec):
    search = spec.to_plain()["search"] | {"rehearse": False}
    privacy = {"sweep_epsilon": 4, "delta": 1e-4}
    return Spec.from_mapping(spec.to_plain() | {"privacy": privacy, "search": search}, "digits.yaml")


def test_the_price_of_a_budget_is_known_before_anything_is_trained(within, digits):
    plan = plan_sweep(within, digits)
    budget, said = plan.spending, plan.announcement
    assert f"epsilon {round_up(budget.price)} at delta 0.0001, for the search and every model, however results" in said
    assert "It is fixed before any row is read, for 4 + 1 + 1 trials." in said
    assert "about" not in said


def test_what_is_rehearsed_and_what_is_trained_is_said_before_anything_is_done(within, digits):
    search = within.to_plain()["search"] | {"rehearse": True, "trials": 10}
    plan = plan_sweep(Spec.from_mapping(within.to_plain() | {"search": search}, "digits.yaml"), digits)
    assert plan.announcement.endswith("It rehearses 10 configurations on public rows, then trains 1 trial.")
    said = "10 configurations to rehearse on public rows (search.trials), then 1 trial (privacy.finals)"
    assert count_trials(plan) == said


@pytest.mark.parametrize(("noise", "told"), [(0.02, True), (1.0, False)])
def test_a_price_that_scores_make_infinite_says_so(noise, told):
    privacy = {"epsilon": 3.0, "delta": 1e-4, "score_noise": noise}
    content = small_content(privacy=privacy, data={"evaluation": "private"}, search={"trials": 1})
    spec = Spec.from_mapping(content)
    said = plan_sweep(spec, clipless.datasets.load(**spec.data_options(None))).announcement
    assert ("epsilon inf" in said) == told
    assert said.endswith("make it infinite, whatever a training costs: raise privacy.score_noise.") == told


def test_a_filter_states_its_budget(spec, digits):
    privacy = {"sweep_epsilon": 4, "delta": 1e-4, "noise_multiplier": 4.0, "accounting": "filter"}
    said = plan_sweep(Spec.from_mapping(spec.to_plain() | {"privacy": privacy}), digits).announcement
    assert "Price: epsilon 4 at delta 0.0001, for the search and every model" in said


@pytest.mark.parametrize(
    ("trials", "of"),
    [
        (1, "that of its only trial, if it spends what"),
        (6, "the composition of all 6 trials, if each spends what the dearest of"),
    ],
)
def test_without_a_budget_the_price_is_an_estimate_and_says_how_to_bound_it(trials, of, spec, digits):
    search = spec.to_plain()["search"] | {"trials": trials}
    plan = plan_sweep(Spec.from_mapping(spec.to_plain() | {"search": search}), digits)
    event, said = plan_first_configuration(plan, digits).event(), plan.announcement
    total = round_up(price([event] * trials, 1e-4, tight=True).epsilon)
    assert f"about epsilon {total} at delta 0.0001, for the search and every model: {of} the first" in said
    assert said.endswith("Each further trial adds to it. privacy.sweep_epsilon fixes it beforehand.")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("changes", "chosen"),
    [
        ({"training": {"batch_size": [128, 256]}}, "batch_size"),
        ({"training": {"epochs": {"int": [2, 5]}}}, "epochs"),
        ({"privacy": {"noise_multiplier": [2.0, 4.0]}}, "noise_multiplier"),
        ({"privacy": {"noise_multiplier": None, "epsilon": [1.0, 3.0]}}, "epsilon"),
        ({"training": {"batch_size": [128, 256], "epochs": {"int": [2, 5]}}}, "batch_size and epochs"),
        ({}, None),
        ({"training": {"batch_size": [128, 256]}, "search": {"sampler": "random"}}, None),
        ({"training": {"batch_size": [128, 256]}, "search": {"trials": 1}}, None),
        ({"training": {"batch_size": [128, 256]}, "privacy": {"noise_multiplier": None, "sweep_epsilon": 4.0}}, None),
        ({"training": {"batch_size": [128, 256]}, "privacy": {"sweep_epsilon": 4.0, "accounting": "filter"}}, None),
        (
            {"search": {"sampler": "random", "selection": "private", "selection_mean": 7, "trials": None}},
            None,
        ),
    ],
)
def test_a_price_is_called_unproven_exactly_where_proposals_that_learn_choose_what_trials_cost(
    changes, chosen, spec, digits, capsys
):
    content = spec.to_plain()
    content["search"] |= {"sampler": "tpe"}
    for section, values in changes.items():
        content[section] = {k: v for k, v in (content[section] | values).items() if v is not None}
    plan = plan_sweep(Spec.from_mapping(content), digits)
    Console().print(render_check(plan, digits, preview(plan, digits)), soft_wrap=True)
    said = f"but they choose {chosen}; fix {chosen}, or set privacy.sweep_epsilon."
    for shown in (plan.announcement, " ".join(capsys.readouterr().out.split())):
        assert ("The price is not proven" in shown) == (chosen is not None)
        assert chosen is None or said in shown


def test_a_price_that_cannot_be_estimated_is_said(spec, digits, monkeypatch):
    monkeypatch.setattr(make, "plan_first", lambda *_: [])
    assert plan_sweep(spec, digits).announcement.endswith("none of its first configurations can be planned.")


def resumed(charged, planned=None, *, begun=0, left=0, again=0, **scores):
    """How a sweep stands that was charged these trainings, and will be charged those planned."""
    spent = ChargedEvents(training=charged, again=again, **scores)
    goes_on = spent if planned is None else ChargedEvents(training=planned, **scores)
    return Resumed(charged=spent, planned=goes_on, begun=begun, left=left)


def test_a_sweep_that_goes_on_states_what_is_spent_and_what_is_to_come(spec, digits, event):
    plan = plan_sweep(spec, digits)
    one = plan_first_configuration(plan, digits).event()
    spent, planned = [event] * 12, [event] * 13
    said = state_resumed(plan, digits, resumed(spent, planned, begun=2, left=3, again=9)).announcement
    total = round_up(price([*planned, *[one] * 3], 1e-4, tight=True).epsilon)
    assert f"about epsilon {total} at delta 0.0001, for the search and every model: the composition of what is " in said
    already = round_up(price(spent, 1e-4, tight=True).epsilon)
    assert (
        f"spent already (at most epsilon {already}, 12 attempts at 3 trials), 2 trials to go on with and 3 trials "
        in said
    )
    assert said.endswith(
        "to begin, if each spends what the dearest of the first configurations and of the ends of the "
        "search would. Each further trial adds to it."
    )


def test_a_sweep_that_goes_on_is_never_said_to_cost_less_than_it_has_spent(spec, digits, event):
    """Whatever is expected of the trials that go on."""
    plan = plan_sweep(spec, digits)
    said = state_resumed(plan, digits, resumed([event] * 5, [event], begun=1)).announcement
    already = round_up(price([event] * 5, 1e-4, tight=True).epsilon)
    assert f"about epsilon {already} at" in said
    assert said.endswith(
        f"(at most epsilon {already}, 5 trials) and 1 trial to go on with. Each further trial adds to it."
    )


def test_what_many_different_trainings_have_spent_is_an_upper_bound(spec, digits, event):
    plan = plan_sweep(spec, digits)
    for count, tight in ((16, True), (17, False)):
        spent = [replace(event, steps=event.steps + i) for i in range(count)]
        said = state_resumed(plan, digits, resumed(spent)).announcement
        assert f"Price: epsilon {round_up(price(spent, 1e-4, tight=tight).epsilon)} at" in said


def test_a_sweep_with_nothing_left_to_train_states_what_is_spent(spec, digits, event):
    said = state_resumed(plan_sweep(spec, digits), digits, resumed([event] * 2, again=1)).announcement
    already = round_up(price([event] * 2, 1e-4, tight=True).epsilon)
    assert said.endswith(
        f"Price: epsilon {already} at delta 0.0001, for the search and every model, all of it spent already (2 attempts "
        "at 1 trial). Each further trial adds to it."
    )
    stands = replace(resumed([event] * 2), scores_test=True)
    more = state_resumed(plan_sweep(spec, digits), digits, stands).announcement
    assert f"Price: at least epsilon {already} at" in more
    assert "all of it spent already (2 trials); scores of test rows may add to it. Each further trial" in more


def test_a_sweep_that_goes_on_with_trials_that_cannot_be_estimated_states_what_is_spent(
    spec, digits, event, monkeypatch
):
    plan = plan_sweep(spec, digits)
    monkeypatch.setattr(make, "plan_first", lambda *_: [])
    said = state_resumed(plan, digits, resumed([event], left=5)).announcement
    already = round_up(price([event], 1e-4).epsilon)
    assert f"at least epsilon {already} at delta 0.0001, for the search and every model, which is spent already" in said
    assert said.endswith(
        "(1 trial). What trials to come add is not known, for none of the first configurations can be planned."
    )


def test_scores_that_are_spent_are_in_the_price_of_a_sweep_that_goes_on(event):
    privacy = {"epsilon": 3.0, "delta": 1e-4, "score_noise": 5.0}
    content = small_content(privacy=privacy, data={"evaluation": "private"}, search={"trials": 1})
    spec = Spec.from_mapping(content)
    data = clipless.datasets.load(**spec.data_options(None))
    plan, scores = plan_sweep(spec, data), [scores_event(1.0, 40, event.relation)]
    to_come = plan.shared.noise.paid(plan_first_configuration(plan, data).epochs).event
    said = state_resumed(plan, data, resumed([], left=1, validation=scores)).announcement
    total = price([*scores, to_come], 1e-4, tight=True).epsilon
    assert total > price(scores, 1e-4).epsilon
    assert f"about epsilon {round_up(total)} at" in said


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": {"sweep_epsilon": 4, "delta": 1e-4}},
        {"privacy": {"sweep_epsilon": 4, "delta": 1e-4, "noise_multiplier": 4.0, "accounting": "filter"}},
        {"search": {"sampler": "random", "selection": "private", "selection_mean": 7}},
    ],
    ids=["slots", "filter", "winner"],
)
def test_a_price_that_is_fixed_stays_when_a_sweep_goes_on(spec, digits, event, changes):
    plan = plan_sweep(Spec.from_mapping(spec.to_plain() | changes), digits)
    assert state_resumed(plan, digits, resumed([event] * 9, left=3)).announcement == plan.announcement


def test_a_sweep_that_has_spent_nothing_states_what_it_began_with(spec, digits):
    plan = plan_sweep(spec, digits)
    assert state_resumed(plan, digits, resumed([], left=6)).announcement == plan.announcement


def test_a_private_selection_states_the_price_of_its_winner_and_no_number_of_trials(spec, digits):
    search = {"sampler": "random", "selection": "private", "selection_mean": 7}
    selecting = Spec.from_mapping(spec.to_plain() | {"search": search}, "digits.yaml")
    said = plan_sweep(selecting, digits).announcement
    assert "for the winner and nothing else. It is fixed" in said
    assert "7" not in said.partition("epsilon")[0]


@pytest.mark.long
def test_other_cuts_cost_what_they_say(within, digits):
    budget = plan_sweep(within, digits).spending
    cuts = budget.other_cuts()
    half, twice, larger = cuts.values()
    assert list(cuts)[-1] == "sweep_epsilon: 8"
    first = budget.shares[0]
    assert [cut.shares[0] for cut in (half, twice)] == pytest.approx([first / 2, 2 * first])
    assert [cut.shares[2] / cut.shares[1] for cut in (half, twice)] == pytest.approx(
        [budget.shares[2] / budget.shares[1]] * 2
    )
    assert half.price <= 4
    assert twice.price <= 4
    assert 4 < larger.price <= 8
    quiet, loud = (cut.stages[0].slot.noise_multiplier for cut in (half, twice))
    assert quiet > budget.stages[0].slot.noise_multiplier > loud


def test_one_stage_has_no_explorers_to_give_more(within, digits):
    alone = within.with_search(trials=1)
    assert list(plan_sweep(alone, digits).spending.other_cuts()) == ["sweep_epsilon: 8"]


def test_a_sweep_that_may_train_without_noise_is_said_to_cost_infinity(spec, digits):
    content = spec.to_plain()
    content["training"]["method"] = ["clipless", "non-private"]
    for seed in range(6):  # whatever the first two proposals are
        content["search"] |= {"seed": seed, "trials": 2, "first": []}
        assert "epsilon inf" in plan_sweep(Spec.from_mapping(content), digits).announcement


def test_the_estimate_looks_at_the_ends_of_what_trials_cost(spec, digits):
    content = spec.to_plain()
    content["training"]["batch_size"] = {"int": [100, 500]}
    plan = plan_sweep(Spec.from_mapping(content), digits)
    dearest = plan_sweep(Spec.from_mapping(content | {"training": content["training"] | {"batch_size": 500}}), digits)
    assert plan.announcement.split(" at delta")[0] == dearest.announcement.split(" at delta")[0]
