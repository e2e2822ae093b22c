"""One sweep, ready to be drawn: its result, and what a figure or a page asks of it.

Nothing here writes, trains, or imports Plotly.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite, nan
from pathlib import Path
from typing import TypeVar

from sweeper.errors import RecordError
from sweeper.privacy.held_out import doubt
from sweeper.records import Direction, Objective, Point, RehearsalSource, Scalar, SweepStatus, Trial
from sweeper.results.estimates import show_points
from sweeper.results.front import Front, later_points, read_front
from sweeper.results.front_record import FrontTrial
from sweeper.results.importance import Importance, importances, rehearsed_importances
from sweeper.results.rehearsal_ranking import Rehearsed, rank_recorded
from sweeper.specification.fields.nested import flatten
from sweeper.specification.objectives import auroc_radius_text, needs_two_classes, radius, radius_text, smoothed_radius
from sweeper.store.actions import Action, read_actions
from sweeper.store.evidence import Evidence, read_evidence
from sweeper.store.manifest import MANIFEST_NAME, Manifest
from sweeper.store.rehearsal_records import RehearsedConfiguration, read_rehearsals
from sweeper.store.sweep_folder import DecisionRow, SweepFolder
from sweeper.store.trial_standings import OPEN, find_drawn, how_stands, sweep_status

T = TypeVar("T")

PRICE = "price"
CAUGHT = "caught at 1 %"  # of false alarms: the name of what an attacker finds of a point


@dataclass(frozen=True, kw_only=True)
class SweepData:
    """One sweep, ready to be drawn.

    Names in it (of the sweep, of columns, of trials) are what users wrote: escape them wherever markup is
    understood.

    Attributes:
        result: the contents of ``front.json``, completed by newer rows of the folder.
        manifest: the contents of ``sweep.json`` (resolved spec, versions, status), ``None`` if there is none.
        directory: the sweep folder, for the commands that the report shows.
        decisions: what a scheduler decided about trials, in that order; rows of ``decisions.jsonl``.
        evidence: what audits found, in that order; rows of ``audits.jsonl``.
        actions: what people did to the sweep, oldest first.
        trial_rows: the rows of ``trials.jsonl``, in their order: several of each trial.
        drawn: the trials that have drawn noise, as the ledger says; ``None`` where it was not asked.
        lost: whether its file says that it runs, but no driver is known.
        later: the points of a lost sweep that were recorded after its front was written.
        rehearsals: the configurations that were rehearsed before the first trial, best first. They are no trials of
            the sweep: none is among ``trials``, and nothing they have shown is a point.
    """

    result: Front
    manifest: Manifest | None = None
    directory: str = ""
    decisions: tuple[DecisionRow, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    actions: tuple[Action, ...] = ()
    trial_rows: tuple[Trial, ...] = ()
    drawn: frozenset[str] | None = None
    lost: bool = False
    later: tuple[Point, ...] = ()
    rehearsals: Rehearsed = field(default_factory=Rehearsed)

    @property
    def name(self) -> str:
        """Name of the sweep."""
        return self.result.sweep

    @property
    def has_ended(self) -> bool:
        """Whether it is known that nothing more comes without a request."""
        return self.lost or (self.manifest is not None and self.manifest.status is not SweepStatus.RUNNING)

    @property
    def trials(self) -> Mapping[str, FrontTrial]:
        """Trial by id, in the order they were proposed."""
        return self.result.trials

    @property
    def points(self) -> tuple[Point, ...]:
        """Every recorded point."""
        return self.result.points

    def how_stands(self, trial: str, *, runs: bool = True) -> str:
        """How a trial stands or ended, in a word; ``runs`` is whether its sweep does."""
        drawn = None if self.drawn is None else trial in self.drawn
        return how_stands(self.trials[trial].status, drawn=drawn, runs=runs and not self.lost)

    @cached_property
    def recorded(self) -> Mapping[str, Trial]:
        """Trial by id as its last row has it, with its plan and what trains it."""
        return {trial.id: trial for trial in self.trial_rows}

    @cached_property
    def front_points(self) -> tuple[Point, ...]:
        """The points that no other point dominates, from small to large epsilon."""
        return self.result.front_points

    @cached_property
    def settings(self) -> Mapping[str, Mapping[str, Scalar]]:
        """Configuration by trial, with dotted names."""
        return {id_: flatten(trial.config) for id_, trial in self.trials.items()}

    @cached_property
    def varying(self) -> tuple[str, ...]:
        """Dotted names of the configuration values that differ between trials, in the order of the spec."""
        return varying(self.settings)

    @property
    def utility(self) -> str:
        """The objective that ``sweeper pick`` maximises: the first one that is not epsilon."""
        return next((o.name for o in self.result.objectives if o.name != "epsilon"), "accuracy")

    @cached_property
    def certificates(self) -> tuple[str, ...]:
        """Names of all certificates of the utility's kind that any point reports, by radius."""
        kind = auroc_radius_text if needs_two_classes(self.utility) else radius_text
        names = {name for point in self.points for name in point.values if kind(name) is not None}
        radii = {name: found for name in names if (found := radius(name)) is not None}
        return tuple(sorted(radii, key=lambda name: (radii[name], name)))

    @cached_property
    def smoothed(self) -> tuple[str, ...]:
        """Names of all smoothed certificates that any point reports, by radius; no certificates of the models."""
        names = {name for point in self.points for name in point.values}
        radii = {name: found for name in names if (found := smoothed_radius(name)) is not None}
        return tuple(sorted(radii, key=lambda name: (radii[name], name)))

    @property
    def certificate(self) -> str | None:
        """What colours the front: a certified or smoothed accuracy among objectives, else the smallest radius."""
        kinds = (radius, smoothed_radius)
        objectives = [o.name for o in self.result.objectives if any(kind(o.name) is not None for kind in kinds)]
        return next((name for name in (*objectives, *self.certificates) if name != self.utility), None)

    def may_beat_constant(self, point: Point, name: str) -> bool:
        """Whether a score beats the majority-class baseline, or a noisy one may: its interval reaches beyond it."""
        ends = self.result.claim.baselines.ends(name)
        _, most = point.interval(name) or (nan, point.values.get(name, nan))
        return ends is None or most > ends[0]

    def doubt(self, point: Point) -> str:
        """Say that a point may be no better in the utility than a constant prediction, empty where it is."""
        return doubt(point, self.utility, self.result.claim) if self.utility in point.values else ""

    @cached_property
    def useful_points(self) -> tuple[Point, ...]:
        """The points of the front that may beat the majority-class baseline; all of them where none does."""
        return tuple(p for p in self.front_points if self.may_beat_constant(p, self.utility)) or self.front_points

    @property
    def deltas(self) -> tuple[float, ...]:
        """The distinct deltas of the trials, ascending; before the first one that of the sweep's prices."""
        planned = {trial.delta for trial in self.trials.values() if trial.delta is not None}
        return tuple(sorted(planned or {price.delta for price in self.result.ledger.values()}))

    @property
    def relations(self) -> tuple[str, ...]:
        """The distinct neighbouring relations of the trials; before the first one that of the spec."""
        spec = {} if self.manifest is None else self.manifest.spec.get("privacy", {})
        planned = {trial.relation for trial in self.trials.values() if trial.relation}
        return tuple(sorted(planned or {str(spec[key]) for key in ("relation",) if key in spec}))

    @property
    def rehearsals_planned(self) -> int:
        """How many configurations the sweep rehearses before its first trial."""
        planned = 0 if self.manifest is None else self.manifest.course.rehearsals
        return max(planned, len(self.rehearsals))

    @property
    def rehearsal_source(self) -> RehearsalSource:
        """The rows that configurations are rehearsed on."""
        if self.rehearsals:
            return self.rehearsals[0].configuration.source
        return RehearsalSource.PUBLIC if self.manifest is None else self.manifest.course.rehearsed_on

    @property
    def rehearses(self) -> bool:
        """Whether configurations are being rehearsed, or were when the sweep ended."""
        return len(self.rehearsals) < self.rehearsals_planned and not self.trials

    @property
    def costliest_training(self) -> float | None:
        """The largest own epsilon of a point, on the front or not; None where none is known or finite."""
        known = [point.values["epsilon"] for point in self.points if "epsilon" in point.values]
        largest = max(known, default=nan)
        return largest if 0.0 < largest < inf else None

    @property
    def compares_rehearsals(self) -> bool:
        """Whether rehearsed configurations are compared in place of trials: they are where they are more."""
        return sum(one.place is not None for one in self.rehearsals) > len(self.trials)

    @cached_property
    def comparable(self) -> tuple[str, ...]:
        """The trials of one noise: of a budget in stages those of the stage with most trials, else all."""
        found = {point.trial for point in self.points}
        stages = {id_: self.result.stage_of(id_) for id_ in self.trials if id_ in found}
        if len(set(stages.values())) < 2:
            return tuple(self.trials)
        (most, _), *_ = Counter(stages.values()).most_common(1)
        return tuple(id_ for id_, stage in stages.items() if stage == most)

    @cached_property
    def importances(self) -> tuple[Importance, ...]:
        """Which hyperparameters mattered, among what is comparable."""
        if self.compares_rehearsals:
            return rehearsed_importances(self.rehearsals, self.result.objectives)
        return importances(self.result, trials=self.comparable)

    def direction(self, name: str) -> Direction:
        """Which way ``name`` improves, whether it is an objective of this sweep or not."""
        known = {objective.name: objective for objective in self.result.objectives}
        return known.get(name, Objective.named(name)).direction


def read(directory: str | Path, *, lost: bool | None = None) -> SweepData:
    """Read a sweep folder, finished or not.

    ``lost`` is whether it has lost its driver, from who knows; looked for on this machine by default.

    ``front.json`` is the result. Unless the sweep has ended, rows of ``trials.jsonl`` and ``points.jsonl`` that it
    does not hold yet are added, and not on the front until it is written again.

    Raises:
        RecordError: no ``front.json``, or a file that is not what it should be.
    """
    folder = SweepFolder(directory)
    front = read_front(folder.front)
    manifest = folder.read_manifest() if (folder.path / MANIFEST_NAME).exists() else None
    data = SweepData(
        result=front,
        manifest=manifest,
        directory=str(directory),
        decisions=tuple(folder.decisions()),
        evidence=read_evidence(folder.path),
        actions=known_actions(folder.path),
        trial_rows=tuple(folder.trial_rows()),
    )
    data = with_rehearsals(data, read_rehearsals(folder.rehearsals))
    has_ended = manifest is not None and manifest.status is not SweepStatus.RUNNING
    if not has_ended and lost is None:
        lost = manifest is not None and sweep_status(folder.path, manifest.status) is SweepStatus.LOST
    if lost and not has_ended:
        data = replace(data, lost=True, later=later_points(folder, front))
    return with_drawn(data if has_ended else _with_newer_rows(data, folder), folder)


def known_actions(folder: Path) -> tuple[Action, ...]:
    """Return what people did to a sweep, nothing where a file of it is broken: that hides no result."""
    try:
        return read_actions(folder)
    except RecordError:
        return ()


def _with_newer_rows(data: SweepData, folder: SweepFolder) -> SweepData:
    front = data.result
    trials = {id_: FrontTrial.of(trial) for id_, trial in data.recorded.items()}
    shown = show_points(folder.points().values(), data.recorded, front.stages)
    points = {point.key: point for point in (*shown, *front.points)}
    known = {key: point for key, point in points.items() if key[0] in trials or key[0] in front.trials}
    result = replace(front, trials=trials | dict(front.trials), points=tuple(known.values()))
    return replace(data, result=result)


def with_drawn(data: SweepData, folder: SweepFolder) -> SweepData:
    """Return a sweep with the trials that have drawn noise, of which the ledger is asked only if points do not tell."""
    begun = {point.trial for point in data.points}
    silent = [id_ for id_, trial in data.trials.items() if id_ not in begun and trial.status in OPEN]
    drawn = find_drawn(folder, data.manifest, silent)
    return data if drawn is None else replace(data, drawn=drawn | begun)


def with_rehearsals(data: SweepData, found: Sequence[RehearsedConfiguration]) -> SweepData:
    """Return a sweep with the configurations that were rehearsed, ranked as it ranks them."""
    trained = {id_: trial.config for id_, trial in data.trials.items()}
    spec, claim = ({}, None) if data.manifest is None else (data.manifest.spec, data.manifest.claim)
    return replace(data, rehearsals=rank_recorded(found, data.result.objectives, trained, spec, claim))


def varying(settings: Mapping[str, Mapping[str, Scalar]]) -> tuple[str, ...]:
    """Dotted names of the settings that differ between trials, in the order of the spec."""
    flats = list(settings.values())
    names = dict.fromkeys(name for flat in flats for name in flat)
    return tuple(name for name in names if len({repr(flat.get(name)) for flat in flats}) > 1)


def evenly(items: Sequence[T], limit: int) -> tuple[T, ...]:
    """At most ``limit`` of the items, evenly spread over their order."""
    if len(items) <= limit:
        return tuple(items)
    return tuple(items[i * len(items) // limit] for i in range(limit))


def chosen_trials(data: SweepData, ids: Sequence[str], limit: int) -> tuple[str, ...]:
    """At most ``limit`` of the trials, in their order: those with points on the front before others, evenly spread."""
    if len(ids) <= limit:
        return tuple(ids)
    best = {point.trial for point in data.front_points}
    first = evenly([id_ for id_ in ids if id_ in best], limit)
    kept = {*first, *evenly([id_ for id_ in ids if id_ not in best], limit - len(first))}
    return tuple(id_ for id_ in ids if id_ in kept)


def finite(point: Point, *names: str) -> bool:
    """Whether the point has a finite number for every name."""
    return all(isfinite(point.values.get(name, nan)) for name in names)
