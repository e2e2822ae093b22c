"""The engine: runs trials on Ray Tune.

A trainable is a ``ray.tune.Trainable`` class whose ``step()`` returns the rows that ``desk.py`` describes, of
plain JSON values. Ray asks a trial for its next row only after the desk has taken the last one, so what
``on_plan`` writes is written before the first noise is drawn.

A row travels as one JSON text: Ray flattens nested results on ``/``, which would tear ``certified@36/255``
apart, and shows schedulers only the flattened form. ``tune.run`` is used rather than ``tune.Tuner``, which
pickles its scheduler, callbacks and search, here tied to the driver, and would restore copies of them.
"""

import contextlib
import json
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle, tune
from ray.air._internal import usage
from ray.exceptions import RayActorError, RayTaskError
from ray.tune.experiment import Trial as RayTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import ConcurrencyLimiter

from sweeper.cluster import environment
from sweeper.desk import Desk, Hooks, one_line
from sweeper.errors import SweeperError
from sweeper.interruption import Interruption
from sweeper.records import TrialStatus
from sweeper.search import ROW, FrontSearch, read_row

GRACE_SECONDS = 2.0  # how long a stopped trial may finish its epoch before its process is killed

TUNE_ENVIRONMENT = {
    "TUNE_RESULT_BUFFER_LENGTH": "1",  # one row at a time: the ledger depends on it
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON or TensorBoard files
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # interruption.py has it
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended: with a ``reason`` if it ended before its last trial, ``interrupted`` or not."""

    interrupted: bool = False
    reason: str = ""


def run_trials(
    trainable: type[tune.Trainable],
    search: FrontSearch,
    *,
    trials: int,
    concurrent: int | None,
    resources: Mapping[str, float],
    storage_dir: Path,
    hooks: Hooks,
    constants: Mapping[str, Any] | None = None,
    hours: float | None = None,
    should_stop: Callable[[], str | None] = lambda: None,
    interruption: Interruption | None = None,
) -> Outcome:
    """Run trials until there are enough, time is up, or somebody asks to stop.

    Args:
        trainable: see the module. Its processes are reused: ``reset_config`` starts from nothing and returns
            ``True``. What may fail belongs into ``step``, not into ``setup``.
        search: proposes the configurations and is told how they did.
        trials: how many in all.
        concurrent: how many at a time; as many as the cluster now has resources for if ``None``.
        resources: of one trial, as Ray names them: ``{"CPU": 1, "GPU": 0.25}``.
        storage_dir: ``storage_dir/ray`` holds Ray's state and the traceback of every failed trial.
        hooks: are told of every start, plan, epoch and end.
        constants: plain values that every configuration holds beside ``trial`` and ``proposal``.
        hours: stop everything after this long.
        should_stop: asked at least ten times a second; a text stops everything, for that reason.
        interruption: where Ctrl-C is noted; an own one if ``None``.

    Raises:
        SweeperError: no Ray is running, or it has not what one trial needs.
        KeyboardInterrupt: on a second Ctrl-C, once the hooks have been told.
    """
    places = _places(resources)
    desk = Desk(hooks)
    with interruption or Interruption() as interruption, _quiet_tune():
        run = _Run(desk, _endings(desk, interruption, hours, should_stop))
        try:
            tune.run(
                _packing(trainable, resources),
                name="ray",
                storage_path=str(storage_dir.resolve()),
                config=dict(constants or {}),
                num_samples=trials,
                search_alg=ConcurrencyLimiter(search, concurrent or places),
                scheduler=_Conductor(run),
                callbacks=[_Companion(desk)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                reuse_actors=True,
                trial_dirname_creator=_trial_id,
                trial_name_creator=_trial_id,
                raise_on_failed_trial=False,
                verbose=0,
            )
        except BaseException as error:
            forced = isinstance(error, KeyboardInterrupt)
            desk.close(TrialStatus.INTERRUPTED if forced else TrialStatus.FAILED, one_line(error))
            raise
        finally:
            run.finish()
            search.abandon()
    if desk.trouble:
        raise desk.trouble
    return run.outcome


def _places(resources: Mapping[str, float]) -> int:
    """Return how many trials fit the cluster at a time; none is refused, since Tune would wait in silence."""
    if not ray.is_initialized():
        raise SweeperError("Expected a running Ray, got none; call run_trials within `with cluster():`")
    there = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for name, amount in resources.items():
        if amount > there.get(name, 0):
            raise SweeperError(
                f"Expected at most {there.get(name, 0):g} {name} for a trial, got {amount:g}; "
                "the cluster has no more: ask for less or use a larger one"
            )
    return min(int(there[name] / amount) for name, amount in resources.items() if amount)


Ending = tuple[TrialStatus, str]


def _endings(
    desk: Desk, interruption: Interruption, hours: float | None, should_stop: Callable[[], str | None]
) -> Callable[[], Ending | None]:
    """Return what to ask, again and again, for a reason to end the run."""
    deadline = math.inf if hours is None else time.monotonic() + hours * 3600

    def ending() -> Ending | None:
        if interruption.requested:
            return TrialStatus.INTERRUPTED, "interrupted"
        if desk.trouble:
            return TrialStatus.FAILED, one_line(desk.trouble)
        late = f"the {hours:g} hours are used up" if time.monotonic() >= deadline else None
        reason = late or should_stop()
        return (TrialStatus.STOPPED, reason) if reason else None

    return ending


class _Run:
    """One run of Tune and how it is ended before its time."""

    def __init__(self, desk: Desk, ending: Callable[[], Ending | None]) -> None:
        self.desk = desk
        self.outcome = Outcome()
        self.is_ending = False
        self._ending = ending
        self._actors: list[Any] = []
        self._killer = threading.Timer(GRACE_SECONDS, self._kill)

    def poll(self, controller: Any) -> None:
        """If there is a reason to end: close the desk, stop Tune, and leave the trials the grace time."""
        ending = None if self.is_ending else self._ending()
        if ending is None:
            return
        status, reason = ending
        self.is_ending = True
        self.outcome = Outcome(status is TrialStatus.INTERRUPTED, reason)
        self.desk.close(status, reason)
        self._actors = [trial.temporary_state.ray_actor for trial in controller.get_live_trials()]
        self._killer.start()
        if self.outcome.interrupted and threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGUSR1)  # Tune's own way out: its saved state can be resumed
        else:
            controller.request_stop_experiment()

    def finish(self) -> None:
        """Kill what is left of a run that was ended before its time."""
        if self.is_ending:
            self._killer.cancel()
            self._killer.join()
            self._kill()

    def _kill(self) -> None:
        for actor in filter(None, self._actors):
            with contextlib.suppress(Exception):  # it may be gone, and Ray with it
                ray.kill(actor)


class _Conductor(FIFOScheduler):
    """Shows the desk every row before Ray may ask the trial for its next."""

    def __init__(self, run: _Run) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> str:  # noqa: ARG002
        goes_on = self._run.desk.receive(_trial_id(trial), read_row(result))
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP

    def choose_trial_to_run(self, tune_controller: Any) -> RayTrial | None:
        self._run.poll(tune_controller)
        return None if self._run.is_ending else super().choose_trial_to_run(tune_controller)


class _Companion(tune.Callback):
    """Brings the desk what a scheduler is not told of: starts, last rows and ends; and keeps its state."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def on_trial_start(self, *, trial: RayTrial, **_info: Any) -> None:  # type: ignore[override]
        self._desk.start(_trial_id(trial), trial.config)

    def on_trial_result(self, *, trial: RayTrial, result: dict[str, Any], **_info: Any) -> None:  # type: ignore[override]
        self._desk.receive(_trial_id(trial), read_row(result))

    def on_trial_complete(self, *, trial: RayTrial, **_info: Any) -> None:  # type: ignore[override]
        self._desk.end(_trial_id(trial), TrialStatus.COMPLETED)

    def on_trial_error(self, *, trial: RayTrial, **_info: Any) -> None:  # type: ignore[override]
        self._desk.start(_trial_id(trial), trial.config)  # it may have failed before it started
        self._desk.end(_trial_id(trial), TrialStatus.FAILED, _failure(trial))

    def get_state(self) -> dict[str, int]:
        return self._desk.state()

    def set_state(self, state: dict[str, int]) -> None:
        self._desk.restore(state)


def _packing(trainable: type[tune.Trainable], resources: Mapping[str, float]) -> type[tune.Trainable]:
    """Return the trainable with its rows packed as text, and the resources of one trial."""

    class Packing(trainable):  # type: ignore[misc, valid-type]
        def step(self) -> dict[str, Any]:
            row = super().step()
            return {ROW: json.dumps(row), "done": bool(row.get("done"))}

        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:  # noqa: ARG003
            return tune.PlacementGroupFactory([{name: amount for name, amount in resources.items() if amount}])

    Packing.__name__ = Packing.__qualname__ = trainable.__name__
    return Packing


def _trial_id(trial: RayTrial) -> str:
    return str(trial.config["trial"])


def _failure(trial: RayTrial) -> str:
    """Return why a trial failed, in one line."""
    try:
        with open(trial.pickled_error_file, "rb") as file:
            error = cloudpickle.load(file)
    except Exception:
        return "failed, and left no error behind"
    if isinstance(error, RayTaskError):
        return one_line(error.cause or str(error).strip().splitlines()[-1])
    if isinstance(error, RayActorError) and error.actor_init_failed:
        return one_line(str(error).strip().splitlines()[-1])
    if isinstance(error, RayActorError):
        return "its process died: killed, crashed or out of memory"
    return one_line(error)


@contextlib.contextmanager
def _quiet_tune() -> Iterator[None]:
    """Tune's settings and silence; all is as before afterwards."""
    logger = logging.getLogger("ray.tune")
    level, tag_callbacks = logger.level, usage.tag_callbacks
    usr1 = signal.getsignal(signal.SIGUSR1)
    logger.setLevel(logging.CRITICAL)
    usage.tag_callbacks = _no_tag  # telemetry that imports MLflow: two seconds of the driver
    try:
        with environment(TUNE_ENVIRONMENT):
            yield
    finally:
        usage.tag_callbacks = tag_callbacks
        logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, usr1)  # Tune leaves its own handler behind


def _no_tag(callbacks: list[tune.Callback] | None) -> bool:  # noqa: ARG001
    return False
