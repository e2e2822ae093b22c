"""Running a sweep: from a spec to a folder with its front, and on from a folder that holds one."""

import contextlib
import datetime
from dataclasses import replace
from functools import partial
from pathlib import Path

from sweeper.backend.interruption import Interruption
from sweeper.driver.caller import TrialCaller
from sweeper.driver.driver import SweepRun
from sweeper.driver.finished import FinishedSweep
from sweeper.driver.options import Options, with_environment, with_recorded
from sweeper.driver.recording.account_charges import reserve_account, withdraw
from sweeper.driver.resume import check_unchanged, resume_plan
from sweeper.driver.selection.private_run import recover_all
from sweeper.driver.selection.selection_run import resume_selection, run_selection
from sweeper.driver.warm_start import WarmStart, observations
from sweeper.errors import AccountError, RecordError, SweeperError, TrialError
from sweeper.planning.account_fit import check_room
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.make import steer_plan
from sweeper.planning.preview import find_lack_of_gpus
from sweeper.planning.sources import AnySpec, as_spec, check_cluster, check_sources
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.pricing import EXTENDED
from sweeper.results.sweep import Sweep
from sweeper.rounding import number_of
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import MANIFEST_NAME
from sweeper.store.requests import note_run
from sweeper.store.sweep_folder import SweepFolder, is_secret


def run(spec: AnySpec, options: Options | None = None) -> Sweep:
    """Run a sweep to its end, or to the first Ctrl-C, and return it.

    Raises and guarantees: as `run_sweep`.
    """
    return run_sweep(spec, options).sweep


def run_sweep(spec: AnySpec, options: Options | None = None, *, caller: TrialCaller | None = None) -> FinishedSweep:
    """Run a sweep to its end, or to the first Ctrl-C.

    Args:
        spec: what to do.
        options: how.
        caller: who proposes its trials, until they have no more to propose; by default its search does.

    Returns:
        The sweep and how it ended; after an interruption with the front of what was done.

    Raises:
        SpecError: a spec that does not fit its data, found before anything is written.
        SweeperError: a spec that asks for a GPU that this machine has not, or a private selection on a cluster,
            likewise.
        clipless.errors.DataError: data that cannot be used.
        AccountError: the account of the data has no room for the sweep; nothing was drawn, and no folder is left.
        RecordError: the folder cannot be made, or not be written to.
        SelectionWaitsError: a private selection was interrupted; it can be resumed.
        TrialError: trials that no caller may propose.
        KeyboardInterrupt: on Ctrl-C before there is a folder, or on a second one.

    Guarantees:
        Every trial's event is in the ledger, on the disk, before the trial draws its first noise.
    """
    options, asked = with_environment(options or Options()), as_spec(spec)
    check_sources(asked, options.data_dir)
    check_cluster(asked, options.cluster)
    loaded = LoadedSpec.of(asked, options.data_dir)
    plan, data = loaded.plan(), loaded.data
    earlier = _earlier(plan, options)
    plan = plan if earlier is None else steer_plan(plan, earlier.steering)
    plan = plan if caller is None else caller.admit(plan, options.cluster)
    _check_devices(plan, options)
    explain = partial(check_room, loaded)
    with Interruption() as interruption:
        recovered = recover_all(options.out)
        if plan.spending.selection is not None:
            return run_selection(plan, options, data, interruption, recovered, explain)
        folder = _new_folder(plan.name, options)
        with contextlib.ExitStack() as stack:
            try:
                folder.drive(stack.enter_context(driver_lock(folder.path)))
                _check_is_new(folder)
                account = reserve_account(plan, data, folder, spender=options.spender, explain=explain)
            except (AccountError, RecordError) as error:
                if options.into is None:
                    withdraw(folder, error)
                raise
            place = (plan, options, data, folder, interruption)
            return SweepRun(*place, earlier=earlier, account=account, troubles=recovered, caller=caller).run()


def _check_devices(plan: SweepPlan, options: Options) -> None:
    """Refuse what a Ray that is started here could not train, before anything is written or started."""
    lack = find_lack_of_gpus(plan)
    if lack and options.cluster is None:
        raise SweeperError(lack)


def _new_folder(name: str, options: Options) -> SweepFolder:
    if options.into is None:
        return SweepFolder.create(options.out, name, datetime.datetime.now())
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


def _earlier(plan: SweepPlan, options: Options) -> WarmStart | None:
    source, shared, constraints = plan.search.warm_start, plan.shared, plan.search.outcomes
    if source is None:
        return None
    wanted = (shared.space.dimensions, shared.objectives, constraints)
    return observations(source, *wanted, beside=plan.spec.source, tracking=options.tracking)


def resume(directory: Path, options: Options | None = None, *, trials: int | None = None) -> Sweep:
    """Resume a sweep that was interrupted or killed, or run more trials of it, and return it.

    Args, raises: as `resume_sweep`.
    """
    return resume_sweep(directory, options, trials=trials).sweep


def resume_sweep(
    directory: Path,
    options: Options | None = None,
    *,
    trials: int | None = None,
    give_up: bool = False,
    caller: TrialCaller | None = None,
) -> FinishedSweep:
    """Resume a sweep that was interrupted or killed, or run more trials of one that ended.

    Trials that were running resume from their last epoch; what was decided, proposed and spent stands. Of a private
    selection those that were running are lost, and only those that were never begun are trained.

    Args:
        directory: of the sweep.
        options: as for `run_sweep`; ``out`` is not used; options you omit keep the values the sweep was started with.
        trials: how many in all, those that ran included; as many as before by default.
        give_up: make an ordinary sweep of a private selection that waits, priced as the composition of all its trials.
        caller: as for `run_sweep`.

    Returns:
        As `run_sweep`.

    Raises:
        RecordError: not the folder of a sweep, one that cannot be read, that is running, or that has as many trials
            already; or its data, or what is declared of them, are no longer those that it was begun with.
        SpecError, clipless.errors.DataError: its data cannot be used any more.
        SelectionWaitsError: a private selection was interrupted again.
        TrialError: trials that no caller may propose.
    """
    folder = SweepFolder(directory)
    manifest = folder.read_manifest(secret=True)
    spec = manifest.read_spec()
    if manifest.selects_privately or is_secret(folder.path):
        if caller is not None:
            raise TrialError(f"Expected a sweep whose trials a caller may propose, but {directory} selects privately")
        if options is not None and options.concurrent is not None:
            raise RecordError(
                f"Expected no other number of processes for {directory}, whose private selection fixed it"
            )
        return resume_selection(folder, manifest, options or Options(), trials, give_up=give_up)
    if give_up:
        raise RecordError(f"Expected a private selection that waits, got {directory} (--give-up); leave it out")
    options = with_recorded(options or Options(), manifest)
    if trials is not None:
        course = manifest.course
        if course.stages:
            raise RecordError(
                f"Expected a sweep that can take other trials, but the budget of {directory} was cut into "
                f"{number_of(course.trials, 'trial')} before its first result, got trials={trials}; start "
                "another sweep with a larger budget, or one with privacy.accounting: filter, which takes trials as "
                "long as they fit"
            )
        if trials < course.trials:
            raise RecordError(
                f"Expected at least the {course.trials} trials of {directory}, got trials={trials}; trials is the "
                f"number in all: for {trials} more, trials={course.trials + trials}"
            )
        spec = spec.with_search(trials=trials)
    if options.concurrent is not None:
        spec = spec.with_concurrent(options.concurrent)
    check_cluster(spec, options.cluster)
    loaded = LoadedSpec.of(spec, options.data_dir)
    if (population := len(loaded.data.train)) != manifest.population:
        raise RecordError(
            f"Expected the {manifest.population} training rows that {directory} was begun with, got "
            f"{population}; restore the data or start another sweep"
        )
    plan = resume_plan(folder, loaded)
    if plan.spending.budget is None and trials is not None and trials > manifest.course.trials:
        plan = replace(plan, claim=plan.claim.with_chosen(EXTENDED))
    plan = plan if caller is None else caller.admit(plan, options.cluster)
    _check_devices(plan, options)
    with Interruption() as interruption, driver_lock(folder.path) as lock:
        folder.drive(lock)
        check_unchanged(folder, manifest)
        account = reserve_account(plan, loaded.data, folder, spender=options.spender)
        note_run(folder.path, trials)
        place = (plan, options, loaded.data, folder, interruption)
        return SweepRun(*place, resumed=True, account=account, caller=caller).run()
