"""The trials of a sweep whose budget is cut into stages: explorers first, then the best of them with less noise."""

from collections.abc import Mapping, Sequence
from typing import Any

from sweeper.driver.recording.trial_records import TrialRecords
from sweeper.privacy.pricing import signal_of
from sweeper.privacy.spending import Spending
from sweeper.records import name_trial
from sweeper.search.finalists import Explored, choose_finalists
from sweeper.search.optuna_search import Search
from sweeper.specification.constraints import OutcomeConstraint
from sweeper.specification.search_space import SearchSpace


class StagedSearch:
    """Proposes as a search does in the first stage, and promotes configurations of earlier stages in the others.

    Where configurations were rehearsed on public rows, the first stage takes the best of these. What a user enqueues
    comes before all. Finalists depend on earlier stages alone: a sweep that resumes in the middle of a stage chooses
    the same.
    """

    def __init__(
        self,
        search: Search,
        spending: Spending,
        space: SearchSpace,
        records: TrialRecords,
        constraints: Sequence[OutcomeConstraint] = (),
        rehearsed: Sequence[Explored] = (),
    ) -> None:
        self._search, self._spending, self._space, self._records = search, spending, space, records
        self._constraints, self._rehearsed = tuple(constraints), list(rehearsed)

    @property
    def asked(self) -> int:
        """How many trials were asked for."""
        return self._search.asked

    @property
    def open(self) -> dict[str, dict[str, Any]]:
        """The proposals of trials that have not ended."""
        return self._search.open

    def ask(self) -> str:
        """Propose the next trial; see `Search.ask`."""
        stage = self._stage(name_trial(self.asked + 1))
        if (stage or self._rehearsed) and not self._search.waiting:
            promoted = self._promoted(stage)
            if promoted is not None:
                self._search.enqueue(promoted)
        return self._search.ask()

    def _promoted(self, stage: int) -> Mapping[str, Any] | None:
        """Return the best configuration for a stage that it has not had, ``None`` where nothing has scores."""
        count = self._spending.stage_trials[stage] if self._spending.stage_trials else 1
        best = choose_finalists(
            self._explored(stage),
            self._space,
            self._records.objectives,
            count=count,
            signal=self._signal_of(stage),
            constraints=(*self._constraints, *self._search.region),
        )
        had = [proposal for trial, proposal in self._search.proposals.items() if self._stage(trial) == stage]
        return next((proposal for proposal in best if proposal not in had), None)

    def _explored(self, stage: int) -> list[Explored]:
        """Return the trials before a stage, with what they have shown."""
        points: dict[str, list[Mapping[str, float]]] = {}
        for point in self._records.points.values():
            points.setdefault(point.trial, []).append(point.values)
        return self._rehearsed + [
            Explored(
                proposal=proposal,
                signal=self._signal_of(self._stage(trial)),
                stage=self._stage(trial),
                points=points.get(trial, []),
            )
            for trial, proposal in self._search.proposals.items()
            if self._stage(trial) < stage
        ]

    def _stage(self, trial: str) -> int:
        return self._spending.stage_of(trial) or 0

    def _signal_of(self, stage: int) -> float:
        return signal_of(list(self._spending.named_slots.values())[stage])
