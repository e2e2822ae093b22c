"""Smoothed certificates of a trial and of the front: never of private rows, never taken for certificates of a model."""

from dataclasses import replace

import pytest
import torch

from clipless import zoo
from clipless.certificates.smoothed import SmoothedDecisions, Smoothing, certify_smoothed
from clipless.datasets import Evaluation, load
from sweeper.errors import SpecError
from sweeper.records import Objective
from sweeper.specification import objectives
from sweeper.specification.search import SmoothingSettings, plan_smoothing
from sweeper.specification.spec import Spec
from sweeper.trials import smoothed
from sweeper.trials.free_points import free_points
from sweeper.trials.metrics import check_metrics
from sweeper.trials.smoothed import SmoothedScorer
from tests.factories import make_run, spec_error

SPEC = {
    "name": "smooth",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 16, "input_clip": 6.0},
    "training": {"epochs": 2, "batch_size": 256, "input_noise": 0.1, "copies": 2},
    "privacy": {"noise_multiplier": 0.6, "delta": 1e-5, "audit": "none"},
    "search": {
        "objectives": ["epsilon", "accuracy", "smoothed@0.1"],
        "metrics": ["certified@0.1", "smoothed@1/4"],
        "trials": 1,
        "smoothing": {"sigma": 0.25, "draws": 40, "rows": 30, "test_draws": 80, "test_rows": 20},
    },
}
PLAN = Spec.from_mapping(SPEC).search.smoothed


@pytest.fixture(scope="module")
def digits():
    return load("digits")


@pytest.fixture(scope="module")
def trained(digits):
    run = make_run(digits, Spec.from_mapping(SPEC))
    return run, list(run.epoch_rows())


def test_an_epoch_has_few_draws_of_the_objective_and_the_model_is_measured_by_itself(trained, digits):
    run, rows = trained
    assert all("smoothed@0.1" in row.values for row in rows)
    assert "smoothed@1/4" in rows[-1].values
    assert not any(row.free for row in rows)  # each model made from iterates would cost as many draws
    few = digits.validation.take(torch.arange(30))
    found = certify_smoothed(run.model, few.x, Smoothing(sigma=0.25, draws=40))
    hits = (found.decided == few.y) & (found.radii > 0.1)
    assert rows[-1].values["smoothed@0.1"] == pytest.approx(float(hits.double().mean()))
    assert rows[-1].values["smoothed@1/4"] <= rows[-1].values["smoothed@0.1"]


def test_test_rows_get_more_draws_and_say_how(trained, digits):
    run, _ = trained
    scores, counts = SmoothedScorer(PLAN.names, digits.metadata, PLAN, test=True)(run.model, digits.test)
    assert set(scores) == {"smoothed@0.1", "smoothed@1/4"}
    assert (counts.sigma, counts.alpha, counts.draws, counts.selection_draws, counts.rows) == (0.25, 0.001, 80, 20, 20)
    assert counts.correct + counts.abstained <= counts.rows
    assert scores["smoothed@0.1"] <= counts.correct / counts.rows


def test_between_rows_it_can_be_ended_and_says_how_many_passes_it_takes(trained, digits, monkeypatch):
    run, _ = trained
    monkeypatch.setattr(smoothed, "DRAWS_AT_ONCE", 160)
    whole = SmoothedScorer(PLAN.names, digits.metadata, PLAN, test=True)
    assert whole.passes(digits.test) == 20 * (80 + 20)
    assert SmoothedScorer(["accuracy"], digits.metadata, PLAN, test=True).passes(digits.test) == 0
    seen = []
    pieces = SmoothedScorer(PLAN.names, digits.metadata, PLAN, test=True, between=lambda: seen.append(1))
    assert pieces(run.model, digits.test) == whole(run.model, digits.test)
    assert len(seen) == 10  # of twenty rows, two at a time

    def end():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SmoothedScorer(PLAN.names, digits.metadata, PLAN, between=end)(run.model, digits.test)


def scorer_of(radii, decided, declared, monkeypatch, **changes):
    rows = smoothed_rows(decided, radii)
    monkeypatch.setattr(smoothed, "certify_smoothed", lambda *_: rows)
    plan = replace(plan_smoothing(["smoothed@0.5"], SmoothingSettings(), 0), **changes)
    return SmoothedScorer(plan.names, declared, plan)


def smoothed_rows(decided, radii):
    return SmoothedDecisions(torch.tensor(decided), torch.tensor(radii, dtype=torch.float64))


def test_abstentions_and_wrong_classes_count_as_not_certified(digits, monkeypatch):
    few = digits.validation.take(torch.arange(4))
    right = few.y.tolist()
    decided = [right[0], -1, (right[2] + 1) % 10, right[3]]
    scorer = scorer_of([0.6, 0.0, 9.0, 0.5], decided, digits.metadata, monkeypatch)
    scores, counts = scorer(None, few)
    assert scores == {"smoothed@0.5": 0.25}  # 0.5 is not greater than 0.5
    assert (counts.abstained, counts.correct) == (1, 2)


def test_sigma_and_radii_are_in_raw_units(digits, monkeypatch):
    declared = replace(digits.metadata, input_gain=4.0)
    few = digits.validation.take(torch.arange(1))
    scorer = scorer_of([1.9], few.y.tolist(), declared, monkeypatch)
    assert scorer._smoothing.sigma == pytest.approx(4.0 * 0.5)
    assert scorer(None, few)[0] == {"smoothed@0.5": 0.0}
    assert scorer(None, few)[1].sigma == 0.5


def test_a_radius_is_less_by_what_the_encoding_of_its_row_rounds(digits, monkeypatch):
    few = digits.validation.take(torch.arange(1))
    scorer = scorer_of([0.5 + 1e-6], few.y.tolist(), replace(digits.metadata, input_gain=1.0), monkeypatch)
    assert scorer(None, few)[0] == {"smoothed@0.5": 0.0}
    scorer = scorer_of([0.5 + 1e-4], few.y.tolist(), replace(digits.metadata, input_gain=1.0), monkeypatch)
    assert scorer(None, few)[0] == {"smoothed@0.5": 1.0}


def test_private_rows_are_refused(digits):
    private = replace(digits.metadata, evaluation=Evaluation.PRIVATE)
    with pytest.raises(SpecError, match=r"no smoothed@0\.1 of the private rows of digits"):
        SmoothedScorer(["accuracy", "smoothed@0.1"], private, PLAN)
    with pytest.raises(SpecError, match="certificates alone"):
        check_metrics(["smoothed@0.1"], private)
    said = spec_error(SPEC, **{"data.evaluation": "private"})
    assert "(search.objectives.2" in said
    assert "smoothed@0.1" in said


def test_no_smoothed_certificate_is_one_of_the_model():
    assert objectives.radius("smoothed@0.1") is None
    assert objectives.radii([Objective.named("smoothed@0.1"), Objective.named("certified@1/4")]) == ("1/4",)
    assert not objectives.same("smoothed@0.25", "certified@0.25")
    assert objectives.same("smoothed@0.25", "smoothed@1/4")
    assert not objectives.is_paid_score("smoothed@0.1")


def test_no_plan_is_refused(digits):
    with pytest.raises(SpecError, match=r"search\.smoothing"):
        SmoothedScorer(["smoothed@0.1"], digits.metadata, None)


def test_free_points_are_not_scored_by_themselves(digits):
    assert free_points(None, digits.metadata, None, ["epsilon", "accuracy", "smoothed@0.1"]) == {}
    assert free_points(None, digits.metadata, None, ["epsilon", "accuracy", "certified@0.1"])


def test_sigma_left_out_is_the_largest_radius():
    assert plan_smoothing(["smoothed@1/4", "accuracy", "smoothed@0.5"], None, 3).sigma == 0.5
    assert plan_smoothing(["accuracy", "certified@0.5"], None, 3) is None


def test_what_nobody_uses_is_refused():
    assert "no smoothing without smoothed@R" in spec_error(
        SPEC, **{"search.objectives": ["epsilon", "accuracy"], "search.metrics": []}
    )
    assert "search.smoothing.alpha" in spec_error(SPEC, **{"search.smoothing": {"alpha": 0.6}})


def test_the_network_that_is_scored_keeps_its_type(digits):
    model = zoo.build("mlp", (1, 8, 8), 10, input_norm=6.0, width=8)
    SmoothedScorer(PLAN.names, digits.metadata, PLAN)(model, digits.validation)
    assert next(model.parameters()).dtype == torch.float32
