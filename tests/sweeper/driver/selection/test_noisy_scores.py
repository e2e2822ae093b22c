"""A private selection by scores of private rows, which are paid for."""

import json

import pytest

import clipless
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import PoissonGaussian
from sweeper.driver.options import Options
from sweeper.driver.runner import run_sweep
from sweeper.planning.make import make_score_noise
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import price
from sweeper.specification.spec import Spec

from .played import DELTA, SPEC, Calls, check_only_the_winner, everything_in, said

pytestmark = pytest.mark.slow


PRIVATE = SPEC | {
    "data": {"name": "digits", "evaluation": "private"},
    "privacy": SPEC["privacy"] | {"score_noise": 2.0},
}


@pytest.fixture
def noise():
    return make_score_noise(Spec.from_mapping(PRIVATE), clipless.datasets.load("digits", evaluation="private"))


def test_a_winner_by_noisy_scores_costs_the_dearer_of_trainings_scores_and_its_own_test_scores(whole, tmp_path, noise):
    whole.plan = whole.plan | {"scores": noise.plan([1, 2])}
    ended = run_sweep(Spec.from_mapping(PRIVATE), Options(out=tmp_path))
    folder = ended.sweep.folder
    check_only_the_winner(everything_in(folder.path) + repr(Calls.told).encode(), whole)
    kinds = [json.loads(row)["record"] for row in folder.ledger.read_text().splitlines()]
    tested = [point for point in ended.front.points if point.test is not None]
    assert kinds == ["selection", *["test"] * len(tested)]
    assert tested == list(ended.front.front_points)
    law, event = Spec.from_mapping(PRIVATE).search.repetitions, PoissonGaussian.from_json(whole.plan["event"])
    by_scores = selection_epsilon(noise.paid(2).event, law, DELTA)
    assert by_scores > max(selection_epsilon(event, law, DELTA), price([noise.paid(len(tested)).event], DELTA).epsilon)
    assert ended.front.ledger["winner"].epsilon == by_scores
    assert "its conditions held" in said(folder)
    assert ended.sweep.pick().card.to_json()["guarantee"]["selected"] == by_scores
    assert ("tag", "t0001") in [call[:2] for call in Calls.told]
    (winner,) = folder.trials().values()
    assert winner.plan.scores.best_of == {"accuracy": law.mean}


def test_every_point_of_the_front_of_a_winner_by_noisy_scores_has_its_model(whole, tmp_path, noise):
    """The better score is the noisier one: by the estimates the other epoch is on the front."""
    whole.plan = whole.plan | {"scores": noise.plan([1, 2])}
    whole.accuracies = [*whole.accuracies[:2], [0.9, 0.84], whole.accuracies[3]]
    whole.stds = {("t0003", 1): 0.3, ("t0003", 2): 0.1}
    ended = run_sweep(Spec.from_mapping(PRIVATE), Options(out=tmp_path))
    assert ("t0001", 2, "") in ended.front.on_front
    assert all((ended.sweep.directory / str(point.model)).is_file() for point in ended.front.front_points)
    assert ended.sweep.pick().point.epoch == 2


@pytest.mark.long
def test_the_curves_of_a_winner_are_in_its_price(whole, tmp_path):
    spec = Spec.from_mapping(PRIVATE | {"privacy": PRIVATE["privacy"] | {"curve_noise": 0.3}})
    noise = make_score_noise(spec, clipless.datasets.load("digits", evaluation="private"))
    whole.plan = whole.plan | {"scores": noise.plan([1, 2])}
    ended = run_sweep(spec, Options(out=tmp_path))
    released = [point for point in ended.front.points if point.curves is not None]
    assert released == list(ended.front.front_points)
    alone = price([noise.paid_test(1).event] * len(released), DELTA).epsilon
    assert alone > selection_epsilon(noise.paid(2).event, spec.search.repetitions, DELTA)
    assert ended.front.ledger["winner"].epsilon == alone


@pytest.mark.long
def test_a_candidate_without_the_noise_that_is_priced_breaks_the_conditions(whole, tmp_path, noise):
    whole.plan = whole.plan | {"scores": noise.plan([1, 2]) | {"noise_multiplier": 1.9}}
    ended = run_sweep(Spec.from_mapping(PRIVATE), Options(out=tmp_path))
    statement = ended.front.ledger["winner"].statement
    assert "Candidate t0001 planned other releases of scores than those that are priced." in statement
    assert "or of every score of the private rows of a split, whichever is more" in statement
    ledger = Ledger(ended.sweep.folder.ledger)
    assert [event.noise_multiplier for entry in ledger.entries() for event in entry.charged_scores] == [1.9]
