"""What the driver writes down for every event of a trial, and in which order."""

import errno
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import pytest

import clipless
from sweeper.adapters import parse
from sweeper.backend.trial_states import TrialStates
from sweeper.driver.recording import recorder as module
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.recording.spending import SpendingRecord
from sweeper.driver.recording.trial_records import TrialRecords, points_of
from sweeper.errors import FAILURES_NAME, FOR_THE_OWNER, RecordError, TrialError
from sweeper.planning.make import plan_of_records
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import drawn_by, price
from sweeper.privacy.spending._composition import Composition
from sweeper.privacy.spending.filter import Filter
from sweeper.records import ERROR_RULES, Point, ScorePlan, TrialPlan, TrialStatus
from sweeper.results.front import read_front
from sweeper.search.optuna_search import Search
from sweeper.specification.spec import Spec
from sweeper.store import jsonl
from sweeper.store.evidence import append_evidence, read_refusals
from sweeper.store.lock import driver_lock
from sweeper.store.sweep_folder import SweepFolder
from sweeper.trials.stream import EpochRow, FirstDrawRow, FreeRow, PlanRow
from tests.factories import FakeTracker, begin, make_evidence, make_recorder, make_search, small_content

RDP = [1.0, 2.0, 3.0]
PLD = [0.9, 1.8, 2.7]


class BestTracker(FakeTracker):
    """Tells what it heard of the best epoch."""

    def best(self):
        return [(step, metrics) for _, step, metrics in self.of("log") if "best/accuracy" in metrics]


BEST = {"best/accuracy/epoch": 1.0, "best/accuracy/epsilon": 0.9}


@pytest.fixture
def kept(content, claim, tmp_path, request):
    """A recorder with what it writes to: ``kept.recorder``, ``kept.folder``, ``kept.tracker``."""
    content["search"] = {"objectives": ["epsilon", "accuracy"], "trials": 1, **getattr(request, "param", {})}
    spec = Spec.from_mapping(content)
    folder, tracker = SweepFolder(tmp_path), BestTracker()
    (tmp_path / "models").mkdir()
    search = make_search(spec)
    plan = plan_of_records(spec, claim, Composition())
    made = Recorder(plan, folder, tracker, search)
    yield SimpleNamespace(
        recorder=made, folder=folder, tracker=tracker, path=tmp_path, search=search, spec=spec, plan=plan
    )
    made.records.close()


@pytest.fixture
def plan_row(plan_json):
    priced = {"epsilon_curve": PLD, "accountants": {"rdp": RDP, "pld": PLD}}
    return PlanRow(attempt="a", plan=parse(TrialPlan, plan_json | priced))


def epoch_row(kept, trial, epoch, accuracy, *, model=True):
    name = SweepFolder.model_name(trial, epoch)
    if model:
        (kept.path / name).write_bytes(b"weights")
    values = {"epsilon": PLD[epoch - 1], "accuracy": accuracy}
    return EpochRow(epoch=epoch, values=values, model=name if model else None, done=epoch == 3)


def report(kept, epoch, accuracy, trial="t0001"):
    return kept.recorder.on_epoch(trial, epoch_row(kept, trial, epoch, accuracy))


def models(kept):
    return sorted(path.name for path in (kept.path / "models").iterdir())


def test_a_plan_is_in_the_ledger_before_anything_else_is_told(kept, plan_row, monkeypatch):
    kept.recorder.on_start("t0001", {"trial": "t0001", "proposal": {}})
    told = len(kept.tracker.calls)
    opened = []
    real = Ledger.open

    def spy(ledger, trial, event, **more):
        assert len(kept.tracker.calls) == told
        real(ledger, trial, event, **more)
        opened.append(Ledger(kept.folder.ledger).entries())

    monkeypatch.setattr(Ledger, "open", spy)
    kept.recorder.on_plan("t0001", plan_row)
    ((entry,),) = opened
    assert (entry.trial, entry.event, entry.steps) == ("t0001", plan_row.plan.event, None)


def test_where_a_trial_is_trained_is_recorded_and_tagged(kept, plan_row):
    begin(kept.recorder, replace(plan_row, placed={"node": "10.0.0.7", "device": "cpu"}))
    assert kept.folder.trials()["t0001"].placed == {"node": "10.0.0.7", "device": "cpu"}
    tags = [call for call in kept.tracker.calls if call[0] == "tag"]
    assert (
        "tag",
        "t0001",
        {
            "mlflow.runName": "t0001 mlp planned eps 2.701",
            "sweeper.planned_epsilon": "2.701",
            "sweeper.noise_multiplier": "2",
            "sweeper.node": "10.0.0.7",
            "sweeper.device": "cpu",
        },
    ) in tags


def test_a_trial_whose_plan_cannot_be_written_down_never_trains(kept, plan_row, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    states = TrialStates(kept.recorder.hooks)
    states.start("t0001", {"trial": "t0001", "proposal": {}})
    monkeypatch.setattr(jsonl, "_write_at", full)
    assert states.receive("t0001", plan_row) is False
    monkeypatch.undo()
    states.end("t0001", TrialStatus.COMPLETED)
    trial = kept.folder.trials()["t0001"]
    assert (trial.status, trial.plan) == (TrialStatus.FAILED, None)
    assert "No space left on device" in trial.reason
    assert Ledger(kept.folder.ledger).entries() == ()


def test_a_trial_starts_with_its_configuration_and_ends_with_its_reason(kept, plan_row):
    begin(kept.recorder, plan_row)
    ((trial, params, tags),) = kept.tracker.of("start_trial")
    assert (trial, params["model"], tags["sweeper.delta"]) == ("t0001", {"architecture": "mlp"}, "0.0001")
    assert (tags["sweeper.relation"], tags["sweeper.exploratory"]) == ("add-or-remove-one", "false")
    assert kept.tracker.of("log") == []
    report(kept, 1, 0.5)
    ((_, step, metrics),) = kept.tracker.of("log")
    assert (step, metrics["sensitivity/1.weight"], metrics["sensitivity/3.weight"]) == (1, 2.5, 1.25)
    assert (next(iter(metrics)), list(metrics)[-1]) == ("best/accuracy", "sensitivity/3.weight")
    kept.recorder.on_end("t0001", TrialStatus.STOPPED, "no hope", 2)
    assert kept.tracker.of("end_trial") == [("t0001", TrialStatus.STOPPED, "no hope")]
    stored = kept.folder.trials()["t0001"]
    assert (stored.status, stored.reason, stored.plan) == (TrialStatus.STOPPED, "no hope", plan_row.plan)
    (entry,) = Ledger(kept.folder.ledger).entries()
    assert (entry.steps, entry.charged.steps) == (10, 50)


def test_the_whole_error_of_a_trial_is_kept_for_the_owner_of_the_data_alone(kept, plan_row):
    states = TrialStates(kept.recorder.hooks)
    states.start("t0001", {"trial": "t0001", "proposal": {}})
    states.receive("t0001", plan_row)
    states.fail("t0001", ValueError("could not convert Name-042450 to float"))
    assert kept.folder.failures() == [{"trial": "t0001", "error": "ValueError: could not convert Name-042450 to float"}]
    assert (kept.folder.path / FAILURES_NAME).stat().st_mode & 0o777 == 0o600
    said = f"ValueError: {FOR_THE_OWNER}"
    assert kept.tracker.of("end_trial") == [("t0001", TrialStatus.FAILED, said)]
    assert kept.folder.trials()["t0001"].reason == said
    for path in kept.folder.path.rglob("*.json*"):
        assert path.name == FAILURES_NAME or "Name-042450" not in path.read_text()


def test_a_trial_that_never_planned_has_nothing_in_the_ledger(kept):
    kept.recorder.on_start("t0001", {"trial": "t0001", "proposal": {}})
    kept.recorder.on_end("t0001", TrialStatus.FAILED, "its process died", 1)
    assert Ledger(kept.folder.ledger).entries() == ()
    assert kept.folder.trials()["t0001"].config["model"] == {"architecture": "mlp"}


def test_an_entry_that_cannot_be_closed_stays_open_and_is_charged_in_full(kept, plan_row, monkeypatch):
    def full(*_, **__):
        raise RecordError("disk full")

    begin(kept.recorder, plan_row)
    monkeypatch.setattr(Ledger, "close", full)
    kept.recorder.on_end("t0001", TrialStatus.COMPLETED, "", 3)
    (entry,) = Ledger(kept.folder.ledger).entries()
    assert (entry.steps, entry.charged.steps) == (None, 50)
    assert kept.folder.trials()["t0001"].status is TrialStatus.COMPLETED


@pytest.mark.parametrize("kept", [{"scheduler": "hyperband"}], indirect=True)
def test_a_scheduler_ends_trials_and_every_decision_is_written_down(kept, plan_row):
    for trial, accuracy in (("t0001", 0.5), ("t0002", 0.9), ("t0003", 0.4)):
        begin(kept.recorder, plan_row, trial)
        reason = kept.recorder.on_epoch(trial, epoch_row(kept, trial, 1, accuracy))
        assert (reason is None) == (accuracy >= 0.5)
    assert reason.startswith("rank 3 of 3 at the rung of epoch 1")
    decisions = kept.folder.decisions()
    assert [(d["trial"], d["goes_on"], d["rank"]) for d in decisions] == [
        ("t0001", True, 1),
        ("t0002", True, 1),
        ("t0003", False, 3),
    ]
    assert decisions[-1]["reason"] == reason
    assert ("t0003", 1, "") in kept.recorder.records.points


def limited(kept, epsilon, delta=1e-5, *, entered=True):
    """A recorder of a sweep whose budget a filter keeps; its trials are those of ``plan_row``."""
    budget = Filter(epsilon=epsilon, delta=delta)
    folder = SweepFolder(kept.path / "limited")
    (folder.path / "models").mkdir(parents=True)
    plan = plan_of_records(kept.spec, kept.plan.claim, budget)
    made = Recorder(plan, folder, BestTracker(), make_search(kept.spec))
    if entered:
        made.spending.enter_budget()
    return made


def filtered(kept, plan_row):
    """A recorder whose filter has room for three trials composed, and its epsilon."""
    epsilon = price([plan_row.plan.event] * 3, plan_row.plan.delta).epsilon
    return limited(kept, epsilon, plan_row.plan.delta), epsilon


def test_a_trial_beyond_the_budget_of_the_sweep_is_refused_before_it_draws_noise(kept, plan_row):
    made, epsilon = filtered(kept, plan_row)
    reasons = []
    for number in range(1, 6):
        made.on_start(f"t000{number}", {"trial": f"t000{number}", "proposal": {}})
        reasons.append(made.on_plan(f"t000{number}", plan_row))
    entries = Ledger(kept.path / "limited" / "ledger.jsonl").entries()
    assert [reason is None for reason in reasons] == [True] * len(entries) + [False] * (5 - len(entries))
    assert 1 <= len(entries) <= 3
    assert "no room for it; it is not trained" in reasons[-1]
    assert price([entry.charged for entry in entries], plan_row.plan.delta).epsilon <= epsilon
    made.records.close()


def test_a_trial_waits_until_one_that_runs_may_have_given_room_back(kept, plan_row):
    """Two fit side by side. A third waits, as do trials of which it is not known yet what they plan."""
    made = limited(kept, 1.05 * price([plan_row.plan.event] * 2, plan_row.plan.delta).epsilon, plan_row.plan.delta)
    assert made.spending.is_full(1)
    begin(made, plan_row)
    assert [made.spending.is_full(running) for running in (1, 2, 3)] == [False, True, True]
    begin(made, plan_row, "t0002")
    assert made.spending.is_full(2)
    made.spending.close(made.records.trials["t0002"], 0)
    assert not made.spending.is_full(1)
    made.records.close()


def test_a_trial_of_which_a_filter_has_counted_too_little_ends_the_run(kept, plan_row):
    made, _ = filtered(kept, plan_row)
    begin(made, plan_row)
    trial = made.records.trials["t0001"]
    made.spending.close(trial, 3)
    for known in (2, 3):  # what it had counted already
        made.spending.close(trial, known)
    with pytest.raises(RecordError, match="has given the rest of its budget away"):
        made.spending.close(trial, 4)
    made.records.close()


@pytest.mark.parametrize("kept", [{"scheduler": "hyperband"}], indirect=True)
def test_a_filter_refunds_from_one_rung_to_the_next(kept, plan_row):
    made, plan = limited(kept, 8.0, plan_row.plan.delta), plan_row.plan
    begin(made, plan_row)
    (entry,) = Ledger(kept.path / "limited" / "ledger.jsonl").entries()
    assert entry.ends == tuple(drawn_by(plan, epoch) for epoch in made._scheduler.rungs(plan.epochs)) != ()
    made.records.close()


def test_under_a_filter_no_epoch_follows_one_whose_point_is_not_on_the_disk(kept, plan_row, monkeypatch):
    """A driver that is killed then closes the training one epoch behind its last point; that is all that was drawn."""
    made = limited(kept, 8.0, plan_row.plan.delta)
    begin(made, plan_row)
    assert made.on_epoch("t0001", epoch_row(kept, "t0001", 1, 0.5, model=False)) is None
    with monkeypatch.context() as patched:
        patched.setattr(jsonl, "_write_at", _full_disk)
        with pytest.raises(RecordError, match="No space left on device"):
            made.on_epoch("t0001", epoch_row(kept, "t0001", 2, 0.6, model=False))
    folder = SweepFolder(kept.path / "limited")
    assert list(folder.points()) == [("t0001", 1, "")]
    spending = SpendingRecord(folder, kept.plan)
    spending.take_up(made.records.trials["t0001"], 1)
    assert Ledger(folder.ledger).entries()[-1].spent.steps == drawn_by(plan_row.plan, 2)
    made.records.close()


def test_without_a_filter_a_full_disk_fails_no_trial(kept, plan_row, monkeypatch):
    begin(kept.recorder, plan_row)
    with monkeypatch.context() as patched:
        patched.setattr(jsonl, "_write_at", _full_disk)
        assert report(kept, 1, 0.5) is None
    assert kept.folder.points() == {}


def test_no_training_is_charged_while_what_others_have_reached_is_in_memory_alone(kept, plan_row, monkeypatch):
    """Rows of a ledger may fit where those of trials do not: the sweep spent its budget and kept nothing."""
    begin(kept.recorder, plan_row)
    charged = len(Ledger(kept.folder.ledger).entries())
    real = jsonl._write_at

    def full(handle, data, offset):
        if b'"record"' not in data:  # of a ledger
            _full_disk()
        real(handle, data, offset)

    with monkeypatch.context() as patched:
        patched.setattr(jsonl, "_write_at", full)
        assert report(kept, 1, 0.5) is None
        kept.recorder.on_start("t0002", {"trial": "t0002", "proposal": {}})
        with pytest.raises(RecordError, match="No space left on device"):
            kept.recorder.on_plan("t0002", plan_row)
    assert len(Ledger(kept.folder.ledger).entries()) == charged
    assert kept.recorder.on_plan("t0002", plan_row) is None, "there is room again"
    assert set(kept.folder.trials()) == {"t0001", "t0002"}
    assert len(kept.folder.points()) == 1


def _full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_no_trial_begins_before_the_budget_of_the_sweep_is_in_the_ledger(kept, plan_row):
    made = limited(kept, 8.0, entered=False)
    made.on_start("t0001", {"trial": "t0001", "proposal": {}})
    with pytest.raises(RecordError, match="Expected the budget of the sweep in its ledger before trial t0001"):
        made.on_plan("t0001", plan_row)
    assert Ledger(kept.path / "limited" / "ledger.jsonl").entries() == ()
    made.records.close()


def test_a_point_has_one_price_from_the_beginning_and_says_what_each_accountant_found(kept, plan_row):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    point = kept.folder.points()["t0001", 1, ""]
    assert point.values["epsilon"] == 0.9
    assert point.accountants == {"rdp": 1.0, "pld": 0.9}
    assert kept.recorder.records.archive.points == (point,)
    numbers = {"epsilon": 0.9, "val/accuracy": 0.5, "epsilon/rdp": 1.0, "epsilon/pld": 0.9, "best/accuracy": 0.5}
    sensitivities = {"sensitivity/1.weight": 2.5, "sensitivity/3.weight": 1.25}
    assert kept.tracker.of("log") == [("t0001", 1, numbers | BEST | sensitivities)]
    report(kept, 2, 0.4)
    assert not any("sensitivity" in name for name in kept.tracker.of("log")[1][2]), "once is enough"


def test_a_trial_that_ends_before_its_first_epoch_has_its_sensitivities(kept, plan_row):
    begin(kept.recorder, plan_row)
    kept.recorder.on_end("t0001", TrialStatus.STOPPED, "no hope", 0)
    assert kept.tracker.of("log") == [("t0001", 0, {"sensitivity/1.weight": 2.5, "sensitivity/3.weight": 1.25})]


def with_free(kept, row, trial="t0001", **accuracies):
    """A row with points made from iterates, each of which claims an epsilon that it does not have."""
    free = []
    for made_from, accuracy in accuracies.items():
        name = SweepFolder.model_name(trial, row.epoch, made_from)
        (kept.path / name).write_bytes(b"weights")
        free.append(FreeRow(made_from=made_from, values={"accuracy": accuracy, "epsilon": 0.001}, model=name))
    return replace(row, free=tuple(free))


def test_points_made_from_iterates_cost_what_the_last_iterate_costs_whatever_their_row_says(kept, plan_row):
    begin(kept.recorder, plan_row)
    for epoch in (1, 2, 3):
        row = with_free(kept, epoch_row(kept, "t0001", epoch, 0.5), quick=0.4, slow=0.5 + epoch / 10)
        kept.recorder.on_epoch("t0001", row)
    points = kept.folder.points()
    assert sorted(points) == [("t0001", epoch, name) for epoch in (1, 2, 3) for name in ("", "quick", "slow")]
    for (_, epoch, _), point in points.items():
        assert point.values["epsilon"] == PLD[epoch - 1]
        assert point.accountants == {"rdp": RDP[epoch - 1], "pld": PLD[epoch - 1]}
    assert models(kept) == [f"t0001-{epoch}-slow.safetensors" for epoch in (1, 2, 3)], "those of the front alone"
    front = kept.recorder.front()
    assert front.on_front == {("t0001", epoch, "slow") for epoch in (1, 2, 3)}
    assert {p.values["epsilon"] for p in front.front_points} == set(PLD)


SCORES = ScorePlan(
    names=("accuracy",),
    noise_multiplier=3.0,
    apart=True,
    std={"validation": 0.1, "test": 0.2},
    rows={"validation": 100, "test": 50},
    epochs=(1, 2, 3),
)


def test_where_the_data_are_not_at_hand_a_model_is_kept_by_the_estimate_of_its_noisy_scores(kept, plan_row):
    """As where a private selection is given up: the plan is that of its records, which has no noise of scores."""
    scores = (0.9, 0.2), (0.2, 0.02), (0.3, 0.02), (0.8, 0.02)
    for number, (accuracy, std) in enumerate(scores, 1):
        trial, epoch = f"t000{number}", min(number, 3)
        begin(kept.recorder, replace(plan_row, plan=replace(plan_row.plan, scores=SCORES)), trial)
        row = replace(epoch_row(kept, trial, epoch, accuracy), errors={"accuracy": (std, 800.0)})
        kept.folder.save_points(points_of(trial, row, None))
    taken, _ = take_up(kept)
    taken.records.forget_models()
    with_model = {point.key for point in kept.folder.points().values() if point.model}
    assert {point.key for point in taken.front().front_points} <= with_model
    taken.records.close()


def noisy_records(kept, plan_row):
    """Records of two trials with noisy scores; the point of the second is off the front."""
    for number, (epoch, accuracy) in enumerate([(1, 0.9), (2, 0.2)], 1):
        trial = f"t000{number}"
        begin(kept.recorder, replace(plan_row, plan=replace(plan_row.plan, scores=SCORES)), trial)
        row = replace(epoch_row(kept, trial, epoch, accuracy), errors={"accuracy": (0.02, 800.0)})
        kept.folder.save_points(points_of(trial, row, None))
    return TrialRecords(SweepFolder(kept.path), kept.plan.shared.objectives, kept.tracker, {}, noisy_stages=())


def test_while_a_sweep_goes_on_later_every_model_is_kept_that_noisy_scores_judge(kept, plan_row):
    """What is released then may bring any of its points back to the front, which could not be picked."""
    records = noisy_records(kept, plan_row)
    assert [point.trial for point in records.archive.points] == ["t0001"]
    records.close(goes_on=True)
    assert models(kept) == ["t0001-1.safetensors", "t0002-2.safetensors"]
    assert all(point.model for point in SweepFolder(kept.path).points().values())
    records.close()
    assert models(kept) == ["t0001-1.safetensors"]
    assert SweepFolder(kept.path).points()["t0002", 2, ""].model is None


def test_the_model_of_a_noisy_point_that_an_audit_refuses_is_kept(kept, plan_row):
    records = noisy_records(kept, plan_row)
    records.refuse({"t0001": "its audit attained more than its epsilon"})
    records.close()
    assert models(kept) == ["t0001-1.safetensors", "t0002-2.safetensors"]
    assert all(point.model for point in SweepFolder(kept.path).points().values())


def test_a_tracker_is_told_of_earlier_trials_and_of_the_end_of_those_that_have_one(kept, plan_row):
    for trial in ("t0001", "t0002"):
        begin(kept.recorder, plan_row, trial)
        report(kept, 1, 0.5, trial)
    kept.recorder.on_end("t0002", TrialStatus.STOPPED, "it was asked to", 1)
    tracker = type(kept.tracker)()
    TrialRecords(SweepFolder(kept.path), kept.plan.shared.objectives, tracker, {}).track_earlier()
    assert [call[0] for call in tracker.of("start_trial")] == ["t0001", "t0002"]
    assert [call[:2] for call in tracker.of("log")] == [("t0001", 1), ("t0002", 1)]
    assert tracker.of("end_trial") == [("t0002", TrialStatus.STOPPED, "it was asked to")]


def test_scores_that_nobody_paid_for_end_the_trial_and_are_not_recorded(kept, plan_row):
    begin(kept.recorder, replace(plan_row, plan=replace(plan_row.plan, scores=SCORES)))
    with pytest.raises(TrialError, match="which nobody has paid for"):
        kept.recorder.on_epoch("t0001", with_free(kept, epoch_row(kept, "t0001", 1, 0.5), slow=0.6))
    assert kept.folder.points() == {}


@pytest.mark.parametrize("kept", [{"scheduler": "hyperband"}], indirect=True)
def test_a_trial_is_judged_and_told_once_for_each_epoch_by_its_iterate(kept, plan_row, monkeypatch):
    told = []
    monkeypatch.setattr(Search, "report", lambda _, point: told.append(point.key))
    for trial, accuracy in (("t0001", 0.5), ("t0002", 0.9), ("t0003", 0.4)):
        begin(kept.recorder, plan_row, trial)
        row = with_free(kept, epoch_row(kept, trial, 1, accuracy), trial, slow=0.99)
        reason = kept.recorder.on_epoch(trial, row)
        assert (reason is None) == (accuracy >= 0.5)
    keys = [(f"t000{n}", 1, "") for n in (1, 2, 3)]
    assert told == keys
    assert [(d["trial"], d["epoch"]) for d in kept.folder.decisions()] == [key[:2] for key in keys]
    told.clear()
    again, _ = take_up(kept)
    assert told == keys, "a driver that takes the folder up tells the same"
    assert again.records.points == kept.folder.points()
    again.records.close()


def test_points_made_from_iterates_are_tracked_under_names_of_their_own(kept, plan_row):
    begin(kept.recorder, plan_row)
    kept.recorder.on_epoch("t0001", with_free(kept, epoch_row(kept, "t0001", 1, 0.5), slow=0.6))
    ((_, _, numbers),) = kept.tracker.of("log")
    assert (numbers["val/accuracy"], numbers["slow/val/accuracy"], numbers["best/accuracy"]) == (0.5, 0.6, 0.6)


def test_the_best_epoch_of_a_trial_is_tracked_beside_its_last_one(kept, plan_row):
    begin(kept.recorder, plan_row)
    for epoch, accuracy in enumerate((0.5, 0.7, 0.6), start=1):
        report(kept, epoch, accuracy)
    told = [(step, metrics["best/accuracy"], metrics["best/accuracy/epoch"]) for step, metrics in kept.tracker.best()]
    assert told == [(1, 0.5, 1.0), (2, 0.7, 2.0)]


@pytest.mark.parametrize("kept", [{"objectives": ["epsilon", "accuracy", "certified@0.25"]}], indirect=True)
def test_a_trial_is_tracked_with_its_best_in_each_objective(kept, plan_row):
    begin(kept.recorder, plan_row)
    for epoch, (accuracy, certified) in enumerate(((0.5, 0.4), (0.7, 0.3), (0.6, 0.45)), start=1):
        row = epoch_row(kept, "t0001", epoch, accuracy)
        kept.recorder.on_epoch("t0001", replace(row, values={**row.values, "certified@0.25": certified}))
    best = {}
    for _, _, metrics in kept.tracker.of("log"):
        best |= {name: value for name, value in metrics.items() if name.startswith("best/")}
    assert (best["best/accuracy"], best["best/accuracy/epoch"]) == (0.7, 2.0)
    assert (best["best/certified/0.25"], best["best/certified/0.25/epoch"]) == (0.45, 3.0)


def test_a_trial_that_begins_is_told_what_its_models_have_to_reach(kept, plan_row):
    states = TrialStates(kept.recorder.hooks, {"t0009": 4})
    begin(kept.recorder, plan_row)
    for epoch, accuracy in enumerate((0.5, 0.4, 0.7), start=1):
        report(kept, epoch, accuracy)
    front = [{"epsilon": PLD[0], "accuracy": 0.5}, {"epsilon": PLD[2], "accuracy": 0.7}]
    assert states.config("t0009", {"a": 1}) == {"trial": "t0009", "proposal": {"a": 1}, "recorded": 4, "front": front}
    kept.recorder.refuse({"t0001": "contradicted"})
    assert states.config("t0009", {})["front"] == [], "what an audit refuses outdoes nothing"


def test_a_trial_whose_every_model_is_kept_has_none_to_reach(kept, plan_row):
    recorder = Recorder(kept.plan, kept.folder, kept.tracker, kept.search, keep_every_model=True)
    again = SimpleNamespace(recorder=recorder, path=kept.path)
    begin(recorder, plan_row)
    recorder.on_epoch("t0001", epoch_row(again, "t0001", 1, 0.5))
    assert TrialStates(recorder.hooks).config("t0002", {})["front"] == []


def test_only_models_of_the_front_are_kept(kept, plan_row):
    for trial, accuracies in (("t0001", (0.5, 0.6, 0.7)), ("t0002", (0.55, 0.6, 0.65))):
        begin(kept.recorder, plan_row, trial)
        for epoch, accuracy in enumerate(accuracies, start=1):
            kept.recorder.on_epoch(trial, epoch_row(kept, trial, epoch, accuracy))
    names = ("t0001-2", "t0001-3", "t0002-1", "t0002-2")
    assert models(kept) == [f"{name}.safetensors" for name in names], "equal points stay side by side"
    stored = kept.folder.points()
    assert stored["t0001", 1, ""].model is stored["t0002", 3, ""].model is None


@pytest.mark.parametrize("whole", range(6))
def test_a_torn_write_leaves_no_point_of_the_front_without_its_model(kept, plan_row, whole):
    """The rows of an epoch are one write, of which a crash keeps the first ones; models are removed after it."""
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    before = (kept.path / "points.jsonl").read_bytes().splitlines(keepends=True)
    begin(kept.recorder, plan_row, "t0002")
    row = with_free(kept, epoch_row(kept, "t0002", 1, 0.6), trial="t0002", quick=0.4, slow=0.7, late=0.7)
    kept.recorder.on_epoch("t0002", row)
    written = (kept.path / "points.jsonl").read_bytes().splitlines(keepends=True)
    assert len(written) == len(before) + 5  # and one more for the point that has left the front
    assert models(kept) == ["t0002-1-late.safetensors", "t0002-1-slow.safetensors"]
    (kept.path / "points.jsonl").write_bytes(b"".join(written[: len(before) + whole])[: -5 if whole else None])
    again = Recorder(kept.plan, kept.folder, kept.tracker, make_search(kept.spec))
    assert all(one.model is not None for one in again.front().front_points)
    assert again.records.last_epoch("t0002") == (whole > 3)


def test_while_points_wait_for_room_on_the_disk_no_model_is_removed(kept, plan_row, monkeypatch):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    begin(kept.recorder, plan_row, "t0002")
    with monkeypatch.context() as patched:
        patched.setattr(jsonl, "_write_at", _full_disk)
        kept.recorder.on_epoch("t0002", epoch_row(kept, "t0002", 1, 0.6))
        kept.recorder.records.close()
        assert models(kept) == ["t0001-1.safetensors", "t0002-1.safetensors"]
    kept.recorder.records.close()
    assert models(kept) == ["t0002-1.safetensors"]


def test_models_without_a_point_are_thrown_away_in_the_end(kept, plan_row):
    """A trial that is killed may have saved the model of an epoch that it never reported."""
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    epoch_row(kept, "t0001", 2, 0.6)
    kept.recorder.records.close()
    assert models(kept) == ["t0001-1.safetensors"]


def test_the_front_is_written_now_and_then(kept, plan_row):
    kept.recorder.write_front_now_and_then()
    assert read_front(kept.folder.front).trials == {}
    begin(kept.recorder, plan_row)
    kept.recorder.write_front_now_and_then()
    assert read_front(kept.folder.front).trials == {}, "it is too early"
    kept.recorder._write_at = 0.0
    kept.recorder.write_front_now_and_then()
    assert set(read_front(kept.folder.front).trials) == {"t0001"}


def test_a_front_that_a_full_disk_refuses_is_tried_again_later(kept, monkeypatch):
    def full(*_):
        raise RecordError("disk full")

    monkeypatch.setattr("sweeper.results.front_record.replace_file", full)
    kept.recorder.write_front_now_and_then()
    assert not kept.folder.front.exists()
    monkeypatch.undo()
    kept.recorder._write_at = 0.0
    kept.recorder.write_front_now_and_then()
    assert kept.folder.front.exists()


def test_the_front_is_priced_by_what_the_ledger_holds(kept, plan_row, claim):
    begin(kept.recorder, plan_row)
    begin(kept.recorder, plan_row, "t0002")
    front = kept.recorder.front()
    ledger = Ledger(kept.folder.ledger)
    assert front.ledger == ledger.answers(1e-4)
    assert kept.recorder.front(tight=True).ledger == ledger.answers(1e-4, tight=True)
    assert front.claim == claim
    assert {id_: trial.noise_multiplier for id_, trial in front.trials.items()} == {"t0001": 2.0, "t0002": 2.0}


def test_after_a_kill_the_front_is_priced_by_what_the_ledger_holds(kept, plan_row):
    begin(kept.recorder, plan_row)
    kept.recorder.write_front_now_and_then()
    begin(kept.recorder, plan_row, "t0002")
    kept.recorder.on_end("t0002", TrialStatus.COMPLETED, "", 2)
    front = read_front(kept.folder.front)
    assert set(front.trials) == {"t0001"}
    assert front.ledger == Ledger(kept.folder.ledger).answers(1e-4)
    assert front.ledger["winner"].events == 2
    kept.recorder.front().write(kept.folder.front)
    assert read_front(kept.folder.front).ledger_entries == 5


def test_runs_are_noted_when_the_store_has_made_them(kept, plan_row):
    begin(kept.recorder, plan_row)
    assert kept.recorder.front().trials["t0001"].run_id is None
    assert kept.recorder.records.note_runs() is False
    kept.tracker.runs["t0001"] = "abc"
    assert kept.recorder.front().trials["t0001"].run_id == "abc"
    assert kept.folder.trials()["t0001"].run_id == "abc"
    assert kept.recorder.records.note_runs() is False


def test_test_numbers_are_added_to_a_point(kept, plan_row):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    (point,) = kept.recorder.records.archive.points
    kept.recorder.records.add_test(point, {"accuracy": 0.4})
    assert kept.folder.points() == {point.key: replace(point, test={"accuracy": 0.4})}


@pytest.mark.parametrize("evaluation", ["public", "private"])
def test_how_a_sweep_with_private_scores_stands_says_that_those_of_test_rows_come(folder, evaluation):
    privacy = {"epsilon": 3.0, "delta": 1e-4} | ({"score_noise": 5.0} if evaluation == "private" else {})
    spec = Spec.from_mapping(small_content(privacy=privacy, data={"evaluation": evaluation}))
    recorder = make_recorder(spec, clipless.datasets.load(**spec.data_options(None)), folder)
    assert recorder.resumed.scores_test == (evaluation == "private")


@pytest.mark.parametrize("of_validation", [True, False])
def test_errors_of_scores_say_by_which_rules_they_were_computed(kept, of_validation):
    """Without that, means of several releases look as if an earlier version had recorded them."""
    row = EpochRow(epoch=1, values={"epsilon": 1.0, "accuracy": 0.4}, errors={"accuracy": (0.1, 80.0)})
    (point,) = points_of("t0001", row if of_validation else replace(row, errors=None), None)
    assert point.error_rules == (ERROR_RULES if of_validation else None)
    kept.recorder.records.add_test(point, {"accuracy": 0.4}, errors={"accuracy": (0.1, 80.0)})
    assert kept.recorder.records.points[point.key].error_rules == ERROR_RULES


def first_driver(kept, trials=1):
    """A recorder of the same folder whose search has proposed so many trials, and the search."""
    search = make_search(kept.spec, kept.folder)
    for _ in range(trials):
        search.ask()
    return Recorder(kept.plan, kept.folder, BestTracker(), search), search


def charged(kept):
    return [entry.charged.steps for entry in Ledger(kept.folder.ledger).entries()]


def drawn(kept):
    return [entry.steps for entry in Ledger(kept.folder.ledger).entries()]


def take_up(kept, *, lacks_rows=False, is_copy=False):
    """Another driver's recorder of the same folder, as after kill -9 of the first."""
    search = make_search(kept.spec, kept.folder)
    folder = SweepFolder(kept.path)
    folder.lacks_rows, folder.is_copy = lacks_rows, is_copy
    return Recorder(kept.plan, folder, BestTracker(), search), search


EVENTS = [
    ("on_start", "t0001"),
    ("on_plan", "t0001"),
    ("on_start", "t0002"),
    ("on_epoch", "t0001", 1, 0.5),
    ("on_plan", "t0002"),
    ("on_epoch", "t0002", 1, 0.6),
    ("on_epoch", "t0001", 2, 0.55),
    ("on_epoch", "t0002", 2, 0.65),
    ("on_epoch", "t0001", 3, 0.7),
    ("on_end", "t0001", TrialStatus.COMPLETED),
    ("on_start", "t0003"),
    ("on_plan", "t0003"),
    ("on_epoch", "t0003", 1, 0.01),
    ("on_end", "t0003", TrialStatus.STOPPED),
    ("on_epoch", "t0002", 3, 0.9),
    ("on_end", "t0002", TrialStatus.COMPLETED),
]


def play(kept, recorder, plan_row, events):
    for name, trial, *rest in events:
        match name:
            case "on_start":
                recorder.on_start(trial, {"trial": trial, "proposal": {}})
            case "on_plan":
                recorder.on_plan(trial, plan_row)
                recorder.on_draw(trial)
            case "on_epoch":
                recorder.on_epoch(trial, epoch_row(kept, trial, *rest))
            case "on_end":
                recorder.on_end(trial, rest[0], "", 3)


def decided(recorder, events):
    """What the scheduler decides on events to come."""
    decisions = []
    for name, trial, *rest in events:
        if name == "on_plan":
            recorder._scheduler.begin(trial, PLD)
        if name == "on_epoch":
            values = {"epsilon": PLD[rest[0] - 1], "accuracy": rest[1]}
            decisions.append(recorder._scheduler.judge(Point(trial=trial, epoch=rest[0], values=values)))
    return decisions


HYPERBAND = {"scheduler": "hyperband"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kept", [HYPERBAND], indirect=True)
@pytest.mark.parametrize("killed_after", range(len(EVENTS) + 1))
def test_a_driver_killed_after_any_event_is_taken_up_where_it_was(kept, plan_row, killed_after):
    plan_row = replace(plan_row, plan=replace(plan_row.plan, epochs=3))
    first, search = first_driver(kept, 3)
    play(kept, first, plan_row, EVENTS[:killed_after])
    told = {trial for trial in ("t0001", "t0002", "t0003") if trial not in search.open}
    second, taken = take_up(kept)
    begun = {event[1] for event in EVENTS[:killed_after]}
    ended = {trial for trial, found in second.records.trials.items() if found.status is not TrialStatus.RUNNING}
    assert set(second.records.trials) == begun
    assert set(second.unfinished) == {"t0001", "t0002", "t0003"} - ended
    assert second.records.points == first.records.points
    assert decided(second, EVENTS[killed_after:]) == decided(first, EVENTS[killed_after:])
    states = [(trial.state, trial.values) for trial in search.study.trials]
    assert [(trial.state, trial.values) for trial in taken.study.trials] == states or ended > told
    entries = {entry.trial: entry for entry in Ledger(kept.folder.ledger).entries()}
    for trial, entry in entries.items():
        drawn = 5 * max((event[2] for event in EVENTS[:killed_after] if event[:2] == ("on_epoch", trial)), default=0)
        assert entry.steps is not None
        assert drawn <= entry.steps <= max(15, drawn + 5)
    for each in (first, second):
        each.records.close()


def test_how_a_sweep_stands_that_goes_on_after_a_kill(kept, plan_row):
    """One trial goes on from its first epoch, one begins anew, one was never planned, one has ended, two were not asked."""
    kept.plan = replace(kept.plan, trials=6)
    first, _ = first_driver(kept, 4)
    for trial in ("t0001", "t0002", "t0004"):
        begin(first, plan_row, trial)
    first.on_start("t0003", {"trial": "t0003", "proposal": {}})
    first.on_epoch("t0001", epoch_row(kept, "t0001", 1, 0.5))
    first.on_end("t0004", TrialStatus.COMPLETED, "", 10)
    first.records.close()
    second, _ = take_up(kept)
    stands = second.resumed
    assert (stands.begun, stands.left) == (2, 3)
    assert [one.steps for one in stands.charged.training] == [50, 50, 50]
    assert [one.steps for one in stands.planned.training] == [10, 50, 50, 45, 50]
    assert stands.planned.again == 2
    second.records.close()


@pytest.mark.parametrize("kept", [HYPERBAND], indirect=True)
def test_a_trial_that_was_to_end_when_the_driver_died_is_ended(kept, plan_row):
    plan_row = replace(plan_row, plan=replace(plan_row.plan, epochs=3))
    first, _ = first_driver(kept, 3)
    play(kept, first, plan_row, [event for event in EVENTS if event[0] != "on_end"])
    second, taken = take_up(kept)
    statuses = {trial.id: trial.status.value for trial in second.records.trials.values()}
    assert statuses == {"t0001": "completed", "t0002": "completed", "t0003": "stopped"}
    assert second.records.trials["t0003"].reason.startswith("rank 3 of 3 at the rung of epoch 1")
    assert taken.open == {}
    assert len(second.records._tracker.of("end_trial")) == 3
    for each in (first, second):
        each.records.close()


def test_an_epoch_that_a_killed_driver_had_not_tracked_is_tracked_by_the_next(kept, plan_row, monkeypatch):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    row = with_free(kept, epoch_row(kept, "t0001", 2, 0.6), slow=0.7)
    with monkeypatch.context() as patched:
        patched.setattr(kept.recorder.records, "_track", _killed)
        with pytest.raises(KeyboardInterrupt):
            kept.recorder.on_epoch("t0001", row)
    second, _ = take_up(kept)
    ((trial, epoch, metrics),) = second.records._tracker.of("log")
    assert (trial, epoch) == ("t0001", 2)
    assert (metrics["val/accuracy"], metrics["slow/val/accuracy"]) == (0.6, 0.7)
    assert (metrics["best/accuracy/epoch"], metrics["best/accuracy"]) == (2.0, 0.7)
    second.on_end("t0001", TrialStatus.COMPLETED, "", 2)
    third, _ = take_up(kept)
    assert third.records._tracker.of("log") == []
    for each in (second, third):
        each.records.close()


def _killed(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("kept", [HYPERBAND | {"brackets": 2}], indirect=True)
def test_after_a_kill_trials_are_in_the_brackets_they_were_in(kept, plan_row):
    plan_row = replace(plan_row, plan=replace(plan_row.plan, epochs=3))
    first, _ = first_driver(kept, 3)
    starts = [("on_start", f"t000{i}") for i in (1, 2, 3)]
    plans = [("on_plan", f"t000{i}") for i in (2, 1, 3)]
    play(kept, first, plan_row, [*starts, *plans, ("on_epoch", "t0002", 1, 0.9), ("on_epoch", "t0003", 1, 0.85)])
    second, _ = take_up(kept)
    to_come = [("on_epoch", "t0001", 1, 0.5), ("on_epoch", "t0002", 2, 0.9), ("on_epoch", "t0003", 2, 0.86)]
    assert decided(second, to_come) == decided(first, to_come)
    for each in (first, second):
        each.records.close()


@pytest.mark.parametrize("kept", [HYPERBAND], indirect=True)
@pytest.mark.parametrize("lost", ["a plan", "a trial"])
def test_a_trial_whose_row_was_lost_with_the_machine_is_charged_in_full_and_goes_on(kept, plan_row, lost):
    """The ledger and the points of its epochs may be on the disk where the row that has its plan is not."""
    plan_row = replace(plan_row, plan=replace(plan_row.plan, epochs=3))
    first, _ = first_driver(kept)
    play(kept, first, plan_row, [*EVENTS[:2], EVENTS[3]])
    first.records.close()
    rows = (kept.path / "trials.jsonl").read_text().splitlines(keepends=True)
    (kept.path / "trials.jsonl").write_text(rows[0] if lost == "a plan" else "")
    second, search = take_up(kept, lacks_rows=True)
    assert charged(kept) == [50]
    assert "t0001" in search.open
    assert not second.front().points, "nobody knows how noisy their scores are"
    second.on_start("t0001", {"trial": "t0001", "proposal": {}})
    assert second.on_plan("t0001", replace(plan_row, kept=5)) is None, "from the checkpoint of its first epoch"
    assert charged(kept)[0] == 50
    assert drawn(kept)[0] == 50
    assert [point.epoch for point in second.front().points] == [1]
    assert decided(second, [EVENTS[6]]) == decided(first, [EVENTS[6]])
    second.records.close()


@pytest.mark.parametrize(("is_copy", "steps"), [(False, 0), (True, 50)])
def test_a_training_that_had_not_drawn_when_the_folder_was_copied_is_charged_in_full(is_copy, steps, kept, plan_row):
    """What is not marked was not drawn where a machine went down: the ledger was on the disk. A copy is older."""
    first, _ = first_driver(kept)
    first.on_start("t0001", {"trial": "t0001", "proposal": {}})
    first.on_plan("t0001", plan_row)
    first.records.close()
    second, _ = take_up(kept, lacks_rows=True, is_copy=is_copy)
    assert drawn(kept) == [steps]
    second.records.close()


def test_the_lock_of_the_driver_knows_how_far_the_records_are(kept, plan_row):
    sizes = lambda: json.loads((kept.path / "driver.json").read_text())["sizes"]  # noqa: E731
    with driver_lock(kept.path) as lock:
        folder = SweepFolder(kept.path)
        folder.drive(lock)
        recorder = Recorder(kept.plan, folder, BestTracker(), make_search(kept.spec, folder))
        recorder.on_start("t0001", {"trial": "t0001", "proposal": {}})
        for act in (
            lambda: recorder.on_plan("t0001", plan_row),
            lambda: recorder.on_draw("t0001"),
            lambda: recorder.on_epoch("t0001", epoch_row(kept, "t0001", 1, 0.5)),
        ):
            act()
            assert sizes() == {name: (kept.path / name).stat().st_size for name in sizes()}
        assert sizes().keys() == {"ledger.jsonl", "trials.jsonl", "points.jsonl"}
        recorder.records.close()


@pytest.mark.parametrize(("lacks_rows", "steps"), [(False, 10), (True, 50)])
def test_a_trial_that_ran_when_the_driver_died_is_charged_what_it_can_have_drawn(lacks_rows, steps, kept, plan_row):
    first, _ = first_driver(kept)
    play(kept, first, plan_row, [*EVENTS[:2], ("on_epoch", "t0001", 1, 0.5)])
    second, _ = take_up(kept, lacks_rows=lacks_rows)
    (entry,) = Ledger(kept.folder.ledger).entries()
    assert entry.steps == steps  # one epoch is recorded, the next may have begun; after a reboot rows may be lost
    begin(second, replace(plan_row, attempt="b", kept=5))
    assert charged(kept) == [steps, 45]
    second.on_end("t0001", TrialStatus.COMPLETED, "", 10)
    assert drawn(kept) == [steps, 45]
    for each in (first, second):
        each.records.close()


@pytest.mark.parametrize("died", ["process", "driver"])
def test_a_trial_that_went_on_from_an_epoch_whose_row_was_lost_is_charged_that_epoch(kept, plan_row, died):
    """The power went: points are gone, a checkpoint of epoch 2 is not. Then its process dies, or the driver does."""
    first, _ = first_driver(kept)
    play(kept, first, plan_row, [*EVENTS[:2], ("on_epoch", "t0001", 1, 0.5), ("on_epoch", "t0001", 2, 0.6)])
    (kept.path / "points.jsonl").write_text("")
    last, _ = take_up(kept, lacks_rows=True)
    begin(last, replace(plan_row, attempt="b", kept=10))
    if died == "process":
        last.on_restart("t0001", 1)
    else:
        last, _ = take_up(kept)
    assert drawn(kept) == [50, 0], "it may not draw before it reports"
    begin(last, replace(plan_row, attempt="c", kept=10))
    last.on_epoch("t0001", epoch_row(kept, "t0001", 2, 0.6))
    last.on_restart("t0001", 3)
    assert charged(kept) == [50, 0, 40]
    assert Ledger(kept.folder.ledger).entries()[-1].steps == 5
    for each in (first, last):
        each.records.close()


def test_repeats_that_went_on_from_different_epochs_are_charged_the_later_one(kept, plan_row):
    plan_row = replace(plan_row, plan=replace(plan_row.plan, repeats=2))
    begin(kept.recorder, plan_row)
    kept.recorder.on_restart("t0001", 3)
    begin(kept.recorder, replace(plan_row, attempt="b", kept=15))
    kept.recorder.on_restart("t0001", 1)
    assert drawn(kept) == [30, 5]


def test_a_sweep_whose_ledger_is_gone_does_not_go_on(kept, plan_row):
    """Nobody knows what it spent; without its rows it would seem to have spent nothing."""
    begin(kept.recorder, plan_row)
    kept.folder.ledger.unlink()
    with pytest.raises(RecordError, match=r"Expected what trial t0001 spent in .*ledger.jsonl, got nothing; restore"):
        Recorder(kept.plan, kept.folder, BestTracker(), make_search(kept.spec))


def test_a_trial_that_begins_anew_is_charged_twice(kept, plan_row):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    kept.recorder.on_restart("t0001", 2)
    begin(kept.recorder, replace(plan_row, attempt="b"))
    assert charged(kept) == [50, 50]


def test_a_trial_that_ran_out_of_memory_is_charged_the_epoch_it_was_in(kept, plan_row):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.5)
    kept.recorder.on_plan("t0001", replace(plan_row, attempt="b", kept=5))
    kept.recorder.on_draw("t0001")
    assert charged(kept) == [10, 45]


def test_an_interrupted_trial_is_neither_told_nor_forgotten(kept, plan_row):
    recorder, _ = first_driver(kept)
    state = kept.path / SweepFolder.checkpoint_name("t0001", 1)
    state.parent.mkdir()
    state.touch()
    play(kept, recorder, plan_row, [*EVENTS[:2], ("on_epoch", "t0001", 1, 0.5)])
    recorder.on_end("t0001", TrialStatus.INTERRUPTED, "interrupted", 2)
    second, taken = take_up(kept)
    assert second.unfinished == {"t0001": 1}
    assert set(taken.open) == {"t0001"}
    assert state.exists()
    second.on_start("t0001", {"trial": "t0001", "proposal": {}})
    assert kept.folder.trials()["t0001"].status is TrialStatus.RUNNING
    second.on_end("t0001", TrialStatus.FAILED, "no", 2)
    assert not state.exists()
    assert taken.open == {}
    for each in (recorder, second):
        each.records.close()


def test_a_trial_whose_proposal_was_lost_has_failed_and_its_id_is_not_given_again(kept, plan_row):
    begin(kept.recorder, plan_row, "t0007")
    second, taken = take_up(kept)
    assert second.records.trials["t0007"].status is TrialStatus.FAILED
    assert second.records.trials["t0007"].reason == "its proposal was not saved before the driver ended"
    assert taken.ask() == "t0008"
    second.records.close()


def test_a_trial_can_be_asked_to_stop_after_its_epoch(kept, plan_row):
    begin(kept.recorder, plan_row)
    kept.recorder.stop("t0001", "asked to stop")
    assert report(kept, 1, 0.5) == "asked to stop"


def test_a_trial_that_is_asked_to_stop_before_it_draws_ends_and_costs_nothing(kept, plan_row):
    states = TrialStates(kept.recorder.hooks)
    states.start("t0001", {"trial": "t0001", "proposal": {}})
    assert states.receive("t0001", plan_row)
    assert not kept.recorder.has_begun("t0001")
    kept.recorder.stop("t0001", "asked to stop")
    assert not states.receive("t0001", FirstDrawRow())
    states.end("t0001", TrialStatus.COMPLETED)
    ended = kept.folder.trials()["t0001"]
    assert (ended.status, ended.reason) == (TrialStatus.STOPPED, "asked to stop")
    assert [entry.charged.steps for entry in Ledger(kept.folder.ledger).entries()] == [0]
    assert not kept.recorder.has_begun("t0001")


def test_a_trial_has_begun_from_its_draw_on_and_waits_again_after_another_plan(kept, plan_row):
    recorder = kept.recorder
    begin(recorder, plan_row)
    assert recorder.has_begun("t0001")
    recorder.on_plan("t0001", replace(plan_row, attempt="second"))
    assert not recorder.has_begun("t0001")
    assert recorder.front().trials_begun == 1, "it has drawn noise in its first attempt"
    recorder.on_start("t0002", {"trial": "t0002", "proposal": {}})
    recorder.on_plan("t0002", plan_row)
    assert [recorder.front().trials_begun, len(recorder.front().trials)] == [1, 2]


@pytest.mark.parametrize("done", [False, True])
def test_a_trial_to_which_its_account_grants_no_more_ends_before_the_next_epoch(done, kept, plan_row):
    class Elsewhere:
        """An account that knows another ledger from the first draw on."""

        asked: ClassVar = []

        def charge(self, draw):
            self.asked.append(draw.what)
            if draw.what != "t0001/1":
                raise RecordError("the folder is a copy")

        def make_room(self, _):
            return None

    kept.recorder.spending._account = Elsewhere()
    states = TrialStates(kept.recorder.hooks)
    states.start("t0001", {"trial": "t0001", "proposal": {}})
    assert states.receive("t0001", plan_row)
    assert states.receive("t0001", FirstDrawRow())
    assert states.receive("t0001", epoch_row(kept, "t0001", 1, 0.5)), "its account has let it draw two epochs"
    last = replace(epoch_row(kept, "t0001", 2, 0.6), done=done)
    assert states.receive("t0001", last) == done
    assert Elsewhere.asked == ["t0001/1"] + ["t0001/1/20"] * (not done)
    states.end("t0001", TrialStatus.COMPLETED)
    ended = kept.folder.trials()["t0001"]
    assert ended.status is (TrialStatus.COMPLETED if done else TrialStatus.FAILED)
    assert ("the folder is a copy" in ended.reason) != done
    Elsewhere.asked.clear()


def test_every_repeat_is_charged_and_its_deviation_tracked(kept, plan_row):
    plan_row = replace(plan_row, plan=replace(plan_row.plan, repeats=3))
    begin(kept.recorder, plan_row)
    outcomes = {"accuracy": (0.4, 0.5, 0.6)}
    kept.recorder.on_epoch("t0001", replace(epoch_row(kept, "t0001", 1, 0.5), repeats=outcomes))
    kept.recorder.on_end("t0001", TrialStatus.STOPPED, "", 1)
    (entry,) = Ledger(kept.folder.ledger).entries()
    assert (entry.event.steps, entry.steps) == (150, 15)
    ((_, _, metrics),) = [told for told in kept.tracker.of("log") if told[1] == 1]
    assert metrics["deviation/val/accuracy"] == pytest.approx(0.1)
    (point,) = kept.folder.points().values()
    assert point.repeats == {"accuracy": (0.4, 0.5, 0.6)}
    assert point.values["epsilon"] == PLD[0]  # of the first repeat's model, which is the one that is kept


def test_a_front_that_takes_long_to_write_is_written_less_often(kept, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(_front, _path):
        now[0] += 2.0

    monkeypatch.setattr("sweeper.results.front.Front.write", slow)
    kept.recorder.write_front_now_and_then()
    assert kept.recorder._write_at == 100.0 + 20 * 2.0


# --- the mark that noise is about to be drawn


def test_a_trial_that_never_drew_costs_nothing_and_one_that_may_have_is_charged_in_full(kept, plan_row):
    """Killed before the mark, and behind it."""
    for trial in ("t0001", "t0002"):
        kept.recorder.on_start(trial, {"trial": trial, "proposal": {}})
        kept.recorder.on_plan(trial, plan_row)
    kept.recorder.on_draw("t0002")
    for entries in (Ledger(kept.folder.ledger).entries(), take_up(kept)[0].spending._ledger.entries()):
        assert [entry.charged.steps for entry in entries] == [0, 50]
    assert Ledger(kept.folder.ledger).answers(1e-4)["everything"].events == 1


def test_plans_that_come_again_before_anything_is_drawn_cost_nothing_more(kept, plan_row):
    """Memory that runs out while a trial is made ready, as often as it may."""
    begin(kept.recorder, plan_row)
    once = Ledger(kept.folder.ledger).answers(1e-4)["everything"].epsilon
    kept.recorder.on_start("t0002", {"trial": "t0002", "proposal": {}})
    for attempt in "abcde":
        kept.recorder.on_plan("t0002", replace(plan_row, attempt=attempt))
    assert Ledger(kept.folder.ledger).answers(1e-4)["everything"].epsilon == once


def test_an_epoch_of_a_trial_that_did_not_say_that_it_draws_is_charged_and_fails_it(kept, plan_row):
    kept.recorder.on_start("t0001", {"trial": "t0001", "proposal": {}})
    kept.recorder.on_plan("t0001", plan_row)
    with pytest.raises(TrialError, match="before it said that it draws noise"):
        report(kept, 1, 0.5)
    assert charged(kept) == [50]


def refuse(kept, trial):
    append_evidence(kept.path, [make_evidence(trial)])


def test_what_an_audit_refuses_leaves_the_front_of_a_run_and_its_model_stays(kept, plan_row):
    for trial, accuracy in (("t0001", 0.9), ("t0002", 0.5)):
        begin(kept.recorder, plan_row, trial)
        kept.recorder.on_epoch(trial, epoch_row(kept, trial, 1, accuracy))
    refuse(kept, "t0001")
    kept.recorder.refuse(read_refusals(kept.path))
    report(kept, 2, 0.95)
    assert {point.trial for point in kept.recorder.records.archive.points} == {"t0002"}
    front = kept.recorder.front()
    assert {trial for trial, *_ in front.on_front} == {"t0002"}
    assert "refused by an audit" in front.trials["t0001"].reason
    kept.recorder.records.close()
    assert models(kept) == ["t0001-1.safetensors"]


@pytest.mark.parametrize("lost", ["audits.jsonl", "front.json"])
def test_a_run_that_resumes_refuses_what_was_refused_before(kept, plan_row, lost):
    begin(kept.recorder, plan_row)
    report(kept, 1, 0.9)
    refuse(kept, "t0001")
    kept.recorder.refuse(read_refusals(kept.path))
    kept.recorder.front().write(kept.folder.front)
    (kept.path / lost).unlink()
    again = Recorder(kept.plan, kept.folder, kept.tracker, make_search(kept.spec))
    assert again.records.archive.points == ()
    assert again.front().on_front == frozenset()
