"""What a tracking store is told of a whole sweep, and what it is not."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from clipless.datasets import Evaluation
from clipless.privacy.exposure import Basis, Exposure, Risk
from sweeper.driver.options import Options, with_environment, with_recorded
from sweeper.driver.reporting import sweep_tracking
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.driver.reporting.sweep_tracking import Watch, conclude, introduce, notes_of, public_facts, track_model
from sweeper.errors import SweeperError
from sweeper.privacy.pricing import Price
from sweeper.records import Point, SweepStatus, TrialStatus
from sweeper.results.highlights import value_text
from sweeper.store.manifest import Manifest
from sweeper.store.notes import Notes
from sweeper.tracking.names import trial_name
from tests.factories import FakeTracker


class Told(FakeTracker):
    """The tracker of a whole sweep, which knows the runs that it is given."""

    def __init__(self, runs=()):
        super().__init__()
        self.runs |= dict(runs)
        self.destination = SimpleNamespace(uri="nowhere", sweep="x")


def test_of_the_data_only_declarations_are_told_and_no_row_enters_the_digest(digits):
    told, changed = Told(), Told()
    other = replace(digits, train=replace(digits.train, x=torch.rand_like(digits.train.x)))
    for tracker, data in ((told, digits), (changed, other)):
        introduce(tracker, data, "small")
    assert told.calls == changed.calls
    (_, name, digest, facts), _ = told.calls
    assert (name, len(digest), facts["training_rows"]) == ("digits", 16, 1276)
    more = replace(digits, train=replace(digits.train, x=digits.train.x[:100], y=digits.train.y[:100]))
    assert public_facts(more) == public_facts(digits) | {"training_rows": 100}


def test_how_many_rows_are_held_back_is_not_told_where_they_are_private(digits):
    private = replace(digits, metadata=replace(digits.metadata, evaluation=Evaluation.PRIVATE))
    fewer = replace(
        private, validation=replace(digits.validation, x=digits.validation.x[:7], y=digits.validation.y[:7])
    )
    assert public_facts(private) == public_facts(fewer)


POINT = Point(trial="t0001", epoch=1, values={"epsilon": 2.5, "accuracy": 0.75, "certified@1/4": 0.5})


def test_a_sweep_that_runs_is_told_of_now_and_then_and_a_private_selection_is_not(objectives):
    now, told = [100.0], Told()
    watch = Watch(told, now=lambda: now[0])
    state = SweepProgress(name="x", total=4, done=1, front=(POINT,), objectives=objectives, hypervolume=0.5)
    watch.look(replace(state, note="selecting privately"))
    assert told.calls == []
    for now[0] in (100.0, 101.0, 109.0, 111.0):
        watch.look(state)
    assert len(told.calls) == 2
    for now[0], done in ((111.5, 2), (112.5, 3)):
        watch.look(replace(state, done=done))
    assert [step for _, step, _ in told.of("log")] == [1, 1, 3], "and when a trial is done, once a second"
    _, trial, step, metrics = told.calls[0]
    assert (trial, step) == (None, 1), "the step is how many trials are done"
    assert next(iter(metrics)) == "best/accuracy"
    assert metrics["best/accuracy"] == metrics["best/accuracy/eps3"] == 0.75
    assert "best/accuracy/eps2" not in metrics
    assert (metrics["hypervolume"], metrics["trials/done"]) == (0.5, 1.0)


RISK = Risk(caught=(0.01, 0.08, 0.4), advantage=0.4, basis=Basis.PROFILE)


def price(epsilon, events=3):
    exposure = Exposure(risk=RISK)
    return Price(epsilon=epsilon, delta=1e-4, events=events, statement=f"It costs {epsilon}.", exposure=exposure)


@pytest.mark.parametrize("hidden", [False, True])
def test_values_within_an_epsilon_are_told_only_where_every_point_may_leave(hidden, make_front):
    other = Price(epsilon=math.inf, delta=1e-4, events=0) if hidden else price(9.0)
    ledger = {"winner": price(5.0), "front": other, "everything": other}
    front = make_front([POINT], sweep="x", ledger=ledger)
    told = Told()
    conclude(told, front, status="completed")
    metrics, tags = told.calls[0][3], told.calls[1][2]
    assert metrics["price"] == 5.0
    own = None if hidden else POINT.values["epsilon"]
    assert metrics.get("best/accuracy/epsilon") == own, "of one point in each row of the list"
    assert RISK.in_words() in tags["mlflow.note.content"]
    assert tags["sweeper.price"] == "epsilon 5 at delta 0.0001"
    told_best = f"accuracy {value_text(POINT, 'accuracy')} on validation rows ({POINT.label})"
    assert (tags.get("sweeper.best") == told_best) != hidden
    assert (
        tags.get("mlflow.runName") == f"accuracy {POINT.values['accuracy']:.3f}, eps 5, validation rows, x"
    ) != hidden
    assert any(name.startswith("best/") for name in metrics) != hidden
    doubted = make_front([POINT], sweep="x", ledger=ledger, claim=replace(front.claim, chosen=("batch_size",)))
    conclude(again := Told(), doubted, status="completed")
    marked = again.calls[1][2]
    assert marked["sweeper.price"] == "epsilon 5 at delta 0.0001 (not proven)"
    assert hidden or ", eps ≈5 (not proven), validation rows" in marked["mlflow.runName"]
    assert ("own epsilon at most" in tags["mlflow.note.content"]) != hidden


@pytest.mark.parametrize("hidden", [False, True])
def test_a_trial_has_its_end_its_best_points_its_test_scores_and_notes(hidden, make_front):
    test = {"epsilon": 2.5, "accuracy": 0.7, "certified@1/4": 0.4}
    later = replace(POINT, epoch=2, values={"epsilon": 3.5, "accuracy": 0.8, "certified@1/4": 0.4}, test=test)
    other = Price(epsilon=math.inf, delta=1e-4, events=0) if hidden else price(9.0)
    front = make_front([POINT, later], sweep="x_y", ledger={"winner": price(5.0), "everything": other})
    told = Told()
    conclude(told, front, status="completed", page="http://p", notes={"t0001": Notes(texts=("Look here.",))})
    logged = [(trial, step, metrics) for trial, step, metrics in told.of("log") if trial is not None]
    reached = {"best/accuracy": 0.8, "best/accuracy/epsilon": 3.5, "best/accuracy/epoch": 2.0}
    certified = {"best/certified/1_4": 0.5, "best/certified/1_4/epsilon": 2.5, "best/certified/1_4/epoch": 1.0}
    assert logged == [
        ("t0001", 2, {"test/accuracy": 0.7, "test/certified/1_4": 0.4}),
        ("t0001", 2, ({} if hidden else reached) | {"best/accuracy/test": 0.7}),
        *([] if hidden else [("t0001", 2, certified)]),
    ], "the point that is best certified has no test score"
    (parent,) = (metrics for trial, _, metrics in told.of("log") if trial is None)
    assert parent["test/accuracy"] == 0.7, "of the point that is best on validation rows"
    ((_, tags),) = ((trial, tags) for trial, tags in told.of("tag") if trial == "t0001")
    text = tags["mlflow.note.content"]
    assert tags["mlflow.runName"] == "t0001 accuracy 0.800 on validation rows, mlp", (
        "of validation rows, as the names of all trials have it"
    )
    assert text.startswith("**accuracy 0.700 on test rows, 0.800 on validation rows**: t0001, epoch 2.\n")
    assert "\n**t0001** of x\\_y: completed after 2 epochs.\n" in text
    assert ("own epsilon" in text.casefold()) != hidden
    row = "| best accuracy | 2 | 3.5 | 0.800 | 0.400 | 0.700 | 0.400 |"
    assert (row in text) != hidden
    assert "2 of its 2 points are on the front of the sweep." in text
    assert text.endswith("[Live page of the sweep](http://p)\n\n## Notes\n\nLook here.\n")


def test_a_trial_that_never_began_is_named_so(make_front, trial):
    told = Told()
    waited = replace(trial, id="t0002", status=TrialStatus.INTERRUPTED)
    conclude(told, make_front([POINT], trials=[trial, waited], silent={"t0002"}), status="stopped")
    names = {one: tags.get("mlflow.runName") for one, tags in told.of("tag")}
    assert (names["t0001"], names["t0002"]) == ("t0001 accuracy 0.750 on validation rows, mlp", "t0002 never begun")


def test_the_best_of_a_trial_is_that_of_all_its_points(make_front):
    last = replace(POINT, epoch=2, values={"epsilon": 3.5, "accuracy": 0.8, "certified@1/4": 0.4})
    other = replace(POINT, trial="t0002", values={"epsilon": 3.0, "accuracy": 0.85, "certified@1/4": 0.4})
    told = Told()
    conclude(told, make_front([POINT, last, other], ledger={"winner": price(5.0)}), status="completed")
    reached = {"best/accuracy": 0.8, "best/accuracy/epsilon": 3.5, "best/accuracy/epoch": 2.0}
    assert ("t0001", 2, reached) in list(told.of("log")), "a store shows what is told of the last epoch"
    name, note = next(
        ((tags["mlflow.runName"], tags["mlflow.note.content"]) for t, tags in told.of("tag") if t == "t0001")
    )
    assert name == "t0001 accuracy 0.800 on validation rows, mlp"
    assert "| best accuracy | 2 | 3.5 | 0.800 | 0.400 |" in note


def test_only_trials_that_are_done_are_counted(make_front):
    front = make_front([POINT], sweep="x", ledger={})
    cut = replace(front.trials["t0001"], status="interrupted")
    told = Told()
    conclude(told, replace(front, trials={**front.trials, "t0002": cut}), status="interrupted")
    assert next(step for trial, step, _ in told.of("log") if trial is None) == 1


def test_notes_that_cannot_be_read_are_left_out(tmp_path):
    assert notes_of(tmp_path) == {}
    (tmp_path / "notes.jsonl").write_text("{}\nno json\n{}\n")
    assert notes_of(tmp_path) == {}


def test_a_store_without_the_run_of_the_trial_is_not_asked_for_a_model(monkeypatch):
    picked = SimpleNamespace(point=POINT)
    monkeypatch.setattr(sweep_tracking, "Sweep", lambda _: SimpleNamespace(pick=lambda: picked))
    asked = []
    monkeypatch.setattr("sweeper.results.models.registry.log_model", lambda *args: asked.append(args))
    assert list(track_model(Told(), "x")) == []
    assert asked == []
    assert list(track_model(Told({"t0001": "abc"}), "x")) == []
    assert asked[0][2] == "abc"

    def fails(*_):
        raise SweeperError("no room")

    monkeypatch.setattr("sweeper.results.models.registry.log_model", fails)
    assert list(track_model(Told({"t0001": "abc"}), "x")) == ["no room"]


@pytest.mark.parametrize(
    ("config", "epsilon", "name"),
    [
        ({"model": {"architecture": "mlp", "width": 64}}, 2.8412, "t0001 mlp-64 planned eps 2.842"),
        ({"model": {"architecture": "mlp", "width": 64}}, None, "t0001 mlp-64"),
        ({"model": {"architecture": "convnet"}}, math.inf, "t0001 convnet non-private"),
        ({}, 0.668, "t0001 planned eps 0.6681"),
    ],
)
def test_a_trial_is_named_by_what_it_trains_and_an_epsilon_that_is_no_less(config, epsilon, name):
    assert trial_name("t0001", config, epsilon) == name


# The store that the environment names


def test_the_store_of_the_environment_is_taken_where_none_is_named(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert with_environment(Options()).tracking is None
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://m:5000")
    assert with_environment(Options()).tracking == "http://m:5000"
    assert with_environment(Options(tracking="http://other")).tracking == "http://other"


def test_a_resumed_sweep_keeps_its_store_whatever_the_environment_says(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://m:5000")
    recorded = Manifest(name="x", status=SweepStatus.STOPPED, spec={}, source="x.yaml")
    assert with_recorded(Options(), recorded).tracking is None
    assert with_recorded(Options(), replace(recorded, tracking="http://own")).tracking == "http://own"


@pytest.mark.parametrize("named", [None, "http://ada:hunter2@m:5000"])
def test_a_password_in_the_environment_is_refused_and_not_repeated(monkeypatch, named):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://ada:hunter2@m:5000")
    with pytest.raises(SweeperError, match="without a password") as refused:
        with_environment(Options(tracking=named))
    assert "hunter2" not in str(refused.value)
