import errno
import json
import random
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.privacy.accounting import pld_epsilon, rdp_epsilon
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import RecordError
from sweeper.ledger import Ledger
from sweeper.pricing import price, round_up

DELTA = 1e-5


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


def test_an_entry_is_on_the_disk_before_open_returns(path, event, monkeypatch):
    synced = []
    monkeypatch.setattr("sweeper.rows.os.fsync", lambda _: synced.append(path.read_text()))
    assert Ledger(path).open("t1", event) == 1
    assert json.loads(synced[0]) == {"record": "open", "trial": "t1", "attempt": 1, "event": event.to_json()}


def test_no_entry_no_training(path, event, monkeypatch):
    ledger = Ledger(path)
    with monkeypatch.context() as patch:
        patch.setattr(
            "sweeper.rows.os.pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left"))
        )
        with pytest.raises(RecordError, match=r"Cannot write .*ledger\.jsonl: No space left"):
            ledger.open("t1", event)
    assert ledger.entries() == ()


def test_a_training_is_charged_its_plan_whether_closed_stopped_or_lost(path, event):
    ledger = Ledger(path)
    for trial in ("done", "stopped", "lost"):
        ledger.open(trial, event.to_json())
    ledger.close("done", event.steps)
    ledger.close("stopped", 5)
    assert [entry.charged for entry in ledger.entries()] == [event] * 3
    assert [entry.steps for entry in ledger.entries()] == [50, 5, None]


def test_steps_beyond_the_plan_are_charged_too(path, event):
    ledger = Ledger(path)
    ledger.open("t", event)
    ledger.close("t", 60)
    assert ledger.entries()[0].charged == event.with_steps(60)


def test_a_restarted_training_is_charged_again(path, event):
    ledger = Ledger(path)
    assert [ledger.open("t", event), ledger.open("u", event), ledger.open("t", event)] == [1, 1, 2]
    ledger.close("t", 50)
    assert [(e.trial, e.attempt, e.steps) for e in ledger.entries()] == [
        ("t", 1, None),
        ("u", 1, None),
        ("t", 2, 50),
    ]
    assert ledger.answers(DELTA)["everything"].epsilon == rdp_epsilon(event.with_steps(150), DELTA)


def test_a_training_that_goes_on_is_charged_what_was_drawn_and_what_is_left(path, event):
    ledger = Ledger(path)
    ledger.open("t", event)
    ledger.close("t", 15)  # killed in the third epoch; the checkpoint holds two
    before = ledger.epsilon_with("t", event, DELTA, kept=10)
    assert ledger.open("t", event, kept=10) == 2
    assert [entry.charged.steps for entry in ledger.entries()] == [15, 40]
    ledger.close("t", 32)  # killed again
    ledger.open("t", event, kept=30)
    assert [entry.charged.steps for entry in ledger.entries()] == [15, 22, 20]
    ledger.close("t", 50)
    assert [entry.steps for entry in ledger.entries()] == [15, 22, 20]
    assert Ledger(path).entries() == ledger.entries()
    assert before == rdp_epsilon(event.with_steps(55), DELTA)
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
    ledger = Ledger(path)
    ledger.open("t", event)
    if reached is not None:
        ledger.close("t", reached)
    with pytest.raises(RecordError, match=said):
        ledger.open("t", event, kept=kept)
    with pytest.raises(RecordError, match="kept=5 steps that trial new has run"):
        ledger.open("new", event, kept=5)
    assert len(Ledger(path).entries()) == 1


def test_another_mechanism_does_not_go_on(path, event):
    ledger = Ledger(path)
    ledger.open("t", event)
    ledger.close("t", 15)
    with pytest.raises(RecordError, match="Expected the mechanism that trial t began with; begin it anew"):
        ledger.open("t", replace(event, noise_multiplier=9.0), kept=10)
    assert ledger.is_open("t") is False


def test_a_ledger_survives_its_process(path, event):
    ledger = Ledger(path)
    ledger.open("t", event)
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
        ledger.open(
            f"t{n}",
            PoissonGaussian(noise_multiplier=1.0 + n, sampling_rate=0.1, steps=7, relation=Relation.REPLACE_ONE),
        )
        sizes.append(path.stat().st_size)
        ledger.close(f"t{n}", 7)
    content = path.read_bytes()
    cut = min(cut, len(content))
    path.write_bytes(content[:cut])
    assert len(Ledger(path).entries()) >= sum(size <= cut for size in sizes)


def test_relations_are_never_mixed(path, event):
    ledger = Ledger(path)
    ledger.open("t", event)
    other = replace(event, relation=Relation.REPLACE_ONE)
    with pytest.raises(
        RecordError,
        match=r"Expected the relation add-or-remove-one .*ledger\.jsonl, got replace-one; start another sweep",
    ):
        ledger.open("u", other)
    assert len(ledger.entries()) == len(path.read_text().splitlines()) == 1
    with path.open("a") as file:
        file.write(json.dumps({"record": "open", "trial": "u", "attempt": 1, "event": other.to_json()}) + "\n")
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
    ledger = Ledger(path)
    ledger.open("t", event)
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
            f"epsilon {round_up(answer.epsilon)} at delta 1e-05, the composition of every training of the sweep (3)"
            in answer.statement
        )
    assert answers["everything"].epsilon > rdp_epsilon(event, DELTA)
    assert "charged for each" in answers["winner"].statement


def test_a_tight_answer_asks_both_accountants(path, event):
    ledger = Ledger(path)
    ledger.open("a", event)
    ledger.open("b", event)
    both = event.with_steps(100)
    loose, tight = (ledger.answers(DELTA, tight=flag)["winner"].epsilon for flag in (False, True))
    assert loose == rdp_epsilon(both, DELTA)
    assert tight == min(loose, pld_epsilon(both, DELTA)) < loose


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


def test_sixty_four_different_trials_are_priced_in_two_seconds(path, event):
    rng = random.Random(0)
    ledger = Ledger(path)
    for n in range(64):
        ledger.open(f"t{n}", replace(event, noise_multiplier=rng.uniform(1, 5), sampling_rate=rng.uniform(0.02, 0.3)))
    started = time.process_time()
    ledger.answers(DELTA)
    assert time.process_time() - started < 2


def test_one_training_repeated_costs_what_soundness_says(path):
    one = PoissonGaussian(noise_multiplier=3.0, sampling_rate=0.05, steps=2000, relation=Relation.ADD_OR_REMOVE_ONE)
    ledger = Ledger(path)
    ledger.open("a", one)
    assert ledger.answers(DELTA)["winner"].epsilon == pytest.approx(3.547, rel=0.01)
    for n in range(9):
        ledger.open(f"b{n}", one)
    assert ledger.answers(DELTA)["everything"].epsilon == pytest.approx(13.6, rel=0.01)
