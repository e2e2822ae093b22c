import itertools

import pytest

from sweeper.records import SweepStatus
from sweeper.service.supervision.states import (
    LONGEST_PAUSE_SECONDS,
    MOST_DEATHS,
    Facts,
    pause,
    settle,
    state_of,
)
from sweeper.service.supervision.submissions import Cause, Intent, Submission

NEW = Submission(submitted=0.0)
STARTED = NEW.but(job="job", mark=5)


def facts(**changes):
    return Facts(**{"driven": False, "alive": False, "status": None, "mark": 0} | changes)


@pytest.mark.parametrize(
    ("submission", "seen", "state"),
    [
        (NEW, facts(), SweepStatus.QUEUED),
        (STARTED, facts(alive=True), SweepStatus.STARTING),
        (STARTED, facts(alive=True, status=SweepStatus.COMPLETED, mark=5), SweepStatus.STARTING),
        (STARTED, facts(alive=True, status=SweepStatus.RUNNING, mark=6), SweepStatus.RUNNING),
        (STARTED, facts(driven=True, status=SweepStatus.RUNNING, mark=6), SweepStatus.RUNNING),
        (STARTED, facts(alive=True, status=SweepStatus.RUNNING, mark=6, away=True), SweepStatus.WAITING),
        (STARTED, facts(alive=True, away=True), SweepStatus.WAITING),
        (STARTED, facts(driven=True, alive=True, status=SweepStatus.RUNNING, mark=6, away=True), SweepStatus.RUNNING),
        (NEW, facts(away=True), SweepStatus.QUEUED),
        (
            STARTED.but(intent=Intent.REST),
            facts(status=SweepStatus.COMPLETED, mark=6, away=True),
            SweepStatus.COMPLETED,
        ),
        (
            STARTED.but(intent=Intent.STOP),
            facts(alive=True, status=SweepStatus.RUNNING, mark=6, away=True),
            SweepStatus.STOPPING,
        ),
        (STARTED.but(intent=Intent.STOP), facts(driven=True, status=SweepStatus.RUNNING, mark=6), SweepStatus.STOPPING),
        (NEW.but(intent=Intent.STOP), facts(), SweepStatus.STOPPING),
        (NEW.but(intent=Intent.REST, cause=Cause.NEVER_BEGUN), facts(), SweepStatus.STOPPED),
        (STARTED.but(intent=Intent.REST, cause=Cause.FAILED, failure="no such data"), facts(), SweepStatus.FAILED),
        (STARTED.but(intent=Intent.REST), facts(status=SweepStatus.COMPLETED, mark=6), SweepStatus.COMPLETED),
        (STARTED.but(intent=Intent.REST), facts(status=SweepStatus.RUNNING, mark=6), SweepStatus.INTERRUPTED),
        (STARTED.but(intent=Intent.REST), facts(driven=True, status=SweepStatus.RUNNING, mark=6), SweepStatus.RUNNING),
        (None, facts(driven=True, status=SweepStatus.RUNNING), SweepStatus.RUNNING),
        (None, facts(status=SweepStatus.RUNNING), SweepStatus.LOST),
        (None, facts(status=SweepStatus.STOPPED), SweepStatus.STOPPED),
        (None, facts(status=SweepStatus.FAILED), SweepStatus.FAILED),
        (None, facts(status=SweepStatus.INTERRUPTED), SweepStatus.INTERRUPTED),
    ],
)
def test_a_sweep_stands_as_what_was_asked_and_what_is_seen_say(submission, seen, state):
    assert state_of(submission, seen) is state


def test_only_ends_are_ends():
    assert {state for state in SweepStatus if state.is_end} == {
        SweepStatus.COMPLETED, SweepStatus.STOPPED, SweepStatus.FAILED, SweepStatus.INTERRUPTED,
    }  # fmt: skip


def test_a_driver_that_died_is_replaced_after_a_pause_a_bounded_number_of_times():
    submission, pauses = STARTED, []
    for _ in range(MOST_DEATHS - 1):
        submission = settle(submission, facts(status=SweepStatus.RUNNING, mark=6), 100.0)
        assert (submission.intent, submission.job) == (Intent.RUN, None)
        pauses.append(submission.not_before - 100.0)
        submission = submission.but(job="another")
    assert pauses == [2.0, 8.0, 32.0, 128.0]
    assert settle(submission, facts(status=SweepStatus.RUNNING, mark=6), 0.0).cause is Cause.GIVEN_UP
    assert pause(99) == pause(100_000) == LONGEST_PAUSE_SECONDS


def test_a_driver_that_got_further_is_no_failure_in_a_row():
    almost = STARTED.but(deaths=MOST_DEATHS - 1, points=10)
    assert settle(almost, facts(status=SweepStatus.RUNNING, mark=6, points=11), 0.0).deaths == 1
    assert settle(almost, facts(status=SweepStatus.RUNNING, mark=6, points=10), 0.0).intent is Intent.REST


@pytest.mark.parametrize("status", [status for status in SweepStatus if status.is_end])
def test_a_sweep_that_ended_rests(status):
    assert settle(STARTED, facts(status=status, mark=6), 0.0) == STARTED.but(intent=Intent.REST)


def test_an_end_from_before_the_driver_is_not_its_own():
    assert settle(STARTED, facts(status=SweepStatus.COMPLETED, mark=5), 0.0).intent is Intent.RUN


def test_a_driver_that_says_why_it_cannot_begin_is_believed():
    said = settle(STARTED.but(mark=0), facts(failure="No such file: x (data.path)"), 0.0)
    assert (said.intent, said.cause, said.failure) == (Intent.REST, Cause.FAILED, "No such file: x (data.path)")
    assert settle(STARTED, facts(failure="x", status=SweepStatus.RUNNING, mark=6), 0.0).intent is Intent.RUN


def test_no_stop_is_ever_undone():
    """Whatever else is seen, a sweep that somebody asked to stop is not to be run."""
    for driven, alive, status, mark, failure in itertools.product(
        (False, True), (False, True), (None, "running", "stopped", "completed"), (0, 5, 6), ("", "x")
    ):
        for job in (None, "job"):
            for stopped, intent in ((False, Intent.STOP), (False, Intent.REST), (True, Intent.RUN)):
                if stopped and job is None:
                    continue
                before = STARTED.but(job=job, intent=intent)
                seen = facts(driven=driven, alive=alive, status=status, mark=mark, failure=failure, stopped=stopped)
                after = settle(before, seen, 0.0)
                if seen.runs:
                    assert after == before
                else:
                    assert after.intent is Intent.REST
