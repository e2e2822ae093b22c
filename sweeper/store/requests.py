"""What others ask of a running sweep: to stop, to stop one trial, to try a configuration next, to search elsewhere.

Each request is a row that a process appends to ``requests.jsonl``, with who asks and when (see
`sweeper.store.actions`); the driver looks there twice a second. That a sweep was resumed or extended is a row too,
which the driver passes over. A configuration that is asked for waits in the file until it
is tried, in a later run of the sweep too; the region that was asked for last counts, likewise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sweeper.errors import RecordError, SpecError
from sweeper.records import Scalar, SweepStatus, TrialStatus
from sweeper.rounding import number_of
from sweeper.specification.constraints import OutcomeConstraint, parse_constraint
from sweeper.specification.dimensions import proposal
from sweeper.specification.fields.messages import tell
from sweeper.specification.objectives import MOST
from sweeper.store.actions import REQUESTS_NAME, SUBMISSION_NAME, signature
from sweeper.store.jsonl import JsonlFile, append_alone
from sweeper.store.lock import is_driven
from sweeper.store.sweep_folder import SweepFolder
from sweeper.store.tail import JsonlTail
from sweeper.store.trial_standings import WAITING, standings

_MAY_BE_STOPPED = (TrialStatus.RUNNING.value, WAITING)
_SCORING_ENDS = "where points are still scored on test rows, that ends, and what is scored stays"


@dataclass(slots=True)
class NewRequests:
    """What was asked for since the last look: to stop all, to stop trials after their epoch, to try configurations."""

    stop: bool = False
    stopped_by: str = ""  # who asked to stop all, where the row says it
    trials: dict[str, str] = field(default_factory=dict)  # to stop, each with who asked
    configurations: list[dict[str, Scalar]] = field(default_factory=list)
    region: tuple[str, ...] | None = None  # to search in, as constraints; None where nothing was said


class Requests:
    """The driver's side, made as soon as it has its lock: requests to stop that are older than this object are over."""

    def __init__(self, folder: Path) -> None:
        self._rows = JsonlTail(folder / REQUESTS_NAME)
        earlier = self.look()
        self.earlier, self.region = earlier.configurations, earlier.region or ()

    def look(self) -> NewRequests:
        """Return what is new."""
        news = NewRequests()
        for row in self._rows.read()[0]:
            if "try" in row:
                news.configurations.append(dict(row["try"]))
            elif "steer" in row:
                news.region = tuple(map(str, row["steer"]))
            elif row.get("stop") is True:
                news.stop = True
                news.stopped_by = str(row.get("by", "")) or news.stopped_by
            elif "stop" in row:
                news.trials[str(row["stop"])] = str(row.get("by", ""))
        return news


def stopped_in_words(by: str) -> str:
    """Return why a sweep or a trial ended that somebody asked to stop.

    >>> stopped_in_words("ada"), stopped_in_words("")
    ('ada asked it to stop', 'it was asked to stop')
    """
    return f"{by} asked it to stop" if by else "it was asked to stop"


def ask_to_stop(folder: Path, trial: str | None = None, *, by: str | None = None, driven: bool | None = None) -> str:
    """Ask the driver of a sweep to end it, or one trial after the epoch that it is in.

    ``by`` is who asks, as `signature` has it. ``driven``: whether there is a driver, from who knows; looked for on this
    machine by default.

    Returns:
        What comes of it, in words.

    Raises:
        RecordError: no driver, no such trial that has not ended, or a private selection that has not ended.
    """
    sweep = SweepFolder(folder)
    manifest = sweep.read_manifest()
    status = manifest.status
    if not (is_driven(folder) if driven is None else driven):
        if status.is_end:
            raise RecordError(f"Nothing to stop: {folder} has ended, it is {status.value}")
        raise RecordError(f"Expected a sweep that runs on this machine, but no process drives {folder}")
    if trial is not None:
        statuses = {one.id: one.status.value for one in sweep.trials().values()}
        ways = standings(sweep, manifest, statuses, runs=True)
        if ways.get(trial) not in _MAY_BE_STOPPED:
            known = "; ".join(f"{way}: {_listed(ways, way)}" for way in _MAY_BE_STOPPED)
            raise RecordError(f"Expected a trial of {folder} that has not ended, got {trial!r}; {known}")
    _append(folder, {"stop": trial or True}, by)
    if trial is not None:
        return f"asked to stop: {trial}, which is {ways[trial]}"
    if status.is_end:
        return f"asked to stop, but {folder} is {status.value} already: its driver is about to end"
    if not manifest.selects_privately and _has_no_trial_left(sweep, manifest.course.trials):
        return f"asked to stop: no trial of {folder} is left; {_SCORING_ENDS}"
    return f"asked to stop: {folder}"


def _listed(ways: Mapping[str, str], way: str) -> str:
    return ", ".join(id_ for id_, one in ways.items() if one == way) or "none"


def _has_no_trial_left(sweep: SweepFolder, planned: int) -> bool:
    """Whether all trials that were planned have ended."""
    trials = sweep.trials().values()
    return 0 < planned <= len(trials) and all(one.status is not TrialStatus.RUNNING for one in trials)


def note_request(folder: Path, row: Mapping[str, object], by: str) -> None:
    """Write down what somebody asked of the service: ``{"resume": True}``, ``{"extend": 30}``, ``{"stop": True}``.

    Raises:
        RecordError: not written.
    """
    _append(folder, row, by)


def note_run(folder: Path, trials: int | None) -> None:
    """Write down that whoever runs this process resumes a sweep, or extends it to so many trials.

    Of a sweep that was submitted to a service nothing is: it has written down who asked for that, and resumes by itself
    what was killed.

    Raises:
        RecordError: not written.
    """
    if not (folder / SUBMISSION_NAME).is_file():
        _append(folder, {"resume": True} if trials is None else {"extend": trials}, by=None)


def enqueue(folder: Path, values: Mapping[str, object], *, by: str | None = None) -> dict[str, Scalar]:
    """Ask for a configuration to be tried next, now or when the sweep is resumed or extended.

    ``values`` are as an entry of ``search.first``: open hyperparameters by dotted name; those left out are sampled.
    ``by`` is who asks, as `signature` has it.

    Returns:
        The values by the names of the open hyperparameters.

    Raises:
        SpecError: not values of this sweep's open hyperparameters.
        RecordError: not the folder of a sweep, one without a slot that is left, or not written.
    """
    chosen = check_configuration(folder, values)
    sweep = SweepFolder(folder)
    course = sweep.read_manifest().course
    if not course.has_room(len(sweep.trials())):
        raise RecordError(
            f"Expected a sweep with a slot that is left, but all {sum(course.stages)} of {folder} have their trial; "
            "name the configuration under search.first of another sweep"
        )
    _append(folder, {"try": chosen}, by)
    return chosen


def check_configuration(folder: Path, values: Mapping[str, object]) -> dict[str, Scalar]:
    """Return values of open hyperparameters as `enqueue` would write them, which may be asked for.

    Raises:
        SpecError: not values of this sweep's open hyperparameters.
        RecordError: not the folder of a sweep, or a private selection.
    """
    manifest = SweepFolder(folder).read_manifest()
    if manifest.selects_privately:
        raise RecordError(
            f"Expected a sweep that tries what it is given, but {folder} selects privately from one prior"
        )
    dimensions = manifest.read_spec().dimensions
    return tell(lambda: proposal(dimensions, values), "the configuration")


def steer(folder: Path, region: Sequence[str], *, by: str | None = None) -> tuple[OutcomeConstraint, ...]:
    """Ask the search to look within a region of the front, now or when the sweep is resumed or extended.

    The region is bounds on objectives, ``epsilon <= 3``, which are returned; none to search everywhere again. ``by`` is
    who asks, as `signature` has it.

    Raises:
        SpecError: not bounds on this sweep's objectives, or a search that nothing steers.
        RecordError: not the folder of a sweep, a private selection, one without a trial that is left, or not written.

    Guarantees:
        What is spent depends on the trials alone: a region changes what is proposed for them, not how many they are,
        nor what the budget allows.
    """
    sweep = SweepFolder(folder)
    manifest = sweep.read_manifest()
    if manifest.selects_privately:
        raise RecordError(f"Expected a sweep whose search learns, but {folder} selects privately from one prior")
    spec = manifest.read_spec()
    if not manifest.course.can_be_steered:
        raise spec.mistaken(
            "a sampler that learns from outcomes, or stages", "search.sampler", spec.to_plain()["search"]["sampler"]
        )
    completed = manifest.status is SweepStatus.COMPLETED
    if not manifest.course.has_room(len(sweep.trials()), completed=completed):
        raise RecordError(
            f"Expected a sweep that has trials to propose, but the budget of {folder} was cut into "
            f"{number_of(manifest.course.trials, 'trial')} before its first result, and none is left; start another "
            "sweep, or one with privacy.accounting: filter, which can be extended"
        )
    if len(region) > MOST:
        raise SpecError(f"Expected at most {MOST} bounds, got {len(region)}")
    names = [objective.name for objective in spec.objectives]
    bounds = tuple(parse_constraint(text, names) for text in region)
    _append(folder, {"steer": [str(bound) for bound in bounds]}, by)
    return bounds


def steered(folder: Path) -> tuple[str, ...]:
    """Return the region that was asked for last, as constraints; none if the search goes everywhere."""
    rows = JsonlFile(folder / REQUESTS_NAME).read()
    return next((tuple(map(str, row["steer"])) for row in reversed(rows) if "steer" in row), ())


def _append(folder: Path, row: Mapping[str, object], by: str | None) -> None:
    append_alone(folder / REQUESTS_NAME, {**row, **signature(by)})
