"""Trials on Ray Tune, one at a time in each process.

A trainable has ``setup``, ``reset_config``, ``step`` and ``cleanup`` as those of ``ray.tune.Trainable``, but its
``step()`` returns rows of `sweeper.trials.stream`. Ray asks a trial
for its next row only after the states of trials have taken the last one, so what ``on_plan`` writes is written before
the first noise is drawn.

A row travels as one JSON text: Ray flattens nested results on ``/`` and shows schedulers only that form. ``tune.run``
is used rather than ``tune.Tuner``, which pickles its scheduler, callbacks and search, here tied to the driver, and
would restore copies of them.
"""

import contextlib
import logging
import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import ray
from ray import cloudpickle, tune
from ray.air._internal import usage
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, RayTaskError, WorkerCrashedError
from ray.tune.experiment import Trial as RayTrial
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from sweeper.backend.backend import RunSettings
from sweeper.backend.endings import (
    DIED,
    GRACE_SECONDS,
    RunEnding,
    RunResult,
    close_trials,
    late_reason,
    result_of_error,
    watch_endings,
)
from sweeper.backend.environment import environment
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import TrialStart, TrialStates
from sweeper.errors import SweeperError
from sweeper.records import TrialStatus
from sweeper.trials.stream import EpochRow, TrialRow, row_from_text, row_to_text

ROW = "row"  # the key under which a trial's row travels, as one JSON text

LOOK_SECONDS = 2.0  # between two looks at the nodes of the cluster

TUNE_ENVIRONMENT = {
    "TUNE_RESULT_BUFFER_LENGTH": "1",  # one row at a time: the ledger depends on it
    "TUNE_GLOBAL_CHECKPOINT_S": "inf",  # Tune's own state is not what a sweep is resumed from
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # no CSV, JSON or TensorBoard files
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # interruption.py has it
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
}


def train_alone(
    kind: type[Any],
    queue: TrialQueue,
    states: TrialStates,
    settings: RunSettings,
    *,
    concurrent: int | None,
    resources: Mapping[str, float],
    data: Any,
) -> RunResult:
    """Run trials as `sweeper.backend.backend.Backend` does, each alone in a process of Ray Tune.

    Args:
        kind: see the module. Its processes are reused: ``reset_config`` starts from nothing and returns ``True``. What
            may fail belongs into ``step``, not into ``setup``. Its configuration holds ``trial``, ``proposal``,
            ``recorded`` (the last epoch that was taken of it), ``front`` and the constants.
        queue: says which trial starts next.
        states: takes every start, row and end.
        settings: what else there is to know. ``ray`` in its folder holds Ray's state and the traceback of every failed
            trial.
        concurrent: how many at a time; as many as the cluster now has resources for if ``None``.
        resources: of one trial, as Ray names them: ``{"CPU": 1, "GPU": 0.25}``.
        data: what all trials train on, as their configurations hold it.
    """
    room, folder = places_for(resources), settings.folder
    (folder / "ray").mkdir(mode=0o700, parents=True, exist_ok=True)  # tracebacks may quote data
    places = concurrent or room
    with settings.interruption as interruption, _quiet_tune(places):
        ending = watch_endings(states, interruption, settings.hours, settings.should_stop)
        run = _TuneRun(queue, states, ending, settings.trial_hours)
        try:
            tune.run(
                _packing(kind, resources),
                name="ray",
                storage_path=str(folder.resolve()),
                config=settings.constants() | {"data": data},
                num_samples=-1,
                search_alg=_QueueSearcher(run, places),
                scheduler=_TuneScheduler(run),
                callbacks=[_TuneCallback(run)],
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                reuse_actors=True,
                trial_dirname_creator=_trial_id,
                trial_name_creator=_trial_id,
                raise_on_failed_trial=False,
                verbose=0,
            )
        except BaseException as error:
            close_trials(states, result_of_error(error))
            raise
        finally:
            run.finish()
    if states.trouble:
        raise states.trouble
    return run.outcome


def places_for(resources: Mapping[str, float]) -> int:
    """Return how many trials fit the cluster at a time; none is refused, since Tune would wait in silence."""
    if not ray.is_initialized():
        raise SweeperError("Expected a running Ray, got none; call train_alone within `with join_cluster(...)`")
    there = ray.cluster_resources()  # type: ignore[no-untyped-call]
    for name, amount in resources.items():
        if amount > there.get(name, 0):
            raise SweeperError(
                f"Expected at most {there.get(name, 0):g} {name} for a trial, got {amount:g}; "
                "the cluster has no more: ask for less or use a larger one"
            )
    return min(int(there[name] / amount) for name, amount in resources.items() if amount)


class _TuneRun:
    """One run of Tune and how it, or one trial, is ended before its time."""

    def __init__(
        self, queue: TrialQueue, states: TrialStates, ending: Callable[[], RunResult | None], trial_hours: float | None
    ) -> None:
        self.queue, self.states = queue, states
        self.outcome = RunResult()
        self.is_ending = False
        self._ending = ending
        self._trial_hours = math.inf if trial_hours is None else trial_hours
        self._began: dict[str, float] = {}
        self._look_at = 0.0
        self._actors: list[Any] = []
        self._killer = threading.Timer(GRACE_SECONDS, self._kill)

    def poll(self, controller: Any) -> None:
        """If there is a reason to end: close the trial states, stop Tune, and leave the trials the grace time."""
        if self.is_ending:
            return
        self._end_late(controller)
        ended = RunResult(RunEnding.RAY_DIED) if self._is_ray_lost() else self._ending()
        if ended is None:
            return
        self.is_ending = True
        self.outcome = close_trials(self.states, ended)
        self._actors = [trial.temporary_state.ray_actor for trial in controller.get_live_trials()]
        self._killer.start()
        controller.request_stop_experiment()

    def _is_ray_lost(self) -> bool:
        """Whether no node is left; Tune would wait for one in silence."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + LOOK_SECONDS
        return not any(node["Alive"] for node in ray.nodes())  # type: ignore[no-untyped-call]

    def began(self, trial: RayTrial) -> None:
        """Start a trial's clock."""
        self._began[trial.trial_id] = time.monotonic()

    def _end_late(self, controller: Any) -> None:
        """Kill trials that take too long: one that hangs would never come to be asked to stop."""
        latest = time.monotonic() - self._trial_hours * 3600
        for trial in controller.get_live_trials() if math.isfinite(latest) else ():
            if self._began.get(trial.trial_id, math.inf) < latest:
                self._began[trial.trial_id] = math.inf
                self.states.overrule(_trial_id(trial), TrialStatus.STOPPED, late_reason(self._trial_hours))
                ray.kill(trial.temporary_state.ray_actor)

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


class _QueueSearcher(Searcher):
    def __init__(self, run: _TuneRun, concurrent: int) -> None:
        super().__init__()
        self._run, self._concurrent = run, concurrent

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:  # type: ignore[override] # noqa: ARG002
        queue = self._run.queue
        if queue.finished:
            return Searcher.FINISHED
        started = queue.start() if queue.running < self._concurrent else None
        if started is None:
            return None
        trial, proposal = started
        return dict(self._run.states.config(trial, proposal))

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Nothing: the trial states hears of it."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: a sweep is resumed from its own records."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, likewise."""


class _TuneScheduler(FIFOScheduler):
    """Shows the trial states every row before Ray may ask the trial for its next."""

    def __init__(self, run: _TuneRun) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    def on_trial_result(self, tune_controller: Any, trial: RayTrial, result: dict[str, Any]) -> str:  # noqa: ARG002
        row = read_row(result)
        goes_on = row is not None and self._run.states.receive(_trial_id(trial), row)
        return TrialScheduler.CONTINUE if goes_on else TrialScheduler.STOP

    def choose_trial_to_run(self, tune_controller: Any) -> RayTrial | None:
        self._run.poll(tune_controller)
        return None if self._run.is_ending else super().choose_trial_to_run(tune_controller)


class _TuneCallback(tune.Callback):
    """Brings the trial states what Tune shows to no scheduler: starts, last rows and ends."""

    def __init__(self, run: _TuneRun) -> None:
        self._run, self._states = run, run.states

    def on_trial_start(self, *, trial: RayTrial, **_info: Any) -> None:  # type: ignore[override]
        self._run.began(trial)
        self._states.start(_trial_id(trial), cast(TrialStart, trial.config))

    def on_trial_result(self, *, trial: RayTrial, result: dict[str, Any], **_info: Any) -> None:  # type: ignore[override]
        row = read_row(result)
        if row is not None:
            self._states.receive(_trial_id(trial), row)

    def on_trial_complete(self, *, trial: RayTrial, **_info: Any) -> None:  # type: ignore[override]
        self._states.end(_trial_id(trial), TrialStatus.COMPLETED)
        self._run.queue.end(_trial_id(trial))

    def on_trial_error(self, *, trial: RayTrial, **_info: Any) -> None:  # type: ignore[override]
        name, (died, error) = _trial_id(trial), _failure(trial)
        self._states.start(name, cast(TrialStart, trial.config))  # it may have failed before it started
        if died and not self._run.is_ending and self._states.restart(name):
            self._run.queue.put_back(name)
        else:
            self._states.fail(name, error)
            self._run.queue.end(name)


def _packing(trainable: type[Any], resources: Mapping[str, float]) -> type[tune.Trainable]:
    class Packing(trainable, tune.Trainable):  # type: ignore[misc]
        def step(self) -> dict[str, Any]:
            row: Any = super().step()
            return {ROW: row_to_text(row), "done": isinstance(row, EpochRow) and row.done}

        def get_auto_filled_metrics(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            return {}  # the whole configuration with every row: it would travel, be flattened and be kept

        @classmethod
        def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory:  # noqa: ARG003
            return tune.PlacementGroupFactory([{name: amount for name, amount in resources.items() if amount}])

    Packing.__name__ = Packing.__qualname__ = trainable.__name__
    return Packing


def _trial_id(trial: RayTrial) -> str:
    return str(trial.config["trial"])


def read_row(result: dict[str, Any]) -> TrialRow | None:
    """The row inside a Ray result, ``None`` if there is none."""
    text = result.get(ROW)
    return row_from_text(text) if isinstance(text, str) else None


def _failure(trial: RayTrial) -> tuple[bool, BaseException | str]:
    try:
        with open(trial.pickled_error_file, "rb") as file:
            error = cloudpickle.load(file)
    except Exception:
        return False, "failed, and left no error behind"
    if isinstance(error, RayTaskError):
        return False, error.cause or error
    lost = isinstance(error, RayActorError | WorkerCrashedError | NodeDiedError | OutOfMemoryError)
    if lost and not (isinstance(error, RayActorError) and error.actor_init_failed):
        return True, DIED
    return False, error


@contextlib.contextmanager
def _quiet_tune(places: int) -> Iterator[None]:
    """Tune's settings and silence; all is as before afterwards.

    All places are to be filled at once: a trial that ends before the next process has started would hand its own on,
    and Tune would then not start the next one, for as long as trials are shorter than starts.
    """
    logger = logging.getLogger("ray.tune")
    level, tag_callbacks = logger.level, usage.tag_callbacks
    usr1 = signal.getsignal(signal.SIGUSR1)
    logger.setLevel(logging.CRITICAL)
    usage.tag_callbacks = _no_tag  # telemetry that imports MLflow: two seconds of the driver
    try:
        with environment({**TUNE_ENVIRONMENT, "TUNE_MAX_PENDING_TRIALS_PG": str(places)}):
            yield
    finally:
        usage.tag_callbacks = tag_callbacks
        logger.setLevel(level)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGUSR1, usr1)  # Tune leaves its own handler behind


def _no_tag(callbacks: list[tune.Callback] | None) -> bool:  # noqa: ARG001
    return False
