import math
import os
import signal
import threading
from dataclasses import replace

import pytest

from sweeper.backend import interruption
from sweeper.backend.interruption import Interruption
from sweeper.backend.trial_states import MOST_RESTARTS, Hooks, TrialStates
from sweeper.errors import FOR_THE_OWNER, MAX_REASON_LENGTH, TrialError, one_line
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow, FirstDrawRow, PlanRow

PLAN = PlanRow(attempt="", plan=None)  # which nothing here looks at


def epoch(number, **more):
    return EpochRow(**{"epoch": number, "values": {"accuracy": 0.5}} | more)


NAMES = ("on_start", "on_plan", "on_draw", "on_epoch", "on_restart", "on_end")


class Book:
    """Hooks that write down what they are told."""

    def __init__(self, **answers):
        self.told = []
        self.answers = answers

    def hooks(self):
        return Hooks(**{name: self._hook(name) for name in NAMES})

    def _hook(self, name):
        def hook(*args):
            self.told.append((name, *args))
            answer = self.answers.get(name)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return hook

    @property
    def ends(self):
        return [told[1:] for told in self.told if told[0] == "on_end"]


def opened(**answers):
    book = Book(**answers)
    states = TrialStates(book.hooks())
    states.start("t0001", {"trial": "t0001"})
    return states, book


def test_hooks_are_told_in_order():
    states, book = opened()
    assert states.receive("t0001", PLAN)
    assert states.receive("t0001", epoch(1))
    states.end("t0001", TrialStatus.COMPLETED)
    assert book.told == [
        ("on_start", "t0001", {"trial": "t0001"}),
        ("on_plan", "t0001", PLAN),
        ("on_epoch", "t0001", epoch(1)),
        ("on_end", "t0001", TrialStatus.COMPLETED, "", 1),
    ]


def test_a_repeated_row_is_taken_once():
    states, book = opened()
    for row in (PLAN, PLAN, epoch(1), PLAN, epoch(1), epoch(2)):
        assert states.receive("t0001", row)
    assert [told[2] for told in book.told[1:]] == [PLAN, epoch(1), epoch(2)]


def test_a_trial_starts_and_ends_once():
    states, book = opened()
    states.start("t0001", {})
    states.end("t0001", TrialStatus.COMPLETED)
    states.end("t0001", TrialStatus.FAILED, "late")
    states.close(TrialStatus.INTERRUPTED, "late")
    assert book.ends == [("t0001", TrialStatus.COMPLETED, "", 0)]


@pytest.mark.parametrize(
    ("answers", "rows", "status", "reason", "begun"),
    [
        ({"on_plan": "too dear"}, [PLAN], TrialStatus.STOPPED, "too dear", 0),
        ({"on_plan": OSError("disk full")}, [PLAN], TrialStatus.FAILED, f"OSError: {FOR_THE_OWNER}", 0),
        ({"on_epoch": "no hope"}, [PLAN, epoch(1)], TrialStatus.STOPPED, "no hope", 1),
        ({"on_epoch": KeyError("x")}, [PLAN, epoch(1)], TrialStatus.FAILED, f"KeyError: {FOR_THE_OWNER}", 1),
        ({"on_epoch": TrialError("no")}, [PLAN, epoch(1)], TrialStatus.FAILED, "TrialError: no", 1),
        ({}, [epoch(1)], TrialStatus.FAILED, "reported an epoch before its plan", 1),
        (
            {},
            [PLAN, epoch(1, values={"accuracy": 0.5, "epsilon": math.nan})],
            TrialStatus.FAILED,
            "epsilon is not a number in epoch 1",
            1,
        ),
    ],
)
def test_a_verdict_ends_the_trial_and_explains_its_end(answers, rows, status, reason, begun):
    states, book = opened(**answers)
    *before, last = rows
    assert all(states.receive("t0001", row) for row in before)
    assert not states.receive("t0001", last)
    assert not states.receive("t0001", epoch(9))
    states.end("t0001", TrialStatus.COMPLETED)
    assert book.ends == [("t0001", status, reason, begun)]


@pytest.mark.parametrize(
    ("status", "rows", "begun"),
    [
        (TrialStatus.COMPLETED, [PLAN, epoch(1)], 1),
        (TrialStatus.FAILED, [], 0),
        (TrialStatus.FAILED, [PLAN], 1),
        (TrialStatus.FAILED, [PLAN, epoch(1)], 2),
        (TrialStatus.INTERRUPTED, [], 0),
        (TrialStatus.INTERRUPTED, [PLAN, epoch(1), epoch(2)], 3),
        (TrialStatus.STOPPED, [PLAN, epoch(1)], 2),
    ],
)
def test_an_epoch_that_may_have_been_begun_is_counted(status, rows, begun):
    states, book = opened()
    for row in rows:
        states.receive("t0001", row)
    states.end("t0001", status)
    assert book.ends == [("t0001", status, "", begun)]


def test_no_hook_sees_a_nan():
    states, book = opened()
    states.receive("t0001", PLAN)
    states.receive("t0001", epoch(1, values={"accuracy": math.nan}))
    assert "on_epoch" not in [told[0] for told in book.told]


def test_a_value_that_was_not_computed_is_no_failure():
    states, _ = opened()
    states.receive("t0001", PLAN)
    assert states.receive("t0001", epoch(1, values={"accuracy": 0.5, "certified@1": None}))


def test_a_trial_stopped_at_its_last_epoch_is_complete():
    states, book = opened(on_epoch="no hope")
    states.receive("t0001", PLAN)
    states.receive("t0001", epoch(1, done=True))
    states.end("t0001", TrialStatus.COMPLETED)
    assert book.ends == [("t0001", TrialStatus.COMPLETED, "", 1)]


@pytest.mark.parametrize("hook", ["on_start", "on_end"])
def test_trouble_in_a_hook_that_has_no_say_is_kept(hook):
    states, _ = opened(**{hook: OSError("disk full")})
    states.end("t0001", TrialStatus.COMPLETED)
    assert str(states.trouble) == "disk full"


def test_closing_ends_what_is_open():
    states, book = opened()
    states.start("t0002", {})
    states.end("t0001", TrialStatus.COMPLETED)
    states.close(TrialStatus.INTERRUPTED, "interrupted")
    assert not states.receive("t0002", PLAN)
    assert book.ends[1:] == [("t0002", TrialStatus.INTERRUPTED, "interrupted", 0)]


def again(attempt="again"):
    return replace(PLAN, attempt=attempt)


def test_a_trial_of_an_earlier_run_drops_the_epochs_that_were_taken():
    book = Book()
    states = TrialStates(book.hooks(), {"t0001": 2})
    assert states.last_epoch("t0001") == 2
    assert states.last_epoch("t0002") == 0
    states.start("t0001", {})
    for row in (again(), epoch(1), epoch(2), epoch(3)):
        assert states.receive("t0001", row)
    assert book.told[1:] == [("on_plan", "t0001", again()), ("on_epoch", "t0001", epoch(3))]


def test_a_trial_of_an_earlier_run_that_does_not_begin_is_left_alone():
    book = Book()
    TrialStates(book.hooks(), {"t0001": 2}).close(TrialStatus.INTERRUPTED, "interrupted")
    assert book.told == []


def test_a_trial_that_lost_its_process_starts_again_and_is_planned_again():
    states, book = opened()
    for row in (again("first"), epoch(1)):
        states.receive("t0001", row)
    assert states.restart("t0001")
    states.start("t0001", {"trial": "t0001"})
    for row in (again("second"), again("second"), epoch(1), epoch(2)):
        assert states.receive("t0001", row)
    states.end("t0001", TrialStatus.COMPLETED)
    assert [told[0] for told in book.told] == [
        *("on_start", "on_plan", "on_epoch"),
        *("on_restart", "on_start", "on_plan", "on_epoch", "on_end"),
    ]
    assert ("on_restart", "t0001", 2) in book.told  # the second epoch had begun
    assert book.ends == [("t0001", TrialStatus.COMPLETED, "", 2)]


def test_a_trial_starts_again_only_so_often_and_never_after_a_verdict():
    states, _ = opened()
    assert [states.restart("t0001") for _ in range(MOST_RESTARTS + 1)] == [True] * MOST_RESTARTS + [False]
    states, _ = opened(on_epoch="no hope")
    for row in (PLAN, epoch(1)):
        states.receive("t0001", row)
    assert not states.restart("t0001")
    states.end("t0001", TrialStatus.FAILED, "its process died")
    assert not states.restart("t0001")


def test_a_trial_that_comes_further_between_its_deaths_is_started_again():
    states, _ = opened()
    states.receive("t0001", PLAN)
    for number in range(1, MOST_RESTARTS + 3):
        states.receive("t0001", epoch(number))
        assert states.restart("t0001")
    assert [states.restart("t0001") for _ in range(MOST_RESTARTS)] == [True] * (MOST_RESTARTS - 1) + [False]


def test_a_trial_waiting_to_start_again_is_closed_too():
    states, book = opened()
    states.receive("t0001", PLAN)
    states.restart("t0001")
    states.close(TrialStatus.INTERRUPTED, "interrupted")
    assert book.ends == [("t0001", TrialStatus.INTERRUPTED, "interrupted", 1)]


def test_a_trial_that_is_killed_on_purpose_ends_as_it_was_said_it_would():
    states, book = opened()
    for row in (PLAN, epoch(1)):
        states.receive("t0001", row)
    states.overrule("t0001", TrialStatus.STOPPED, "too long")
    assert not states.restart("t0001")
    states.end("t0001", TrialStatus.FAILED, "its process died")
    states.overrule("t0001", TrialStatus.FAILED, "late")
    assert book.ends == [("t0001", TrialStatus.STOPPED, "too long", 2)]  # in the middle of its second epoch


def test_hooks_may_be_left_out():
    states = TrialStates(Hooks())
    states.start("t0001", {})
    assert states.receive("t0001", PLAN)
    assert states.receive("t0001", epoch(1))
    states.close(TrialStatus.STOPPED, "enough")
    assert states.trouble is None


def test_an_error_becomes_one_line():
    assert one_line(ValueError("two\n  lines")) == "ValueError: two lines"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
    assert one_line("ValueError:  as text\n") == "ValueError: as text"
    assert len(one_line("x" * 5000)) == MAX_REASON_LENGTH + 3


def test_the_first_signal_is_noted_and_the_second_raises(monkeypatch):
    monkeypatch.setattr(interruption, "DEBOUNCE_SECONDS", 0.0)
    before = signal.getsignal(signal.SIGINT)
    with Interruption() as stop:
        with stop:
            os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_sent_twice_by_a_launcher_counts_once():
    with Interruption() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.requested


def test_outside_the_main_thread_it_is_only_a_flag():
    before = signal.getsignal(signal.SIGINT)

    def look():
        with Interruption() as stop:
            seen.append((stop.requested, signal.getsignal(signal.SIGINT)))

    seen = []
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [(False, before)]


def test_a_trial_whose_process_comes_up_when_the_run_is_ending_has_not_begun():
    states, book = opened()
    states.close(TrialStatus.INTERRUPTED, "interrupted")
    told = len(book.told)
    states.start("t0002", {})
    assert not states.receive("t0002", PLAN)
    states.end("t0002", TrialStatus.COMPLETED)
    assert len(book.told) == told


def test_noise_is_announced_once_for_each_plan_and_after_it():
    states, book = opened()
    assert states.receive("t0001", PLAN)
    for _ in range(2):  # Ray shows every row twice
        assert states.receive("t0001", FirstDrawRow())
    assert [told for told in book.told if told[0] == "on_draw"] == [("on_draw", "t0001")]
    assert states.receive("t0001", again("another"))
    assert states.receive("t0001", FirstDrawRow())
    assert [told for told in book.told if told[0] == "on_draw"] == [("on_draw", "t0001")] * 2


def test_a_trial_whose_mark_cannot_be_written_draws_nothing():
    states, book = opened(on_draw=OSError("disk full"))
    states.receive("t0001", PLAN)
    assert not states.receive("t0001", FirstDrawRow())
    states.end("t0001", TrialStatus.COMPLETED)
    ((_, status, reason, begun),) = book.ends
    assert (status, reason.startswith("OSError"), begun) == (TrialStatus.FAILED, True, 0)


@pytest.mark.parametrize("answer", [OSError("disk full"), "no room in the budget"])
def test_an_epoch_that_ran_out_of_memory_is_counted_whatever_becomes_of_its_next_plan(answer):
    states, book = opened()
    for row in (PLAN, FirstDrawRow(), epoch(1)):
        assert states.receive("t0001", row)
    book.answers["on_plan"] = answer
    assert not states.receive("t0001", again("smaller"))  # its second epoch has drawn
    states.end("t0001", TrialStatus.COMPLETED)
    assert [begun for *_, begun in book.ends] == [2]


def test_a_plan_that_is_refused_before_any_noise_begins_no_epoch():
    states, book = opened()
    assert states.receive("t0001", PLAN)
    book.answers["on_plan"] = "no room in the budget"
    assert not states.receive("t0001", again())
    states.end("t0001", TrialStatus.COMPLETED)
    assert [begun for *_, begun in book.ends] == [0]


def test_noise_before_a_plan_is_a_failure():
    states, book = opened()
    assert not states.receive("t0001", FirstDrawRow())
    states.end("t0001", TrialStatus.COMPLETED)
    assert book.ends[0][1:3] == (TrialStatus.FAILED, "reported a draw before its plan")
