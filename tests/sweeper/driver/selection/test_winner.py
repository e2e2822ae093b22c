"""What a private selection leaves: a winner, its price, and nothing of the others."""

import json

import pytest

import clipless
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.events import PoissonGaussian
from sweeper.backend.endings import RunEnding, RunResult
from sweeper.driver.selection.private_run import outcome_of
from sweeper.privacy.ledger import Ledger
from sweeper.results.front import read_front
from sweeper.results.sweep import Sweep

from .played import DELTA, check_only_the_winner, everything_in

pytestmark = pytest.mark.slow


def test_the_folder_that_is_left_holds_the_winner_and_nothing_of_the_others(play):
    ran = play()
    assert [path.name for path in ran.out.iterdir()] == [ran.folder.path.name]
    assert ran.folder.path.name.startswith("small-")
    assert {p.name for p in ran.folder.path.iterdir()} == {
        "driver.json",
        "front.json",
        "ledger.jsonl",
        "models",
        "points.jsonl",
        "sweep.json",
        "trials.jsonl",
    }
    assert list(ran.folder.trials()) == ["t0001"]
    assert list(ran.folder.points()) == [("t0001", 1, ""), ("t0001", 2, "")]
    check_only_the_winner(everything_in(ran.folder.path), ran.engine)
    (learning_rate,) = (proposal for trial, proposal in ran.engine.asked if trial == "t0003")
    assert ran.folder.trials()["t0001"].config["training"]["learning_rate"] in learning_rate.values()


def test_a_winner_does_not_say_where_it_was_trained(play):
    """The index of a device bounds the number of those that trained at once."""
    assert play().folder.trials()["t0001"].placed == {}


def test_the_front_of_a_winner_says_nothing_of_the_number_of_candidates(play):
    assert read_front(play().folder.front).ledger_entries == 1


def test_the_ledger_has_one_row_which_prices_the_winner_and_nothing_else(play):
    ran = play()
    (row,) = ran.folder.ledger.read_text().splitlines()
    assert json.loads(row)["terms"]["broken"] == []
    answers, event = Ledger(ran.folder.ledger).answers(DELTA), PoissonGaussian.from_json(ran.engine.plan["event"])
    assert answers["winner"].epsilon == pytest.approx(selection_epsilon(event, ran.spec.search.repetitions, DELTA))
    assert [answers[question].released for question in ("winner", "front", "everything")] == [True, False, False]
    assert outcome_of(ran.folder) == RunResult()


def test_the_winner_may_be_made_from_iterates_and_each_of_its_models_stays_its_own(play):
    """The second candidate wins by an average; its price is that of all its epochs, as everybody's."""
    extra = {("t0002", 1): [("t0002", "quick", 0.97), ("t0002", "slow", 0.97)], ("t0004", 2): [("t0004", "slow", 0.96)]}
    ran = play(extra=extra)
    points = ran.folder.points()
    assert list(points) == [("t0001", epoch, name) for epoch, name in ((1, ""), (1, "quick"), (1, "slow"), (2, ""))]
    assert points["t0001", 1, "slow"].values["accuracy"] == 0.97
    curve = ran.engine.plan["epsilon_curve"]
    assert all(point.values["epsilon"] == curve[epoch - 1] for (_, epoch, _), point in points.items())
    kept = [point for point in points.values() if point.model]
    assert [point.made_from for point in kept] == ["quick", "slow"], "equal points of the front of the winner"
    for point in kept:
        assert (ran.folder.path / point.model).read_bytes().endswith(point.made_from.encode())
    picked = Sweep(ran.folder.path).pick()
    assert picked.point.made_from == "quick"
    event = PoissonGaussian.from_json(ran.engine.plan["event"])
    price_of_all = selection_epsilon(event, ran.spec.search.repetitions, DELTA)
    assert picked.card.to_json()["guarantee"]["selected"] == pytest.approx(price_of_all)


def test_models_of_the_winner_survive_those_that_were_better_while_it_trained(play):
    """The winner's first epoch is beaten by nobody else, its rivals' models are gone, and its own can be loaded."""
    ran = play(accuracies=[[0.9, 0.1], [0.8, 0.95], [0.2, 0.3], [0.2, 0.3]])
    points = ran.folder.points()
    assert [point.model for point in points.values()] == ["models/t0001-1.safetensors", "models/t0001-2.safetensors"]
    assert {p.name for p in (ran.folder.path / "models").iterdir()} == {"t0001-1.safetensors", "t0001-2.safetensors"}
    clipless.load(ran.folder.path / points["t0001", 2, ""].model)
    assert points["t0001", 2, ""].values["accuracy"] == 0.95


def test_an_epoch_off_the_winners_own_front_has_no_model(play):
    ran = play(accuracies=[[0.9, 0.1]] + [[0.2, 0.3]] * 3)
    assert [p.model for p in ran.folder.points().values()] == ["models/t0001-1.safetensors", None]
    assert [p.name for p in (ran.folder.path / "models").iterdir()] == ["t0001-1.safetensors"]


def test_when_nobody_has_a_score_nothing_is_released_and_the_price_is_spent(play):
    ran = play({f"t000{n}": "is undefined" for n in range(1, 5)})
    assert (ran.folder.trials(), outcome_of(ran.folder).ending) == ({}, RunEnding.NO_WINNER)
    front = read_front(ran.folder.front)
    assert (front.trials, front.points) == ({}, ())
    assert 0.0 < front.ledger["winner"].epsilon < 100.0
    assert len(ran.folder.ledger.read_text().splitlines()) == 1


def test_candidates_are_proposed_from_secret_randomness(play):
    rates = [[p["training.learning_rate"] for _, p in play().engine.asked] for _ in range(2)]
    assert len({*rates[0], *rates[1]}) == 8
    assert all(0.02 <= rate <= 0.1 for rate in rates[0])
