"""A budget that holds a private selection and the final behind it: what it costs, and what it has no room for."""

import json
import math
from dataclasses import replace

import pytest

from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.domination import delta_of_slots
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_composed import explored_epsilon
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.errors import RecordError
from sweeper.privacy.entries import ChargedEvents
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.spending._exploration import Exploration
from sweeper.privacy.spending.slots import Slots
from sweeper.specification.stages import StagePlan

DELTA = 1e-5
LAW = Repetitions(mean=6.0)
TRIAL = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)
QUESTIONS = ("winner", "front", "everything")


@pytest.fixture(scope="module")
def budget():
    return Exploration.of_share(3.0, DELTA, LAW, TRIAL, share=0.2, spare=5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def selecting(path, budget):
    """A ledger whose selection runs."""
    ledger = Ledger(path)
    ledger.set_budget(budget)
    ledger.select(replace(budget.selection, breaks=("It has not ended.",)))
    return ledger


@pytest.fixture
def selected(path, budget):
    """A ledger whose selection has a winner."""
    ledger = Ledger(path)
    ledger.set_budget(budget)
    ledger.select(budget.selection)
    return ledger


def paid(releases, noise=40.0):
    return PaidScores(event=scores_event(noise, releases, Relation.ADD_OR_REMOVE_ONE), apart=True)


def train(ledger, trial, event, stage=0, **more):
    ledger.open(trial, event, stage=stage, marked=True, **more)
    ledger.draw(trial)


def append(path, row):
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def rows(path):
    return [json.loads(row) for row in path.read_text().splitlines()]


def test_candidates_and_final_use_up_the_budget_and_no_more(budget):
    stage = budget.final
    assert (stage.trials, stage.pool.steps, budget.selection.event.steps) == (1, 55, 50)
    exact = explored_epsilon(budget.selection.priced, LAW, Composed((stage.pool,)), delta_of_slots(DELTA, 1))
    assert budget.price == exact
    assert 0.985 * 3.0 < exact <= 3.0


def test_the_price_is_above_that_of_all_that_it_holds(budget):
    """The final with its spare steps, the selection, the slack of domination: none is left out."""
    stage, terms = budget.final, budget.selection
    alone = claim(stage.pool, DELTA).epsilon, selection_epsilon(terms.event, LAW, DELTA)
    assert max(alone) < budget.price < sum(alone)
    assert budget.price > explored_epsilon(terms.event, LAW, stage.pool, DELTA)
    assert budget.price > explored_epsilon(terms.event, LAW, stage.slot, delta_of_slots(DELTA, 1))
    assert budget.price_at(DELTA / 10) > budget.price
    assert budget.price_at(DELTA * 1e-9 * DELTA) == math.inf


@pytest.mark.long
def test_the_share_is_that_of_the_mean_number_of_candidates(budget):
    assert budget.shares == pytest.approx((0.2, 0.8))
    louder = Exploration.of_share(3.0, DELTA, LAW, TRIAL, share=0.5)
    assert louder.shares == pytest.approx((0.5, 0.5))
    assert louder.selection.event.noise_multiplier < budget.selection.event.noise_multiplier


def test_candidates_have_the_noise_of_the_selection(budget):
    assert budget.candidates.slot_of("t0001") == budget.candidates.slot_of("t0099") == budget.selection.event
    assert budget.slot_of("t0002") == budget.final.slot
    assert budget.candidates.selection is None


@pytest.mark.long
def test_a_budget_that_no_noise_meets_is_refused():
    with pytest.raises(AccountingError):
        Exploration.of_share(1e-9, DELTA, LAW, TRIAL, share=0.2)


def test_it_is_read_back_as_it_was_written(selected, path, budget):
    train(selected, "t0002", budget.final.slot)
    again = Ledger(path)
    assert (again.budget, again.selection, again.entries()) == (budget, budget.selection, selected.entries())
    assert again.budget.price == budget.price
    assert [row["record"] for row in rows(path)] == ["budget", "selection", "open", "draw"]


def test_a_budget_is_not_read_as_another_way_to_spend(path, budget):
    """Stages beside a selection would be priced as stages alone."""
    slots = Slots(epsilon=3.0, delta=DELTA, stages=(budget.final,)).to_json()
    selecting = budget.to_json()
    for content, reason in (
        (slots | {"selection": selecting["selection"]}, "accounting is 'slots', which has no selection"),
        (selecting | {"stages": slots["stages"]}, "accounting is 'exploration', which has no stages"),
        (selecting | {"accounting": "slots"}, "'stages'"),
        (slots | {"accounting": "exploration"}, "'selection'"),
        (slots | {"accounting": "filter"}, "accounting is 'filter', which has no stages"),
        (selecting | {"accounting": "winner"}, "accounting is 'winner', which has no budget"),
        (slots | {"accounting": "composition"}, "accounting is 'composition', which has no budget"),
        (slots | {"accounting": "another"}, "accounting is 'another'"),
    ):
        path.write_text(json.dumps({"record": "budget", **content}) + "\n")
        with pytest.raises(RecordError, match=reason):
            Ledger(path)


@pytest.mark.parametrize("finals", [0, 1])
def test_everything_costs_the_budget_once_the_selection_has_a_winner(selected, budget, finals):
    for _ in range(finals):
        train(selected, "t0002", budget.final.slot)
    prices = selected.answers(DELTA)
    assert [prices[question].epsilon for question in QUESTIONS] == [budget.price] * 3
    assert all(price.fixed and price.released and "Its conditions held" in price.statement for price in prices.values())


def test_before_the_selection_has_begun_there_is_no_price(path, budget):
    ledger = Ledger(path)
    ledger.set_budget(budget)
    prices = ledger.answers(DELTA)
    assert [prices[question].epsilon for question in QUESTIONS] == [math.inf] * 3
    assert not any(price.released for price in prices.values())


def test_what_broke_costs_the_composition_of_every_candidate(selecting, budget):
    for number in range(3):
        train(selecting, f"t000{number}", budget.selection.event, None)
    prices = selecting.answers(DELTA, tight=True)
    together = claim(Composed((budget.selection.event,) * 3), DELTA).epsilon
    assert [prices[question].epsilon for question in QUESTIONS] == pytest.approx([together] * 3)
    assert not any(price.fixed for price in prices.values())
    assert "its price does not hold: It has not ended." in prices["winner"].statement


def test_a_candidate_spends_what_the_selection_prices_and_nothing_else(selecting, budget):
    event = budget.selection.event
    for other in (
        event.with_steps(event.steps - 1),
        replace(event, noise_multiplier=0.99 * event.noise_multiplier),
        budget.final.slot,
    ):
        with pytest.raises(RecordError, match="it would spend another event than a candidate"):
            selecting.open("t0001", other)
    with pytest.raises(RecordError, match="it would spend another event than a candidate"):
        selecting.open("t0001", event, scores=paid(2))
    assert selecting.refusal("t0001", event) is None


def test_no_final_is_trained_before_the_selection_has_a_winner(selecting, path, budget):
    slot = budget.final.slot
    with pytest.raises(RecordError, match="has no winner, whose configuration it would train"):
        selecting.open("t0002", slot, stage=0)
    written = {"record": "open", "trial": "t0002", "attempt": 1, "event": slot.to_json(), "stage": 0}
    append(path, written)
    with pytest.raises(RecordError, match="Expected no final of the private selection in the budget"):
        Ledger(path)


def test_nothing_is_trained_before_the_selection_has_begun(path, budget):
    ledger = Ledger(path)
    ledger.set_budget(budget)
    for stage, event in ((None, budget.selection.event), (0, budget.final.slot)):
        with pytest.raises(RecordError, match="the private selection in the budget has not begun"):
            ledger.open("t0001", event, stage=stage)
    written = {"record": "open", "trial": "t0002", "attempt": 1, "event": budget.final.slot.to_json(), "stage": 0}
    append(path, written)
    with pytest.raises(RecordError, match="Expected the private selection in the budget of"):
        Ledger(path)


def test_no_candidate_is_trained_once_the_selection_has_a_winner(selected, path, budget):
    with pytest.raises(RecordError, match="it belongs to no stage of the budget"):
        selected.open("t0003", budget.selection.event)
    written = {"record": "open", "trial": "t0003", "attempt": 1, "event": budget.selection.event.to_json()}
    append(path, written)
    with pytest.raises(RecordError, match="Expected no candidate of the private selection in the budget"):
        Ledger(path)


def test_a_selection_that_has_a_winner_is_never_run_again(selected, path, budget):
    for broken in ((), ("Something broke.",)):
        with pytest.raises(RecordError, match="which has ended, got another one"):
            selected.select(replace(budget.selection, breaks=broken))
    text = path.read_text()
    path.write_text(text + text.splitlines()[-1] + "\n")
    with pytest.raises(RecordError, match="which has ended, got another one"):
        Ledger(path)


def test_no_other_selection_than_the_one_that_was_priced_is_entered(path, budget):
    ledger, event = Ledger(path), budget.selection.event
    ledger.set_budget(budget)
    louder = replace(budget.selection, event=replace(event, noise_multiplier=event.noise_multiplier / 2))
    for terms in (louder, replace(budget.selection, repetitions=replace(LAW, mean=60.0))):
        with pytest.raises(RecordError, match="Expected the private selection in the budget of"):
            ledger.select(terms)


def test_slots_without_a_selection_take_none(path, budget):
    ledger = Ledger(path)
    ledger.set_budget(Slots.of_plans(3.0, DELTA, (StagePlan(2, 0.2), StagePlan(1, 0.8)), TRIAL))
    with pytest.raises(RecordError, match="Expected the private selection in the budget of"):
        ledger.select(budget.selection)


def test_the_budget_comes_before_the_selection(path, budget):
    ledger = Ledger(path)
    ledger.select(budget.selection)
    with pytest.raises(RecordError, match="Expected the budget of the sweep before anything is spent"):
        ledger.set_budget(budget)


def test_a_final_louder_than_its_slot_is_refused(selected, budget):
    slot = budget.final.slot
    for louder in (
        replace(slot, noise_multiplier=0.99 * slot.noise_multiplier),
        slot.with_steps(51),
        replace(slot, sampling_rate=0.21),
    ):
        with pytest.raises(RecordError, match="it would spend more than a slot"):
            selected.open("t0002", louder, stage=0)


def test_a_killed_final_takes_spare_steps_and_is_refused_without_them(selected, budget):
    slot = budget.final.slot
    train(selected, "t0002", slot)
    selected.close("t0002", 25)
    train(selected, "t0002", slot, kept=20)  # five steps again, which are spare
    selected.close("t0002", 30)
    assert "no slot of stage 1 of the budget is left" in selected.refusal("t0002", slot, kept=25, stage=0)
    assert selected.refusal("t0002", slot, kept=30, stage=0) is None
    with pytest.raises(RecordError, match="no slot of stage 1 of the budget is left"):
        selected.open("t0002", slot, stage=0)


def test_a_second_final_is_refused_once_the_first_has_drawn(selected, budget):
    slot = budget.final.slot
    selected.open("t0002", slot, stage=0, marked=True)
    selected.close("t0002", 0)  # it died before its first noise
    train(selected, "t0002", slot)
    selected.close("t0002", 50)
    with pytest.raises(RecordError, match="no slot of stage 1 of the budget is left"):
        selected.open("t0003", slot, stage=0)


def test_the_winner_alone_may_stand_for_the_selection(selected, budget):
    selected.check_charged("t0001")
    with pytest.raises(RecordError, match="Expected what trial t0002 spent"):
        selected.check_charged("t0002")
    train(selected, "t0002", budget.final.slot)
    selected.check_charged("t0002")


def test_noisy_scores_of_candidates_and_final_are_priced_together(budget):
    terms = replace(budget.selection, scores=paid(5).event)
    with_scores = replace(budget, terms=terms, scores=paid(6), tests=paid(9))
    assert with_scores.price == budget.price
    loud = replace(terms, scores=paid(5, 2.0).event)
    dear = replace(budget, terms=loud, scores=paid(6, 2.0))
    assert dear.price == explored_epsilon(loud.scores, LAW, dear.scores.event, DELTA) > budget.price
    unpaid = replace(budget, terms=loud)
    assert unpaid.price >= selection_epsilon(loud.scores, LAW, DELTA) > budget.price
    assert replace(budget, tests=paid(9, 1.0)).price == claim(paid(9, 1.0).event, DELTA).epsilon


def test_scores_of_the_final_have_a_place_of_their_own(path, budget):
    terms = replace(budget.selection, scores=paid(5).event)
    ledger = Ledger(path)
    ledger.set_budget(replace(budget, terms=terms, scores=paid(6), tests=paid(1)))
    ledger.select(terms)
    slot = budget.final.slot
    assert "are taken" in ledger.refusal("t0002", slot, stage=0, scores=paid(7))
    train(ledger, "t0002", slot, scores=paid(6))
    ledger.enter_test("t0002", 1, paid(1))
    assert "are taken" in ledger.test_refusal(paid(1))


def test_the_statement_names_selection_and_final(budget):
    said = budget.prices(ChargedEvents(selection=budget.selection), DELTA)["everything"].statement
    assert "the best of a secret random number of independent trials (geometric, mean 6)" in said
    assert "the final that trains the configuration of its winner, cut before any row was read" in said
