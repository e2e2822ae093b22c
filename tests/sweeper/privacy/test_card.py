import json
import re
from dataclasses import fields, replace

import pytest

from clipless.audits.finding import AuditKind, Finding
from clipless.privacy.accounting.claim import claim as price_claim
from clipless.privacy.events import Composed, Relation
from clipless.privacy.exposure import Basis, Exposure, GroupCost, Risk
from clipless.privacy.noisy_counts import scores_event
from sweeper.adapters import dump
from sweeper.errors import RecordError
from sweeper.privacy.baselines import Baselines
from sweeper.privacy.card.make import charged_to
from sweeper.privacy.card.make import make_card as _make_card
from sweeper.privacy.claims import AccountClaim
from sweeper.privacy.entries import Entry
from sweeper.privacy.evaluation.paid_scores import planned_scores
from sweeper.privacy.exposures import expose_event, expose_price
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import GROWS, Price, whole_event
from sweeper.records import ClassCounts, ReleasedCurves, ScoreCurves, ScorePlan, SmoothedCounts, TrialStatus
from sweeper.results.display import point_in_words
from sweeper.rounding import round_up
from sweeper.store.jsonl import plain
from tests.factories import card_validator

LEDGER = {
    q: Price(epsilon=9.5, delta=1e-4, events=2, statement=f"{q} | twice.") for q in ("winner", "front", "everything")
}


def make_card(trial, point, claim, *, sweep="digits", ledger=LEDGER, attempts=(), **facts):
    """A card of a trial that was trained once, unless its attempts are given; it keeps to the schema."""
    card = _make_card(sweep=sweep, trial=trial, point=point, claim=claim, ledger=ledger, attempts=attempts, **facts)
    card_validator().validate(plain(card.to_json()))
    return card


@pytest.fixture
def point(make_point):
    return make_point("t0001", 4, 1.0, 0.8, 0.3, test={"accuracy": 0.79}, model="models/t0001-4.safetensors")


@pytest.fixture
def card(trial, point, claim):
    return make_card(trial, point, claim)


def test_the_card_prices_the_epoch_in_advance_and_afterwards(card, event):
    guarantee = card.to_json()["guarantee"]
    advance, afterwards = price_claim(event.with_steps(20), 1e-4), price_claim(event, 1e-4)
    assert guarantee["fixed_in_advance"] == {
        "epsilon": advance.epsilon,
        "rdp": advance.rdp,
        "pld": advance.pld,
        "steps": 20,
    }
    assert guarantee["chosen_afterwards"]["epsilon"] == afterwards.epsilon > advance.epsilon


def test_declared_numbers_keep_all_their_digits(trial, point, claim):
    """Six digits of 1.0000049e-05 are 1e-05, at which the price need not hold."""
    delta, account = 1.0000049e-5, AccountClaim("clinic", 3.0000049, 1.0000049e-5)
    ledger = {question: replace(price, delta=delta) for question, price in LEDGER.items()}
    trial = replace(trial, plan=replace(trial.plan, delta=delta))
    card = make_card(trial, point, claim, ledger=ledger)
    for text in (card.to_markdown(), card.prices(), *point_in_words(point, {}, ledger["winner"])[:1]):
        assert "1.0000049e-05" in text
        assert not re.search(r"1e-05|0\.00001\b", text)
    assert "costs epsilon 3.0000049 at delta 1.0000049e-05 together" in account.condition


def found(kind, attained, epsilon=1.2, **more):
    finding = {"delta": 1e-4, "confidence": 0.95, "p_value": 1.0, "contradicted": False} | more
    return Finding(kind=kind, subject="trial t0001", epsilon=epsilon, attained=attained, **finding)


def test_the_card_says_what_audits_attained_of_each_claim(card, trial, point, claim):
    assert "Audits: none; nothing has attacked these claims." in card.to_markdown()
    assert str(card) == card.to_markdown()
    assert repr(card).startswith("Privacy card: ")
    assert card.prices() in repr(card)
    audits = [found(AuditKind.STEP, 1.1), found(AuditKind.STEP, 1.1799), found(AuditKind.SWEEP, 1.95, 2.45, delta=0.01)]
    audited = make_card(trial, point, claim, audits=audits)
    line = next(line for line in audited.to_markdown().splitlines() if line.startswith("Audits:"))
    assert "the step audit attained epsilon 1.17 of the 1.2 claimed at delta 0.0001" in line
    assert "the sweep-price audit attained epsilon 1.95 of the 2.451 claimed at delta 0.01." in line
    assert "contradicts" not in line
    assert json.loads(json.dumps(audited.to_json()["audits"], allow_nan=False))[0]["attained"] == 1.1799


def test_the_card_does_not_hide_a_contradiction_behind_a_larger_share(trial, point, claim):
    audits = [
        found(AuditKind.STEP, 1.1),
        found(AuditKind.SWEEP, float("inf"), 0.0, contradicted=True),
        found(AuditKind.SWEEP, 0.9),
    ]
    card = make_card(trial, point, claim, audits=audits)
    text = card.to_markdown()
    assert "the sweep-price audit attained epsilon inf of the 0 claimed at delta 0.0001, which **contradicts" in text
    json.dumps(card.to_json(), allow_nan=False)


def test_the_card_says_what_the_model_was_made_from_and_that_it_costs_the_last_iterate(card, trial, point, claim):
    made = replace(point, made_from="slow-midpoint")
    free = make_card(trial, made, claim)
    assert free.to_json() == card.to_json() | {"made_from": "slow-midpoint"}
    text = free.to_markdown()
    assert "trial t0001, epoch 4, slow-midpoint" in text.splitlines()[0]
    assert "The weights are halfway between the weights of the epoch and an average of all steps" in text
    assert "cost what the last of these, epoch 4, costs" in text
    assert "made from" not in card.to_markdown()
    assert "halfway" not in card.to_markdown()


def test_whoever_signs_finds_every_fact(card, event):
    text = card.to_markdown()
    advance, afterwards = price_claim(event.with_steps(20), 1e-4), price_claim(event, 1e-4)
    for fact in (
        f"**({round_up(advance.epsilon)}, 0.0001)-differential privacy** for this model, if its configuration and epoch 4",
        f"**({round_up(afterwards.epsilon)}, 0.0001)-differential privacy** if the epoch was chosen among the 10 planned ones",
        f"{round_up(advance.rdp)}",
        f"{round_up(advance.pld)}",
        "one row is added to or removed from the training data",
        "`add-or-remove-one`",
        "N = 1000 training rows",
        "Poisson; each row joins each batch with probability q = 0.2, expected batch 200; 5 steps per epoch, 20 steps",
        "noise multiplier 2 for the composition",
        "`min-variance`",
        "secure generator (AES-256-CTR",
        "at 0.3 of the analytic worst case, so larger contributions are clipped to it",
        "| `1.weight` | 2.5 | 7.5 |",
        f"| the winner alone | 9.5 | 0.0001 | winner \\| twice. {GROWS} |",
        "declared public: scores on them cost nothing.",
        "- N is public.",
        "- The split.",
        "| accuracy | 0.8 | 0.79 |",
        "| certified@1/4 | 0.3 | not computed |",
        "Radii are in pixels in [0, 1]",
        "| training.loss.temperature | `0.25` |",
        "Model file: `models/t0001-4.safetensors`.",
    ):  # fmt: skip
        assert fact in text, fact
    assert "xploratory" not in text


def test_the_price_stands_beside_the_models_own_epsilon(card):
    own = round_up(card.to_json()["guarantee"]["fixed_in_advance"]["epsilon"])
    assert "**(9.5, 0.0001)-differential privacy** is the price of this model." in card.to_markdown()
    assert card.prices() == f"Price: epsilon 9.5 at delta 0.0001; its own epsilon (fixed in advance): {own}."


def test_one_price_stands_on_the_card_once(trial, point, claim):
    one = Price(epsilon=9.5, delta=1e-4, events=2, statement="Price: epsilon 9.5.")
    composed = make_card(trial, point, claim, ledger=dict.fromkeys(LEDGER, one)).to_markdown()
    assert f"| one model or all | 9.5 | 0.0001 | Price: epsilon 9.5. {GROWS} |" in composed
    fixed = make_card(trial, point, claim, ledger=dict.fromkeys(LEDGER, replace(one, fixed=True))).to_markdown()
    assert "| one model or all | 9.5 | 0.0001 | Price: epsilon 9.5. |" in fixed


def test_the_card_says_where_the_price_is_not_proven(trial, point, claim):
    steered = claim.with_chosen("batch_size")
    card = make_card(trial, point, steered, ledger=steered.qualify(LEDGER))
    said, text = "they choose batch_size; fix batch_size, or set privacy.sweep_epsilon.", card.to_markdown()
    assert said in card.prices()
    assert said in text.partition("## The price")[0]
    assert "not proven" not in make_card(trial, point, claim).to_markdown()


def test_a_card_without_prices_says_so_and_no_number(trial, point, claim):
    bare = make_card(trial, point, claim, ledger={})
    assert "neither number holds: *The price* does." in bare.to_markdown()
    assert bare.prices().startswith("The price is not known; its own epsilon (fixed in advance): ")


def test_an_exploratory_card_says_so_first(trial, point, claim):
    marked = replace(claim, exploratory=True, secure_generator=False, evaluation="exploratory", unit="patient")
    text = make_card(trial, replace(point, test=None, model=None), marked).to_markdown()
    assert text.split("\n\n")[1].startswith("> **EXPLORATORY: NO GUARANTEE.**")
    assert "an injected generator" in text
    assert "this card claims no guarantee" in text
    assert "one group of rows that share `patient` is added to" in text
    assert "Model file" not in text


def test_unusual_bounds_relations_and_prices_are_said(trial, point, claim, event):
    plan = replace(trial.plan, sensitivity_fraction=1.0)
    text = make_card(replace(trial, plan=plan), point, claim).to_markdown()
    assert "no gradient of a correct Lipschitz network is clipped" in text
    replaced = replace(event, relation=Relation.REPLACE_ONE)
    plan = replace(trial.plan, relation=Relation.REPLACE_ONE, event=replaced)
    text = make_card(replace(trial, plan=plan), point, claim).to_markdown()
    assert "one row of the training data is replaced by another" in text
    assert "the cross-check is absent" in text
    assert "| none |" in text
    plan = replace(trial.plan, event=replace(event, noise_multiplier=0.01))
    card = make_card(replace(trial, plan=plan), point, claim)
    assert "astronomically large" in card.to_markdown()
    assert "(inf, 0.0001)" in card.to_markdown()


@pytest.mark.parametrize(
    ("changes", "said", "unsaid"),
    [
        ({"method": "dp-sgd", "clip_norm": 0.7}, ["is clipped to norm 0.7", "the same on every entry"], "min-variance"),
        ({"follow_weights": True}, ["follows the weights released", "the largest values"], "clipped to norm"),
        ({"preliminary_steps": 3}, ["23 steps up to this epoch, 3 of them releases of statistics"], "quantile"),
        ({"freezing": {"layers": 2, "after": 0.25}}, ["share of 0.25", "the first 2 of the layers"], "quantile"),
        ({"clipping": {"kind": "linear"}}, ["falls on a public linear schedule", "the largest values"], "quantile"),
        (
            {"clipping": {"kind": "adaptive", "quantile": 0.8, "share": 0.01, "rate": 0.2}, "count_std": 12.5},
            ["follows the 0.8 quantile", "standard deviation 12.5", "part of the composition", "the largest values"],
            "clipped to norm",
        ),
        ({"method": "lip-dp-sgd"}, ["at 0.3 of", "divided by the norm of the example's own input"], "clipped to norm"),
        ({"method": "non-private"}, ["trained without noise", "Epsilon is infinite"], "Poisson; each row"),
    ],
)
def test_the_card_says_what_bounds_the_contribution_of_a_row(trial, point, claim, changes, said, unsaid):
    other = replace(trial, plan=replace(trial.plan, **changes))
    text = make_card(other, point, claim).to_markdown()
    mechanism = text.partition("## The mechanism")[2].partition("## The data")[0]
    assert all(sentence in mechanism for sentence in said)
    assert unsaid not in mechanism


def test_a_card_needs_a_plan_and_one_of_its_epochs(trial, point, claim):
    with pytest.raises(RecordError, match="Expected a plan of trial t0001"):
        make_card(replace(trial, plan=None), point, claim)
    for wrong in (replace(point, epoch=11), replace(point, epoch=0), replace(point, trial="t0002")):
        with pytest.raises(RecordError, match=r"Expected an epoch of trial t0001 from 1 to 10, got trial t000"):
            make_card(trial, wrong, claim)


def test_a_card_is_written_as_text_and_data(card, tmp_path):
    text, data = card.write(tmp_path)
    assert text.read_text().startswith("# Privacy card: digits, trial t0001, epoch 4\n\n## The guarantee")
    assert json.loads(data.read_text()) == json.loads(json.dumps(card.to_json()))


def test_the_last_epoch_of_a_trial_that_was_ended_early_costs_all_planned_ones(trial, point, claim):
    stopped = replace(trial, status=TrialStatus.STOPPED, reason="rank 9 of 9 at the rung of epoch 4")
    said = "The second number is the one that holds here"

    def card(trial, **last):
        return make_card(trial, point, claim, **last)

    for last in ({"last_epoch": 4}, {}):  # an unknown last epoch counts as this one
        text = card(stopped, **last).to_markdown()
        assert said in text
        assert "(rank 9 of 9 at the rung of epoch 4), so its last epoch was chosen by them" in text
        assert "costs the epsilon of all 10 planned epochs" in text
    assert said not in card(stopped, last_epoch=6).to_markdown()  # an earlier epoch than that at which it ended
    assert said not in card(trial, last_epoch=4).to_markdown()
    assert "no reason was recorded" in card(replace(stopped, reason="")).to_markdown()


def test_a_point_of_several_repeats_says_whose_numbers_it_has(trial, point, claim):
    plan = replace(trial.plan, repeats=3)
    options = {"point": point, "claim": claim, "ledger": {}}
    card = make_card(trial=replace(trial, plan=plan), **options)
    one = make_card(trial=trial, **options)
    guarantee, alone = card.to_json()["guarantee"], one.to_json()["guarantee"]
    assert guarantee["fixed_in_advance"] == alone["fixed_in_advance"]  # the first repeat's model
    assert guarantee["chosen_afterwards"]["steps"] == 3 * alone["chosen_afterwards"]["steps"]
    assert "those of all 3 repeats, whose mean scores were looked at" in card.to_markdown()
    assert "means over 3 trainings of this configuration; the model, and the test column, are those of the first" in (
        card.to_markdown()
    )
    assert "repeats" not in one.to_markdown()


# --- trials of several attempts


def afterwards(card):
    return card.to_json()["guarantee"]["chosen_afterwards"]


def test_one_attempt_and_attempts_that_go_on_from_each_other_cost_the_plan(card, trial, point, claim, event, tmp_path):
    options = {"trial": trial, "point": point, "claim": claim}
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.open("t0001", event)
    once = make_card(**options, attempts=charged_to("t0001", tmp_path / "ledger.jsonl"))
    ledger.close("t0001", 20)
    ledger.open("t0001", event, kept=20)
    ledger.open("t0002", event)
    went_on = make_card(**options, attempts=charged_to("t0001", tmp_path / "ledger.jsonl"))
    assert afterwards(once) == afterwards(went_on) == afterwards(card)
    assert once.to_markdown() == went_on.to_markdown() == card.to_markdown()


def test_a_trial_that_had_to_begin_anew_costs_every_training_of_it(trial, point, claim, event, tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl")
    for _ in range(2):
        ledger.open("t0001", event)
    ledger.close("t0001", 20)
    stopped = replace(trial, status=TrialStatus.STOPPED, reason="rank 9 of 9")
    options = {"trial": stopped, "point": point, "claim": claim}
    card = make_card(**options, attempts=charged_to("t0001", tmp_path / "ledger.jsonl"))
    both = price_claim(event.with_steps(100), 1e-4)
    assert afterwards(card) == {"epsilon": both.epsilon, "rdp": both.rdp, "pld": both.pld, "steps": 100}
    text = card.to_markdown()
    assert f"**({round_up(both.epsilon)}, 0.0001)-differential privacy** if the epoch was chosen" in text
    assert "This trial was begun 2 times, because a training was lost and could not go on" in text
    assert "costs the epsilon of all 10 planned epochs in its 2 trainings together." in text


def test_trainings_of_different_mechanisms_are_composed(trial, point, claim, event):
    other = replace(event, noise_multiplier=3.0)
    attempts = [Entry(trial="t0001", attempt=n, event=e) for n, e in enumerate((event, other), start=1)]
    options = {"trial": trial, "point": point, "claim": claim}
    card = make_card(**options, attempts=attempts)
    both = price_claim(Composed((event, other)), 1e-4)
    assert (afterwards(card)["epsilon"], afterwards(card)["steps"]) == (both.epsilon, 100)


# --- scores of private rows


@pytest.fixture
def noisy(trial, claim):
    """A trial whose scores are noisy, and the claim of its sweep."""
    std = {"validation": 0.0123, "test": 0.0456}
    scores = ScorePlan(
        names=("accuracy", "certified@1/4"),
        noise_multiplier=30.0,
        apart=True,
        std=std,
        rows={"validation": 100, "test": 50},
        epochs=tuple(range(1, 11)),
    )
    return replace(trial, plan=replace(trial.plan, scores=scores, repeats=2)), replace(claim, evaluation="private")


def test_the_card_of_noisy_scores_says_how_noisy_they_are_and_what_they_cost(noisy, point):
    trial, claim = noisy
    card = make_card(trial, point, claim)
    paid = price_claim(scores_event(30.0, 20, Relation.ADD_OR_REMOVE_ONE), 1e-4)
    content, text = card.to_json(), card.to_markdown()
    assert content["score_noise"]["of_the_trial"]["epsilon"] == paid.epsilon
    assert content["score_noise"]["of_the_trial"]["steps"] == 20
    advance = price_claim(trial.plan.event.with_steps(20), 1e-4)
    assert content["guarantee"]["fixed_in_advance"]["epsilon"] == advance.epsilon  # that of the training, as ever
    for fact in (
        "private: each score on them is a release of its own, with noise. *The price* covers these releases; an epsilon",
        "Scores (accuracy, certified@1/4) were released as counts with Gaussian noise: of multiplier 30 on validation rows",
        "of 0.0123 of a score, and of multiplier 55.61 on test rows, a standard deviation of 0.0456.",
        f"The 20 releases of validation scores that this trial planned cost the validation rows epsilon "
        f"{round_up(paid.epsilon)} at delta 0.0001.",
        "A row is in one split only, so that training and scores together cost the larger of their prices",
        "Every score is an estimate from releases with the noise stated above",
    ):
        assert fact in text


def test_the_card_says_that_scores_by_class_have_more_noise(noisy, point):
    trial, claim = noisy
    scores = replace(trial.plan.scores, names=("accuracy", "auroc", "balanced_accuracy"))
    text = make_card(replace(trial, plan=replace(trial.plan, scores=scores)), point, claim).to_markdown()
    assert "; auroc and balanced_accuracy have more, in proportion to one over the size of a class. The 20 rel" in text


def test_the_scores_of_every_training_of_a_trial_are_charged(noisy, point):
    trial, claim = noisy
    scores = planned_scores(trial.plan)
    event = whole_event(trial.plan)
    attempts = [Entry(trial="t0001", attempt=n, event=event, scores=scores) for n in (1, 2)]
    card = make_card(trial, point, claim, attempts=attempts)
    paid = price_claim(scores_event(30.0, 40, Relation.ADD_OR_REMOVE_ONE), 1e-4)
    assert card.to_json()["score_noise"]["of_the_trial"]["epsilon"] == paid.epsilon
    said = "The 40 releases of validation scores that this trial planned in its 2 trainings together cost the"
    assert said in card.to_markdown()


@pytest.mark.parametrize("changes", [{"apart": False}, {"relation": Relation.REPLACE_ONE}])
def test_the_card_says_when_training_and_scores_are_charged_together(noisy, point, changes):
    trial, claim = noisy
    plan = trial.plan
    if "relation" in changes:
        plan = replace(plan, **changes, event=replace(plan.event, **changes))
    else:
        plan = replace(plan, scores=replace(plan.scores, **changes))
    made = make_card(replace(trial, plan=plan), point, claim)
    assert "so that training and scores together cost their composition" in made.to_markdown()


def test_the_card_of_free_scores_says_nothing_of_their_noise(card):
    assert card.to_json()["score_noise"] is None
    assert "Every score carries" not in card.to_markdown()


COUNTS = ClassCounts(rows=(760, 240), decided=(970, 30), correct=(755, 25))
OPEN = Baselines(classes=("no", "yes"), majority={"test": 0.76})


def test_the_card_says_how_each_class_fares_and_warns_of_one_answer_for_all(trial, point, claim):
    facts = {"trial": trial, "point": replace(point, classes=COUNTS)}
    card = make_card(**facts, claim=replace(claim, baselines=OPEN))
    assert card.to_json()["classes"]["balanced_accuracy"] == pytest.approx(0.5488, abs=1e-4)
    text = card.to_markdown()
    assert "> **Nearly constant.** It gives nearly every row the same answer: 'no' for 97.0 % of the test rows." in text
    assert "The majority-class baseline has an accuracy of 0.76 on them." in text
    assert "| yes | 240 | 30 | 0.1042 | 0.8333 |" in text


def test_a_test_score_of_public_rows_has_its_interval_and_is_judged_by_it(trial, point, claim):
    tested = replace(point, classes=COUNTS, test={"accuracy": 0.78})
    card = make_card(trial=trial, point=tested, claim=replace(claim, baselines=OPEN))
    low, high = card.to_json()["scores"]["test_intervals"]["accuracy"]
    assert low < 0.76 < 0.78 < high
    text = card.to_markdown()
    assert f"| 0.78 [{low:.3f}, {high:.3f}] |" in text
    assert "In brackets are 95 % intervals for new rows of the same kind." in text
    assert "**On test rows this model is perhaps no better in accuracy than always predicting the most frequent" in text


def test_a_card_on_private_rows_has_no_counts_whatever_a_record_says(trial, point, claim):
    facts = {"trial": trial, "point": replace(point, classes=COUNTS)}
    card = make_card(**facts, claim=replace(claim, evaluation="private", baselines=OPEN))
    assert card.to_json()["classes"] is None
    assert "balanced" not in card.to_markdown().lower()


def test_the_card_says_how_smoothed_certificates_were_made(trial, point, claim):
    counts = SmoothedCounts(
        sigma=0.5, alpha=0.001, draws=10_000, selection_draws=100, rows=500, abstained=12, correct=474
    )
    card = make_card(trial, replace(point, smoothed=counts), claim)
    assert card.to_json()["smoothed"]["kind"] == "smoothed"
    assert (
        "Smoothed certificates of the test column: sigma 0.5, alpha 0.001 for each row, 10000 draws counted after 100 "
        "that chose the class, on 500 rows. The smoothed classifier was certified for the right class on 474 of them, "
        "and abstained on 12."
    ) in card.to_markdown()
    assert make_card(trial, point, claim).to_json()["smoothed"] is None


def test_the_card_of_released_curves_has_their_bounds(noisy, point):
    trial, claim = noisy
    scores = replace(trial.plan.scores, curves={"noise_multiplier": 4.0, "radii": 3, "two_classes": True})
    both = ScoreCurves(
        **{
            name: (0.5,)
            for name in (one.name for one in fields(ScoreCurves))
            if name not in ("hosmer_lemeshow", "p_value")
        }
        | {"auroc": (0.7, 0.82, 0.91), "hosmer_lemeshow": 3.25, "p_value": 0.125}
    )
    curves = ReleasedCurves(
        confidence=0.95,
        noise_multiplier=4.0,
        rows=250,
        radii=(0.0, 0.5),
        certified=(0.9, 0.6),
        certified_low=(0.8, 0.5),
        certified_high=(1.0, 0.7),
        scores=both,
    )
    released = replace(point, curves=curves)
    trial = replace(trial, plan=replace(trial.plan, scores=scores))
    card = make_card(trial, released, claim)
    text = card.to_markdown()
    for fact in (
        "of multiplier 4 on test rows, a standard deviation of 0.0456, read off a curve. The 20 releases",
        "released once, with noise multiplier 4 for all of them. Each lies between its bounds everywhere at once with a "
        "confidence of 95 %, noise and the choice of the 250 rows included.",
        "| accuracy | 0.9 | 0.8 | 1 |",
        "| certified at 0.5 | 0.6 | 0.5 | 0.7 |",
        "| AUROC | 0.82 | 0.7 | 0.91 |",
        "Hosmer-Lemeshow statistic 3.25 over 1 groups, p-value 0.12 against calibrated models under the same noise.",
    ):
        assert fact in text, fact
    assert card.to_json()["curves"]["scores"]["auroc"] == [0.7, 0.82, 0.91]
    plain = make_card(trial, point, claim)
    assert plain.to_json()["curves"] is None
    assert "read off curves" not in plain.to_markdown()


def test_the_card_says_what_each_price_means_to_a_person(trial, point, claim, event):
    exposure = Exposure(
        risk=Risk(caught=(0.02, 0.123456, 0.4), advantage=0.31, basis=Basis.PAIR),
        groups=tuple(
            GroupCost(rows=rows, epsilon=epsilon, shift=0.6, basis=Basis.PAIR, own=False)
            for rows, epsilon in ((2, 7.0), (4, 9.0), (8, float("inf")))
        ),
    )
    priced = {question: replace(answer, exposure=exposure) for question, answer in LEDGER.items()}
    card = make_card(trial, point, claim, ledger=priced)
    own = expose_event(event.with_steps(20), 1e-4)
    assert card.to_json()["exposure"]["fixed_in_advance"] == dump(own)
    text = card.to_markdown()
    assert "accuses 1 in 100 innocents finds at most 124 on average." in text
    caught, afterwards = (
        f"{round_up(100 * expose_event(e, 1e-4).risk.caught[1], 3)} %" for e in (event.with_steps(20), event)
    )
    assert f"| finds a row, accusing 1 % of innocents | {caught} | {afterwards} | 12.4 % |" in text
    assert f"| epsilon of a person with 2 rows, at delta 0.0001 | {round_up(own.groups[0].epsilon)} |" in text
    assert "| 60 % |" in text
    assert "from the whole privacy profile of what was done; epsilon and delta alone" in text
    assert "an epsilon is not known where nothing follows at this delta" in text
    (eight,) = (line for line in text.splitlines() if "epsilon of a person with 8 rows" in line)
    assert eight.endswith("| not known |")  # at the price, of which epsilon and delta alone are known
    assert "inf" not in eight


def test_a_winner_that_was_selected_privately_has_the_risk_of_its_selection_alone(trial, point, claim):
    exposure = expose_price(LEDGER["winner"], None)
    hidden = Price(epsilon=float("inf"), delta=1e-4, events=0)
    ledger = {"winner": replace(LEDGER["winner"], exposure=exposure), "front": hidden, "everything": hidden}
    text = make_card(trial, point, claim, ledger=ledger).to_markdown()
    assert exposure.risk.in_words() in text
    assert "| an attacker who knows all other rows | at the price |" in text
