"""Warm start: which earlier trials teach what about this space."""

import json
from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.datasets import load
from sweeper.driver import warm_start
from sweeper.driver.resume import recorded_claim
from sweeper.driver.warm_start import Observation, observations
from sweeper.errors import RecordError
from sweeper.privacy.claims import UNBOUNDED, UNPAID, WARM_START, WARM_START_COPY, Claim, Steering
from sweeper.records import Point, SweepStatus, Trial, TrialStatus
from sweeper.results.front import build_front
from sweeper.specification.constraints import parse_constraint
from sweeper.specification.fields.nested import leaves, unflatten
from sweeper.specification.spec import Spec
from sweeper.store.manifest import Manifest
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.client import LoggedTrial
from sweeper.tracking.names import metric_names, mlflow_params

SPEC = {
    "name": "digits",
    "data": {"name": "digits"},
    "model": {"architecture": [{"name": "mlp", "depth": [2, 3]}, "convnet"], "width": {"int": [8, 64]}},
    "training": {
        "epochs": 10,
        "learning_rate": {"log": [0.01, 1.0]},
        "loss": [{"name": "tau-cce", "temperature": {"log": [0.1, 10]}}, "kr"],
        "exact_norms": [True, False],
    },
    "privacy": {"epsilon": {"log": [1, 8]}, "delta": 1e-4},
    "search": {"objectives": ["epsilon", "accuracy", "certified@1/4"]},
}
PROPOSALS = [
    {
        "model.architecture": "mlp",
        "model.width": 16,
        "model.architecture.mlp.depth": 3,
        "training.learning_rate": 0.0712345678901234,
        "training.loss": "tau-cce",
        "training.loss.tau-cce.temperature": 2.5,
        "training.exact_norms": True,
        "privacy.epsilon": 3.0,
    },
    {
        "model.architecture": "convnet",
        "model.width": 8,
        "training.learning_rate": 1.0,
        "training.loss": "kr",
        "training.exact_norms": False,
        "privacy.epsilon": 1.0,
    },
]
READ = Spec.from_mapping(SPEC)
VALUES = {"epsilon": 2.0, "accuracy": 0.5, "certified@0.25": 0.25}


@pytest.fixture
def spec():
    return READ


@pytest.fixture
def earlier(tmp_path):
    """Write a sweep: for each trial a configuration and the values of its epochs."""

    def write(*trials, name="earlier"):
        folder = SweepFolder.create(tmp_path, name, datetime(2026, 1, 1))
        folder.write_manifest(Manifest(name=name, status=SweepStatus.COMPLETED, spec={}, source="spec.yaml"))
        for number, (config, epochs) in enumerate(trials, start=1):
            trial = f"t{number:04d}"
            folder.save_trial(Trial(id=trial, config=config, status=TrialStatus.COMPLETED))
            for epoch, values in enumerate(epochs, start=1):
                folder.save_points([Point(trial=trial, epoch=epoch, values=values)])
        return folder.path

    return write


def told(path, spec, *constraints, **options):
    made = [parse_constraint(text, spec.search.objectives) for text in constraints]
    return observations(str(path), spec.dimensions, spec.objectives, made, **options)


def config(spec, proposal, **changes):
    flat = flat_of(spec.space.resolve(proposal).to_json()) | changes
    return unflatten({key: value for key, value in flat.items() if value is not ...})


def flat_of(nested, prefix=""):
    flat = {}
    for key, value in nested.items():
        flat |= flat_of(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def test_trials_of_the_same_space_are_told_as_they_were_proposed(spec, earlier):
    path = earlier(*((config(spec, proposal), [VALUES]) for proposal in PROPOSALS))
    found = told(path, spec, "certified@0.25 >= 0.3")
    missed = {"certified@1/4 >= 0.3": pytest.approx(0.05)}
    assert found.observations == tuple(Observation(p, (2.0, 0.5, 0.25), missed) for p in PROPOSALS)
    assert (found.unfit, found.unscored) == (0, 0)


@settings(max_examples=30, deadline=None)
@given(
    width=st.integers(8, 64),
    rate=st.floats(0.01, 1.0),
    temperature=st.floats(0.1, 10),
    epsilon=st.floats(1, 8),
    flip=st.booleans(),
)
def test_a_configuration_of_this_space_always_fits(width, rate, temperature, epsilon, flip):
    spec = READ
    proposal = PROPOSALS[0] | {
        "model.width": width - width % 2,
        "training.learning_rate": rate,
        "training.loss.tau-cce.temperature": temperature,
        "privacy.epsilon": epsilon,
        "training.exact_norms": flip,
    }
    for text in (lambda c: c, lambda c: json.loads(json.dumps(c))):
        assert warm_start.fit(dict(leaves(text(spec.space.resolve(proposal).to_json()))), spec.dimensions) == proposal


@pytest.mark.parametrize(
    "change",
    [
        {"training.epochs": 20},
        {"training.learning_rate": 2.0},
        {"training.learning_rate": "0.1"},
        {"model.architecture": "patch-net"},
        {"model.width": 16.5},
        {"model.depth": 7},
        {"model.depth": ...},
        {"training.exact_norms": 1},
        {"training.loss.temperature": ...},
        {"training.gradient_clip": 1.0},
        {"model.pooling": "max"},
        {"privacy.relation": "replace-one"},
        {"privacy.epsilon": ..., "privacy.noise_multiplier": 1.0},
    ],
    ids=str,
)
def test_trials_of_another_space_are_counted_and_not_told(spec, earlier, change):
    path = earlier((config(spec, PROPOSALS[0], **change), [VALUES]), (config(spec, PROPOSALS[1]), [VALUES]))
    found = told(path, spec)
    assert [one.params for one in found.observations] == [PROPOSALS[1]]
    assert (found.unfit, found.unscored) == (1, 0)
    assert "1 trials of" in found.statement
    assert "1 do not fit this space, 0 have no number" in found.statement


def test_what_changes_no_outcome_may_differ(spec, earlier):
    path = earlier((config(spec, PROPOSALS[1], **{"training.micro_batch_size": 32}), [VALUES]))
    assert len(told(path, spec).observations) == 1


def test_public_numbers_by_class_are_compared_as_numbers(earlier):
    content = {**SPEC, "training": {**SPEC["training"], "class_weights": list(range(1, 11))}}
    spec = Spec.from_mapping(content)
    good = config(spec, PROPOSALS[1])
    other = config(spec, PROPOSALS[1], **{"training.loss.class_weights": [1.0] * 10})
    found = told(earlier((good, [VALUES]), (other, [VALUES])), spec)
    assert (len(found.observations), found.unfit) == (1, 1)


@pytest.mark.parametrize(
    "epochs",
    [
        [],
        [{"epsilon": 1.0, "accuracy": 0.5}],
        [VALUES | {"accuracy": float("nan")}],
        [VALUES | {"epsilon": float("inf")}],
    ],
    ids=["none", "missing", "nan", "infinite"],
)
def test_trials_without_a_number_for_every_objective_are_counted(spec, earlier, epochs):
    found = told(earlier((config(spec, PROPOSALS[1]), epochs)), spec)
    assert (found.observations, found.unfit, found.unscored) == ((), 0, 1)


def test_a_failed_trial_teaches_nothing(spec, earlier):
    path = earlier((config(spec, PROPOSALS[1]), [VALUES]))
    folder = SweepFolder(path)
    folder.save_trial(replace(folder.trials()["t0001"], status=TrialStatus.FAILED))
    assert told(path, spec).unscored == 1


def test_a_trial_counts_with_its_last_epoch_on_the_front_or_its_last(spec, earlier):
    def epochs(*pairs):
        return [{"epsilon": e, "accuracy": a, "certified@1/4": 0.1} for e, a in pairs]

    path = earlier(
        (config(spec, PROPOSALS[0]), epochs((1.0, 0.5), (2.0, 0.7), (3.0, 0.6))),
        (config(spec, PROPOSALS[1]), epochs((1.5, 0.3), (2.5, 0.4))),
    )
    assert [one.values[:2] for one in told(path, spec).observations] == [(2.0, 0.7), (2.5, 0.4)]


def test_a_folder_beside_the_spec_comes_first(spec, earlier, tmp_path, monkeypatch):
    beside = earlier((config(spec, PROPOSALS[0]), [VALUES]))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert len(told(beside.name, spec, beside=tmp_path / "spec.yaml").observations) == 1
    with pytest.raises(RecordError, match="Expected the folder of a sweep, but there is no"):
        told(beside.name, spec)


# MLflow


def tracked(config, sweep="before-1", *, exploratory=False):
    values = {"epsilon": 2.0, "accuracy": 0.5, "certified@1/4": 0.25}
    return LoggedTrial(mlflow_params(config), metric_names(values), sweep, exploratory)


def test_an_experiment_teaches_the_same_as_the_folder(spec, earlier, monkeypatch):
    configs = [config(spec, proposal) for proposal in PROPOSALS]
    folder = told(earlier(*((one, [VALUES | {"certified@1/4": 0.25}]) for one in configs)), spec, "epsilon <= 1")
    runs = [tracked(one) for one in configs]
    asked, other = [], LoggedTrial({}, {}, "before-1", exploratory=False)
    monkeypatch.setattr(warm_start, "logged_trials", lambda *where: asked.append(where) or [*runs, other])
    found = told("mlflow: before ", spec, "epsilon <= 1", tracking="http://store")
    assert asked == [("http://store", "before")]
    assert found.observations == folder.observations
    assert found.unfit == 1
    with pytest.raises(RecordError, match=r"Expected the store of the experiment before .*--tracking"):
        told("mlflow:before", spec)


# The claim


def about(steering=None):
    claim = Claim.about(load("digits").metadata, 1000, delta=1e-4)
    return claim if steering is None else claim.steered_by(steering)


def claiming(path, claim):
    """Let a sweep claim something since its beginning."""
    SweepFolder(path).write_manifest(replace(SweepFolder(path).read_manifest(), claim=claim.to_json()))
    return path


def test_the_claim_says_that_proposals_were_steered(spec, earlier):
    path = earlier((config(spec, PROPOSALS[0]), [VALUES]))
    for source in (path, claiming(path, about())):
        steered = about(told(source, spec).steering)
        assert WARM_START.format(source=path.name) in steered.conditions
        assert not steered.exploratory
    assert not any("steered" in sentence for sentence in about().conditions)


def test_what_an_exploratory_sweep_steers_is_exploratory_and_says_why(spec, earlier):
    path = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES])), replace(about(), exploratory=True))
    steered = about(told(path, spec).steering)
    assert steered.exploratory
    assert UNPAID.format(source=path.name) in steered.conditions


@pytest.mark.parametrize("from_mlflow", [False, True])
def test_what_was_trained_without_privacy_has_no_price_with_what_it_steers(spec, earlier, monkeypatch, from_mlflow):
    without = config(spec, PROPOSALS[1], **{"training.method": "non-private"})
    for other, said in ((config(spec, PROPOSALS[1]), False), (without, True)):
        configs = [config(spec, PROPOSALS[0]), other]
        if from_mlflow:
            runs = [tracked(one) for one in configs]
            monkeypatch.setattr(warm_start, "logged_trials", lambda *_, runs=runs: runs)
            source, name = "mlflow:before", "the MLflow experiment before"
        else:
            source = earlier(*((one, [VALUES]) for one in configs), name="a" if said else "b")
            name = source.name
        steered = about(told(source, spec, tracking="http://store").steering)
        assert (UNBOUNDED.format(source=name) in steered.conditions) is said
        assert not steered.exploratory


def test_what_a_copy_spent_is_not_said_to_be_in_its_ledger_and_the_mark_is_passed_on(spec, earlier):
    first = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES]), name="a"), about().of_copy())
    second = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES]), name="b"), about(told(first, spec).steering))
    mark = WARM_START_COPY.format(source=first.name)
    assert about(told(first, spec).steering).steered == (WARM_START.format(source=first.name), mark)
    assert mark in about(told(second, spec).steering).steered
    assert "whether one is a copy" in Steering.by_experiment("e", sweeps=2, exploratory=False).conditions[0]


def test_the_claim_of_an_older_source_is_that_of_its_front(spec, earlier):
    path = earlier((config(spec, PROPOSALS[0]), [VALUES]))
    front = {"trials": (), "points": (), "ledger": {}, "claim": replace(about(), exploratory=True)}
    build_front(sweep="earlier", objectives=spec.objectives, **front).write(path / "front.json")
    assert about(told(path, spec).steering).exploratory


def test_what_steered_the_source_steers_this_sweep_too(spec, earlier):
    first = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES]), name="a"), replace(about(), exploratory=True))
    second = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES]), name="b"), about(told(first, spec).steering))
    third = about(told(second, spec).steering)
    said = list(third.steered)
    assert said == [
        WARM_START.format(source=second.name),
        UNPAID.format(source=second.name),
        WARM_START.format(source=first.name),
        UNPAID.format(source=first.name),
    ]
    assert third.exploratory


def test_where_an_earlier_sweep_lies_is_told_to_nobody(spec, earlier, monkeypatch):
    path = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES])), replace(about(), exploratory=True))
    monkeypatch.chdir(path)
    for source in (path, ".", f"../{path.name}/"):
        found = told(source, spec)
        assert f"trials of {path.name} steer" in found.statement
        assert found.steering.conditions == (WARM_START.format(source=path.name), UNPAID.format(source=path.name))


def test_where_an_earlier_version_found_an_earlier_sweep_is_no_longer_told(spec, earlier):
    said = [sentence.format(source="/home/ann. b/out/a-1") for sentence in (WARM_START, UNPAID)]
    experiment = Steering.by_experiment("/Users/ann/e", sweeps=1, exploratory=True).conditions
    old = claiming(earlier((config(spec, PROPOSALS[0]), [VALUES])), about(Steering((*said, *experiment))))
    named = (WARM_START.format(source="a-1"), UNPAID.format(source="a-1"), *experiment)
    claim = recorded_claim(SweepFolder(old))
    assert claim.steered == claim.conditions[:4] == named
    assert told(old, spec).steering.conditions[1:] == named


def test_an_experiment_says_how_many_sweeps_steer_and_whether_one_was_not_paid_for(spec, monkeypatch):
    runs = [tracked(config(spec, PROPOSALS[0])), tracked(config(spec, PROPOSALS[1]), "before-2")]
    monkeypatch.setattr(warm_start, "logged_trials", lambda *_: runs)
    steering = told("mlflow:before", spec, tracking="http://store").steering
    assert steering.conditions[0].startswith(
        "Proposals were steered by the trials of 2 sweeps in the MLflow experiment"
    )
    assert not steering.exploratory
    runs[0] = replace(runs[0], exploratory=True)
    steering = told("mlflow:before", spec, tracking="http://store").steering
    assert steering.exploratory
    assert "a sweep of the MLflow experiment before is exploratory" in steering.conditions[1]
    assert "trials of 1 sweep in" in Steering.by_experiment("x", sweeps=1, exploratory=False).conditions[0]
