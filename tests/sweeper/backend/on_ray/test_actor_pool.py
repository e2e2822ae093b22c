"""Stacks of trials on a cluster, and what becomes of a trial whose process dies."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
import ray
from ray._private import state as _private_state
from ray.core.generated import gcs_pb2

import clipless
from sweeper.backend.backend import RunSettings
from sweeper.backend.endings import RunEnding, RunResult
from sweeper.backend.interruption import Interruption
from sweeper.backend.on_ray.actor_pool import train_stacks
from sweeper.backend.on_ray.cluster import place
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.planning.make import make_trial_settings
from sweeper.privacy.spending._composition import Composition
from sweeper.records import TrialStatus
from sweeper.specification.spec import Spec
from tests.factories import Proposals

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_running")]

PATIENCE_SECONDS = 120.0
CONTENT = {
    "name": "stacks",
    "data": {"name": "digits"},
    "model": {"architecture": "mlp", "width": 8},
    "training": {"epochs": 2, "batch_size": 256, "learning_rate": {"log": [0.01, 0.1]}, "sensitivity_fraction": 0.1},
    "privacy": {"noise_multiplier": 3.0, "delta": 1e-4},
    "search": {"trials": 9},
}


class Told:
    """What the driver hears, and whether a trial may start again."""

    def __init__(self, *, may_restart=True, on_draw=lambda _trial: None):
        self.ended, self.epochs, self.drawn, self.pids, self.started = {}, [], [], [], []
        self.hooks = Hooks(
            on_start=lambda trial, _config: self.started.append(trial),
            on_draw=lambda trial: (self.drawn.append(trial), on_draw(trial))[0],
            on_epoch=lambda trial, row: self.epochs.append((trial, row.epoch, row.model)),
            on_death=lambda _trial: may_restart,
            on_end=lambda trial, status, reason, _: self.ended.update({trial: (status, reason)}),
        )


@pytest.fixture(scope="module")
def data():
    return clipless.datasets.load("digits")


@pytest.fixture
def run(data, tmp_path):
    """Train so many trials on one worker."""
    (tmp_path / "models").mkdir()

    def go(told, trials, trainable=CliplessTrial, *, stack=1, should_stop=lambda: None):
        settings = RunSettings(
            trial=make_trial_settings(Spec.from_mapping(CONTENT), data),
            folder=tmp_path,
            interruption=Interruption(),
            should_stop=should_stop,
            spending=Composition(),
        )
        queue, states = TrialQueue(Proposals({"training.learning_rate": 0.05}), trials), TrialStates(told.hooks)
        given = {"places": 1, "stack": stack, "resources": {"CPU": 1}, "data": place(data)}
        return train_stacks(trainable, queue, states, settings, **given)

    return go


def tasks():
    """What Ray has recorded of every task for who asks: what its dashboard shows.

    This process reports its tasks in their order: once a last one of its own is shown, those before it are.
    """
    last = f"last-{uuid4().hex}"
    ray.get(ray.remote(num_cpus=0)(lambda: None).options(name=last).remote())
    accessor, names = _private_state.state._connect_and_get_accessor(), ()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while last not in names:
        assert time.monotonic() < deadline
        found = [gcs_pb2.TaskEvents.FromString(one) for one in accessor.get_task_events()]
        names = [one.task_info.name for one in found]
    return "".join(map(str, found))


class Dying(CliplessTrial):
    """Dies behind its first epoch, or behind its plan."""

    behind = "epoch"

    def step(self):
        row = super().step()
        if getattr(self, "_told", None) == self.behind and self._config["trial"] == "t1" and not _mark(self).exists():
            _mark(self).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self._told = type(row).__name__
        return row


def _mark(trial):
    return Path(trial._config["folder"]) / "died"


@pytest.mark.long
@pytest.mark.parametrize(("behind", "may_restart"), [("EpochRow", False), ("PlanRow", True)])
def test_a_trial_whose_process_dies_starts_again_only_if_it_may(run, behind, may_restart):
    told = Told(may_restart=may_restart)
    dying = type("Dying", (Dying,), {"behind": behind})
    assert run(told, 2, dying).is_complete
    assert told.ended["t2"] == (TrialStatus.COMPLETED, "")
    if may_restart:
        assert told.ended["t1"] == (TrialStatus.COMPLETED, "")
        assert told.started.count("t1") == 2
    else:
        assert told.ended["t1"] == (TrialStatus.FAILED, "its process died: killed, crashed or out of memory")
        assert told.started.count("t1") == 1


class Failing(CliplessTrial):
    """Raises an error that quotes a row."""

    def step(self):
        raise ValueError("row 7 is 0.25")


@pytest.mark.long
def test_an_error_of_a_trial_comes_to_the_driver_and_not_to_ray(run):
    told, heard = Told(), []
    told.hooks = Hooks(on_end=told.hooks.on_end, on_failure=lambda trial, error: heard.append((trial, error)))
    run(told, 1, Failing)
    assert heard == [("t1", "ValueError: row 7 is 0.25")]
    assert "0.25" not in str(told.ended)
    assert "0.25" not in tasks()


@pytest.mark.long
def test_a_reason_to_stop_ends_it_and_leaves_no_worker(run):
    told = Told()
    outcome = run(told, 3, should_stop=lambda: RunResult(RunEnding.REQUESTED) if told.epochs else None)
    assert outcome == RunResult(RunEnding.REQUESTED)
    assert set(told.ended.values()) == {(TrialStatus.INTERRUPTED, "it was asked to stop")}
    until = time.monotonic() + PATIENCE_SECONDS
    while ray.available_resources().get("CPU") != ray.cluster_resources()["CPU"] and time.monotonic() < until:
        time.sleep(0.1)
    assert ray.available_resources().get("CPU") == ray.cluster_resources()["CPU"]


@pytest.mark.long
@pytest.mark.parametrize("stack", [3, None])
def test_trials_on_a_ray_are_trained_in_stacks_and_one_that_is_stopped_ends_alone(run, tmp_path, stack):
    """Their models are in the folder that driver and workers share."""
    told = Told()
    on_epoch = told.hooks.on_epoch
    told.hooks = replace(
        told.hooks,
        on_epoch=lambda trial, row: on_epoch(trial, row) or ("no hope" if (trial, row.epoch) == ("t2", 1) else None),
    )
    assert run(told, 3, stack=stack).is_complete
    found = [(trial, epoch) for trial, epoch, _ in told.epochs]
    if stack == 3:  # else as many at a time as pay here
        assert found == [("t1", 1), ("t2", 1), ("t3", 1), ("t1", 2), ("t3", 2)]
    assert sorted(found) == [("t1", 1), ("t1", 2), ("t2", 1), ("t3", 1), ("t3", 2)]
    assert told.ended["t2"] == (TrialStatus.STOPPED, "no hope")
    assert told.ended["t1"] == told.ended["t3"] == (TrialStatus.COMPLETED, "")
    for _, _, model in told.epochs:
        if model is not None:
            clipless.load(tmp_path / model)
