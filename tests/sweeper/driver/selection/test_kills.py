"""Drivers of private selections that are killed: another one goes on, and nothing is drawn twice."""

import json
import random
import shutil
from collections import Counter

import pytest

from sweeper.backend.trial_states import TrialStates
from sweeper.driver.selection import candidates, private_run
from sweeper.driver.selection.private_run import recover, recover_all
from sweeper.errors import RecordError
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import Ending, PrivateSelection
from sweeper.records import SweepStatus, TrialStatus
from sweeper.results.front import read_front
from sweeper.results.sweep import Sweep
from sweeper.store.jsonl import JsonlFile
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, hidden_sweeps, list_sweeps

from .played import Bytes, Mortal, Play, as_killed, check_only_the_winner, everything_in, killed, said

pytestmark = pytest.mark.slow


def test_a_selection_that_was_killed_waits_and_is_charged_in_full_if_it_is_given_up(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    assert "its price does not hold: The selection was ended before its winner was known." in said(copy)
    (sentence,) = recover_all(copy.path.parent)
    assert sentence == private_run.waiting(copy)
    assert list_sweeps(copy.path.parent) == []
    folder = recover(copy)
    assert list_sweeps(copy.path.parent)[0].path == folder.path
    assert not folder.path.name.startswith(".")
    assert [e.trial for e in Ledger(folder.ledger).entries()] == ["t0001", "t0002"]
    assert "The selection was ended before its winner was known. Its owner gave the winner up." in said(folder)
    front = read_front(folder.front)
    assert len({answer.epsilon for answer in front.ledger.values()}) == 1
    assert len(front.points) == 4
    manifest = Sweep(folder.path).manifest()
    assert (manifest.status, f"small-{manifest.started}") == (SweepStatus.INTERRUPTED, folder.path.name)
    assert recover_all(copy.path.parent) == ()


def attempts(hidden):
    """How often each candidate has drawn."""
    return Counter(entry.trial for entry in Ledger(hidden.ledger).entries() if entry.drawn)


def test_a_driver_killed_behind_any_event_leaves_a_selection_that_another_one_ends(play, again, tmp_path, monkeypatch):
    """Never more than the four that were drawn draw noise, none twice, and the best that was not lost wins."""
    monkeypatch.setattr(TrialStates, "__slots__", (), raising=False)
    copies, last = [], []

    def copy(engine):
        copies.append(tmp_path / f"killed-{len(copies)}" / f"{HIDDEN}copy")
        as_killed(engine.folder.path, copies[-1])

    def begin(engine, *_):
        engine.__class__ = Mortal
        engine.dies = copy

    play({"t0001": begin})
    decided = private_run._write_winner
    monkeypatch.setattr(private_run, "_write_winner", lambda *args: (last.append(attempts(args[1])), decided(*args)))
    assert len(copies) > 16
    for path in copies:
        hidden = SweepFolder(path)
        before = attempts(hidden)
        folder, engine = again(hidden)
        assert "its conditions held" in said(folder), path
        assert max(last[-1].values()) == 1
        assert len(last[-1]) == 4
        assert not {trial for trial, _ in engine.asked} & set(before)
        assert list(path.parent.iterdir()) == [folder.path]
        assert list(folder.trials()) == ["t0001"]
        assert len(folder.ledger.read_text().splitlines()) == 1


def test_twenty_kills_never_overspend(play, again, tmp_path, monkeypatch):
    """Eighteen are drawn; whatever drivers die, in the end eighteen have drawn, each once."""
    seen, hidden = [], SweepFolder(tmp_path / "killed" / f"{HIDDEN}copy")
    accuracies = [[0.5 + n / 100, 0.5] for n in range(80)]
    luck = random.Random(7)

    class Killed(BaseException):
        """Stands for a kill: nothing of the process comes after it."""

    def die_soon():
        left = [luck.randrange(2, 9)]

        def dies(_engine):
            left[0] -= 1
            if left[0] == 0:
                raise Killed

        return dies

    kill, _ = killed(tmp_path)
    play({"t0001": kill}, source=Bytes(250), accuracies=accuracies)
    decided = private_run._write_winner
    monkeypatch.setattr(private_run, "_write_winner", lambda *args: (seen.append(attempts(args[1])), decided(*args)))
    kills = 0
    while kills < 20:
        try:
            folder, _ = again(hidden, dies=die_soon(), accuracies=accuracies)
        except Killed:
            kills += 1
            assert max(attempts(hidden).values(), default=1) == 1
            assert len(attempts(hidden)) <= 18
        else:
            break
    if kills == 20:
        folder, _ = again(hidden, accuracies=accuracies)
    assert kills > 9
    assert (len(seen[0]), max(seen[0].values())) == (18, 1)
    assert "its conditions held" in said(folder)


def test_the_number_of_candidates_is_drawn_once(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    _, engine = again(copy, source=Bytes(250))
    assert [trial for trial, _ in engine.asked] == ["t0003", "t0004"]


def test_a_selection_that_has_lost_its_number_is_given_up(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    (copy.path / candidates.NUMBER_NAME).unlink()
    folder, engine = again(copy)
    assert "The number of candidates that was drawn was lost." in said(folder)
    assert engine.asked == []


def test_what_broke_is_not_forgotten_by_the_next_driver(play, again, tmp_path, monkeypatch):
    """Killed right behind a crash, before everything had become an ordinary sweep."""
    _, copy = killed(tmp_path)
    surrender = private_run._surrender
    monkeypatch.setattr(
        private_run,
        "_surrender",
        lambda hidden, *args: (as_killed(hidden.path, copy.path), surrender(hidden, *args))[1],
    )
    play({"t0002": "crashes"})
    monkeypatch.setattr(private_run, "_surrender", surrender)
    folder, engine = again(copy)
    assert engine.asked == []
    assert "Candidate t0002 crashed" in said(folder)


@pytest.mark.parametrize("moment", ["before the selection hears of it", "behind it"])
def test_a_crash_that_a_killed_driver_had_seen_is_no_loss(moment, play, again, tmp_path, monkeypatch):
    _, copy = killed(tmp_path)
    real = PrivateSelection.end

    def end(selection, candidate, ending):
        if candidate == "t0002" and moment != "behind it":
            as_killed(hidden_sweeps(tmp_path / "out")[0].path, copy.path)
        real(selection, candidate, ending)
        if candidate == "t0002" and moment == "behind it":
            as_killed(hidden_sweeps(tmp_path / "out")[0].path, copy.path)

    monkeypatch.setattr(PrivateSelection, "end", end)
    play({"t0002": "crashes"})
    monkeypatch.setattr(PrivateSelection, "end", real)
    folder, engine = again(copy)
    assert engine.asked == []
    assert "Candidate t0002 crashed" in said(folder)


def test_a_crash_that_the_disk_refuses_breaks_the_conditions_all_the_same(play, monkeypatch):
    real = JsonlFile.append

    def full_disk(file, *rows):
        if any("ending" in row for row in rows):
            raise RecordError("no space left")
        real(file, *rows)

    monkeypatch.setattr(JsonlFile, "append", full_disk)
    ended = []
    end = PrivateSelection.end
    monkeypatch.setattr(PrivateSelection, "end", lambda *args: (ended.append(args[2]), end(*args))[1])
    play({"t0001": "crashes"})
    assert ended == [Ending.CRASHED]


def test_a_candidate_whose_rows_were_lost_with_the_machine_is_lost(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0004": kill})
    rows = (copy.path / "points.jsonl").read_text().splitlines()
    kept = [row for row in rows if (json.loads(row)["trial"], json.loads(row)["epoch"]) != ("t0003", 2)]
    (copy.path / "points.jsonl").write_text("\n".join(kept) + "\n")
    folder, _ = again(copy)
    assert folder.points()["t0001", 2, ""].values["accuracy"] == 0.644444  # t0003 would have won


def test_a_training_that_was_entered_twice_breaks_the_conditions(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})
    ledger = Ledger(copy.ledger)
    ledger.open("t0002", ledger.entries()[1].event)
    folder, _ = again(copy)
    assert "Candidate t0002 was started again" in said(folder)


def test_what_cannot_be_started_leaves_a_selection_waiting(play, again, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0003": kill})

    def no_ray(_engine):
        raise candidates.NotStartedError("no Ray")

    with pytest.raises(candidates.NotStartedError):
        again(copy, dies=no_ray)
    assert "its conditions held" in said(again(copy)[0])


def test_a_trial_that_was_training_when_the_driver_died_is_charged_in_full(play, tmp_path):
    kill, copy = killed(tmp_path)

    class Dying(Play):
        def report(self, states, trial, epoch, accuracy):
            super().report(states, trial, epoch, accuracy)
            if (trial, epoch) == ("t0002", 1):
                kill(self)

    def die(engine, *_):
        engine.__class__ = Dying

    play({"t0001": die})
    folder = recover(copy)
    assert folder.trials()["t0002"].status is TrialStatus.FAILED
    (last,) = (e for e in Ledger(folder.ledger).entries() if e.trial == "t0002")
    assert last.charged == last.event
    assert last.steps is not None


def test_a_selection_that_was_killed_before_its_first_candidate_leaves_nothing(play, tmp_path):
    kill, copy = killed(tmp_path)
    play({"t0001": kill})
    assert recover(copy) is None
    assert list(copy.path.parent.iterdir()) == []


@pytest.mark.parametrize("moved", [False, True])
def test_once_decided_a_kill_changes_nothing(play, tmp_path, monkeypatch, moved):
    """Killed behind the mark, before or after the winner had moved out: the others' rows can only be removed."""
    copy, release = SweepFolder(tmp_path / "killed" / f"{HIDDEN}copy"), private_run._release

    def kill(hidden):
        as_killed(hidden.path, copy.path)
        return release(hidden)

    monkeypatch.setattr(private_run, "_release", kill)
    ran = play()
    monkeypatch.setattr(private_run, "_release", release)
    if moved:
        shutil.rmtree(copy.path / "winner")
    folder = recover(copy)
    assert hidden_sweeps(tmp_path / "killed") == []
    if moved:
        assert (folder, list(copy.path.parent.iterdir())) == (None, [])
    else:
        check_only_the_winner(everything_in(folder.path), ran.engine)
        assert "its conditions held" in said(folder)
