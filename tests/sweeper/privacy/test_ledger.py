import errno
import json
import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.pld import pld_epsilon
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.noisy_counts import scores_event
from sweeper.errors import RecordError
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.pricing import GROWS, price
from sweeper.privacy.selection import Terms
from sweeper.rounding import round_up

DELTA = 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def append(path, row):
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def entered(path, event, **more):
    """A ledger with a training of the trial t."""
    ledger = Ledger(path)
    ledger.open("t", event, **more)
    return ledger


def test_an_entry_is_on_the_disk_before_open_returns(path, event, monkeypatch):
    synced = []
    monkeypatch.setattr("sweeper.store.jsonl.os.fsync", lambda _: synced.append(path.read_text()))
    assert Ledger(path).open("t1", event) == 1
    row = json.loads(synced[0])
    del row["nonce"]
    assert row == {"record": "open", "trial": "t1", "attempt": 1, "event": event.to_json()}


def test_no_entry_no_training(path, event, monkeypatch):
    ledger = Ledger(path)
    with monkeypatch.context() as patch:
        patch.setattr(
            "sweeper.store.jsonl.os.pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left"))
        )
        with pytest.raises(RecordError, match=r"Cannot write .*ledger\.jsonl: No space left"):
            ledger.open("t1", event)
    assert ledger.entries() == ()


def test_a_training_is_charged_its_plan_whether_closed_stopped_or_lost(path, event):
    ledger = Ledger(path)
    for trial in ("done", "stopped", "lost"):
        ledger.open(trial, event)
    ledger.close("done", event.steps)
    ledger.close("stopped", 5)
    assert [entry.charged for entry in ledger.entries()] == [event] * 3
    assert [entry.steps for entry in ledger.entries()] == [50, 5, None]


def test_steps_beyond_the_plan_are_charged_too(path, event):
    ledger = entered(path, event)
    ledger.close("t", 60)
    assert ledger.entries()[0].charged == event.with_steps(60)


def test_a_restarted_training_is_charged_again(path, event):
    ledger = Ledger(path)
    assert [ledger.open("t", event), ledger.open("u", event), ledger.open("t", event)] == [1, 1, 2]
    ledger.close("t", 50)
    rows = [(e.trial, e.attempt, e.steps) for e in ledger.entries()]
    assert rows == [("t", 1, None), ("u", 1, None), ("t", 2, 50)]
    assert ledger.answers(DELTA)["everything"].epsilon == rdp_epsilon(event.with_steps(150), DELTA)


def test_a_training_that_goes_on_is_charged_what_was_drawn_and_what_is_left(path, event):
    ledger = entered(path, event)
    ledger.close("t", 15)  # killed in the third epoch; the checkpoint holds two
    assert ledger.open("t", event, kept=10) == 2
    assert [entry.charged.steps for entry in ledger.entries()] == [15, 40]
    ledger.close("t", 32)  # killed again
    ledger.open("t", event, kept=30)
    assert [entry.charged.steps for entry in ledger.entries()] == [15, 22, 20]
    ledger.close("t", 50)
    assert [entry.steps for entry in ledger.entries()] == [15, 22, 20]
    assert Ledger(path).entries() == ledger.entries()
    ledger.open("t", event)  # begins anew: nothing is forgiven
    assert [entry.charged.steps for entry in ledger.entries()] == [15, 22, 20, 50]


@pytest.mark.parametrize(
    ("reached", "kept", "said"),
    [
        (None, 10, "kept=10 steps that trial t has run in a closed attempt"),
        (9, 10, "kept=10 steps that trial t has run in a closed attempt"),
        (9, -1, "kept=-1 steps"),
        (50, 51, "kept=51 steps"),
    ],
)
def test_nothing_goes_on_from_steps_that_were_not_run(reached, kept, said, path, event):
    ledger = entered(path, event)
    if reached is not None:
        ledger.close("t", reached)
    with pytest.raises(RecordError, match=said):
        ledger.open("t", event, kept=kept)
    with pytest.raises(RecordError, match="kept=5 steps that trial new has run"):
        ledger.open("new", event, kept=5)
    assert len(Ledger(path).entries()) == 1


def test_another_mechanism_does_not_go_on(path, event):
    ledger = entered(path, event)
    ledger.close("t", 15)
    with pytest.raises(RecordError, match="Expected the mechanism that trial t began with; begin it anew"):
        ledger.open("t", replace(event, noise_multiplier=9.0), kept=10)
    assert ledger.is_open("t") is False


def test_a_ledger_survives_its_process(path, event):
    ledger = entered(path, event)
    ledger.close("t", 3)
    ledger.open("u", event)
    again = Ledger(path)
    assert again.entries() == ledger.entries()
    assert again.relation is Relation.ADD_OR_REMOVE_ONE
    assert again.open("u", event) == 2


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(0, 10_000))
def test_no_crash_forgets_what_open_had_returned(tmp_path_factory, cut):
    path = tmp_path_factory.mktemp("ledger") / "ledger.jsonl"
    ledger = Ledger(path)
    sizes = []
    for n in range(4):
        given = {"noise_multiplier": 1.0 + n, "sampling_rate": 0.1, "steps": 7, "relation": Relation.REPLACE_ONE}
        ledger.open(f"t{n}", PoissonGaussian(**given))
        sizes.append(path.stat().st_size)
        ledger.close(f"t{n}", 7)
    content = path.read_bytes()
    cut = min(cut, len(content))
    path.write_bytes(content[:cut])
    assert len(Ledger(path).entries()) >= sum(size <= cut for size in sizes)


def test_relations_are_never_mixed(path, event):
    ledger = entered(path, event)
    other = replace(event, relation=Relation.REPLACE_ONE)
    with pytest.raises(RecordError, match=r"add-or-remove-one .*ledger\.jsonl, got replace-one; start another"):
        ledger.open("u", other)
    assert len(ledger.entries()) == len(path.read_text().splitlines()) == 1
    append(path, {"record": "open", "trial": "u", "attempt": 1, "event": other.to_json()})
    with pytest.raises(RecordError, match=r"relation .*line 2 of"):
        Ledger(path)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"record": "open", "trial": "t", "attempt": 1}, "KeyError 'event'"),
        ({"record": "open", "trial": "t", "attempt": 1, "event": {"kind": "magic"}}, "kind"),
        ({"record": "close", "trial": "t", "attempt": 1, "steps": 3}, "KeyError"),
        ({"record": "pardon", "trial": "t", "attempt": 1}, "record is 'pardon'"),
        ({"trial": "t", "attempt": "x"}, "x"),
    ],
)
def test_a_row_that_is_none_of_ours_is_named(path, row, said):
    path.write_text(json.dumps(row) + "\n{}\n")
    with pytest.raises(RecordError, match=rf"Expected a ledger row, but .*{said}.*line 1 of .*ledger\.jsonl"):
        Ledger(path)


@pytest.mark.parametrize("steps", [-1, 2, 1.5, None, True])
def test_a_wrong_number_of_steps_is_refused(path, event, steps):
    ledger = entered(path, event)
    ledger.close("t", 3)
    with pytest.raises(RecordError, match="steps of trial t must be a count >= 3"):
        ledger.close("t", steps)


def test_a_trial_that_was_never_entered_cannot_be_closed(path):
    with pytest.raises(RecordError, match=r"entered in .*ledger\.jsonl, got 't'"):
        Ledger(path).close("t", 1)


def test_the_three_answers_are_the_composition_and_say_so(path, event):
    ledger = Ledger(path)
    other = replace(event, noise_multiplier=3.0, sampling_rate=0.1)
    for trial, planned in (("a", event), ("b", other), ("c", event)):
        ledger.open(trial, planned)
    answers = ledger.answers(DELTA)
    assert set(answers) == {"winner", "front", "everything"}
    for answer in answers.values():
        assert answer.epsilon == price([event.with_steps(100), other], DELTA).epsilon
        assert answer.events == 3
        assert (
            f"epsilon {round_up(answer.epsilon)} at delta 1e-05, for the search and every model: the composition of every "
            "trial of the sweep (3)" in answer.statement
        )
    assert answers["everything"].epsilon > rdp_epsilon(event, DELTA)
    assert answers["winner"].in_words == f"{answers['front'].statement} {GROWS}"


def test_attempts_are_not_counted_as_trials(path, event):
    ledger = Ledger(path)
    for trial in ("a", "b", "a", "a"):
        ledger.open(trial, event)
    ledger.open("c", event, marked=True)  # it has drawn nothing
    price = ledger.answers(DELTA)["everything"]
    assert price.events == 4
    assert "the composition of every training of the sweep (4 attempts at 2 trials)." in price.statement


def test_what_trials_would_be_charged_that_go_on_is_known_before_they_do(path, event):
    ledger = Ledger(path)
    for trial in ("a", "b"):
        ledger.open(trial, event)
        ledger.close(trial, 20)
    rows = path.read_bytes()
    found = ledger.charged_with([("a", event, 15, None), ("b", event, 0, None)])
    assert [one.steps for one in found.training] == [20, event.steps, event.steps - 15, event.steps]
    assert found.again == 2
    assert (ledger.charged_with().again, path.read_bytes()) == (0, rows)
    ledger.open("a", event, kept=15)
    ledger.open("b", event)
    assert ledger.charged_with() == found


def test_replace_one_is_priced_by_pld(path, event):
    ledger = Ledger(path)
    replaced = replace(event, relation=Relation.REPLACE_ONE)
    ledger.open("a", replaced)
    assert ledger.answers(DELTA)["front"].epsilon == pld_epsilon(replaced, DELTA)


def test_nothing_spent_costs_nothing(path):
    assert Ledger(path).answers(DELTA)["everything"].epsilon == 0.0
    assert Ledger(path).relation is None


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([1.0, 2.0, 4.0]), st.sampled_from([0.05, 0.2]), st.integers(1, 100)),
        min_size=1,
        max_size=8,
    )
)
def test_the_price_grows_with_every_training_and_ignores_their_order(parts):
    events = [
        PoissonGaussian(noise_multiplier=s, sampling_rate=q, steps=n, relation=Relation.ADD_OR_REMOVE_ONE)
        for s, q, n in parts
    ]
    prices = [price(events[:count], DELTA).epsilon for count in range(len(events) + 1)]
    assert prices == sorted(prices)
    assert price(events[::-1], DELTA).epsilon == pytest.approx(prices[-1], rel=1e-12)


def test_sixty_four_different_trials_are_priced_in_seconds(path, event):
    rng = random.Random(0)
    ledger = Ledger(path)
    for n in range(64):
        ledger.open(f"t{n}", replace(event, noise_multiplier=rng.uniform(1, 5), sampling_rate=rng.uniform(0.02, 0.3)))
    started = time.process_time()
    ledger.answers(DELTA)
    assert time.process_time() - started < 20  # about 0.1; processor time doubles where two programs share a core


def test_one_training_repeated_costs_what_soundness_says(path):
    one = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.05, steps=2000, relation=Relation.ADD_OR_REMOVE_ONE)
    ledger = Ledger(path)
    ledger.open("a", one)
    assert ledger.answers(DELTA)["winner"].epsilon == claim(one, DELTA).epsilon == pytest.approx(3.268, rel=0.001)
    for n in range(9):
        ledger.open(f"b{n}", one)
    assert ledger.answers(DELTA)["everything"].epsilon == pytest.approx(13.6, rel=0.01)


# --- scores of private rows


def paid(releases, noise=5.0, *, apart=True, kept=0, relation=Relation.ADD_OR_REMOVE_ONE):
    return PaidScores(event=scores_event(noise, releases, relation), apart=apart, kept=kept)


def scores_of(ledger):
    return [event.steps for entry in ledger.entries() for event in entry.charged_scores]


def test_scores_are_on_the_disk_with_their_training(path, event, monkeypatch):
    synced = []
    monkeypatch.setattr("sweeper.store.jsonl.os.fsync", lambda _: synced.append(json.loads(path.read_text())))
    Ledger(path).open("t1", event, scores=paid(10))
    assert synced[0]["scores"] == paid(10).to_json()


def test_scores_are_charged_as_planned_whether_closed_stopped_or_lost(path, event):
    ledger = Ledger(path)
    for trial in ("done", "stopped", "lost"):
        ledger.open(trial, event, scores=paid(10))
    ledger.close("done", 50, scored=10)
    ledger.close("stopped", 5, scored=1)
    assert scores_of(ledger) == [10, 10, 10]
    assert [entry.scored for entry in ledger.entries()] == [10, 1, None]
    assert ledger.answers(DELTA)["everything"].epsilon == max(
        rdp_epsilon(event.with_steps(150), DELTA), rdp_epsilon(scores_event(5.0, 30, event.relation), DELTA)
    )
    assert Ledger(path).entries() == ledger.entries()


def test_scores_that_were_lost_are_charged_again_when_the_trial_goes_on(path, event):
    """Killed in the third epoch, of which rows have come of one: those of the second are released once more."""
    ledger = entered(path, event, scores=paid(10))
    ledger.close("t", 15, scored=3)
    ledger.open("t", event, kept=10, scores=paid(9, kept=1))
    assert scores_of(ledger) == [3, 9]
    ledger.close("t", 20, scored=4)
    ledger.open("t", event, kept=20, scores=paid(7, kept=3))
    assert scores_of(ledger) == [3, 3, 7]
    assert scores_of(Ledger(path)) == [3, 3, 7]


def test_scores_of_a_training_that_begins_anew_are_charged_beside_all_of_the_first(path, event):
    ledger = entered(path, event, scores=paid(10))
    ledger.close("t", 15, scored=3)
    ledger.open("t", event, scores=paid(8, kept=2))
    assert scores_of(ledger) == [10, 8]


@pytest.mark.parametrize("scored", [None, 0, 4])
def test_an_attempt_that_may_have_scored_anything_is_charged_all_that_it_planned(path, event, scored):
    """Rows were lost with the machine: how many scores were made since is not known."""
    ledger = entered(path, event)
    ledger.close("t", 25)
    ledger.open("t", event, kept=25, scores=paid(5, kept=5))
    ledger.close("t", 30, scored=scored)
    ledger.open("t", event, kept=30, scores=paid(4, kept=6))
    assert scores_of(ledger) == [5, 4]


def test_an_attempt_that_was_killed_before_its_first_score_is_charged_none_when_the_trial_goes_on(path, event):
    ledger = entered(path, event, scores=paid(10))
    ledger.close("t", 15, scored=0)
    assert scores_of(ledger) == [10], "nothing goes on from it yet"
    ledger.open("t", event, kept=10, scores=paid(10))
    ledger.close("t", 20, scored=0)
    ledger.open("t", event, kept=15, scores=paid(10))
    assert scores_of(ledger) == scores_of(Ledger(path)) == [0, 0, 10]


def test_what_is_known_of_scores_never_falls(path, event):
    ledger = entered(path, event, scores=paid(10))
    for scored in (7, 3, 0):
        ledger.close("t", 40, scored=scored)
    assert ledger.entries()[0].scored == 7


@pytest.mark.parametrize("scored", [-1, "3", True, 1.5])
def test_a_wrong_number_of_scores_is_refused(path, event, scored):
    entered(path, event, scores=paid(10))
    append(path, {"record": "close", "trial": "t", "attempt": 1, "steps": 3, "scored": scored})
    with pytest.raises(RecordError, match="scored of trial t must be a count >= 0"):
        Ledger(path)


def test_scores_that_nobody_planned_are_refused(path, event):
    Ledger(path).open("t", event)
    append(path, {"record": "close", "trial": "t", "attempt": 1, "steps": 3, "scored": 2})
    with pytest.raises(RecordError, match="of releases it planned, got 2"):
        Ledger(path)


def test_scores_are_of_the_relation_of_their_training(path, event):
    with pytest.raises(RecordError, match="Expected scores under add-or-remove-one as their training, of t"):
        Ledger(path).open("t", event, scores=paid(1, relation=Relation.REPLACE_ONE))
    assert not path.exists() or path.read_text() == ""


def test_each_test_score_is_entered_before_it_is_drawn_and_charged_each_time(path, event, monkeypatch):
    ledger = Ledger(path)
    ledger.open("t", event, scores=paid(10, 500.0))
    for _ in range(2):
        ledger.enter_test("t", 3, paid(1, 0.7))
    expected = rdp_epsilon(scores_event(0.7, 2, event.relation), DELTA)
    assert ledger.answers(DELTA)["winner"].epsilon == Ledger(path).answers(DELTA)["winner"].epsilon == expected
    assert expected > rdp_epsilon(event, DELTA)
    monkeypatch.setattr(
        "sweeper.store.jsonl.os.pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full"))
    )
    with pytest.raises(RecordError, match="Cannot write"):
        ledger.enter_test("t", 4, paid(1, 0.7))


def test_test_scores_are_of_the_relation_of_the_others(path, event):
    ledger = entered(path, event)
    with pytest.raises(RecordError, match="relation add-or-remove-one"):
        ledger.enter_test("t", 1, paid(1, relation=Relation.REPLACE_ONE))
    assert len(path.read_text().splitlines()) == 1


def test_rows_that_are_not_apart_cost_the_composition_of_everything(path, event):
    ledger = Ledger(path)
    ledger.open("t", event, scores=paid(10, apart=False))
    ledger.enter_test("t", 1, paid(1, apart=True))
    every = price([event, scores_event(5.0, 11, event.relation)], DELTA).epsilon
    assert ledger.answers(DELTA)["everything"].epsilon == pytest.approx(every)
    assert every > rdp_epsilon(event, DELTA)
    assert "do not say" in ledger.answers(DELTA)["everything"].statement


def test_behind_a_winner_that_was_priced_only_test_scores_are_entered(path, event):
    repetitions = Repetitions(mean=10.0)
    ledger = Ledger(path)
    ledger.select(Terms(event=event, repetitions=repetitions, scores=scores_event(300.0, 10, event.relation)))
    before = ledger.answers(DELTA)["winner"].epsilon
    ledger.enter_test("t0001", 2, paid(1, 300.0))
    assert ledger.answers(DELTA)["winner"].epsilon == before
    ledger.enter_test("t0001", 3, paid(1, 0.3))
    assert Ledger(path).answers(DELTA)["winner"].epsilon == rdp_epsilon(
        Composed((scores_event(300.0, 1, event.relation), scores_event(0.3, 1, event.relation))), DELTA
    )
    for wrong, said in (
        (paid(1, apart=False), "depends on themselves"),
        (paid(1, relation=Relation.REPLACE_ONE), "rel"),
    ):
        with pytest.raises(RecordError, match=said):
            ledger.enter_test("t0001", 4, wrong)
    with pytest.raises(RecordError, match="Expected no training behind the private selection"):
        ledger.open("t0002", event, scores=paid(1))


def test_a_selection_by_another_law_is_refused_in_one_sentence(path, event):
    """Earlier versions had more of them; what they wrote of geometric numbers is read."""
    terms = Terms(event=event, repetitions=Repetitions(mean=10.0))
    Ledger(path).select(terms)
    row = json.loads(path.read_text())
    row["terms"]["repetitions"] |= {"shape": None}
    path.write_text(json.dumps(row) + "\n")
    assert Ledger(path).selection == terms
    row["terms"]["repetitions"]["distribution"] = "logarithmic"
    path.write_text(json.dumps(row) + "\n")
    said = r"Expected a geometric number of candidates, got distribution='logarithmic'; .* \(line 1 of .*\)$"
    with pytest.raises(RecordError, match=said):
        Ledger(path)


# --- marks


def test_the_mark_is_on_the_disk_before_draw_returns(path, event, monkeypatch):
    ledger, synced = entered(path, event, marked=True), []
    monkeypatch.setattr("sweeper.store.jsonl.os.fsync", lambda _: synced.append(path.read_text().splitlines()[-1]))
    ledger.draw("t")
    ledger.draw("t")
    (row,) = map(json.loads, synced)
    assert row == {"record": "draw", "trial": "t", "attempt": 1, "nonce": row["nonce"]}


def test_two_ledgers_of_the_same_rows_differ_for_an_account_knows_them_by_their_bytes(tmp_path, event):
    for name in ("one", "copy"):
        ledger = Ledger(tmp_path / name)
        ledger.open("t", event, marked=True)
        ledger.draw("t")
        ledger.enter_test("t", 1, paid(1))
        Ledger(tmp_path / f"{name} selects").select(Terms(event=event, repetitions=Repetitions(mean=10.0)))
    for name in ("{}", "{} selects"):
        rows, others = ((tmp_path / name.format(one)).read_text().splitlines() for one in ("one", "copy"))
        assert not set(rows) & set(others)
        bare, also = ([{**json.loads(row), "nonce": ""} for row in found] for found in (rows, others))
        assert bare == also


def test_a_training_that_drew_nothing_costs_nothing_however_it_is_closed(path, event):
    ledger = entered(path, event, marked=True)
    ledger.close("t", 25)
    for read in (ledger, Ledger(path)):
        ((entry,),) = (read.entries(),)
        assert (entry.steps, entry.charged.steps, entry.drawn) == (0, 0, False)
        assert read.answers(DELTA)["everything"].events == 0


def test_a_training_without_a_mark_in_its_entry_is_charged_in_full(path, event):
    """As ledgers had it before there were marks."""
    entered(path, event)
    assert "drawn" not in path.read_text()
    assert Ledger(path).entries()[0].charged == event


def test_an_attempt_that_drew_nothing_changes_nothing_of_what_those_before_it_cost(path, event):
    ledger = entered(path, event, marked=True)
    ledger.draw("t")
    ledger.close("t", 10)
    ledger.open("t", event, kept=10, marked=True)
    assert [entry.charged.steps for entry in Ledger(path).entries()] == [50, 0]
    ledger.close("t", 10)
    ledger.open("t", event, kept=10, marked=True)
    ledger.draw("t")
    for read in (ledger, Ledger(path)):
        assert [entry.charged.steps for entry in read.entries()] == [10, 0, 40]


def test_only_an_open_training_can_draw(path, event):
    with pytest.raises(RecordError, match=r"Expected an open training of trial t in .*, got none"):
        Ledger(path).draw("t")
    ledger = entered(path, event, marked=True)
    ledger.close("t", 0)
    with pytest.raises(RecordError, match="Expected an open training"):
        ledger.draw("t")


def test_steps_of_a_training_without_its_mark_are_charged(path, event):
    """A file that says both is believed what costs more."""
    ledger = entered(path, event, marked=True)
    del ledger
    append(path, {"record": "close", "trial": "t", "attempt": 1, "steps": 5})
    assert Ledger(path).entries()[0].charged == event
