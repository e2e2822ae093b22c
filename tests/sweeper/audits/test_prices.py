"""Prices of sweeps under attack, through the ledger that states them: what is attained never exceeds what is claimed."""

from dataclasses import replace

import pytest

from clipless.audits.finding import AuditKind, judge
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.audits import prices, selection
from sweeper.audits.prices import audit_price
from sweeper.audits.released import VALIDATION, of_split, releases, unpaid
from sweeper.errors import RecordError
from sweeper.privacy.evaluation.paid_scores import PaidScores, scored_by
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Terms
from sweeper.privacy.spending._exploration import Exploration
from sweeper.privacy.spending.slots import Slots
from sweeper.records import Point, ReleasedCurves
from sweeper.specification.stages import StagePlan

DELTA = 1e-3
TRIAL = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.5, steps=4, relation=Relation.ADD_OR_REMOVE_ONE)
LAW = Repetitions(mean=8.0)


@pytest.fixture(autouse=True)
def _fewer_runs(monkeypatch):
    monkeypatch.setattr(prices, "runs_for", lambda _steps: 100_000)
    monkeypatch.setattr(selection, "_REFERENCE", 100_000)


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger.jsonl")


def spend(ledger, trials, stages=None):
    for number, trial in enumerate(trials):
        event = trial.plan.event
        stage = None if stages is None else stages[number]
        ledger.open(trial.id, event.with_steps(trial.plan.repeats * event.steps), stage=stage)
        ledger.close(trial.id, trial.plan.repeats * event.steps)


def point_of(trial, epoch=1, **more):
    return Point(trial=trial.id, epoch=epoch, values={"epsilon": 1.0}, **more)


def found(ledger, trials, **more):
    """Return what was found of the whole price, where every release is in the ledger."""
    (finding,) = judge(audit_price(ledger, trials, [point_of(trial) for trial in trials], DELTA, **more))
    return finding


def test_the_composition_of_all_trainings_is_nearly_attained_and_never_exceeded(ledger, make_trial):
    trials = [
        make_trial(1, TRIAL),
        make_trial(2, TRIAL, repeats=2),
        make_trial(3, replace(TRIAL, noise_multiplier=1.5)),
    ]
    spend(ledger, trials)
    finding = found(ledger, trials)
    assert (finding.kind, finding.confidence, finding.contradicted) == (AuditKind.SWEEP, 0.95, False)
    assert 0.75 < finding.ratio <= 1.0
    assert finding.attained > claim(TRIAL, finding.delta).epsilon
    assert finding.evidence["trainings"] == 3
    assert finding.evidence["steps"] == 16


def test_explorers_and_the_final_of_a_budget_are_nearly_attained_and_never_exceeded(ledger, make_trial):
    budget = Slots.of_plans(2.0, DELTA, [StagePlan(3, 0.6), StagePlan(1, 0.4)], TRIAL)
    ledger.set_budget(budget)
    trials = [make_trial(n, budget.slot_of(f"t{n:04d}")) for n in range(1, 5)]
    spend(ledger, trials, stages=[0, 0, 0, 1])
    finding = found(ledger, trials)
    assert not finding.contradicted
    assert 0.75 < finding.ratio <= 1.0


def test_a_training_that_the_ledger_forgot_contradicts_its_price(ledger, make_trial):
    trials = [make_trial(n, replace(TRIAL, noise_multiplier=1.0)) for n in range(1, 5)]
    spend(ledger, trials[:1])
    whole, free = judge(audit_price(ledger, trials, [point_of(trial) for trial in trials], DELTA))
    assert whole.contradicted
    assert whole.attained > whole.epsilon
    assert free.contradicted
    assert (free.epsilon, free.subject) == (0.0, "what no entry of the ledger covers")
    assert free.evidence["releases"].count("4 of a training row") == 3


def test_a_private_selection_attains_more_than_one_training_and_no_more_than_its_price(ledger, make_trial):
    ledger.select(Terms(event=TRIAL, repetitions=LAW))
    finding = found(ledger, [make_trial(1, TRIAL)], repetitions=LAW)
    assert (finding.kind, finding.contradicted) == (AuditKind.SELECTION, False)
    assert finding.attained > claim(TRIAL, finding.delta).epsilon
    assert finding.ratio <= 1.0


@pytest.mark.long
def test_a_selection_and_its_final_attain_more_than_the_final_and_no_more_than_their_price(ledger, make_trial):
    budget = Exploration.of_share(3.0, DELTA, LAW, TRIAL, share=0.9)
    ledger.set_budget(budget)
    ledger.select(budget.selection)
    winner, final = make_trial(1, budget.selection.event), make_trial(2, budget.final.slot)
    spend(ledger, [final], stages=[0])
    finding = found(ledger, [winner, final], repetitions=LAW)
    assert not finding.contradicted
    assert finding.attained > 1.2 * claim(final.plan.event, finding.delta).epsilon
    assert finding.ratio <= 1.0


def test_a_selection_that_is_priced_as_one_run_is_contradicted(ledger, make_trial, monkeypatch):
    ledger.select(Terms(event=TRIAL, repetitions=LAW))
    honest = ledger.answers(0.01)["winner"]
    one = {question: replace(honest, epsilon=claim(TRIAL, 0.01).epsilon) for question in ("winner", "everything")}
    monkeypatch.setattr(ledger, "answers", lambda delta, **_: one if delta == 0.01 else {"winner": honest})
    assert found(ledger, [make_trial(1, TRIAL)], repetitions=LAW).contradicted


def test_scores_of_private_rows_are_attacked_too(ledger, make_trial):
    quiet, loud = replace(TRIAL, noise_multiplier=50.0), 0.8
    scores = PaidScores(event=replace(TRIAL, noise_multiplier=loud, sampling_rate=1.0, steps=1), apart=True)
    ledger.open("t0001", quiet, scores=scores)
    ledger.close("t0001", quiet.steps, scored=1)
    finding = found(ledger, [make_trial(1, quiet, score_noise=loud)])
    assert finding.evidence["attack"] == "a validation row"
    assert not finding.contradicted
    assert finding.ratio > 0.75


@pytest.mark.parametrize(("scored", "last", "count"), [((4,), 4, 2), ((4,), 3, 0), ((1, 2, 4), 2, 4)])
def test_epochs_that_release_no_scores_are_not_taken_for_unpaid_ones(ledger, make_trial, scored, last, count):
    """An explorer releases those of its last epoch, a final those of some."""
    event = replace(TRIAL, noise_multiplier=50.0, steps=4)
    one = make_trial(1, event, repeats=2, score_noise=20.0)
    plan = replace(one.plan, epochs=4, steps_per_epoch=1, scores=replace(one.plan.scores, epochs=scored))
    trial = replace(one, plan=plan)
    paid = PaidScores(event=replace(LOUD, noise_multiplier=20.0, steps=2 * len(scored)), apart=True)
    ledger.open("t0001", event.with_steps(8), scores=paid)
    ledger.close("t0001", 2 * last, scored=scored_by(plan, last))
    seen = releases([trial], [replace(point_of(trial), epoch=epoch) for epoch in range(1, last + 1)])
    assert [one.steps for one in of_split(seen, VALIDATION)] == [count] * bool(count)
    assert unpaid(seen, ledger) == ()


def test_where_nothing_finite_is_claimed_or_nothing_was_released_nothing_is_attacked(ledger, make_trial):
    assert audit_price(ledger, [], [], DELTA) == ()
    trial = make_trial(1, replace(TRIAL, noise_multiplier=0.0))
    spend(ledger, [trial])
    assert audit_price(ledger, [trial], [point_of(trial)], DELTA) == ()


def test_a_selection_without_its_law_or_its_winner_is_not_guessed(ledger, make_trial):
    ledger.select(Terms(event=TRIAL, repetitions=LAW))
    with pytest.raises(RecordError, match="law of the private selection"):
        audit_price(ledger, [make_trial(1, TRIAL)], [], DELTA)
    with pytest.raises(RecordError, match="winner t0001"):
        audit_price(ledger, [make_trial(2, TRIAL)], [point_of(make_trial(2, TRIAL))], DELTA, repetitions=LAW)


LOUD = replace(TRIAL, noise_multiplier=0.8, sampling_rate=1.0, steps=1)
CURVES = ReleasedCurves(
    confidence=0.95,
    noise_multiplier=LOUD.noise_multiplier,
    rows=100,
    radii=(0.0,),
    certified=(0.9,),
    certified_low=(0.8,),
    certified_high=(1.0,),
)


@pytest.fixture
def released(ledger, make_trial):
    """A quiet training that was paid for, and a loud curve for each of two points of it."""
    quiet = replace(TRIAL, noise_multiplier=50.0)
    trial = make_trial(1, quiet, score_noise=20.0)
    ledger.open("t0001", quiet, scores=PaidScores(event=replace(LOUD, noise_multiplier=20.0), apart=True))
    ledger.close("t0001", quiet.steps, scored=1)
    return trial, [point_of(trial, test={"accuracy": 0.9}, curves=CURVES, made_from=name) for name in ("", "slow")]


def test_curves_of_private_rows_are_attacked_and_their_price_is_nearly_attained(ledger, released):
    trial, points = released
    for _ in points:
        ledger.enter_test("t0001", 1, PaidScores(event=LOUD, apart=True))
    (finding,) = judge(audit_price(ledger, [trial], points, DELTA))
    assert finding.evidence["attack"] == "a test row"
    assert finding.evidence["releases seen by a test row"] == 2
    assert not finding.contradicted
    assert 0.75 < finding.ratio <= 1.0


def test_curves_that_nobody_pays_for_are_contradicted(ledger, released):
    trial, points = released
    whole, free = judge(audit_price(ledger, [trial], points, DELTA))
    assert whole.contradicted
    assert free.contradicted
    ledger.enter_test("t0001", 1, PaidScores(event=LOUD, apart=True))
    _, one = judge(audit_price(ledger, [trial], points, DELTA))
    assert one.contradicted
    assert one.evidence["releases"] == "1 of a test row, trial t0001, epoch 1"


def test_curves_that_are_louder_than_their_entry_are_contradicted(ledger, released):
    trial, points = released
    for _ in points:
        ledger.enter_test("t0001", 1, PaidScores(event=replace(LOUD, noise_multiplier=1.6), apart=True))
    whole, free = judge(audit_price(ledger, [trial], points, DELTA))
    assert whole.contradicted
    assert free.contradicted


def test_within_a_budget_curves_without_an_entry_are_contradicted_though_its_price_is_not(ledger, make_trial):
    loud = PaidScores(event=LOUD.with_steps(2), apart=True)
    budget = replace(Slots.of_plans(9.0, DELTA, [StagePlan(1, 1.0)], TRIAL), tests=loud)
    ledger.set_budget(budget)
    trial = make_trial(1, budget.slot_of("t0001"), score_noise=None)
    spend(ledger, [trial], stages=[0])
    points = [point_of(trial, test={"accuracy": 0.9}, curves=CURVES)]
    whole, free = judge(audit_price(ledger, [trial], points, DELTA))
    assert (whole.contradicted, free.contradicted) == (False, True)


@pytest.mark.long
def test_scores_of_the_winner_of_a_selection_are_attacked_beside_it(ledger, make_trial):
    ledger.select(Terms(event=replace(TRIAL, noise_multiplier=50.0), repetitions=LAW))
    trial = make_trial(1, replace(TRIAL, noise_multiplier=50.0))
    points = [point_of(trial, test={"accuracy": 0.9}, curves=CURVES)]
    whole, free = judge(audit_price(ledger, [trial], points, DELTA, repetitions=LAW))
    assert whole.contradicted
    assert whole.evidence["attack"] == "a test row"
    assert free.contradicted
    ledger.enter_test("t0001", 1, PaidScores(event=LOUD, apart=True))
    (finding,) = judge(audit_price(ledger, [trial], points, DELTA, repetitions=LAW))
    assert not finding.contradicted
    assert finding.evidence["attack"] == "a test row"


def test_a_sketch_is_attacked_beside_the_trainings(ledger, make_trial):
    budget = Slots.of_plans(2.0, DELTA, [StagePlan(1, 1.0)], TRIAL, sketch_share=0.3)
    ledger.set_budget(budget)
    ledger.enter_sketch(budget.sketch)
    trials = [make_trial(1, budget.slot_of("t0001"))]
    spend(ledger, trials, stages=[0])
    finding = found(ledger, trials, sketch=budget.sketch)
    assert not finding.contradicted
    assert 0.75 < finding.ratio <= 1.0
    assert (finding.evidence["trainings"], finding.evidence["steps"]) == (1, 5)
    assert finding.attained > found(ledger, trials).attained


def test_a_sketch_without_an_entry_is_contradicted(ledger, make_trial):
    budget = Slots.of_plans(2.0, DELTA, [StagePlan(1, 1.0)], TRIAL, sketch_share=0.3)
    ledger.set_budget(budget)
    trials = [make_trial(1, budget.slot_of("t0001"))]
    spend(ledger, trials, stages=[0])
    points = [point_of(trial) for trial in trials]
    *_, free = judge(audit_price(ledger, trials, points, DELTA, sketch=budget.sketch))
    assert free.contradicted
    assert free.subject == "what no entry of the ledger covers"
    assert free.evidence["releases"] == "the sketch"
