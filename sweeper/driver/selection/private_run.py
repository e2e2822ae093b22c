"""Running a private selection: candidates behind a closed door, and what leaves through it at the end.

Candidates run as a sweep of their own in a hidden folder that only its owner can read, and that every command and the
service refuse (`sweeper.store.sweep_folder`). It has no front: no price that is not known yet is written. What may
happen to it:

* the conditions of the price held: the winner's rows and models are written as an ordinary sweep with one trial, the
  folder is marked as decided, the winner moves out, and the rest is removed. After the mark nothing but that can
  happen, whenever the process dies: nobody else's rows may leave beside a winner that was priced alone;
* the driver was killed or interrupted: the folder waits, and another driver goes on with it. The number of candidates
  is the one that was drawn; those that were training are lost (`sweeper.privacy.selection`);
* a condition broke, something else went wrong, or its owner gives it up: the folder as a whole becomes an ordinary
  sweep whose ledger charges every training. The ledger says so from its first row on, which is written before any
  candidate begins, so that a copy of the folder claims no more either.

Where the sweep has a budget it is cut before the first candidate, and its row comes first in either ledger. The winner
moves out with it, and its configuration is then trained in sight, as the final (`final.py`). A selection of which a
condition broke has no final. Should its candidates cost more than the budget then, nothing moves out until the owner
gives the selection up.

What may not be written at all is listed in ``selection.py``. Ray and MLflow are not known here: what trains is given.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from clipless.datasets import Dataset
from clipless.privacy.randomness import RandomSource, SecureSource
from sweeper.account.receipts import RECEIPT_NAME
from sweeper.backend.endings import RunEnding, RunResult
from sweeper.driver.recording.account_charges import (
    AccountCharges,
    charge_candidates,
    check_account,
    give_back,
    note_winner,
)
from sweeper.driver.recording.recorder import Recorder
from sweeper.driver.resume import recorded_claim
from sweeper.driver.row_digests import ROWS_NAME
from sweeper.driver.selection.candidates import (
    ENDINGS_NAME,
    NUMBER_NAME,
    Candidates,
    IndependentProposals,
    NotStartedError,
    Train,
    drawn_number,
    keep_number,
)
from sweeper.driver.selection.hidden_folder import (
    DECIDED,
    SURRENDERED,
    check_has_not_ended,
    move_out,
    public_folder,
    remove,
)
from sweeper.errors import AccountError, RecordError, SweeperError, one_line, public_line
from sweeper.pareto.dominance import FrontArchive
from sweeper.planning.make import plan_of_records
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.ledger import Ledger
from sweeper.privacy.selection import WINNER_TRIAL, PrivateSelection, Terms
from sweeper.program import program
from sweeper.records import Objective, Point, SweepStatus, Trial, TrialStatus
from sweeper.results.estimates import show_points
from sweeper.results.front import build_front
from sweeper.store.jsonl import replace_file
from sweeper.store.lock import driver_lock, is_driven, was_driven_here
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.sweep_folder import HIDDEN, SweepFolder, hidden_sweeps
from sweeper.tracking.trial_tracker import Untracked

WINNER = "winner"  # where, until it moves out
BOOKS = (NUMBER_NAME, ENDINGS_NAME)  # of a selection, which an ordinary sweep has not
GIVEN_UP = "Its owner gave the winner up."
NUMBER_LOST = "The number of candidates that was drawn was lost."
CUT = "it was cut off when the private selection ended"
UNBEGUN = "its owner gave it up before a trial had begun"


class SelectionWaitsError(SweeperError):
    """A private selection was interrupted; nothing of it may be seen, and it can be resumed."""


def select(
    plan: SweepPlan,
    data: Dataset,
    hidden: SweepFolder,
    train: Train,
    *,
    interrupted: Callable[[], bool] = lambda: False,
    source: RandomSource | None = None,
    account: AccountCharges | None = None,
) -> SweepFolder | None:
    """Train a secret random number of candidates, and make an ordinary sweep folder of what may leave.

    ``hidden`` is what `hide` made, with its ``sweep.json``, or one whose driver ended before the selection did. It is
    gone afterwards, unless candidates are left to be trained: then this returns ``None``, and another call goes on.
    ``train`` runs trials as ``run_trials`` does, until there are enough or the callable gives a reason to end.
    ``source`` gives the number of candidates and their configurations; by default it is a secure one. Where
    ``interrupted``, nothing more is waited for. ``account`` is that of the data, from which the selection has reserved.

    Raises:
        NotStartedError: from ``train``; the selection waits.
        RecordError: the winner cannot be written, or its account not be told; the selection waits.
        Exception: whatever else ``train`` raised, after everything that there is was written as a sweep without a
            winner.

    Guarantees:
        The folder holds one winner, or none, at the price of the selection; or else everything, at the
        composition of all trials. Each candidate's event is on the disk before its first noise. However often drivers
        are killed, no more candidates draw noise than the one number that was drawn, and none draws twice. The account
        of the data is charged the selection as a whole before the first noise, and what candidates cost beyond that
        before they are shown; of their number it learns nothing.
    """
    ledger, number = Ledger(hidden.ledger), drawn_number(hidden)
    selection = PrivateSelection(
        terms=_planned_terms(plan, ledger),
        objectives=plan.shared.objectives,
        constraints=plan.search.outcomes,
        evaluation=data.metadata.evaluation,
        source=source or SecureSource(),
        earlier=number,
    )
    if broken := _broken_before(ledger, number):
        return _surrender(hidden, broken)
    budget = plan.spending.budget
    if budget is not None and ledger.budget is None:
        ledger.set_budget(budget)
    ledger.select(replace(selection.terms, breaks=tuple(selection.unsound()), undecided=True))
    manifest = hidden.read_manifest(secret=True)
    hidden.write_manifest(replace(manifest, claim=plan.claim.to_json(), selecting=str(hidden.path.resolve())))
    if number is None:
        keep_number(hidden, selection.number)
    public = public_folder(hidden)
    candidates = Candidates(plan, data, hidden, selection, None if public is None else public.path, account)
    try:
        outcome = candidates.train(train, interrupted)
        if not (selection.is_over or selection.broken_so_far()):
            hidden.save_failure(outcome.in_words())
            return None
        terms = selection.settled()
    except NotStartedError:
        raise
    except Exception as error:
        hidden.save_failure(one_line(error))
        _surrender(hidden, (*selection.broken(), f"It ended with an error: {public_line(error)}."))
        raise
    if terms.broken:
        return _surrender(hidden, terms.broken, outcome.in_words())
    try:
        _write_winner(candidates, hidden, plan, terms)
    except OSError as error:
        raise RecordError(
            f"Cannot write the winner of a private selection: {error.strerror or error}. {waiting(hidden)}"
        ) from error
    return _release(hidden)


def _planned_terms(plan: SweepPlan, ledger: Ledger) -> Terms:
    """Return the terms of the private selection, which an earlier driver may have written down.

    Raises:
        RecordError: no private selection, or a ledger that has lost its budget or holds another one.
    """
    if plan.spending.budget is not None and ledger.budget is None and ledger.rows:
        raise RecordError(f"Expected the budget of the sweep in {ledger.path}, got none; restore it")
    terms = plan.spending.selection
    if terms is None or ledger.budget not in (None, plan.spending):
        raise RecordError(f"Expected a budget with a private selection in {ledger.path}, got another one; restore it")
    return terms


def _broken_before(ledger: Ledger, number: int | None) -> tuple[str, ...]:
    """Return the conditions that earlier drivers saw break."""
    known = () if ledger.selection is None else ledger.selection.breaks
    lost = (NUMBER_LOST,) if number is None and ledger.entries() else ()
    return (*known, *lost)


def waits(hidden: SweepFolder) -> bool:
    """Whether a selection whose driver ended has candidates to train, or a winner to decide.

    Raises:
        RecordError: it is being driven, or is a copy: what it is a copy of may still run, or have released its winner
            at the price of nobody seeing the others.
    """
    with driver_lock(hidden.path, looks=True):
        _check_place(hidden)
        return not any((hidden.path / mark).exists() for mark in (DECIDED, SURRENDERED))


def recover(hidden: SweepFolder) -> SweepFolder | None:
    """End a selection whose driver was killed: release the winner if it was decided, or else give it up.

    Given up, everything that was trained is an ordinary sweep, priced as the composition of all its trials; None where
    nothing was.

    Raises:
        RecordError: as `waits`, or it cannot be read or written.
    """
    with driver_lock(hidden.path, looks=True) as lock:
        hidden.is_copy = lock.copied
        _check_place(hidden)
        is_decided = (hidden.path / DECIDED).exists()
        check_has_not_ended(hidden, hidden.path / WINNER if is_decided else hidden.path)
        if is_decided:
            if (hidden.path / WINNER).exists():
                return _release(hidden)
            public = public_folder(hidden)
            remove(hidden.path)
            return public
        if (hidden.path / SURRENDERED).exists():
            if (hidden.path / MANIFEST_NAME).exists():
                return move_out(hidden.path, hidden.path, hidden.read_manifest(secret=True).name)
            public = public_folder(hidden)
            remove(hidden.path)
            return public
        if Ledger(hidden.ledger).entries():
            check_account(hidden)
            return _surrender(hidden, (GIVEN_UP,), by_owner=True)
        public = public_folder(hidden)
        give_back(hidden)
        _end_unbegun(public)
        remove(hidden.path)  # of one that has moved out, the mark may be gone before the folder is
        return public if public is not None and public.ledger.exists() else None


def _end_unbegun(public: SweepFolder | None) -> None:
    """Write that a selection of which nothing was drawn has ended, in a folder that was made beforehand."""
    if public is None or public.ledger.exists() or not (public.path / MANIFEST_NAME).exists():
        return
    public.write_manifest(replace(public.read_manifest(), status=SweepStatus.STOPPED, reason=UNBEGUN))


def _check_place(hidden: SweepFolder) -> None:
    """Refuse a selection that is not where it was made; one that was killed before it had begun does not say."""
    has_manifest = (hidden.path / MANIFEST_NAME).exists()
    place = hidden.read_manifest(secret=True).selecting if has_manifest else None
    whole = hidden.path.resolve()
    if not whole.name.startswith(HIDDEN) or place not in (None, str(whole)):
        raise RecordError(
            f"Expected a private selection where it was made, {place or HIDDEN + '...'}, got {hidden.path}, which may "
            "be a copy; move it back, or remove it"
        )


def recover_all(parent: Path) -> tuple[str, ...]:
    """Release the winner of every selection in a folder that was decided when its driver died; say what waits.

    Those that are driven, or were driven on another machine, are left alone.
    """
    said = []
    for hidden in hidden_sweeps(parent):
        if is_driven(hidden.path) or not was_driven_here(hidden.path):
            continue
        with suppress(RecordError):  # another process was faster
            if waits(hidden):
                said.append(waiting(hidden))
            elif (folder := recover(hidden)) is not None:
                said.append(f"A private selection that was cut off is now {folder.path}, priced as its ledger says.")
    return tuple(said)


def waiting(hidden: SweepFolder) -> str:
    """Return what may be done with a selection that waits."""
    return (
        f"A private selection waits in {hidden.path}: go on with {program()} resume {hidden.path}, or see all that was "
        f"trained, priced as the composition of all of it, with {program()} resume --give-up {hidden.path}"
    )


def outcome_of(folder: SweepFolder) -> RunResult:
    """Return how a private selection ended, from the ledger of the folder that it left."""
    terms = Ledger(folder.ledger).selection
    if terms is None or terms.broken:
        return RunResult(RunEnding.SELECTION_BROKE, why=() if terms is None else terms.broken)
    return RunResult(RunEnding.COMPLETED if folder.trials() else RunEnding.NO_WINNER)


def _write_front(
    folder: SweepFolder, plan: SweepPlan, ledger: Ledger, trial: Trial | None = None, *points: Point
) -> None:
    front = build_front(
        sweep=plan.name,
        objectives=plan.shared.objectives,
        trials=() if trial is None else (trial,),
        points=points,
        ledger=ledger.answers(plan.privacy.delta),
        claim=plan.claim,
        ledger_entries=ledger.rows,
    )
    front.write(folder.front)


def _write_winner(candidates: Candidates, hidden: SweepFolder, plan: SweepPlan, terms: Terms) -> None:
    """Write the sweep of the winner, if there is one, into the hidden folder, and mark that as decided."""
    made = SweepFolder(hidden.path / WINNER)
    shutil.rmtree(made.path, ignore_errors=True)  # what a driver wrote that was killed before it had decided
    (made.path / "models").mkdir(parents=True)
    with driver_lock(made.path):  # its file moves out too, and tells the winner from a copy whose final was drawn
        _write_folder_of_winner(candidates, hidden, made, plan, terms)
    replace_file(hidden.path / DECIDED, "")


def _write_folder_of_winner(
    candidates: Candidates, hidden: SweepFolder, made: SweepFolder, plan: SweepPlan, terms: Terms
) -> None:
    best = candidates.selection.winner()
    ledger, budget = Ledger(made.ledger), Ledger(hidden.ledger).budget
    if budget is not None:
        ledger.set_budget(budget)
    ledger.select(terms)
    made.write_manifest(_unmarked(hidden))
    trial: Trial | None = None
    points: list[Point] = []
    shown: list[Point] = []
    if best is not None:
        records = candidates.recorder.records
        # without the place of its training: the number of a device bounds that of the candidates
        trial = replace(records.trials[best.trial], id=WINNER_TRIAL, run_id=None, placed={})
        trial = _note_choice(trial, plan.shared.objectives, terms)
        mine = [point for point in records.points.values() if point.trial == best.trial]
        stages, trials = ledger.spending.stage_trials, {WINNER_TRIAL: trial}
        archive = FrontArchive(plan.shared.objectives)
        archive.add(show_points((replace(point, trial=WINNER_TRIAL) for point in mine), trials, stages))
        kept = {point.key[1:] for point in archive.points}
        points = [_as_winner(point, hidden, made, keep=point.key[1:] in kept) for point in mine]
        shown = show_points(points, trials, stages)
        made.save_trial(trial)
        made.save_points(points)
        made.flush()
        if made.trouble is not None:
            raise RecordError(made.trouble)
    _write_front(made, plan, ledger, trial, *shown)
    for name in (RECEIPT_NAME, ROWS_NAME):
        if (hidden.path / name).exists():
            shutil.copy(hidden.path / name, made.path / name)  # with its permissions


def _note_choice(trial: Trial, objectives: Sequence[Objective], terms: Terms) -> Trial:
    """Return the winner with what noisy scores chose it by, and of how many on average: both are public."""
    if trial.plan is None or trial.plan.scores is None:
        return trial
    name = next(one.name for one in objectives if one.name != "epsilon")
    scores = replace(trial.plan.scores, best_of={name: terms.repetitions.mean})
    return replace(trial, plan=replace(trial.plan, scores=scores))


def _as_winner(point: Point, hidden: SweepFolder, made: SweepFolder, *, keep: bool) -> Point:
    name = SweepFolder.model_name(WINNER_TRIAL, point.epoch, point.made_from) if keep and point.model else None
    if name is not None:
        shutil.copyfile(hidden.path / str(point.model), made.path / name)
    return replace(point, trial=WINNER_TRIAL, model=name)


def _release(hidden: SweepFolder) -> SweepFolder:
    winner = SweepFolder(hidden.path / WINNER)
    _check_receipt(hidden, hidden.read_manifest(secret=True))
    if winner.ledger.exists():  # else it is on its way out already, and was noted before
        note_winner(hidden, winner)
    folder = move_out(winner.path, hidden.path, hidden.read_manifest(secret=True).name)
    remove(hidden.path)
    return folder


def _surrender(
    hidden: SweepFolder, broken: tuple[str, ...], reason: str = "", *, by_owner: bool = False
) -> SweepFolder:
    ledger, manifest = Ledger(hidden.ledger), _unmarked(hidden)
    if ledger.selection is not None and broken:
        ledger.select(replace(ledger.selection, breaks=broken))
    if not by_owner:
        _check_affordable(hidden, ledger)
    _charge_all(hidden, manifest)
    for trial in hidden.trials().values():
        if trial.status in (TrialStatus.RUNNING, TrialStatus.INTERRUPTED):
            hidden.save_trial(replace(trial, status=TrialStatus.FAILED, reason=CUT))
    claim = recorded_claim(hidden)
    if claim is None:
        raise RecordError(
            f"Expected the claim of a private selection in {hidden.path}/sweep.json, got none; restore it"
        )
    if hidden.is_copy:
        claim = claim.of_copy()
        manifest = replace(manifest, claim=claim.to_json())
    plan = plan_of_records(manifest.read_spec(), claim, ledger.spending)
    hidden.lacks_rows = True
    recorder = Recorder(plan, hidden, Untracked(), IndependentProposals(plan.shared.space))
    try:
        recorder.records.forget_models()
        recorder.front().write(hidden.front)
    finally:
        recorder.records.close()
    for name in ("checkpoints", WINNER):
        shutil.rmtree(hidden.path / name, ignore_errors=True)
    hidden.write_manifest(replace(manifest, status=SweepStatus.INTERRUPTED, reason=reason or CUT))
    for name in BOOKS:
        (hidden.path / name).unlink(missing_ok=True)
    replace_file(hidden.path / SURRENDERED, "")
    return move_out(hidden.path, hidden.path, plan.name)


def _check_affordable(hidden: SweepFolder, ledger: Ledger) -> None:
    """Refuse to show candidates that cost more than the budget of the sweep, unless their owner gave the winner up.

    Until then nobody is told what they cost, nor which condition broke: that would be a release of all of them.
    """
    budget = ledger.budget
    if budget is None or ledger.selection is None or not ledger.entries():
        return
    cost = ledger.answers(budget.delta, tight=True)["everything"].epsilon
    if cost > budget.epsilon:
        raise SelectionWaitsError(
            "A private selection has no winner, for a condition broke, and all that was trained costs more than its "
            f"budget, privacy.sweep_epsilon = {budget.epsilon:g}: nothing is shown, and how much that is would tell "
            f"how many were trained. See all of it, at what it costs, with {program()} resume --give-up {hidden.path}, "
            "or remove the folder"
        )


def _charge_all(hidden: SweepFolder, manifest: Manifest) -> None:
    """Charge what candidates cost to the account of their data; where that has no room, nothing is shown.

    Raises:
        SelectionWaitsError: it has none.
        RecordError: it cannot be charged.
    """
    _check_receipt(hidden, manifest)
    try:
        charge_candidates(hidden)
    except AccountError as error:
        raise SelectionWaitsError(
            f"A private selection has no winner, and nothing of it is shown, for its account has no room for all that "
            f"was trained. {error}; then go on with {program()} resume --give-up {hidden.path}, or remove the folder"
        ) from error


def _check_receipt(hidden: SweepFolder, manifest: Manifest) -> None:
    account = manifest.read_spec().privacy.account
    if account is not None and not (hidden.path / RECEIPT_NAME).exists():
        raise RecordError(f"Expected what {hidden.path} reserved from {account} in {RECEIPT_NAME}; restore the file")


def _unmarked(hidden: SweepFolder) -> Manifest:
    return replace(hidden.read_manifest(secret=True), selecting=None)
