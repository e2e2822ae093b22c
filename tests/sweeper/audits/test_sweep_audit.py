"""Audits of sweeps that the program ran: what they attack, what they keep, and what the gate does with it."""

import csv
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from clipless.audits.audited_training import Effort
from clipless.audits.finding import AuditKind
from clipless.guards import guard
from sweeper.audits import sweep_audit, trials
from sweeper.audits.sweep_audit import audit_sweep, contradictions, one_of_each_trial
from sweeper.audits.trials import audit_trial, audited_training
from sweeper.driver.finished import audit_trials_of_front
from sweeper.errors import PickError, RecordError
from sweeper.results.front import apply_gate, read_front
from sweeper.results.pick import pick
from sweeper.results.sweep import load
from sweeper.specification.settings import AuditEffort
from sweeper.store.evidence import EVIDENCE_NAME, WHOLE_SWEEP, read_evidence
from sweeper.store.sweep_folder import SweepFolder


@pytest.fixture
def cheated(monkeypatch):
    """Make the audit of chosen trials find that their step moves twice as far as claimed."""

    def cheat(*guilty):
        real = audit_trial

        def audit(sweep, trial, point, effort, **more):
            found = real(sweep, trial, point, effort, **more)
            return tuple(
                replace(one, p_value=0.0, attained=2 * one.epsilon)
                if trial.id in guilty and one.kind is AuditKind.STEP
                else replace(one, p_value=1.0)
                for one in found
            )

        monkeypatch.setattr(sweep_audit, "audit_trial", audit)

    return cheat


def front_trials(folder):
    return {point.trial for point in read_front(folder / "front.json").front_points}


def test_a_sweep_ends_with_audits_of_every_trial_on_its_front(ran):
    rows = read_evidence(ran.folder)
    assert {row.trial for row in rows} == front_trials(ran.folder)
    assert {row.finding.kind for row in rows} == {AuditKind.STEP, AuditKind.NOISE}
    assert not contradictions(rows)
    assert all(0.7 < row.finding.ratio <= 1.0 for row in rows if row.finding.kind is AuditKind.STEP)
    assert "Refused" not in ran.said


def test_a_training_is_rebuilt_as_it_was_planned_without_any_row(sweep_copy, monkeypatch):
    monkeypatch.setattr("clipless.datasets.load", lambda **_: pytest.fail("looked for rows"))
    sweep = load(sweep_copy)
    for point in one_of_each_trial(sweep.front().front_points):
        recorded = sweep.folder.trials()[point.trial].plan
        training = audited_training(sweep.folder, sweep.folder.trials()[point.trial], point)
        assert training.plan.event() == recorded.event
        assert dict(training.plan.sensitivities) == pytest.approx(dict(recorded.sensitivities))
        assert training.epsilon == pytest.approx(recorded.epsilon_curve[-1], rel=1e-9)
        assert training.subject == f"trial {point.trial}, the whole training ({recorded.epochs} epochs)"


def test_what_trials_of_one_form_have_in_common_is_audited_once_unless_it_is_contradicted(sweep_copy, monkeypatch):
    sweep, efforts = load(sweep_copy), []
    point = one_of_each_trial(sweep.front().front_points)[0]
    found = audit_trial(sweep.folder, sweep.folder.trials()[point.trial], point, Effort.CHEAP)
    wrong = [True, False, False]

    def audit(_training, effort, **_more):
        efforts.append(effort)
        return (replace(found[0], contradicted=wrong[len(efforts) - 1]),)

    monkeypatch.setattr(trials, "audit_training", audit)
    forms = set()
    for _ in wrong:
        audit_trial(sweep.folder, sweep.folder.trials()[point.trial], point, Effort.CHEAP, forms=forms)
    assert efforts == [Effort.CHEAP, Effort.CHEAP, Effort.BRIEF]


def test_another_program_or_a_lost_model_is_not_audited(sweep_copy):
    sweep = load(sweep_copy)
    point = one_of_each_trial(sweep.front().front_points)[0]
    trial = sweep.folder.trials()[point.trial]
    other = {name: 2.0 * delta for name, delta in trial.plan.sensitivities.items()}
    with pytest.raises(RecordError, match=f"plan that trial {point.trial} was trained with"):
        audited_training(sweep.folder, replace(trial, plan=replace(trial.plan, sensitivities=other)), point)
    with pytest.raises(RecordError, match="which was not kept"):
        audited_training(sweep.folder, trial, replace(point, model=None))
    free = replace(trial, plan=replace(trial.plan, method="non-private"))
    assert audit_trial(sweep.folder, free, point, Effort.CHEAP) == ()


@pytest.mark.long
def test_the_command_prints_one_table_and_keeps_what_it_found(sweep_copy, call, monkeypatch):
    monkeypatch.setattr("sweeper.audits.prices.runs_for", lambda _: 20_000)
    monkeypatch.setattr(sweep_audit.judge_together, "__defaults__", (1e-9,))
    before = len(read_evidence(sweep_copy))
    code, out, err = call("audit", sweep_copy)
    assert (code, err) == (0, "")
    rows = read_evidence(sweep_copy)[before:]
    assert {row.trial for row in rows} == front_trials(sweep_copy) | {WHOLE_SWEEP}
    assert {row.finding.kind for row in rows} == {AuditKind.STEP, AuditKind.NOISE, AuditKind.SWEEP}
    heads, *lines, judged, last = out.splitlines()
    assert "Holm's correction" in judged
    assert heads.split() == ["what", "audit", "claim", "attained", "ratio", "delta", "confidence", "verdict"]
    assert len(lines) == len(rows)
    assert all(line.rstrip().endswith("holds") for line in lines)
    assert last == f"Evidence: {sweep_copy / EVIDENCE_NAME}"


@pytest.mark.long
def test_one_point_of_one_trial_is_audited_alone(sweep_copy, cheated):
    cheated()
    name = one_of_each_trial(read_front(sweep_copy / "front.json").front_points)[0]
    for chosen in (name.trial, name.name):
        rows = audit_sweep(sweep_copy, chosen, price=False)
        assert {row.trial for row in rows} == {name.trial}
    with pytest.raises(PickError, match=r"got 't0099' \(POINT\)"):
        audit_sweep(sweep_copy, "t0099")


def test_a_contradiction_is_one_sentence_an_exit_code_and_a_refusal_everywhere(sweep_copy, call, cheated):
    guilty = max(front_trials(sweep_copy))
    cheated(guilty)
    code, out, err = call("audit", sweep_copy, "--no-price")
    assert code == 1
    assert sum(line.rstrip().endswith("contradicted") for line in out.splitlines()) == 1
    assert err.splitlines()[-1].startswith("An audit contradicts a claim, whose points are refused: the step audit of")
    assert guilty not in front_trials(sweep_copy)
    assert json.loads((sweep_copy / "front.json").read_text())["refused"].keys() == {guilty}
    assert "refused by an audit" in call("show", sweep_copy)[1]
    assert "refused by an audit" in (sweep_copy / "front.html").read_text()
    rows = csv.DictReader((sweep_copy / "front.csv").read_text().splitlines())
    assert {row["on_front"] for row in rows if row["trial"] == guilty} == {"False"}
    assert call("pick", sweep_copy, "--min", "accuracy=0.9999")[2].count("refused by an audit") == 1
    if front_trials(sweep_copy):  # of points that came up the model may not have been kept
        assert pick(read_front(sweep_copy / "front.json")).trial != guilty


@pytest.mark.long
def test_a_guard_that_lets_twice_too_much_through_is_contradicted(sweep_copy, monkeypatch):
    """The attack itself, on the sums that the program computes."""
    real = guard.guarded

    def wide(model, sensitivities, **more):
        return real(model, {name: 2.0 * delta for name, delta in sensitivities.items()}, **more)

    monkeypatch.setattr("clipless.training.batch_sums.guarded", wide)
    rows = audit_sweep(sweep_copy, price=False)
    assert {row.trial for row in rows if row.finding.contradicted and row.finding.kind is AuditKind.STEP} == {
        row.trial for row in rows
    }
    assert front_trials(sweep_copy).isdisjoint(row.trial for row in rows)


class FakeRecorder:
    """The records of a sweep, of which trials leave as audits refuse them."""

    def __init__(self, folder):
        self._folder = SweepFolder(folder)
        self.records = SimpleNamespace(trials=self._folder.trials(), archive=SimpleNamespace(points=()))
        self._front = read_front(self._folder.front)
        self._refused = self._front.refused
        self.refuse({})

    def refuse(self, refused):
        self._refused = {**refused, **self._refused}
        self.records.archive.points = apply_gate(replace(self._front, refused=self._refused)).front_points


@pytest.mark.long
def test_at_the_end_of_a_run_what_is_contradicted_leaves_and_what_comes_up_is_audited(sweep_copy, cheated):
    (sweep_copy / EVIDENCE_NAME).unlink()
    guilty = max(front_trials(sweep_copy))
    cheated(guilty)
    recorder = FakeRecorder(sweep_copy)
    said = audit_trials_of_front(AuditEffort.CHEAP, SweepFolder(sweep_copy), recorder, is_over=lambda: False)
    assert any(line.startswith("Refused from the front: the step audit of trial") for line in said)
    assert guilty not in {point.trial for point in recorder.records.archive.points}
    audited_trials = {row.trial for row in read_evidence(sweep_copy)}
    with_model = {point.trial for point in recorder.records.archive.points if point.model is not None}
    assert with_model | {guilty} <= audited_trials
    rows = len(read_evidence(sweep_copy))
    audit_trials_of_front(AuditEffort.CHEAP, SweepFolder(sweep_copy), recorder, is_over=lambda: False)
    assert len(read_evidence(sweep_copy)) == rows


def test_audits_end_when_asked_and_can_be_turned_off(sweep_copy, cheated):
    cheated()
    (sweep_copy / EVIDENCE_NAME).unlink()
    assert (
        audit_trials_of_front(
            AuditEffort.CHEAP, SweepFolder(sweep_copy), FakeRecorder(sweep_copy), is_over=lambda: True
        )
        == []
    )
    none = AuditEffort.NONE
    assert audit_trials_of_front(none, SweepFolder(sweep_copy), FakeRecorder(sweep_copy), is_over=lambda: False) == []
    assert read_evidence(sweep_copy) == ()


@pytest.mark.long
def test_a_disk_that_takes_no_evidence_saves_no_contradicted_trial(sweep_copy, cheated, monkeypatch):
    (sweep_copy / EVIDENCE_NAME).unlink()
    guilty = max(front_trials(sweep_copy))
    cheated(guilty)

    def full(*_args, **_more):
        raise RecordError("Cannot write: no space")

    monkeypatch.setattr("sweeper.driver.finished.append_evidence", full)
    recorder = FakeRecorder(sweep_copy)
    said = audit_trials_of_front(AuditEffort.CHEAP, SweepFolder(sweep_copy), recorder, is_over=lambda: False)
    assert "Cannot write: no space" in said
    assert guilty not in {point.trial for point in recorder.records.archive.points}


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, TypeError])
def test_an_audit_that_fails_fails_no_sweep(sweep_copy, monkeypatch, kind):
    (sweep_copy / EVIDENCE_NAME).unlink()

    def fail(*_args, **_more):
        raise kind("quotes a row")

    monkeypatch.setattr(trials, "audit_training", fail)
    said = audit_trials_of_front(
        AuditEffort.CHEAP, SweepFolder(sweep_copy), FakeRecorder(sweep_copy), is_over=lambda: False
    )
    assert said
    assert all(f"was not audited: {kind.__name__}" in line for line in said)
    assert "quotes a row" not in " ".join(said)


@pytest.mark.long
@pytest.mark.parametrize(("unit", "rows"), [("row", 1), ("patient", trials.UNIT_ROWS)])
def test_where_the_unit_is_a_column_canaries_are_units_of_several_rows(sweep_copy, monkeypatch, unit, rows):
    manifest = json.loads((sweep_copy / "sweep.json").read_text())
    manifest["claim"]["unit"] = unit
    (sweep_copy / "sweep.json").write_text(json.dumps(manifest))
    attacked = []
    whole = trials.audit_training

    def audit(training, *args, **options):
        attacked.append(training.unit_rows)
        return whole(training, *args, **options)

    monkeypatch.setattr(trials, "audit_training", audit)
    audit_sweep(sweep_copy, price=False)
    assert set(attacked) == {rows}
