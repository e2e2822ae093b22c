"""A budget in slots, and what it has no room for."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.domination import DOMINATION_SLACK, dominated_noise_multiplier, dominates
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.errors import RecordError
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import price
from sweeper.privacy.spending._stages import slots_epsilon
from sweeper.privacy.spending.filter import Filter, begun_blocks
from sweeper.privacy.spending.slots import Slots
from sweeper.specification.stages import StagePlan

DELTA = 1e-5
TINY = PoissonGaussian(noise_multiplier=1e6, sampling_rate=0.2, steps=1, relation=Relation.ADD_OR_REMOVE_ONE)
PLANS = (StagePlan(6, 0.1), StagePlan(2, 0.3), StagePlan(1, 0.6))


@pytest.fixture(scope="module")
def budget():
    trial = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)
    return Slots.of_plans(3.0, DELTA, PLANS, trial, spare=5)


@pytest.fixture
def ledger(tmp_path, budget):
    made = Ledger(tmp_path / "ledger.jsonl")
    made.set_budget(budget)
    return made


def train(ledger, trial, event, stage, **more):
    ledger.open(trial, event, stage=stage, marked=True, **more)
    ledger.draw(trial)


def test_the_slots_use_up_the_budget_and_no_more(budget):
    pools = tuple(stage.pool for stage in budget.stages)
    assert [pool.steps for pool in pools] == [305, 105, 55]
    exact = claim(Composed(pools), DELTA * (1 - DOMINATION_SLACK * 9)).epsilon
    assert budget.price == pytest.approx(exact, rel=1e-12)
    assert 0.985 * 3.0 < exact <= 3.0


def test_the_price_pays_for_the_slack_of_domination(budget):
    pools = tuple(stage.pool for stage in budget.stages)
    assert budget.price > claim(Composed(pools), DELTA).epsilon


def test_stages_have_their_shares_of_the_signal(budget):
    assert budget.shares == pytest.approx((0.1, 0.3, 0.6))
    noises = [stage.slot.noise_multiplier for stage in budget.stages]
    assert noises == sorted(noises, reverse=True)


def test_the_price_is_that_of_every_slot_whatever_was_used(ledger, budget):
    before = ledger.answers(DELTA)["everything"].epsilon
    train(ledger, "t0001", budget.stages[0].slot, 0)
    assert ledger.answers(DELTA)["everything"].epsilon == before == budget.price
    assert "before any row was read, used or not" in ledger.answers(DELTA)["winner"].statement


def test_spare_steps_and_unused_slots_are_priced(budget):
    first, *others = budget.stages
    for fewer in (replace(first, spare=0), replace(first, trials=5)):
        assert slots_epsilon((fewer, *others), DELTA, DELTA) < budget.price


def test_another_delta_has_another_price(budget):
    assert budget.price_at(1e-6) > budget.price > budget.price_at(1e-4)


def test_a_budget_is_read_back_as_it_was_written(ledger, budget):
    assert Ledger(ledger._file.path).budget == budget
    scored = replace(budget, scores=PaidScores(event=scores_event(9.0, 7, Relation.ADD_OR_REMOVE_ONE), apart=True))
    assert Slots.from_json(scored.to_json()) == scored


@pytest.mark.parametrize(("number", "stage"), [(1, 0), (6, 0), (7, 1), (8, 1), (9, 2), (10, 2)])
def test_a_trial_belongs_to_a_stage_by_its_number(budget, number, stage):
    assert budget.stage_of(f"t{number:04d}") == stage
    assert budget.slot_of(f"t{number:04d}") == budget.stages[stage].slot


@pytest.mark.parametrize("epsilon", [pytest.param(1e-12, marks=pytest.mark.long), 1e7])
def test_a_budget_that_no_noise_meets_is_refused(budget, epsilon):
    with pytest.raises(AccountingError, match="Expected a budget that"):
        Slots.of_plans(epsilon, DELTA, PLANS, budget.stages[0].slot)


def test_a_trial_louder_than_its_slot_is_refused(ledger, budget):
    quiet, loud = budget.stages[0].slot, budget.stages[2].slot
    for event in (loud, replace(quiet, noise_multiplier=0.999 * quiet.noise_multiplier), quiet.with_steps(51)):
        refused = ledger.refusal("t0001", event, stage=0)
        assert refused == "it would spend more than a slot of stage 1 of the budget, with noise multiplier " + (
            f"{quiet.noise_multiplier:.4g}"
        )
        with pytest.raises(RecordError, match="would spend more than a slot"):
            ledger.open("t0001", event, stage=0)
    assert ledger.entries() == ()
    assert ledger.refusal("t0001", loud, stage=2) is None


@pytest.mark.parametrize("stage", [None, -1, 3])
def test_a_training_without_a_stage_of_the_budget_is_refused(ledger, budget, stage):
    assert "belongs to no stage" in ledger.refusal("t0001", budget.stages[0].slot, stage=stage)


def test_a_slot_is_not_refilled_once_noise_was_drawn(ledger, budget):
    slot = budget.stages[2].slot
    train(ledger, "t0009", slot, 2)
    ledger.close("t0009", 10)  # ended early: its plan is charged all the same
    for steps in (50, 10):
        refused = ledger.refusal("t0010", slot.with_steps(steps), stage=2)
        assert "no slot of stage 3 of the budget is left for it" in refused


def test_a_slot_is_free_again_if_no_noise_was_drawn(ledger, budget):
    slot = budget.stages[2].slot
    ledger.open("t0009", slot, stage=2, marked=True)
    assert ledger.refusal("t0010", slot, stage=2) is not None
    ledger.close("t0009", 0)
    assert ledger.refusal("t0010", slot, stage=2) is None


def test_a_killed_attempt_takes_spare_steps(ledger, budget):
    slot = budget.stages[2].slot
    train(ledger, "t0009", slot, 2)
    ledger.close("t0009", 25)  # killed in its fifth epoch of five steps; its checkpoint has four
    train(ledger, "t0009", slot, 2, kept=20)
    ledger.close("t0009", 45)
    assert "no slot" in ledger.refusal("t0009", slot, stage=2, kept=40)  # five spare steps were all
    assert ledger.refusal("t0009", slot, stage=2, kept=45) is None  # nothing was lost this time


def test_a_killed_explorer_takes_a_slot_that_no_trial_has(ledger, budget):
    slot = budget.stages[0].slot
    for number in range(1, 6):
        train(ledger, f"t000{number}", slot, 0)
    ledger.close("t0005", 50)
    train(ledger, "t0005", slot, 0)  # begins anew
    assert "no slot" in ledger.refusal("t0006", slot, stage=0)
    assert ledger.refusal("t0006", slot.with_steps(5), stage=0) is None


def test_an_attempt_that_was_killed_before_its_first_checkpoint_takes_what_it_drew(ledger, budget):
    slot = budget.stages[2].slot
    train(ledger, "t0009", slot, 2)
    assert ledger.refusal("t0009", slot, stage=2) is not None  # how far it came is not known
    ledger.close("t0009", 5)
    train(ledger, "t0009", slot, 2)  # begins anew: five steps are spare
    ledger.close("t0009", 1)
    assert "no slot" in ledger.refusal("t0009", slot, stage=2)
    assert "no slot" in ledger.refusal("t0010", slot.with_steps(1), stage=2)


def test_the_only_trial_of_a_stage_may_lose_steps_at_another_rate(ledger, budget):
    """Nine in ten of the spare steps' share of its own; at twice that its slot and all of them do not dominate it."""
    stage = budget.stages[2]
    noise = 1.002 * dominated_noise_multiplier(stage.slot, 0.1, 100, DELTA)
    event = replace(stage.slot, sampling_rate=0.1, steps=100, noise_multiplier=noise)
    assert dominates(stage.pool, event.with_steps(109), DELTA)
    train(ledger, "t0009", event, 2)
    ledger.close("t0009", 60)
    for kept in (40, 0):
        assert "no slot" in ledger.refusal("t0009", event, stage=2, kept=kept)
    train(ledger, "t0009", event, 2, kept=51)
    assert "no slot" in ledger.refusal("t0010", stage.slot.with_steps(1), stage=2)
    ledger.close("t0009", 90)
    assert "no slot" in ledger.refusal("t0009", event, stage=2, kept=80)
    several = budget.stages[1]
    assert several.needs(replace(event, noise_multiplier=9.0), 109, DELTA) == 2 * several.slot.steps


def test_a_trial_of_another_rate_takes_whole_slots(ledger, budget):
    slot = budget.stages[1].slot
    noise = dominated_noise_multiplier(slot, 0.1, 100, DELTA)
    event = replace(slot, sampling_rate=0.1, steps=100, noise_multiplier=noise)
    train(ledger, "t0007", event, 1)
    ledger.close("t0007", 1)
    train(ledger, "t0007", event, 1, kept=1)  # no step was lost: the same slot
    ledger.close("t0007", 60)
    assert ledger.refusal("t0008", slot, stage=1) is None
    train(ledger, "t0007", event, 1, kept=51)  # nine steps were lost: another slot, as a whole
    assert "no slot" in ledger.refusal("t0008", slot, stage=1)


def test_a_budget_comes_before_everything_else_and_once(tmp_path, budget):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open("t0001", budget.stages[0].slot)
    for made in (ledger, ledger_with(tmp_path / "other.jsonl", budget)):
        with pytest.raises(RecordError, match="Expected the budget of the sweep before anything is spent"):
            made.set_budget(budget)


def ledger_with(path, budget):
    made = Ledger(path)
    made.set_budget(budget)
    return made


def paid(releases, noise=9.0, *, apart=True):
    return PaidScores(event=scores_event(noise, releases, Relation.ADD_OR_REMOVE_ONE), apart=apart)


def test_scores_of_private_rows_need_room_of_their_own(tmp_path, budget):
    slot = budget.stages[0].slot
    without = ledger_with(tmp_path / "a.jsonl", budget)
    assert without.refusal("t0001", slot, stage=0, scores=paid(4)) == (
        "the budget of the sweep has nothing for scores of private validation rows"
    )
    assert "has nothing for scores of private test rows" in without.test_refusal(paid(1))
    scored = ledger_with(tmp_path / "b.jsonl", replace(budget, scores=paid(7), tests=paid(2)))
    for louder in (paid(4, noise=8.9), paid(4, apart=False)):
        assert "less noise than the budget" in scored.refusal("t0001", slot, stage=0, scores=louder)
    train(scored, "t0001", slot, 0, scores=paid(4))
    assert "the 7 releases of scores of private validation rows in the budget are taken" in scored.refusal(
        "t0002", slot, stage=0, scores=paid(4)
    )
    assert scored.refusal("t0002", slot, stage=0, scores=paid(3)) is None
    scored.enter_test("t0001", 1, paid(2))
    with pytest.raises(RecordError, match="the 2 releases of scores of private test rows in the budget are taken"):
        scored.enter_test("t0001", 2, paid(1))


def test_scores_that_cost_more_than_the_training_are_the_price(budget):
    costly = replace(budget, scores=paid(100, noise=2.0))
    assert costly.price == price([paid(100, noise=2.0).event], DELTA).epsilon > budget.price


def test_a_stage_needs_steps_or_slots(budget):
    stage = budget.stages[1]
    slot = stage.slot
    assert stage.needs(slot, 50, DELTA) == 50
    assert stage.needs(replace(slot, noise_multiplier=2 * slot.noise_multiplier), 7, DELTA) == 7
    assert stage.needs(replace(slot, noise_multiplier=2 * slot.noise_multiplier, steps=100), 7, DELTA) == 50
    assert stage.needs(replace(slot, sampling_rate=0.1, steps=100), 101, DELTA) == 100
    assert stage.needs(slot.with_steps(0), 0, DELTA) == 0


@pytest.fixture
def filtered(tmp_path, event):
    epsilon = 1.1 * price([event] * 3, DELTA).epsilon
    return ledger_with(tmp_path / "ledger.jsonl", Filter(epsilon=epsilon, delta=DELTA))


def test_a_filter_takes_trainings_as_long_as_they_fit(filtered, event):
    taken = 0
    while (refused := filtered.refusal(f"t{taken}", event)) is None and taken < 9:
        train(filtered, f"t{taken}", event, None)
        taken += 1
    assert "privacy.sweep_epsilon" in refused
    assert 2 <= taken <= 3
    assert claim(Composed((event,) * taken), DELTA).epsilon <= filtered.budget.epsilon
    filtered.close("t0", 10)
    assert filtered.refusal("u", event.with_steps(40)) is not None  # it had no block but the whole training


def test_a_filter_refunds_blocks_that_never_began(filtered, event):
    """Of blocks of 10, 10 and 30 steps the third never began; its room is that of a block, no larger."""
    while filtered.refusal("u", event, ends=[10, 20]) is None:
        filtered.open(f"t{len(filtered.entries())}", event, ends=[10, 20])
    trials = [entry.trial for entry in filtered.entries()]
    assert len(trials) >= 2
    filtered.close("t0", 11)
    assert filtered.refusal("u", event.with_steps(30)) is None
    assert filtered.refusal("u", event.with_steps(110)) is not None
    reopened = Ledger(filtered._file.path)
    assert reopened.entries()[0].ends == (10, 20)
    assert reopened.refusal("u", event.with_steps(30)) is None
    filtered.close("t1", 21)  # the third block has begun
    first, second, *_ = filtered.entries()
    costs = filtered.budget.gaussian.cost
    assert filtered.budget.share([first]) < filtered.budget.share([second])
    blocks = [costs(event.with_steps(steps)) for steps in (10, 10, 30)]
    assert filtered.budget.share([second]) == filtered.budget.gaussian.share(blocks)


@pytest.mark.parametrize(
    ("drawn", "blocks"),
    [
        (0, []),
        (1, [16]),
        (16, [16]),
        (17, [16, 48]),
        (64, [16, 48]),
        (65, [16, 48, 96]),
        (160, [16, 48, 96]),
        (161, [16, 48, 96, 10]),
        (175, [16, 48, 96, 10, 10]),
    ],
)
def test_a_block_that_has_begun_counts_whole(drawn, blocks):
    assert list(begun_blocks(160, (16, 64), drawn)) == blocks
    assert list(begun_blocks(160, (0, 16, 64, 160, 999), drawn)) == blocks


def test_attempts_that_go_on_draw_the_rest_of_their_blocks_and_new_ones_their_own(filtered, event):
    def share():
        return filtered.budget.share(filtered.entries())

    filtered.open("t", event, ends=[10])
    whole = share()
    filtered.close("t", 30)
    filtered.open("t", event, kept=25)  # five steps are drawn again
    spare = filtered.budget.gaussian.share([filtered.budget.gaussian.cost(event.with_steps(3))])
    assert share() == pytest.approx(whole + 2 * spare, rel=1e-6)
    filtered.close("t", 45)
    assert share() == pytest.approx(whole, rel=1e-9)  # thirty steps and twenty
    filtered.open("t", event, ends=[10])
    assert share() == pytest.approx(2 * whole, rel=1e-9)


def test_a_filter_costs_its_budget_whatever_was_run(filtered):
    assert filtered.answers(DELTA)["everything"].epsilon == filtered.budget.epsilon
    assert "kept by a privacy filter" in filtered.answers(DELTA)["everything"].statement
    assert filtered.answers(DELTA / 2)["everything"].epsilon == float("inf")


def test_a_filter_counts_trainings_that_have_not_drawn_yet(filtered, event):
    filtered.open("t", event.with_steps(100), marked=True)
    assert filtered.refusal("u", event.with_steps(100)) is not None
    filtered.close("t", 0)
    assert filtered.refusal("u", event.with_steps(100)) is None


def test_a_filter_gives_room_away_once(filtered, event):
    """Two trainings end early, a third is admitted on that; none of the first two may then have run any further."""
    for trial in ("t0", "t1"):
        train(filtered, trial, event, None, ends=(1,))
        filtered.close(trial, 1)
    train(filtered, "t2", event, None)
    train(filtered, "t3", event, None)
    for trial in ("t0", "t1"):
        assert not filtered.understates(trial, 1)
        filtered.close(trial, 1)
        assert filtered.understates(trial, 2)
        with pytest.raises(RecordError, match="Expected no more than the 1 steps with which trial"):
            filtered.close(trial, 2)
    path = filtered._file.path
    with path.open("a") as file:
        file.write('{"record": "close", "trial": "t0", "attempt": 1, "steps": 50}\n')
    with pytest.raises(RecordError, match="has given the rest of its budget away"):
        Ledger(path)


@pytest.mark.parametrize("apart", [True, False])
def test_a_filter_counts_scores_of_test_rows_where_a_training_asks(filtered, event, apart):
    train(filtered, "t", event, None)
    filtered.enter_test("t", 1, paid(releases_beside(filtered.budget, event, event), apart=apart))
    assert (filtered.refusal("u", event) is None) == apart


def releases_beside(budget, event, *events):
    """As many releases as have room beside events, but not beside one more."""
    fixed = budget.gaussian
    return next(n for n in range(1, 9999) if not fixed.fits(map(fixed.cost, [paid(n).event, event, *events])))


def test_a_filter_counts_of_trainings_that_ended_the_scores_they_made_and_gives_their_room_away_once(filtered):
    fixed, tiny = filtered.budget.gaussian, TINY.with_steps(50)
    most = next(n for n in range(1, 9999) if not fixed.fits([fixed.cost(paid(n + 1).event)]))
    train(filtered, "t", tiny, None, scores=paid(most))
    assert "has no room for it" in filtered.refusal("u", tiny, scores=paid(1))
    filtered.close("t", 20, scored=2)
    assert "has no room for it" in filtered.refusal("u", tiny, scores=paid(most - 1))
    train(filtered, "u", tiny, None, scores=paid(most - 2))
    filtered.close("t", 20, scored=1)
    with pytest.raises(RecordError, match="Expected no more than the 2 scores with which trial t was closed"):
        filtered.close("t", 20, scored=3)


@pytest.mark.parametrize("kept", [14, 0], ids=["goes on", "begins anew"])
def test_a_filter_counts_of_killed_attempts_the_scores_they_made(filtered, kept):
    """Two members of a stack are killed together and entered again together, before either has drawn."""
    fixed, tiny = filtered.budget.gaussian, TINY.with_steps(50)
    most = next(n for n in range(1, 9999) if not fixed.fits([fixed.cost(paid(n + 1).event)]))
    planned = most // 2 - 1
    for trial in "tu":
        filtered.open(trial, tiny, scores=paid(planned), marked=True)
        filtered.draw(trial)
    for trial in "tu":
        filtered.close(trial, 21, scored=1)
    for trial in "tu":
        assert filtered.refusal(trial, tiny, kept=kept, scores=paid(planned)) is None
        filtered.open(trial, tiny, kept=kept, scores=paid(planned), marked=True)
    assert "has no room for it" in filtered.refusal("v", tiny, scores=paid(most - 2 * planned - 1))


def test_a_filter_counts_a_training_that_has_not_drawn_where_scores_of_test_rows_ask(filtered, event):
    scores = paid(releases_beside(filtered.budget, event), apart=False)
    assert filtered.test_refusal(scores) is None
    filtered.open("t", event, marked=True)
    assert "has no room for it" in filtered.test_refusal(scores)


@given(st.lists(st.tuples(st.sampled_from(["train", "tests", "close"]), st.integers(1, 60)), max_size=30))
@settings(max_examples=25, deadline=None)
def test_whatever_a_filter_admits_in_whatever_order_adds_up_to_its_budget(asked):
    """Splits that are not apart: trainings, some of which end early, and scores of validation and of test rows."""
    event = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.2, steps=60, relation=Relation.ADD_OR_REMOVE_ONE)
    budget, drawn = Filter(epsilon=price([event] * 3, DELTA).epsilon, delta=DELTA), []
    with tempfile.TemporaryDirectory() as folder:
        add_up(ledger_with(Path(folder) / "ledger.jsonl", budget), event, asked, drawn)


def add_up(ledger, event, asked, drawn):
    for number, (what, count) in enumerate(asked, start=1):
        trial, scores = f"t{number:04d}", paid(count, apart=False)
        if what == "tests" and ledger.test_refusal(scores) is None:
            ledger.enter_test(trial, 1, scores)
            drawn.append(scores.event)
        if what != "tests" and ledger.refusal(trial, event, ends=[20], scores=scores) is None:
            ledger.open(trial, event, ends=[20], scores=scores, marked=True)
            ledger.draw(trial)
            steps = count if what == "close" else event.steps
            if what == "close":
                ledger.close(trial, steps, scored=count)
            drawn += [event.with_steps(20), event.with_steps(40 if steps > 20 else 0), scores.event]
        fixed = ledger.budget.gaussian
        assert fixed.fits(map(fixed.cost, drawn))


@pytest.mark.parametrize("apart", [True, False])
def test_a_filter_counts_scores(filtered, event, apart):
    fixed = filtered.budget.gaussian
    releases = next(n for n in range(1, 9999) if fixed.share([fixed.cost(paid(n).event)]) > 0.55)
    train(filtered, "t", event, None, scores=paid(releases, apart=apart))
    assert (filtered.refusal("u", event) is None) == apart
    assert filtered.refusal("u", event, scores=paid(releases, apart=apart)) is not None
    assert (filtered.test_refusal(paid(releases, apart=apart)) is None) == apart
    assert filtered.test_refusal(paid(2 * releases, apart=apart)) is not None


@pytest.mark.sampled(4)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("share", [0.05, 0.3])
def test_slots_and_a_sketch_cost_no_more_than_the_budget_and_no_less_than_both_composed(relation, share):
    trial = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=50, relation=relation)
    budget = Slots.of_plans(2.0, DELTA, PLANS, trial, spare=5, sketch_share=share)
    every = Composed((*(stage.pool for stage in budget.stages), budget.sketch))
    assert claim(every, DELTA).epsilon <= budget.price <= 2.0
    assert budget.price == pytest.approx(claim(every, DELTA * (1 - DOMINATION_SLACK * 9)).epsilon, rel=1e-12)
    assert budget.price > slots_epsilon(budget.stages, DELTA, DELTA)
    assert (budget.sketch.sampling_rate, budget.sketch.steps, budget.sketch.relation) == (1.0, 1, relation)
    for delta in (1e-4, 1e-3):
        assert budget.price_at(delta) >= claim(every, delta).epsilon


@pytest.mark.long
def test_a_sketch_has_its_share_of_one_release_that_costs_the_whole_budget():
    trial = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)
    budget = Slots.of_plans(2.0, DELTA, PLANS, trial, sketch_share=0.1)
    alone = claim(replace(budget.sketch, noise_multiplier=budget.sketch.noise_multiplier * 0.1**0.5), DELTA).epsilon
    assert 0.98 * 2.0 <= alone <= 2.0
    assert budget.sketch_share == pytest.approx(0.1)
    parts = budget.parts()
    assert [part.name for part in parts] == ["sketch", "1", "2", "3"]
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    assert budget.share([]) == pytest.approx(0.1)
    assert "for a sketch and 6 + 2 + 1 trials" in budget.in_words(DELTA, lambda: None)
    assert Slots.from_json(budget.to_json()) == budget
    assert all(cut.sketch is not None for cut in budget.other_cuts().values())


def test_a_ledger_takes_the_sketch_of_its_budget_once(tmp_path):
    trial = PoissonGaussian(noise_multiplier=0.0, sampling_rate=0.2, steps=50, relation=Relation.ADD_OR_REMOVE_ONE)
    sketched = Slots.of_plans(2.0, DELTA, PLANS, trial, sketch_share=0.1)
    ledger = Ledger(tmp_path / "ledger.jsonl")
    with pytest.raises(RecordError, match=r"Expected the sketch that the budget in .* has room for"):
        ledger.enter_sketch(sketched.sketch)
    ledger.set_budget(sketched)
    louder = replace(sketched.sketch, noise_multiplier=0.99 * sketched.sketch.noise_multiplier)
    with pytest.raises(RecordError, match=r"Expected the sketch that the budget in .* has room for"):
        ledger.enter_sketch(louder)
    ledger.enter_sketch(sketched.sketch)
    for again in (ledger, Ledger(ledger.path)):
        assert again.sketch == sketched.sketch
        with pytest.raises(RecordError, match=r"one sketch of the training rows .* got a second one"):
            again.enter_sketch(sketched.sketch)
    assert ledger.rows == 2
    ledger.path.write_text(ledger.path.read_text() + ledger.path.read_text().splitlines()[1] + "\n")
    with pytest.raises(RecordError, match="a second one"):
        Ledger(ledger.path)


def test_a_budget_without_a_sketch_has_no_room_for_one(ledger):
    with pytest.raises(RecordError, match=r"Expected the sketch that the budget in .* has room for"):
        ledger.enter_sketch(replace(TINY, sampling_rate=1.0))
