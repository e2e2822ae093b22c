"""How a run ends: by what, in which words, and how its trials and its sweep then stand."""

import pytest

from sweeper.backend.endings import (
    INTERRUPTED,
    RunEnding,
    RunResult,
    close_trials,
    result_of_error,
    watch_endings,
)
from sweeper.backend.interruption import Interruption
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.errors import FOR_THE_OWNER
from sweeper.records import SweepStatus, TrialStatus


def watched(states=None, *, hours=None, should_stop=lambda: None, requested=False):
    interruption = Interruption()
    interruption.requested = requested
    return watch_endings(states or TrialStates(Hooks()), interruption, hours, should_stop)()


def test_time_ends_a_run():
    assert watched(hours=None) is None
    assert watched(hours=1) is None
    assert watched(hours=0) == RunResult(RunEnding.OUT_OF_TIME, hours=0)
    assert watched(hours=0).in_words() == "the 0 hours are used up"


def test_an_interruption_comes_before_every_other_ending():
    assert watched(hours=0, requested=True) == INTERRUPTED


def test_whoever_is_asked_may_end_a_run():
    stopped = RunResult(RunEnding.REQUESTED)
    assert watched(should_stop=lambda: stopped) is stopped


def test_trouble_that_ends_a_run_is_told_by_its_kind():
    states = TrialStates(Hooks(on_end=lambda *_: (_ for _ in ()).throw(ValueError("Name-042450"))))
    states.start("t0001", {})
    states.end("t0001", TrialStatus.COMPLETED)
    assert watched(states) == RunResult(RunEnding.FAILED, why=(f"ValueError: {FOR_THE_OWNER}",))


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        (RunEnding.COMPLETED, SweepStatus.COMPLETED),
        (RunEnding.INTERRUPTED, SweepStatus.INTERRUPTED),
        (RunEnding.FAILED, SweepStatus.FAILED),
        *(
            (ending, SweepStatus.STOPPED)
            for ending in RunEnding
            if ending not in (RunEnding.COMPLETED, RunEnding.INTERRUPTED, RunEnding.FAILED)
        ),
    ],
)
def test_how_a_sweep_stands_follows_from_how_its_run_ended(ending, status):
    result = RunResult(ending, hours=1.0, why=("it broke",))
    assert result.status is status
    assert bool(result.in_words()) is not result.is_complete


def test_a_second_ctrl_c_is_an_interruption_and_other_errors_are_failures():
    assert result_of_error(KeyboardInterrupt()) == INTERRUPTED
    assert result_of_error(OSError("row 7")).in_words() == f"OSError: {FOR_THE_OWNER}"


@pytest.mark.parametrize(
    ("ending", "status"), [(RunEnding.FAILED, TrialStatus.FAILED), (RunEnding.REQUESTED, TrialStatus.INTERRUPTED)]
)
def test_a_later_run_may_go_on_with_the_trials_of_one_that_did_not_fail(ending, status):
    ends = {}
    states = TrialStates(Hooks(on_end=lambda trial, *told: ends.update({trial: told})))
    states.start("t0001", {})
    result = RunResult(ending, why=("it broke",))
    assert close_trials(states, result) is result
    assert ends == {"t0001": (status, result.in_words(), 0)}
