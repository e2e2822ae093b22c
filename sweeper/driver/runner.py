"""Running a sweep: from a spec to a folder with its front, and on from a folder that holds one."""

import contextlib
import datetime
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import clipless
from clipless.datasets import Dataset
from sweeper.backend.cluster import SESSION_PREFIX, cluster
from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.starting import InterruptedStartError
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.training import size_of, threads_of, trained
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.tune import RunResult
from sweeper.driver.candidates import NotStartedError
from sweeper.driver.driver import INTERRUPTED, SweepRun
from sweeper.driver.finished import FinishedSweep
from sweeper.driver.options import Options, manifest_of, with_recorded
from sweeper.driver.private_run import (
    SelectionWaitsError,
    even_times,
    hide,
    outcome_of,
    recover,
    recover_all,
    select,
    waiting,
    waits,
)
from sweeper.driver.progress import Progress
from sweeper.driver.resume import claim_at_start, claimed
from sweeper.driver.warm_start import WarmStart, observations
from sweeper.errors import RecordError, SweeperError
from sweeper.privacy.claims import Claim
from sweeper.records import TrialStatus
from sweeper.results.sweep import Sweep
from sweeper.spec.spec import Spec
from sweeper.store.jsonl import JsonlFile
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.sweep_folder import SweepFolder, is_secret
from sweeper.trials.preview import check_plans, lack_of_gpus

SELECTING = "selecting privately"
SESSIONS_NAME = "sessions.jsonl"  # folders of the Rays of a private selection


def run(spec: Spec, options: Options | None = None) -> Sweep:
    """Run a sweep to its end, or to the first Ctrl-C, and return it.

    Raises and guarantees: as `run_sweep`.
    """
    return run_sweep(spec, options).sweep


def run_sweep(spec: Spec, options: Options | None = None) -> FinishedSweep:
    """Run a sweep to its end, or to the first Ctrl-C.

    Returns:
        The sweep and how it ended; after an interruption with the front of what was done.

    Raises:
        SpecError: a spec that does not fit its data, found before anything is written.
        SweeperError: a spec that asks for a GPU that this machine has not, likewise.
        clipless.errors.DataError: data that cannot be used.
        RecordError: the folder cannot be made, or not be written to.
        SelectionWaitsError: a private selection was interrupted; it can be resumed.
        KeyboardInterrupt: on Ctrl-C before there is a folder, or on a second one.

    Guarantees:
        Every trial's event is in the ledger, on the disk, before the trial draws its first noise.
    """
    options = options or Options()
    data = clipless.datasets.load(**spec.data_options(options.data_dir))
    check_plans(spec, data)
    _check_devices(spec, options)
    earlier = _earlier(spec, options)
    with Interruption() as interruption:
        recovered = recover_all(options.out)
        if spec.search.repetitions is not None:
            return _select(spec, options, data, interruption, recovered)
        folder = _new_folder(spec, options)
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(driver_lock(folder.path))
            except RecordError:
                if options.into is None:
                    shutil.rmtree(folder.path, ignore_errors=True)
                raise
            _check_is_new(folder)
            claim = claimed(spec, data, None if earlier is None else earlier.steering)
            return SweepRun(spec, options, data, claim, folder, interruption, earlier=earlier, troubles=recovered).run()


def _check_devices(spec: Spec, options: Options) -> None:
    """Refuse what a Ray that is started here could not train, before anything is written or started."""
    lack = lack_of_gpus(spec)
    if lack and options.cluster is None:
        raise SweeperError(lack)


def _new_folder(spec: Spec, options: Options) -> SweepFolder:
    if options.into is None:
        return SweepFolder.create(options.out, spec.name, datetime.datetime.now())
    try:
        (options.into / "models").mkdir(exist_ok=True)
    except OSError as error:
        raise RecordError(
            f"Expected a folder that was made for the sweep, got {options.into}: {error.strerror or error} (--into)"
        ) from error
    return SweepFolder(options.into)


def _check_is_new(folder: SweepFolder) -> None:
    """Refuse a folder in which a sweep has begun, once no other driver can begin one there."""
    if (folder.path / MANIFEST_NAME).exists():
        raise RecordError(f"Expected a folder in which no sweep has begun, got {folder.path} (--into); resume it")


def _select(
    spec: Spec, options: Options, data: Dataset, interruption: Interruption, troubles: Sequence[str]
) -> FinishedSweep:
    """Run candidates in secret, then write and track what may leave as an ordinary sweep."""
    for name, given, what, why in (
        ("into", options.into, "folder made beforehand", "which runs in a hidden one"),
        ("cluster", options.cluster, "cluster", "whose logs there would show its candidates"),
        ("storage", options.storage, "storage", "whose candidates would be seen there"),
    ):
        if given is not None:
            raise SweeperError(
                f"Expected no {what} for a private selection, {why}, got {given} (--{name}); leave it out"
            )
    hidden = hide(options.out)
    with driver_lock(hidden.path):
        claim = claimed(spec, data)
        hidden.write_manifest(manifest_of(spec, options, claim, hidden, TrialStatus.RUNNING))
        folder = _trained_in_secret(spec, options, data, claim, hidden, interruption)
    return _conclude(spec, options, data, claim, folder, interruption, [*troubles, *_left_behind(hidden)])


def _trained_in_secret(
    spec: Spec, options: Options, data: Dataset, claim: Claim, hidden: SweepFolder, interruption: Interruption
) -> SweepFolder:
    """Train the candidates of a selection that this process drives, and return what may leave."""
    options.show(Progress(name=spec.name, total=0, note=SELECTING))
    sessions = JsonlFile(hidden.path / SESSIONS_NAME)
    _remove_sessions(sessions)

    def interrupted() -> bool:
        return interruption.requested

    def train(
        kind: type[CliplessTrial], queue: TrialQueue, states: TrialStates, should_stop: Callable[[], str | None]
    ) -> RunResult:
        started = cluster(
            threads=threads_of(spec),
            secret=True,
            rows_bytes=size_of(data),
            interrupted=interrupted,
            note_session=lambda path: sessions.append({"session": path}),
        )
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(started)
            except InterruptedStartError:
                return RunResult(True, INTERRUPTED)
            except SweeperError as error:
                raise NotStartedError(str(error)) from error
            return trained(kind, queue, states, spec, data, hidden, interruption, should_stop)

    folder = select(spec, data, claim, hidden, train, interrupted=interrupted)
    if folder is None:
        raise SelectionWaitsError(waiting(hidden))
    return folder


def _remove_sessions(sessions: JsonlFile) -> None:
    """Remove the logs of Rays whose drivers were killed before they could."""
    for row in sessions.read():
        path = Path(str(row.get("session")))
        if path.parent == Path(tempfile.gettempdir()) and path.name.startswith(SESSION_PREFIX):
            shutil.rmtree(path, ignore_errors=True)


def _left_behind(hidden: SweepFolder) -> list[str]:
    gone = not hidden.path.exists()
    return [] if gone else [f"Cannot remove {hidden.path}, which nobody may see; remove it"]


def _conclude(
    spec: Spec,
    options: Options,
    data: Dataset,
    claim: Claim,
    folder: SweepFolder,
    interruption: Interruption,
    troubles: Sequence[str] = (),
) -> FinishedSweep:
    outcome = outcome_of(folder, interrupted=interruption.requested)
    with driver_lock(folder.path):
        ended = SweepRun(spec, options, data, claim, folder, interruption, selected=outcome, troubles=troubles).run()
    even_times(folder.path)
    return ended


def _earlier(spec: Spec, options: Options) -> WarmStart | None:
    source = spec.search.warm_start
    if source is None:
        return None
    constraints, near = spec.search.outcomes, spec.source
    return observations(source, spec.dimensions, spec.objectives, constraints, beside=near, tracking=options.tracking)


def resume(directory: Path, options: Options | None = None, *, trials: int | None = None) -> Sweep:
    """Resume a sweep that was interrupted or killed, or run more trials of it, and return it.

    Args, raises: as `resume_sweep`.
    """
    return resume_sweep(directory, options, trials=trials).sweep


def resume_sweep(
    directory: Path, options: Options | None = None, *, trials: int | None = None, give_up: bool = False
) -> FinishedSweep:
    """Resume a sweep that was interrupted or killed, or run more trials of one that ended.

    Trials that were running resume from their last epoch; what was decided, proposed and spent stands. Of a private
    selection those that were running are lost, and only those that were never begun are trained.

    Args:
        directory: of the sweep.
        options: as for `run_sweep`; ``out`` is not used; options you omit keep the values the sweep was started with.
        trials: how many in all, those that ran included; as many as before by default.
        give_up: make an ordinary sweep of a private selection that waits, at the price of everything.

    Returns:
        As `run_sweep`.

    Raises:
        RecordError: not the folder of a sweep, one that cannot be read, that is running, or that has as many trials
            already; or its data, or what is declared of them, are no longer those that it was begun with.
        SpecError, clipless.errors.DataError: its data cannot be used any more.
        SelectionWaitsError: a private selection was interrupted again.
    """
    folder = SweepFolder(directory)
    manifest = folder.read_manifest(secret=True)
    spec = manifest.read_spec()
    if manifest.selects_privately or is_secret(folder.path):
        return _resume_selection(folder, spec, manifest, options or Options(), trials, give_up=give_up)
    if give_up:
        raise RecordError(f"Expected a private selection that waits, got {directory} (--give-up); leave it out")
    options = with_recorded(options or Options(), manifest)
    if trials is not None:
        if trials < spec.trials:
            raise RecordError(f"Expected at least the {spec.trials} trials of {directory}, got trials={trials}")
        if spec.stages:
            raise RecordError(
                f"Expected no more than the {spec.trials} trials into which the budget of {directory} was cut before "
                f"its first result, got trials={trials}; start another sweep with a larger budget, or one with "
                "privacy.accounting: filter, which takes trials as long as they fit"
            )
        spec = spec.with_search(trials=trials)
    data = clipless.datasets.load(**spec.data_options(options.data_dir))
    if len(data.train) != manifest.population:
        raise RecordError(
            f"Expected the {manifest.population} training rows that {directory} was begun with, got "
            f"{len(data.train)}; restore the data or start another sweep"
        )
    claim = claim_at_start(folder, spec, data, options.data_dir)
    check_plans(spec, data)
    _check_devices(spec, options)
    with Interruption() as interruption, driver_lock(folder.path) as rebooted:
        return SweepRun(spec, options, data, claim, folder, interruption, resumed=True, rebooted=rebooted).run()


def _resume_selection(
    folder: SweepFolder, spec: Spec, manifest: Manifest, options: Options, trials: int | None, *, give_up: bool
) -> FinishedSweep:
    """Go on with a private selection that waits, or conclude what one has left."""
    folder = SweepFolder(folder.path.resolve())
    hidden, unfinished = is_secret(folder.path), (TrialStatus.RUNNING, TrialStatus.INTERRUPTED)
    if trials is not None or not (hidden or manifest.status in unfinished):
        raise RecordError(
            f"Expected a sweep that can go on, but {folder.path} selected privately, from a number of trials that was "
            "drawn once; start another sweep"
        )
    options = with_recorded(options, manifest)
    goes_on = hidden and waits(folder) and not give_up
    left = recover(folder) if hidden and not goes_on else folder
    if left is None:
        raise RecordError(f"Expected a selection with a trial, but {folder.path} had begun none and is removed")
    data = clipless.datasets.load(**spec.data_options(options.data_dir))
    claim = claim_at_start(left, spec, data, options.data_dir)
    with Interruption() as interruption:
        if goes_on:
            with driver_lock(folder.path):
                left = _trained_in_secret(spec, options, data, claim, folder, interruption)
        return _conclude(spec, options, data, claim, left, interruption, _left_behind(folder) if hidden else ())
