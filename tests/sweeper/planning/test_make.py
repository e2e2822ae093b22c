"""The plan of a sweep: its budget, cut for the trials of its spec, and the noise that it gives them."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

import clipless
from clipless.datasets.tables.table import CATEGORY_CHANGES
from clipless.privacy.accounting.domination import dominates
from clipless.privacy.events import Relation
from sweeper.cli.check_tables import render_check
from sweeper.errors import SpecError
from sweeper.planning.estimate import estimate
from sweeper.planning.make import make_score_noise
from sweeper.planning.preview import preview
from sweeper.privacy.claims import CERTIFIED_MODEL, REHEARSED
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import price, whole_event
from sweeper.privacy.spending._composition import Composition
from sweeper.privacy.spending.filter import Filter
from sweeper.privacy.spending.slots import Slots
from sweeper.specification.search import SKETCH_SHARE
from sweeper.specification.spec import Spec
from sweeper.trials.trial import TrialRun
from tests.factories import plan_sweep

STAGES = [{"trials": 4, "share": 0.1}, {"trials": 1}]


def spec_of(content, *, privacy=None, **sections):
    content = {name: dict(fields) if isinstance(fields, dict) else fields for name, fields in content.items()}
    content["model"] |= {"width": 16}
    content["training"] |= {"epochs": 4, "batch_size": 256}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4, "stages": STAGES, **(privacy or {})}
    for section, fields in sections.items():
        content[section] = content.get(section, {}) | fields
    return Spec.from_mapping(content, "digits.yaml")


def plan_budget(spec, data):
    return plan_sweep(spec, data).spending


def plan_trial(spec, data, trial, budget, proposal=None):
    run = TrialRun(
        trial=trial,
        config=spec.space.resolve(proposal or {}),
        data=data,
        objectives=spec.objectives,
        seed=0,
        repeats=spec.search.repeats,
        slot=budget.slot_of(trial),
    )
    return run.plan_row().plan


def test_budget_plan_are_those_of_the_trials_that_the_spec_describes(content, digits):
    budget = plan_budget(spec_of(content), digits)
    rate = 256 / len(digits.train)
    assert [(s.slot.sampling_rate, s.slot.steps, s.trials, s.spare) for s in budget.stages] == [
        (rate, 20, 4, 5),
        (rate, 20, 1, 5),
    ]
    assert 0.98 * 3.0 < budget.price <= 3.0


def test_no_row_is_read_to_cut_a_budget(content, digits):
    spec = spec_of(content)
    rows = [replace(split, x=split.x * 0) for split in (digits.train, digits.validation, digits.test)]
    blind = replace(digits, **dict(zip(("train", "validation", "test"), rows, strict=True)))
    assert plan_budget(spec, blind) == plan_budget(spec, digits)


def test_repeats_and_private_statistics_are_in_the_slot(content, digits):
    content["model"]["standardise"] = True
    spec = spec_of(content, search={"repeats": 3}, privacy={"spare_epochs": 2})
    budget = plan_budget(spec, digits)
    steps = whole_event(plan_trial(spec, digits, "t0001", budget)).steps
    assert budget.stages[0].slot.steps == steps > 3 * 20
    assert budget.stages[0].spare == 2 * (steps // 4)


@pytest.mark.parametrize("trial", ["t0001", "t0005"])
def test_a_trial_has_the_noise_of_its_stage(content, digits, trial):
    spec = spec_of(content)
    budget = plan_budget(spec, digits)
    plan = plan_trial(spec, digits, trial, budget)
    assert whole_event(plan) == budget.slot_of(trial)
    assert plan.epsilon_curve[-1] == price([budget.slot_of(trial)], 1e-4).epsilon


@pytest.mark.sampled(2)
@pytest.mark.parametrize("repeats", [1, 2])
def test_trials_of_other_batch_sizes_and_lengths_fill_slots_that_dominate_them(content, digits, tmp_path, repeats):
    training = {"batch_size": [256, 128], "epochs": [4, 6]}
    spec = spec_of(content, training=training, search={"repeats": repeats})
    budget, ledger = plan_budget(spec, digits), Ledger(tmp_path / "ledger.jsonl")
    ledger.set_budget(budget)
    noises = set()
    for number, (batch, epochs) in enumerate([(256, 4), (128, 4), (256, 6), (128, 6)], start=1):
        proposal = {"training.batch_size": batch, "training.epochs": epochs}
        plan = plan_trial(spec, digits, f"t000{number}", budget, proposal)
        assert dominates(budget.stages[0].slot, whole_event(plan), 1e-4)
        ledger.open(f"t000{number}", whole_event(plan), stage=0)
        noises.add(plan.noise_multiplier)
    assert len(noises) >= 3
    assert "no slot" in ledger.refusal("t0006", whole_event(plan), stage=0)


def test_a_filter_keeps_the_budget(content, digits):
    content["model"] |= {"width": 16}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4, "epsilon": 1.0, "accounting": "filter"}
    spec = Spec.from_mapping(content)
    kept = plan_budget(spec, digits)
    assert isinstance(kept, Filter)
    assert (kept.epsilon, kept.delta) == (3.0, 1e-4)
    content["privacy"] = {"epsilon": 1.0, "delta": 1e-4}
    assert isinstance(plan_budget(Spec.from_mapping(content), digits), Composition)


def test_scores_of_private_rows_have_their_place_in_the_budget(content):
    data = clipless.datasets.load("digits", evaluation="private")
    spec = spec_of(content, data={"evaluation": "private"}, privacy={"score_noise": 40.0})
    plan = plan_sweep(spec, data)
    budget = plan.spending
    assert plan.shared.noise == make_score_noise(spec, data)
    assert isinstance(budget, Slots)
    assert budget.scores.event.steps == 4 + 6 + 2
    assert budget.price <= 3.0
    loud = spec_of(content, data={"evaluation": "private"}, privacy={"score_noise": 1.0})
    with pytest.raises(SpecError, match="Expected noise with which 12 releases of scores cost at most"):
        plan_budget(loud, data)
    replaced = {"score_noise": 40.0, "relation": Relation.REPLACE_ONE.value}
    with pytest.raises(SpecError, match=r"Expected add-or-remove-one, and data whose rows are assigned to splits"):
        plan_budget(spec_of(content, data={"evaluation": "private"}, privacy=replaced), data)


@pytest.mark.long
def test_scores_of_candidates_and_their_final_have_their_place_in_the_budget(content):
    data = clipless.datasets.load("digits", evaluation="private")
    content["search"] = {"selection": "private", "selection_mean": 4, "selection_share": 0.5}
    content["data"]["evaluation"] = "private"
    content["training"] = {"epochs": 4, "batch_size": 256}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4, "score_noise": 40.0, "spare_epochs": 2}
    budget = plan_budget(Spec.from_mapping(content), data)
    assert budget.shares == pytest.approx((0.5, 0.5))
    assert (budget.selection.scores.steps, budget.scores.event.steps, budget.tests.event.steps) == (4, 6, 10)
    assert budget.final.spare == 2 * budget.final.slot.steps // 4
    assert budget.selection.event.steps == budget.final.slot.steps
    assert budget.price <= 3.0
    content["privacy"]["score_noise"] = 1.0
    with pytest.raises(SpecError, match="Expected noise with which 6 releases of scores cost at most the b") as refused:
        plan_budget(Spec.from_mapping(content), data)
    (least,) = re.findall(r"raise it to ([\d.]+) or lower training.epochs", str(refused.value))
    content["privacy"]["score_noise"] = float(least)
    assert 2.0 < plan_budget(Spec.from_mapping(content), data).price <= 3.0


@pytest.mark.long
def test_check_shows_the_cut_of_the_budget(content, digits):
    spec, screen = spec_of(content), io.StringIO()
    plan = plan_sweep(spec, digits)
    previews, budget = preview(plan, digits), plan.spending
    Console(file=screen, width=120).print(render_check(plan, digits, previews))
    assert previews[0].plan.noise_multiplier == budget.stages[0].slot.noise_multiplier
    for stage in budget.stages:
        assert f"{stage.slot.noise_multiplier:.4g}" in screen.getvalue()
    assert "Price: epsilon 2." in screen.getvalue()


@pytest.mark.long
def test_a_sketch_is_a_part_of_the_budget_that_check_shows(content):
    data, screen = clipless.datasets.load("breast_cancer"), io.StringIO()
    content["data"], content["training"]["batch_size"] = {"name": "breast_cancer"}, 64
    content["training"]["learning_rate"] = {"log": [0.01, 0.1]}
    content["privacy"], content["search"] = {"sweep_epsilon": 3.0, "delta": 1e-4}, {"rehearse": "sketch", "trials": 5}
    plan = plan_sweep(Spec.from_mapping(content), data)
    budget = plan.spending
    assert (plan.rehearsals, plan.trials, budget.sketch_share) == (5, 2, pytest.approx(SKETCH_SHARE))
    assert budget.price <= 3.0
    assert sum("drawn from a private sketch of the training rows" in one for one in plan.claim.conditions) == 1
    assert REHEARSED not in plan.claim.public
    previews = preview(plan, data)
    Console(file=screen, width=120).print(render_check(plan, data, previews))
    shown = " ".join(screen.getvalue().split())
    assert (
        "5 configurations to rehearse on synthetic rows of a private sketch (search.trials), then 2 trials (" in shown
    )
    assert "1 1 0.3 % " in shown
    (chosen,) = [one for one in plan.chosen if one.field == "privacy.finals"]
    assert (chosen.value, chosen.because.partition(" comes")[0]) == ("auto", "a trial with 0.3 % of the signal")
    assert f"sketch 1 release 10 % {budget.sketch.noise_multiplier:.4g}" in shown
    found = estimate(plan, data, previews)
    assert (found.trials, found.rehearsals) == (2, 5)


def test_both_ends_of_a_front_have_their_place_in_the_budget_whatever_the_rows(content):
    """The cut, and how many scores are released, follow from public numbers: rows of zeros have the same plan."""
    content["data"] = {"name": "breast_cancer", "evaluation": "private"}
    content["training"] |= {"batch_size": 64, "learning_rate": {"log": [0.01, 0.1]}}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    spec = Spec.from_mapping(content)
    data = clipless.datasets.load("breast_cancer", evaluation="private")
    budget, noise = (plan := plan_sweep(spec, data)).spending, plan.shared.noise
    releases = [budget.most_scores(trial, noise) for trial in ("t0001", "t0002")]
    assert releases == [3, noise.final_scores] == [3, 6]
    assert budget.scores.event.steps == sum(releases) + 2  # a spare one for each stage
    assert budget.tests.event.steps == sum(releases)  # a test score for each point that the front may have
    assert budget.price <= 3.0
    rows = {name: getattr(data, name) for name in ("train", "validation", "test")}
    blind = replace(data, **{name: replace(one, x=one.x * 0, y=one.y * 0) for name, one in rows.items()})
    again = plan_sweep(spec, blind)
    assert (again.spending, again.chosen, again.announcement) == (budget, plan.chosen, plan.announcement)


# --- scores whose noise is planned


def private_plan(content, data, **changes):
    return plan_sweep(spec_of(content, data={"evaluation": "private"}, **changes), data)


def test_scores_that_the_budget_plans_use_the_budget_of_their_rows_and_no_more(content):
    data = clipless.datasets.load("digits", evaluation="private")
    plan = private_plan(content, data)
    budget, noise = plan.spending, plan.shared.noise
    assert noise.final_scores == 6
    assert budget.scores.event.steps == 4 + 6 + 2  # explorers, a final, a spare one each
    assert budget.tests.event.steps == 6
    for pool in (budget.scores, budget.tests):
        assert 0.98 * budget.epsilon < price([pool.event], budget.delta).epsilon <= budget.epsilon
    assert budget.price <= budget.epsilon


def test_a_sweep_that_resumes_keeps_the_noise_of_its_scores(content, monkeypatch):
    data = clipless.datasets.load("digits", evaluation="private")
    first = private_plan(content, data)
    monkeypatch.setattr(Slots, "plan_multipliers", lambda _: pytest.fail("planned again"))
    spec = spec_of(content, data={"evaluation": "private"})
    again = plan_sweep(spec, data, spending=first.spending, score_noise=first.course.score_noise)
    assert again.shared.noise == first.shared.noise


def test_a_filter_admits_every_score_that_is_planned_and_some_that_killed_attempts_draw_again(content):
    data = clipless.datasets.load("digits", evaluation="private")
    content["privacy"] = {"sweep_epsilon": 3.0, "epsilon": 1.0, "delta": 1e-4, "accounting": "filter"}
    content |= {"data": {"name": "digits", "evaluation": "private"}, "search": {"trials": 6}}
    content["training"] = {"epochs": 4, "batch_size": 256, "learning_rate": {"log": [0.01, 0.1]}}
    plan = plan_sweep(Spec.from_mapping(content), data)
    gaussian, noise = plan.spending.gaussian, plan.shared.noise
    for paid in (noise.paid(6 * 4 + 3), noise.paid_test(16)):
        assert 0.99 < gaussian.share([gaussian.cost(paid.event)]) <= 1.0


@pytest.mark.long
def test_rows_that_are_too_few_for_any_score_are_refused_with_what_suffices(content):
    data = clipless.datasets.load("digits", evaluation="private")
    said = (
        r"Expected at least \d+ validation rows, so that the noise of a score.*; "
        r"raise privacy.sweep_epsilon to [\d.]+, or hold more rows back \(data.splits\)$"
    )
    with pytest.raises(SpecError, match=said) as caught:
        private_plan(content, data, privacy={"sweep_epsilon": 0.05})
    least = float(str(caught.value).partition("sweep_epsilon to ")[2].partition(",")[0])
    assert private_plan(content, data, privacy={"sweep_epsilon": least}).shared.noise is not None
    with pytest.raises(SpecError, match="Expected at least"):
        private_plan(content, data, privacy={"sweep_epsilon": 0.85 * least})  # 2 digits, and found within 5 %


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("objective", "largest"), [("auroc", None), ("balanced_accuracy", 0.98)])
def test_rows_that_are_too_few_for_a_score_by_class_are_refused_with_what_suffices(objective, largest):
    data = clipless.datasets.load("breast_cancer", evaluation="private")
    data = replace(data, metadata=replace(data.metadata, largest_share=largest))
    content = {"name": "few", "data": {"name": "breast_cancer", "evaluation": "private"}}
    content |= {"privacy": {"sweep_epsilon": 2.0}, "search": {"trials": 1}}
    noise = plan_sweep(Spec.from_mapping(content), data).shared.noise  # of accuracy they are enough
    content["search"]["objectives"] = ["epsilon", objective]
    with pytest.raises(SpecError, match=rf"validation rows, so that the noise of {objective} at this") as caught:
        plan_sweep(Spec.from_mapping(content), data)
    needed = int(str(caught.value).partition("at least ")[2].partition(" ")[0])
    assert needed > noise.validation
    for rows, suffice in ((needed, True), (int(0.95 * needed), False)):
        one = replace(noise, names=("accuracy", objective), classes=2, validation=rows)
        found = one.expect("validation", 0.8, largest)
        error = found.auroc_error if objective == "auroc" else found.balanced_error
        assert (1.96 * error.std <= 0.2) is suffice


def test_noise_below_what_the_budget_pays_is_refused_with_the_least_that_fits(content):
    data = clipless.datasets.load("digits", evaluation="private")
    with pytest.raises(SpecError, match=r"score_noise=2\.0 .*; raise it to (\d+\.\d+)") as caught:
        private_plan(content, data, privacy={"score_noise": 2.0})
    least = float(str(caught.value).partition("raise it to ")[2].partition(",")[0])
    assert private_plan(content, data, privacy={"score_noise": least}).spending.price <= 3.0


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "evaluation", "value", "because"),
    [
        ("digits", "public", True, "rehearsals on public validation rows cost nothing"),
        ("digits", "private", False, "explorers find the configuration"),
        ("breast_cancer", "private", "sketch", "no row is public: a sketch of the table shows what to train for 10 %"),
    ],
)
def test_the_plan_says_what_it_rehearses_on_and_why(content, name, evaluation, value, because):
    data = clipless.datasets.load(name, evaluation=evaluation)
    content |= {"data": {"name": name, "evaluation": evaluation}, "search": {"trials": 4}}
    content["training"] = {"epochs": 4, "batch_size": 128, "learning_rate": {"log": [0.01, 0.1]}}
    content["privacy"] = {"sweep_epsilon": 3.0, "delta": 1e-4}
    spec = Spec.from_mapping(content)
    chosen = {one.field: one for one in plan_sweep(spec, data).chosen}
    assert chosen["search.rehearse"].value == value
    assert because in chosen["search.rehearse"].because
    assert ("privacy.score_noise" in chosen) is (evaluation == "private")


@pytest.mark.parametrize(("objectives", "certifies"), [(["epsilon", "accuracy"], False), (["certified@1/4"], True)])
def test_only_a_sweep_that_certifies_has_conditions_of_radii(objectives, certifies, content, digits):
    declared = replace(digits.metadata, conditions=(CATEGORY_CHANGES,))
    content["search"] = {"objectives": ["epsilon", *(one for one in objectives if one != "epsilon")]}
    claim = plan_sweep(Spec.from_mapping(content), replace(digits, metadata=declared)).claim
    assert {one in claim.conditions for one in (CATEGORY_CHANGES, CERTIFIED_MODEL)} == {certifies}
