"""Rehearsing configurations before the first trial: what they showed is kept in the folder and told of.

A rehearsal is no trial: it reads no training row, has no entry in the ledger, no point and no model.
"""

from collections.abc import Mapping, Sequence

from clipless.privacy.events import PoissonGaussian
from sweeper.adapters import dump
from sweeper.backend.queue import TrialQueue
from sweeper.backend.trial_states import Hooks, TrialStates
from sweeper.driver.reporting.progress import RehearsalProgress
from sweeper.planning.sweep_plan import SweepPlan
from sweeper.privacy.pricing import signal_of
from sweeper.records import ConfigValues, Objective, RehearsalSource, Scalar, TrialStatus
from sweeper.results.rehearsal_ranking import judge_rehearsal, rank_rehearsals
from sweeper.search.finalists import Explored, Merit, Values
from sweeper.search.space import sample
from sweeper.specification.constraints import OutcomeConstraint
from sweeper.specification.search_space import SearchSpace
from sweeper.store.jsonl import JsonlFile
from sweeper.store.rehearsal_records import (
    FIRST,
    RehearsalRecord,
    RehearsedConfiguration,
    join_trainings,
    mean_epochs,
    rehearsals_of,
)
from sweeper.store.sweep_folder import SweepFolder
from sweeper.tracking.trial_tracker import RehearsalTracker
from sweeper.trials.rehearsal import HALVES
from sweeper.trials.stream import EpochRow, PlanRow

BEFORE_ALL = -1  # the stage of a rehearsal


class Rehearsals:
    """The rehearsals of one sweep: each configuration on either half of the rows.

    It is asked for trainings as a search is; those that an earlier run of the sweep has ended are not among them.

    Args:
        space: whose first configurations are rehearsed.
        count: of configurations.
        folder: keeps what they show.
        slot: gives each of them its noise.
        source: the rows that they are trained and scored on.
        tracker: is told of each configuration of which both trainings have ended.
        has_prior: whether the first configuration is one of a prior, which is preferred to the others.
    """

    def __init__(
        self,
        space: SearchSpace,
        count: int,
        folder: SweepFolder,
        slot: PoissonGaussian,
        *,
        source: RehearsalSource,
        tracker: RehearsalTracker,
        has_prior: bool = False,
    ) -> None:
        self._space, self._folder, self._slot, self._source, self._tracker = space, folder, slot, source, tracker
        self._preferred = FIRST if has_prior else None
        self._file = JsonlFile(folder.rehearsals, patient=True)
        self._records = {one.rehearsal: one for one in rehearsals_of(self._file.read(), folder.rehearsals)}
        proposals = sample(space, count)
        self.proposals = {f"r{HALVES * i + half + 1:04d}": p for i, p in enumerate(proposals) for half in range(HALVES)}
        self._left = [name for name in self.proposals if name not in self._records]
        self.open: dict[str, dict[str, Scalar]] = {}
        self.asked = 0
        self._shown: dict[str, dict[str, Values]] = {}  # of those that train
        self._epochs: dict[str, tuple[int, int]] = {}  # of those that train: done, and planned
        self._ended = {one.id: one for one in join_trainings(self._records.values())}
        self._merits: dict[tuple[str, tuple[OutcomeConstraint, ...]], Merit | None] = {}

    @property
    def total(self) -> int:
        """How many trainings there are in all."""
        return len(self.proposals)

    @property
    def done(self) -> int:
        """How many of them have ended."""
        return len(self._records)

    def ask(self) -> str:
        """Return the next training."""
        name = self._left[self.asked]
        self.asked += 1
        self.open[name] = dict(self.proposals[name])
        return name

    def queue(self) -> TrialQueue:
        """Return what starts those that are left."""
        return TrialQueue(self, len(self._left))

    def states(self) -> TrialStates:
        """Return what takes their rows: hooks of their own, which know no ledger, no front and no trial."""
        return TrialStates(
            Hooks(on_plan=self._on_plan, on_epoch=self._on_epoch, on_end=self._on_end, on_failure=self._on_failure)
        )

    def explored(self) -> list[Explored]:
        """Return what each configuration has shown: the means over both halves, of every epoch of both."""
        return [
            Explored(
                proposal=self.proposals[name],
                signal=signal_of(self._slot),
                stage=BEFORE_ALL,
                points=[epoch.values for epoch in self._ended[id_].epochs] if id_ in self._ended else [],
                parts=self._ended[id_].parts if id_ in self._ended else (),
                preferred=id_ == self._preferred,
            )
            for name, id_ in ((name, _configuration_of(name)) for name in list(self.proposals)[::HALVES])
        ]

    def progress(
        self,
        objectives: Sequence[Objective],
        constraints: Sequence[OutcomeConstraint],
        trained: Mapping[str, ConfigValues],
        constant: Values | None = None,
    ) -> RehearsalProgress:
        """Return how the rehearsals stand; configurations that train are ranked by what they have shown so far.

        Args:
            objectives: of the sweep.
            constraints: of its spec, and where its search was steered.
            trained: configuration by trial, of the trials that have begun.
            constant: what a constant prediction reaches, by objective.
        """
        shares = [min(done / planned, 1.0) for done, planned in self._epochs.values()]

        def judge(one: RehearsedConfiguration) -> Merit | None:
            key = (one.id, tuple(constraints))
            if key in self._merits:
                return self._merits[key]
            found = judge_rehearsal(one, objectives, constraints, constant)
            if one.id in self._ended:
                self._merits[key] = found
            return found

        return RehearsalProgress(
            source=self._source,
            done=len(self._ended),
            total=self.total // HALVES,
            running=len(self._epochs),
            fraction=min((self.done + sum(shares)) / self.total, 1.0),
            ranked=rank_rehearsals(
                [*self._ended.values(), *self._training()], objectives, trained, judge=judge, preferred=self._preferred
            ),
        )

    def _training(self) -> list[RehearsedConfiguration]:
        """Return the configurations that have not ended, with the epochs that both halves have shown."""
        names = {id_: name for name in self._shown if (id_ := _configuration_of(name)) not in self._ended}
        found = []
        for id_, name in names.items():
            shown = [self._points_of(other) for other in self.proposals if _configuration_of(other) == id_]
            config = self._resolve(name)
            found.append(
                RehearsedConfiguration(
                    id=id_,
                    source=self._source,
                    proposal=self.proposals[name],
                    config=config,
                    epochs=mean_epochs(shown),
                    parts=tuple(tuple(points.values()) for points in shown),
                )
            )
        return found

    def _points_of(self, name: str) -> Mapping[str, Values]:
        return self._records[name].points if name in self._records else self._shown.get(name, {})

    def _resolve(self, name: str) -> ConfigValues:
        return self._space.resolve(self.proposals[name]).to_json()

    def _on_plan(self, name: str, row: PlanRow) -> None:
        self._epochs[name] = (0, row.plan.epochs)

    def _on_epoch(self, name: str, row: EpochRow) -> None:
        points = self._shown.setdefault(name, {})
        points[f"{row.epoch}"] = _without_epsilon(row.values)
        for one in row.free:
            points[f"{row.epoch} {one.made_from}"] = _without_epsilon(one.values)
        self._epochs[name] = (row.epoch, self._epochs[name][1])

    def _on_end(self, name: str, status: TrialStatus, reason: str, _started: int) -> None:
        shown = self._shown.pop(name, {})
        self._epochs.pop(name, None)
        if status is TrialStatus.INTERRUPTED:
            return
        record = RehearsalRecord(
            rehearsal=name,
            configuration=_configuration_of(name),
            trainings=HALVES,
            source=self._source,
            proposal=self.proposals[name],
            config=self._resolve(name),
            reason=reason,
            points=shown if status is TrialStatus.COMPLETED else {},
        )
        self._records[name] = record
        halves = [one for one in self._records.values() if one.configuration == record.configuration]
        for whole in join_trainings(halves):
            self._ended[whole.id] = whole
            self._tracker.rehearsal(whole)  # first: nobody tells it again of one that has ended
        self._file.append(dump(record))

    def _on_failure(self, name: str, error: str) -> None:
        self._folder.save_failure(error, name)


def open_rehearsals(plan: SweepPlan, folder: SweepFolder, tracker: RehearsalTracker) -> Rehearsals | None:
    """Return the rehearsals of a sweep, ``None`` where its plan has none."""
    slot, count = plan.spending.final_slot, plan.rehearsals
    if slot is None or not count:
        return None
    source, has_prior = plan.rehearsed_on, plan.search.has_prior
    return Rehearsals(plan.shared.space, count, folder, slot, source=source, tracker=tracker, has_prior=has_prior)


def _configuration_of(name: str) -> str:
    """Return the id of the configuration that a training is of.

    >>> [_configuration_of(name) for name in ("r0001", "r0002", "r0003")]
    ['c0001', 'c0001', 'c0002']
    """
    return f"c{(int(name.removeprefix('r')) + 1) // HALVES:04d}"


def _without_epsilon(values: Values) -> Values:
    """Return scores alone: the epsilon of a rehearsal is that of public rows, and no price of anything."""
    return {name: value for name, value in values.items() if name != "epsilon"}
