"""Running private selections on processes of this machine, and concluding what they leave.

No cluster trains candidates: who may look at it could count them. How long a selection takes can be seen in a folder
that was made beforehand, where its driver shows that it runs, and in a storage that others read: both need the consent
of who runs it (``Options.duration_is_seen``).
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from clipless.datasets import Dataset
from sweeper.backend.backend import RunSettings
from sweeper.backend.endings import RunResult
from sweeper.backend.interruption import Interruption
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trainable import CliplessTrial
from sweeper.backend.trial_states import TrialStates
from sweeper.backend.workers.local import open_local_pool
from sweeper.driver.driver import SweepRun
from sweeper.driver.finished import FinishedSweep
from sweeper.driver.options import Options, manifest_of, with_recorded
from sweeper.driver.recording.account_charges import AccountCharges, Explain, reserve_account, withdraw
from sweeper.driver.reporting.progress import SweepProgress
from sweeper.driver.resume import check_unchanged, resume_plan
from sweeper.driver.row_digests import note_rows
from sweeper.driver.selection.candidates import NotStartedError
from sweeper.driver.selection.hidden_folder import (
    SELECTING,
    UNFINISHED,
    WAITING,
    check_recorded_cluster,
    even_times,
    has_final_left,
    hidden_of,
    hide,
    public_folder,
)
from sweeper.driver.selection.private_run import (
    SelectionWaitsError,
    outcome_of,
    recover,
    select,
    waiting,
    waits,
)
from sweeper.errors import AccountError, RecordError, SweeperError
from sweeper.planning.loaded import LoadedSpec
from sweeper.planning.sources import check_cluster
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.pricing import Price
from sweeper.records import SweepStatus
from sweeper.results.front import Front, build_front
from sweeper.store.lock import driver_lock
from sweeper.store.manifest import MANIFEST_NAME, Manifest, draw_id
from sweeper.store.sweep_folder import SweepFolder, is_secret

NOT_YET = "It selects privately: what may be released, and for which price, is known when that has ended."


def run_selection(
    plan: SweepPlan,
    options: Options,
    data: Dataset,
    interruption: Interruption,
    troubles: Sequence[str],
    explain: Explain | None = None,
) -> FinishedSweep:
    """Run candidates in secret, then write and track what may leave as an ordinary sweep, with the final if it has one.

    ``explain`` is that of `reserve_account`.

    Raises:
        SweeperError: others could see how long it takes, and nobody consented to that.
        AccountError: the account of the data has no room for it; nothing was drawn, and no folder is left.
        SelectionWaitsError: it was interrupted.
    """
    _check_consent(options, plan)
    if options.into is not None and (options.into / MANIFEST_NAME).exists():
        raise RecordError(f"Expected a folder in which no sweep has begun, got {options.into} (--into); resume it")
    left = None if options.into is None else hidden_of(options.into)
    if left is not None and (left.path / MANIFEST_NAME).exists():  # killed before it was shown to have begun
        return resume_selection(left, left.read_manifest(secret=True), options, None, give_up=False)
    hidden = left or hide(options.out, options.into)
    with driver_lock(hidden.path) as lock:
        hidden.drive(lock)
        hidden.write_manifest(manifest_of(plan, options, hidden, SweepStatus.RUNNING, id_=draw_id()))
        try:
            note_rows(hidden.path, data)
            account = _reserve(plan, options, data, hidden, explain)
        except (AccountError, RecordError) as error:
            withdraw(hidden, error)
        folder = _train_in_secret(plan, options, data, hidden, interruption, account)
    return _conclude(plan, options, data, folder, interruption, [*troubles, *_left_behind(hidden)])


def _reserve(
    plan: SweepPlan, options: Options, data: Dataset, hidden: SweepFolder, explain: Explain | None = None
) -> AccountCharges | None:
    public = public_folder(hidden)
    title = plan.name if public is None else public.path.name
    return reserve_account(plan, data, hidden, title=title, spender=options.spender, explain=explain)


def _check_consent(options: Options, plan: SweepPlan) -> None:
    """Refuse a selection that others could watch, unless its user has said that they may see how long it takes.

    An account has the times at which it reserved and was settled.
    """
    given = {"--into": options.into, "--storage": options.storage, "privacy.account": plan.account}
    watched = [name for name, value in given.items() if value is not None]
    if watched and not options.duration_is_seen:
        raise SweeperError(
            f"Expected --duration-is-seen for a private selection with {', '.join(watched)}: others can then see how "
            "long it takes, and with it about how many trials there were, which its price keeps secret. Leave them out "
            "to select unwatched"
        )


def resume_selection(
    folder: SweepFolder, manifest: Manifest, options: Options, trials: int | None, *, give_up: bool
) -> FinishedSweep:
    """Go on with a private selection that waits, or conclude what one has left.

    Raises:
        RecordError: it has ended, is being driven, or cannot be read.
        SweeperError: it would run on a cluster, or began on one in an earlier version.
        SelectionWaitsError: it was interrupted again.
    """
    folder = SweepFolder(folder.path.resolve())
    unfinished = manifest.status in UNFINISHED or has_final_left(folder.path)
    hidden = folder if is_secret(folder.path) else hidden_of(folder.path) if unfinished else None
    if trials is not None or not (hidden or unfinished):
        raise RecordError(
            f"Expected a sweep that can go on, but {folder.path} selected privately, from a number of trials that was "
            "drawn once; start another sweep"
        )
    if give_up and hidden is None:
        raise RecordError(f"Expected a private selection that waits, got {folder.path} (--give-up); leave it out")
    if hidden is None and not folder.ledger.exists():
        raise RecordError(
            f"Expected a private selection that can go on, but no trial of {folder.path} had begun, and its hidden "
            "folder is gone; delete it, and start another sweep"
        )
    spec = manifest.read_spec()
    check_cluster(spec, options.cluster)
    if not give_up:
        check_recorded_cluster(manifest, folder.path)
    options = replace(with_recorded(options, manifest), cluster=None)
    goes_on = hidden is not None and waits(hidden) and not give_up
    left = hidden if goes_on else folder if hidden is None else recover(hidden)
    if left is None:
        raise RecordError(
            f"Expected a selection that can go on, but {folder.path} had begun no trial, or its winner has moved out; "
            "look for it beside, or start another sweep"
        )
    recorded, loaded = left.read_manifest(secret=True), LoadedSpec.of(spec, options.data_dir)
    plan = resume_plan(left, loaded)
    if hidden is None and has_final_left(left.path):
        options.tell(plan.announcement)
    with Interruption() as interruption:
        if goes_on:
            with driver_lock(left.path) as lock:
                left.drive(lock)
                _check_original(left)
                check_unchanged(left, recorded)
                note_rows(left.path, loaded.data)  # of one whose driver was killed before it had
                account = _reserve(plan, options, loaded.data, left)
                left = _train_in_secret(plan, options, loaded.data, left, interruption, account)
        return _conclude(plan, options, loaded.data, left, interruption, () if hidden is None else _left_behind(hidden))


def _check_original(hidden: SweepFolder) -> None:
    """Refuse to go on with a selection whose candidates may have been drawn since its folder was copied."""
    if hidden.is_copy:
        raise RecordError(
            f"Expected a private selection as its driver left it, but {hidden.path} may have been put back from a "
            "copy, and candidates would be drawn twice; see what was trained with resume --give-up"
        )


def _train_in_secret(
    plan: SweepPlan,
    options: Options,
    data: Dataset,
    hidden: SweepFolder,
    interruption: Interruption,
    account: AccountCharges | None,
) -> SweepFolder:
    """Train the candidates of a selection that this process drives, and return what may leave."""
    public = public_folder(hidden)
    if public is None:
        folder = _select(plan, options, data, hidden, interruption, account)
    else:
        with driver_lock(public.path):
            shown = partial(manifest_of, plan, options, public, id_=hidden.read_manifest(secret=True).id)
            public.write_manifest(shown(SweepStatus.RUNNING, SELECTING))
            _unknown_front(plan).write(public.front)
            try:
                folder = _select(plan, options, data, hidden, interruption, account)
            finally:
                if hidden.path.exists():
                    public.write_manifest(shown(SweepStatus.INTERRUPTED, WAITING))
    if folder is None:
        raise SelectionWaitsError(waiting(hidden))
    return folder


def _unknown_front(plan: SweepPlan) -> Front:
    """Return what may be seen of a selection that runs: no point, and no price before its conditions have held."""
    unknown = Price(epsilon=math.inf, delta=plan.privacy.delta, events=0, statement=NOT_YET)
    return build_front(
        sweep=plan.name,
        objectives=plan.shared.objectives,
        trials=(),
        points=(),
        ledger=dict.fromkeys(("winner", "front", "everything"), unknown),
        claim=plan.claim,
        ledger_entries=0,
    )


def _select(
    plan: SweepPlan,
    options: Options,
    data: Dataset,
    hidden: SweepFolder,
    interruption: Interruption,
    account: AccountCharges | None,
) -> SweepFolder | None:
    for text in filter(None, (plan.announcement, plan.advice)):
        options.tell(text)
    options.show(SweepProgress(name=plan.name, total=0, note=SELECTING))

    def interrupted() -> bool:
        return interruption.requested

    def train(
        kind: type[CliplessTrial], queue: TrialQueue, states: TrialStates, should_stop: Callable[[], RunResult | None]
    ) -> RunResult:
        with contextlib.ExitStack() as stack:
            try:
                workers = stack.enter_context(open_local_pool(plan.resources, data, trainings=plan.trials, secret=True))
            except SweeperError as error:
                raise NotStartedError(str(error)) from error
            settings = RunSettings(
                trial=plan.shared,
                folder=hidden.path,
                interruption=interruption,
                should_stop=should_stop,
                hours=plan.search.hours,
                trial_hours=plan.search.trial_hours,
                spending=plan.spending.candidates,
            )
            return workers.run(kind, queue, states, settings)

    return select(plan, data, hidden, train, interrupted=interrupted, account=account)


def _left_behind(hidden: SweepFolder) -> list[str]:
    gone = not hidden.path.exists()
    return [] if gone else [f"Cannot remove {hidden.path}, which nobody may see; remove it"]


def _conclude(
    plan: SweepPlan,
    options: Options,
    data: Dataset,
    folder: SweepFolder,
    interruption: Interruption,
    troubles: Sequence[str] = (),
) -> FinishedSweep:
    outcome = outcome_of(folder)
    with driver_lock(folder.path) as lock:
        folder.drive(lock)
        ended = SweepRun(
            *(plan, options, data, folder, interruption),
            selected=outcome,
            account=reserve_account(plan, data, folder, spender=options.spender),
            troubles=troubles,
        ).run()
        even_times(folder.path)
    return ended
