"""What every broken condition of a private selection costs, and what is an outcome and breaks none."""

import contextlib
import json
from dataclasses import replace

import pytest

from clipless.testing import SeededSource
from sweeper.backend.endings import RunEnding
from sweeper.backend.trainable import CliplessTrial
from sweeper.driver.selection import candidates, private_run
from sweeper.driver.selection.candidates import Candidate
from sweeper.driver.selection.private_run import outcome_of
from sweeper.errors import FOR_THE_OWNER, RecordError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import price
from sweeper.results.front import read_front
from sweeper.specification.spec import Spec
from sweeper.store.actions import REQUESTS_NAME
from sweeper.store.jsonl import append_alone
from sweeper.store.sweep_folder import SweepFolder, hidden_sweeps
from sweeper.trials.settings import TrialSettings

from .played import DELTA, FOUR, SPEC, Play, check_only_the_winner, everything_in, killed, said

pytestmark = pytest.mark.slow


def test_what_a_candidate_spends_is_on_the_disk_before_it_may_draw_noise(play):
    rows = []

    class Watched(Play):
        def report(self, states, trial, epoch, accuracy):
            rows.append(sum(entry.trial == trial for entry in Ledger(self.folder.ledger).entries()))
            super().report(states, trial, epoch, accuracy)

    def watch(engine, *_):
        engine.__class__ = Watched

    play({"t0001": watch})
    assert rows == [1] * 8


BREAKS = {
    "crashes": "Candidate t0002 crashed",
    "is stopped": "Candidate t0002 was ended before its planned steps were done",
    "draws again": "Candidate t0002 was started again",
    "plans another event": "Candidate t0002 planned another event",
    "ends too soon": "Candidate t0002 crashed",
    "is refused": "Candidate t0002 crashed",  # a configuration that has a plan: something else was wrong
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("does", BREAKS)
def test_a_condition_that_breaks_is_named_and_everything_is_charged(play, does):
    ran = play({"t0002": does})
    ledger = Ledger(ran.folder.ledger)
    answers = ledger.answers(DELTA)
    assert BREAKS[does] in answers["winner"].statement
    assert "its price does not hold" in answers["winner"].statement
    charged = [entry.charged for entry in ledger.entries()]
    assert {answer.epsilon for answer in answers.values()} == {price(charged, DELTA).epsilon}
    assert len(charged) == {"is refused": 1}.get(does, 2)  # none behind it
    assert hidden_sweeps(ran.out) == []
    front = read_front(ran.folder.front)
    assert set(front.trials) == {"t0001", "t0002"}
    assert {point.trial for point in front.points} <= {"t0001", "t0002"}
    assert {p.name for p in (ran.folder.path / "models").iterdir()} == {
        p.model.removeprefix("models/") for p in front.front_points
    }
    assert outcome_of(ran.folder).ending is RunEnding.SELECTION_BROKE
    assert "running" not in {trial.status for trial in front.trials.values()}


def test_a_score_that_is_no_number_is_an_outcome_and_breaks_nothing(play):
    ran = play({"t0003": "is undefined"})
    assert "its conditions held" in said(ran.folder)
    assert ran.folder.points()["t0001", 2, ""].values["accuracy"] == 0.644444


def test_a_configuration_without_a_plan_is_an_outcome_and_breaks_nothing(play, monkeypatch):
    monkeypatch.setattr(candidates, "can_be_planned", lambda *_: False)
    ran = play({"t0003": "is refused"})
    assert "its conditions held" in said(ran.folder)
    assert ran.folder.points()["t0001", 2, ""].values["accuracy"] == 0.644444


def test_a_generator_that_is_not_the_secure_one_breaks_the_conditions(play):
    ran = play(source=SeededSource(0), accuracies=FOUR * 20)
    assert "injected generator" in said(ran.folder)


def test_a_request_to_stop_leaves_it_waiting_and_shows_nothing(play):
    ran = play(
        {"t0002": lambda engine, _states, _trial: append_alone(engine.folder.path / REQUESTS_NAME, {"stop": True})}
    )
    assert ran.folder is None
    assert len(ran.engine.asked) == 2
    assert [path.name for path in ran.out.iterdir()] == [ran.hidden.path.name]
    assert "its price does not hold: The selection was ended before its winner was known." in said(ran.hidden)


LOSSES = ("dies", "runs out of memory", "is interrupted")


@pytest.mark.parametrize("does", LOSSES)
def test_a_candidate_that_dies_after_its_first_noise_is_lost_and_never_draws_again(play, does):
    """The third one would win; it trains once, is charged to nobody, and the next best one wins."""
    ran = play({"t0003": does})
    assert "its conditions held" in said(ran.folder)
    assert [trial for trial, _ in ran.engine.asked] == ["t0001", "t0002", "t0003", "t0004"]
    check_only_the_winner(everything_in(ran.folder.path), ran.engine, winner=2)


@pytest.mark.parametrize("does", LOSSES)
def test_a_lost_candidate_has_one_entry_that_drew(play, does, monkeypatch):
    rows = []
    monkeypatch.setattr(
        private_run, "_write_winner", lambda _made, hidden, *_: rows.extend(Ledger(hidden.ledger).entries())
    )
    with contextlib.suppress(RecordError):
        play({"t0003": does})
    assert [(e.trial, e.drawn) for e in rows] == [(f"t000{n}", True) for n in range(1, 5)]


def test_a_candidate_that_dies_before_its_first_noise_starts_again(play):
    ran = play({"t0003": "dies before its first noise"})
    assert "its conditions held" in said(ran.folder)
    check_only_the_winner(everything_in(ran.folder.path), ran.engine)


def test_a_lost_candidate_leaves_no_trace_beside_the_winner(play):
    """With one lost, the folder says as much as it would with that one being the worst."""
    lost, worst = play({"t0001": "dies"}), play(accuracies=[[0.0, 0.0], *FOUR[1:]])
    assert {p.name for p in lost.folder.path.iterdir()} == {p.name for p in worst.folder.path.iterdir()}
    rows, others = ([*map(json.loads, one.folder.ledger.read_text().splitlines())] for one in (lost, worst))
    assert [row | {"nonce": ""} for row in rows] == [row | {"nonce": ""} for row in others]
    assert outcome_of(lost.folder) == outcome_of(worst.folder)


def test_an_error_of_the_engine_is_raised_once_everything_is_an_ordinary_sweep(play, tmp_path):
    def fail(*_):
        raise OSError("the cluster is gone")

    with pytest.raises(OSError, match="the cluster is gone"):
        play({"t0002": fail})
    (folder,) = map(SweepFolder, (tmp_path / "out").iterdir())
    assert f"OSError: {FOR_THE_OWNER}" in said(folder)
    assert "the cluster is gone" not in said(folder)
    assert folder.failures() == [{"trial": None, "error": "OSError: the cluster is gone"}]
    assert read_front(folder.front).trials["t0001"].status == "completed"


def test_a_ledger_with_rows_beside_a_winner_whose_conditions_held_is_refused(play, tmp_path):
    kill, copy = killed(tmp_path)
    ran = play({"t0003": kill})
    rows, row = copy.ledger.read_text().splitlines(), ran.folder.ledger.read_text()
    ran.folder.ledger.write_text(row + "\n".join(rows[1:]) + "\n")
    with pytest.raises(RecordError, match="no training behind the private selection"):
        Ledger(ran.folder.ledger)
    ran.folder.ledger.write_text("\n".join(rows[1:]) + "\n" + row)
    with pytest.raises(RecordError, match="no training beside a private selection whose conditions held, got 2"):
        Ledger(ran.folder.ledger)


def test_a_condition_that_was_broken_cannot_be_mended_nor_the_terms_be_changed(tmp_path, play):
    terms = Ledger(play().folder.ledger).selection
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.select(replace(terms, breaks=("This.",)))
    ledger.select(terms)
    ledger.select(replace(terms, breaks=("That.",)))
    assert Ledger(tmp_path / "ledger.jsonl").selection.broken == ("This.", "That.") == ledger.selection.broken
    with pytest.raises(RecordError, match="got another one's terms"):
        ledger.select(replace(terms, event=terms.event.with_steps(1)))


def test_the_initial_seed_of_a_candidate_is_drawn_anew_and_stays_with_it():
    made = [object.__new__(Candidate) for _ in range(2)]
    settings = TrialSettings(space=Spec.from_mapping(SPEC).space, objectives=())
    for one in made:
        one.setup({"recorded": 0, "settings": settings})
    first, other = (one.seed("t0001") for one in made)
    assert first != other
    assert made[0].seed("t0001") == first
    assert CliplessTrial.seed(made[0], "t0007") == 7
