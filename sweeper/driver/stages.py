"""What later stages of a sweep train: the best of the trials before them, moved to a training with less noise.

Stages of a budget that is cut into slots begin with explorers. The final of a private selection follows its winner.
"""

from collections.abc import Mapping, Sequence

from sweeper.driver.recording.trial_records import TrialRecords
from sweeper.driver.warm_start import fit
from sweeper.errors import RecordError
from sweeper.privacy.pricing import signal_of
from sweeper.privacy.selection import WINNER_TRIAL
from sweeper.privacy.spending import Spending
from sweeper.records import Scalar, name_trial
from sweeper.search.finalists import Explored, choose_finalists, transfer_proposal
from sweeper.search.optuna_search import Search
from sweeper.specification.constraints import OutcomeConstraint
from sweeper.specification.fields.nested import leaves
from sweeper.specification.search_space import SearchSpace


class StagedSearch:
    """Proposes as a search does in the first stage, and promotes configurations of earlier stages in the others.

    Where configurations were rehearsed, the first stage takes the best of these. What a user enqueues
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
        constant: Mapping[str, float] | None = None,
    ) -> None:
        self._search, self._spending, self._space, self._records = search, spending, space, records
        self._constraints, self._rehearsed, self._constant = tuple(constraints), list(rehearsed), constant

    @property
    def asked(self) -> int:
        """How many trials were asked for."""
        return self._search.asked

    @property
    def open(self) -> dict[str, dict[str, Scalar]]:
        """The proposals of trials that have not ended."""
        return self._search.open

    def ask(self) -> str:
        """Propose the next trial; see `Search.ask`."""
        stage = self._stage(name_trial(self.asked + 1))
        if (stage or self._rehearsed) and not self._search.waiting:
            promoted = self._promoted(stage)
            if promoted is not None:
                self._search.enqueue(promoted, comes_again=False)
        return self._search.ask()

    def _promoted(self, stage: int) -> Mapping[str, Scalar] | None:
        """Return the best configuration for a stage that it has not had, ``None`` where nothing has scores."""
        count = self._spending.stage_trials[stage] if self._spending.stage_trials else 1
        best = choose_finalists(
            self._explored(stage),
            self._space,
            self._records.objectives,
            count=count,
            signal=self._signal_of(stage),
            constraints=(*self._constraints, *self._search.region),
            constant=self._constant,
        )
        had = [proposal for trial, proposal in self._search.proposals.items() if self._stage(trial) == stage]
        return next((proposal for proposal in best if proposal not in had), None)

    def _explored(self, stage: int) -> list[Explored]:
        """Return the trials before a stage, with what they have shown.

        After rehearsals a stage of no more trials than this one has explored nothing, and does not count.
        """
        counts = self._spending.stage_trials
        points: dict[str, list[Mapping[str, float]]] = {}
        for point in self._records.estimated().values():
            points.setdefault(point.trial, []).append(point.values)
        return self._rehearsed + [
            Explored(
                proposal=proposal,
                signal=self._signal_of(own),
                stage=own,
                points=points.get(trial, []),
            )
            for trial, proposal in self._search.proposals.items()
            if (own := self._stage(trial)) < stage and not (self._rehearsed and counts[own] <= counts[stage])
        ]

    def _stage(self, trial: str) -> int:
        return self._spending.stage_of(trial) or 0

    def _signal_of(self, stage: int) -> float:
        return signal_of(list(self._spending.named_slots.values())[stage])


TRIALS = 2  # of a sweep that selects privately within a budget: the winner and its final


class FinalSearch:
    """Proposes the final, which depends on nothing but the record of the winner: a kill changes nothing of it."""

    def __init__(self, search: Search, spending: Spending, space: SearchSpace, records: TrialRecords) -> None:
        self._search, self._spending, self._space, self._records = search, spending, space, records

    @property
    def asked(self) -> int:
        """How many trials there are, the winner among them."""
        return self._search.asked

    @property
    def open(self) -> dict[str, dict[str, Scalar]]:
        """The proposal of the final, until it has ended."""
        return self._search.open

    def ask(self) -> str:
        """Propose the final."""
        self._search.enqueue(self._proposal(), comes_again=False)
        return self._search.ask()

    def _proposal(self) -> Mapping[str, Scalar]:
        winner = self._records.trials.get(WINNER_TRIAL)
        proposal = None if winner is None else fit(dict(leaves(winner.config)), self._space.dimensions)
        if proposal is None:
            raise RecordError(
                f"Expected the winner of the private selection, {WINNER_TRIAL}, with a configuration of the spec in "
                "trials.jsonl, got none; restore it"
            )
        candidate, final = self._spending.named_slots.values()
        return transfer_proposal(proposal, self._space, signal_of(candidate), signal_of(final))
