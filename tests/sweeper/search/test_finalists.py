import math

import pytest

from sweeper.search.finalists import (
    Explored,
    choose_finalists,
    measure_error,
    measure_merit,
    nearest,
    transfer_proposal,
)
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.fields.ranges import Range
from sweeper.specification.spec import Spec
from sweeper.specification.stages import default_stages

RATE = "training.learning_rate"


@pytest.fixture
def spec(content):
    content["training"]["learning_rate"] = {"log": [0.001, 0.1]}
    content["search"] = {"objectives": ["epsilon", "accuracy", "certified@0.25"]}
    return Spec.from_mapping(content, "s.yaml")


def explored(rate, *points, stage=0, signal=0.1):
    values = [{"epsilon": 0.1, "accuracy": a, "certified@0.25": c} for a, c in points]
    return Explored(proposal={RATE: rate}, signal=signal, stage=stage, points=values)


def chosen(trials, spec, *, count, signal, region=(), constant=None):
    given = {"constraints": (*spec.search.outcomes, *region), "constant": constant}
    return choose_finalists(trials, spec.space, spec.objectives, count=count, signal=signal, **given)


def rates(found):
    return [proposal[RATE] for proposal in found]


def test_the_largest_hypervolume_comes_first_then_what_adds_to_it(spec):
    trials = [
        explored(0.01, (0.9, 0.5)),
        explored(0.02, (0.88, 0.49)),  # the second best alone, and adds nothing
        explored(0.03, (0.3, 0.6)),
    ]
    assert rates(chosen(trials, spec, count=2, signal=0.1)) == [0.01, 0.03]


@pytest.mark.parametrize(
    ("constant", "second"),
    [
        ({"accuracy": 0.149, "certified@0.25": 0.149}, 0.02),  # adds no less, and is better
        ({"accuracy": 0.149}, 0.03),
        (None, 0.03),
    ],
)
def test_what_a_constant_prediction_reaches_adds_nothing(spec, constant, second):
    """It has every radius: a network that learnt nothing would be trained for its certificates."""
    trials = [explored(0.01, (0.9, 0.05)), explored(0.02, (0.85, 0.05)), explored(0.03, (0.13, 0.13))]
    assert rates(chosen(trials, spec, count=2, signal=0.1, constant=constant)) == [0.01, second]


def test_a_network_that_learnt_something_comes_before_a_constant_prediction_of_a_frequent_class(spec):
    """Three quarters are of one class: half certified accuracy dominates less of the box than no network at all."""
    constant = {"accuracy": 0.76, "certified@0.25": 0.76}
    trials = [explored(0.01, (0.77, 0.75)), explored(0.02, (0.84, 0.6)), explored(0.03, (0.75, 0.75))]
    assert rates(chosen(trials, spec, count=3, signal=0.1)) == [0.01, 0.02, 0.03]
    assert rates(chosen(trials, spec, count=3, signal=0.1, constant=constant)) == [0.02, 0.01, 0.03]
    merits = [measure_merit(trial.points, spec.objectives, constant=constant) for trial in trials]
    assert [one.gain for one in merits] == pytest.approx([0.01 * 0.75, 0.08 * 0.6, 0.0])
    assert [one.volume for one in merits] == pytest.approx([0.77 * 0.75, 0.84 * 0.6, 0.75**2])


def test_every_epoch_and_then_accuracy_decide(spec):
    trials = [explored(0.01, (0.5, 0.5)), explored(0.02, (0.7, 0.6), (0.1, 0.0))]
    assert rates(chosen(trials, spec, count=1, signal=0.1)) == [0.02]
    trials = [explored(0.01, (0.2, 0.0)), explored(0.02, (0.5, 0.0)), explored(0.03, (0.4, 0.0))]
    assert rates(chosen(trials, spec, count=3, signal=0.1)) == [0.02, 0.03, 0.01]


def test_the_first_finalist_is_one_of_the_greatest_merit(spec):
    shown = [[(0.5, 0.5)], [(0.7, 0.6), (0.1, 0.0)], [(0.9, 0.1)], [(math.nan, 0.5)]]
    trials = [explored(0.01 * (i + 1), *points) for i, points in enumerate(shown)]
    merits = [measure_merit(trial.points, spec.objectives, ()) for trial in trials]
    assert [None if one is None else one.volume for one in merits] == [
        pytest.approx(0.25),
        pytest.approx(0.42),
        pytest.approx(0.09),
        None,
    ]
    assert rates(chosen(trials, spec, count=1, signal=0.1)) == [0.02]
    wanted = [parse_constraint("accuracy >= 0.8", ["accuracy"]), parse_constraint("epsilon <= 1", ["epsilon"])]
    nearness = [one.nearness for one in (measure_merit(t.points, spec.objectives, wanted) for t in trials[:3])]
    assert nearness == pytest.approx([-0.3, -0.1, 0.0])


def test_the_latest_stage_comes_first(spec):
    trials = [explored(0.01, (0.95, 0.9)), explored(0.02, (0.5, 0.4), stage=1)]
    assert rates(chosen(trials, spec, count=2, signal=0.1)) == [0.02, 0.01]


def test_trials_without_scores_and_repeated_proposals_are_left_out(spec):
    trials = [explored(0.01), explored(0.02, (math.nan, 0.5)), explored(0.03, (0.5, 0.4)), explored(0.03, (0.5, 0.3))]
    assert rates(chosen(trials, spec, count=4, signal=0.1)) == [0.03]
    assert chosen([], spec, count=4, signal=0.1) == []


def test_a_trial_that_meets_the_constraints_comes_before_one_that_does_not(content):
    content["training"]["learning_rate"] = {"log": [0.001, 0.1]}
    content["search"] = {
        "objectives": ["epsilon", "accuracy", "certified@0.25"],
        "constraints": ["certified@0.25 >= 0.4", "epsilon <= 0.01"],
    }
    spec = Spec.from_mapping(content, "s.yaml")
    trials = [explored(0.01, (0.99, 0.3)), explored(0.02, (0.6, 0.45)), explored(0.03, (0.1, 0.35))]
    assert rates(chosen(trials, spec, count=3, signal=0.1)) == [0.02, 0.03, 0.01]
    split = explored(0.04, (0.99, 0.1), (0.5, 0.45))  # its better epoch misses the constraint
    assert rates(chosen([split, *trials], spec, count=2, signal=0.1)) == [0.02, 0.04]


def test_a_region_counts_as_a_constraint_does(spec):
    region = [
        parse_constraint(text, ["certified@0.25", "epsilon"]) for text in ("certified@0.25 >= 0.4", "epsilon <= 9")
    ]
    trials = [explored(0.01, (0.99, 0.3)), explored(0.02, (0.6, 0.45)), explored(0.03, (0.1, 0.35))]
    assert rates(chosen(trials, spec, count=3, signal=0.1)) != [0.02, 0.03, 0.01]
    assert rates(chosen(trials, spec, count=3, signal=0.1, region=region)) == [0.02, 0.03, 0.01]


FRACTION = "training.sensitivity_fraction"


@pytest.fixture
def open_fraction(content):
    content["training"] |= {"sensitivity_fraction": {"log": [0.01, 1.0]}, "learning_rate": {"log": [0.001, 0.1]}}
    return Spec.from_mapping(content, "s.yaml")


def test_the_fraction_falls_where_there_is_less_noise(open_fraction):
    proposal = {FRACTION: 0.5, RATE: 0.01}
    moved = transfer_proposal(proposal, open_fraction.space, 0.1, 0.8)
    assert moved == {FRACTION: pytest.approx(0.5 * 8**-0.2), RATE: 0.01}
    assert transfer_proposal(proposal, open_fraction.space, 1e-9, 1e9)[FRACTION] == 0.01
    assert transfer_proposal(proposal, open_fraction.space, 0.0, 1.0) == proposal


def test_a_configuration_that_moved_in_two_steps_is_no_other_one(open_fraction):
    def trial(fraction, stage, signal):
        values = {"epsilon": 1.0, "accuracy": 0.5}
        return Explored(proposal={FRACTION: fraction, RATE: 0.01}, signal=signal, stage=stage, points=[values])

    first = trial(0.5, 0, 0.02)
    second = trial(transfer_proposal(first.proposal, open_fraction.space, 0.02, 0.07)[FRACTION], 1, 0.07)
    assert len(chosen([first, second], open_fraction, count=2, signal=0.3)) == 1


def test_choices_travel_as_they_are(content):
    content["training"] |= {
        "batch_size": [64, 128],
        "loss": [{"name": "tau-cce", "temperature": {"log": [0.1, 2]}}, "hinge"],
    }
    spec = Spec.from_mapping(content, "s.yaml")
    trials = [
        Explored(proposal=proposal, signal=0.1, stage=0, points=[{"epsilon": 1.0, "accuracy": accuracy}])
        for proposal, accuracy in (
            ({"training.batch_size": 64, "training.loss": "hinge"}, 0.5),
            ({"training.batch_size": 128, "training.loss": "tau-cce", "training.loss.tau-cce.temperature": 0.3}, 0.6),
        )
    ]
    assert chosen(trials, spec, count=5, signal=1.0) == [trials[1].proposal, trials[0].proposal]


def test_a_transferred_value_is_one_of_the_range(spec):
    proposal = {RATE: 0.05}
    assert transfer_proposal(proposal, spec.space, 0.1, 0.1) == proposal
    moved = transfer_proposal(proposal, spec.space, 0.001, 10.0)[RATE]
    assert 0.001 <= moved <= 0.1


@pytest.mark.parametrize(
    ("space", "value", "expected"),
    [
        (Range(low=1.0, high=2.0), 5.0, 2.0),
        (Range(low=1, high=9, integer=True), 3.4, 3),
        (Range(low=1, high=10, integer=True, step=4), 9.9, 9),
        (Range(low=0.0, high=1.0, step=0.3), 1.0, 0.9),
    ],
)
def test_the_nearest_value_lies_in_the_range(space, value, expected):
    assert nearest(space, value) == pytest.approx(expected)
    assert nearest(space, value) in space


@pytest.mark.parametrize("trials", range(1, 65))
def test_default_stages_share_out_everything(trials):
    stages = default_stages(trials)
    assert sum(count for count, _ in stages) == trials
    assert math.fsum(share for _, share in stages) == pytest.approx(1.0, abs=1e-12)
    assert stages[-1][0] == 1
    loud = [share / count for count, share in stages]
    assert loud == sorted(loud)


def test_default_stages_of_no_trial():
    with pytest.raises(ValueError, match="at least one trial, got trials=0"):
        default_stages(0)


def rehearsed(rate, first, second, *, preferred=False):
    """A configuration that was rehearsed twice, with one accuracy each."""
    parts = [[{"accuracy": accuracy, "certified@0.25": 1.0}] for accuracy in (first, second)]
    points = [{"accuracy": (first + second) / 2, "certified@0.25": 1.0}]
    return Explored(proposal={RATE: rate}, signal=0.1, stage=-1, points=points, parts=parts, preferred=preferred)


def winner(spec, *trials):
    return rates(chosen(trials, spec, count=1, signal=0.1))[0]


def test_what_did_best_on_public_tables_is_taken_unless_another_is_better_by_more_than_the_error(spec):
    """Differences of both trainings are 0.1, -0.1, 0 and 0: their variance is 0.02 / 3, so the error is 0.058."""
    others = [rehearsed(0.02, 0.6, 0.5), rehearsed(0.03, 0.5, 0.6), rehearsed(0.04, 0.3, 0.3)]
    assert winner(spec, rehearsed(0.01, 0.5, 0.5, preferred=True), *others) == 0.01
    assert winner(spec, rehearsed(0.01, 0.48, 0.48, preferred=True), *others) == 0.02
    assert winner(spec, rehearsed(0.01, 0.5, 0.5), *others) == 0.02
    ended = Explored(proposal={RATE: 0.01}, signal=0.1, stage=-1, points=[], preferred=True)
    assert winner(spec, ended, *others) == 0.02


def test_the_error_of_rehearsals_is_none_of_what_all_of_them_share(spec):
    """The second half is easier by 0.2 for all: that makes no configuration's place less sure."""
    others = [rehearsed(0.02, 0.41, 0.61), rehearsed(0.03, 0.3, 0.5)]
    assert winner(spec, rehearsed(0.01, 0.4, 0.6, preferred=True), *others) == 0.02
    merits = [measure_merit(one.points, spec.objectives, (), one.parts) for one in others]
    assert measure_error(merits) == math.inf  # of two configurations, nothing is known
    assert winner(spec, rehearsed(0.01, 0.1, 0.1, preferred=True), others[0]) == 0.01


def test_what_is_preferred_must_meet_the_constraints_as_well_and_leads_to_others_that_add_to_it(spec):
    wide = [rehearsed(0.01, 0.5, 0.5, preferred=True), rehearsed(0.02, 0.6, 0.2), rehearsed(0.03, 0.2, 0.6)]
    best = rehearsed(0.04, 0.55, 0.55)
    assert rates(chosen([*wide, best], spec, count=2, signal=0.1)) == [0.01, 0.04]
    region = [parse_constraint("accuracy >= 0.52", ["accuracy"])]
    assert rates(chosen([*wide, best], spec, count=1, signal=0.1, region=region)) == [0.04]
