"""The protocol of a way of spending, and what one is cut from."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar, Self

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.errors import SpecError
from sweeper.privacy.entries import ChargedEvents, Entry
from sweeper.privacy.evaluation.paid_scores import PaidScores, ScoreNoise
from sweeper.privacy.exposures import Release
from sweeper.privacy.pricing import Price, price
from sweeper.privacy.selection import Terms
from sweeper.specification.fields.messages import BrokenRule
from sweeper.specification.stages import StagePlan, early_scores

QUESTIONS = ("winner", "front", "everything")
TRAINING, VALIDATION, TEST = "training", "validation", "test"  # splits, by the rows that a release reads
Releases = dict[str, tuple[PoissonGaussian, ...]]  # by split
Expect = Callable[[], tuple[Sequence[PoissonGaussian], Sequence[PoissonGaussian]]]  # of training and of scores
PriceWith = Callable[[ChargedEvents, int], Price | None]  # of what is charged and so many trials, if one can be planned
_POINTS = 16  # of a front, where nothing else says how many there may be


class UnmetRequestError(SpecError):
    """A way of spending cannot be cut as a spec asks; who knows the source of the spec says where.

    Attributes:
        rule: the field, its value, what should stand there and what to do.
    """

    def __init__(self, rule: BrokenRule) -> None:
        super().__init__(f"Expected {rule.expected} ({rule.field}); {rule.remedy}")
        self.rule = rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a spec asks of a way of spending, and what its trainings would spend; all of it is public.

    Attributes:
        epsilon: of everything, at delta; infinite without a budget.
        delta: the probability the guarantee may fail with.
        training: what one training of the first configuration spends; its noise multiplier is 0 where a slot gives it.
        epochs: of that training.
        trials: their number, the mean one under private selection.
        stages: how the spec divides the signal, the sum over steps of ``(q / sigma)^2``, among trials.
        ends: steps of one training of it after which the scheduler may end a trial, increasing.
        repeats: trainings of each configuration.
        spare_epochs: beside the trainings of each stage, for epochs that a killed attempt draws again.
        repetitions: the law of the number of candidates of a private selection, ``None`` without one.
        share: of the signal, for these candidates where a final follows.
        noise: of scores of private rows, ``None`` where they are free.
        final_scores: how many epochs of a final release such scores, see `ScoreNoise`.
        sketch_share: of the whole signal, for a private sketch of the training rows; 0 without one.
        relation: which data sets are neighbours.
    """

    epsilon: float
    delta: float
    training: PoissonGaussian
    epochs: int
    trials: int
    stages: tuple[StagePlan, ...] = ()
    ends: tuple[int, ...] = ()
    repeats: int = 1
    spare_epochs: int = 0
    repetitions: Repetitions | None = None
    share: float = 0.0
    noise: ScoreNoise | None = None
    final_scores: int | None = None
    sketch_share: float = 0.0
    relation: Relation = Relation.ADD_OR_REMOVE_ONE

    @property
    def law(self) -> Repetitions:
        """The law of the number of candidates.

        Raises:
            ValueError: there is none.
        """
        if self.repetitions is None:
            raise ValueError("Expected the law of the number of candidates, got none")
        return self.repetitions

    @property
    def scores_of_candidates(self) -> PoissonGaussian | None:
        """What one training spends on scores of private validation rows, ``None`` where they are free."""
        return None if self.noise is None else self.noise.paid(self.epochs).event

    @property
    def planned_releases(self) -> int:
        """How many releases of scores of private validation rows all trials may make, spare ones too."""
        if not self.stages:
            return self.repeats * self.trials * self.epochs
        explored = sum(map(self._scores_of_early, self.stages[:-1]))
        return self.repeats * (explored + self._scores_of_finals + len(self.stages) * self.spare_epochs)

    @property
    def planned_points(self) -> int:
        """How many points a front is taken to have, each with one release of test scores.

        As many as finals release, and a trial that is alone in its stage: that is the low end of the front.
        """
        if not self.stages:
            return _POINTS
        alone = [stage for stage in self.stages[:-1] if stage.trials == 1]
        return self._scores_of_finals + sum(map(self._scores_of_early, alone))

    @property
    def _scores_of_finals(self) -> int:
        each = self.epochs if self.final_scores is None else self.final_scores  # however many epochs another one has
        return self.stages[-1].trials * each

    def _scores_of_early(self, stage: StagePlan) -> int:
        return stage.trials * (self.epochs if self.final_scores is None else early_scores(stage.trials))

    @property
    def trial(self) -> PoissonGaussian:
        """What all repeats of one configuration spend together."""
        return self.training.with_steps(self.repeats * self.training.steps)

    @property
    def spare(self) -> int:
        """The steps of the spare epochs of a stage."""
        return self.spare_epochs * (self.trial.steps // self.epochs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """How a sweep stands that goes on.

    Attributes:
        charged: what its ledger charges.
        planned: what that will charge once the trials that have begun have come to their end.
        begun: how many trials have begun and go on.
        left: how many have not begun.
        scores_test: whether scores of private test rows may be released at its end, which are not in ``planned``.
    """

    charged: ChargedEvents
    planned: ChargedEvents
    begun: int
    left: int
    scores_test: bool = False


class Spending(ABC):
    """How a sweep spends. Its fields are fixed before any row is read.

    Guarantees:
        If a training draws noise only where `refusal` gave no reason, and scores of test rows only where `test_refusal`
        gave none, everything that `prices` releases costs no more than it says.
    """

    name: ClassVar[str]  # that of its module
    refunds: ClassVar[bool] = False  # whether steps that a closed training did not run are given to others
    conditions: ClassVar[tuple[str, ...]] = ()  # what its price rests on beside the conditions of every claim
    sketch: PoissonGaussian | None = None  # a private sketch of the training rows that its price includes

    @classmethod
    @abstractmethod
    def cut(cls, request: Request) -> "Spending":
        """Return what a spec asks for.

        Raises:
            clipless.errors.AccountingError: no noise that can be priced is right for it.
            UnmetRequestError: a field of the spec does not fit the others.
        """

    @classmethod
    def plan_multipliers(cls, request: Request) -> tuple[float, float]:
        """Return the noise multipliers of scores of validation rows and of test rows that cost as much as may be spent.

        Rows of one split have nothing of the others' budget (`clipless.privacy.noisy_counts`): scores of all trials may
        cost the budget of the sweep, or without one what a single training costs. Under private selection those of
        each candidate may.
        """
        from clipless.privacy.accounting.calibration import noise_multiplier_for  # takes seconds to import

        epsilon = request.epsilon if isfinite(request.epsilon) else price([request.training], request.delta).epsilon
        releases = request.planned_releases if request.repetitions is None else request.epochs
        validation, test = (
            noise_multiplier_for(epsilon, request.delta, 1.0, count, request.relation)
            for count in (releases, request.planned_points)
        )
        return validation, test

    @abstractmethod
    def in_words(self, delta: float, expected: Callable[[], Price | None]) -> str:
        """Return the price at delta, in a sentence or two.

        ``expected`` estimates it where nothing fixes it beforehand, as ``None`` where nothing can be planned.
        """

    def resumed_in_words(self, resumed: Resumed, price_with: PriceWith) -> str | None:  # noqa: ARG002
        """Return the price of a sweep that goes on, never less than what is spent; ``None`` where `in_words` holds.

        ``price_with`` prices what is charged together with so many trials, as ``None`` where none can be planned.
        """
        return None

    @abstractmethod
    def prices(self, charged: ChargedEvents, delta: float, *, tight: bool = False) -> dict[str, Price]:
        """Return the price of the winner, of the front and of all.

        ``tight`` takes seconds for a smaller epsilon where events are composed; see `pricing.price`.
        """

    def release(self, charged: ChargedEvents, *, tight: bool = False) -> Release | None:  # noqa: ARG002
        """Return what `prices` cover, as far as more is known of it than epsilon and delta; ``None`` otherwise."""
        return None

    def most_scores(self, trial: str, noise: ScoreNoise) -> int | None:  # noqa: ARG002
        """Return how many epochs of a trial release scores of private rows, ``None`` for all of them."""
        return None

    @property
    def score_pools(self) -> tuple[PaidScores, PaidScores] | None:
        """What all scores of validation rows and of test rows may spend, ``None`` where nothing fixes their number."""
        return None

    @property
    def budget(self) -> "Budget | None":
        """What prices the whole sweep before any row is read, ``None`` where trainings pay for themselves."""
        return None

    @property
    def selection(self) -> Terms | None:
        """The private selection that comes first, ``None`` without one."""
        return None

    @property
    def candidates(self) -> "Spending":
        """What gives the candidates of that selection their noise."""
        return self

    @property
    def stage_trials(self) -> tuple[int, ...]:
        """The number of trials of each stage, from the first to the last; empty where there are no stages."""
        return ()

    @property
    def named_slots(self) -> Mapping[str, PoissonGaussian]:
        """What one trial of each part of the sweep may spend, by the name of the part; empty without slots."""
        return {}

    def slot_of(self, trial: str) -> PoissonGaussian | None:  # noqa: ARG002
        """Return the slot that gives a trial its noise, by its id; ``None`` where its configuration says it."""
        return None

    @property
    def first_slot(self) -> PoissonGaussian | None:
        """The slot of the first trial."""
        return next(iter(self.named_slots.values()), None)

    @property
    def final_slot(self) -> PoissonGaussian | None:
        """The slot of the last trial."""
        return next(iter([*self.named_slots.values()][::-1]), None)

    def stage_of(self, trial: str, selection: Terms | None = None) -> int | None:  # noqa: ARG002
        """Return whose slot a trial fills, from 0; ``selection`` is what the ledger knows of a private selection."""
        return None

    def refusal(
        self,
        entries: Sequence[Entry],  # noqa: ARG002
        tests: Sequence[PaidScores] = (),  # noqa: ARG002
        selection: Terms | None = None,  # noqa: ARG002
    ) -> str | None:
        """Return why there is no room for the last of these trainings, ``None`` if there is.

        All of ``entries`` count as drawn; ``tests`` are releases of scores of private test rows.
        """
        return None

    def test_refusal(self, entries: Sequence[Entry], tests: Sequence[PaidScores]) -> str | None:  # noqa: ARG002
        """Return why there is no room for the last of these releases of scores of test rows."""
        return None

    def share(self, entries: Sequence[Entry]) -> float | None:  # noqa: ARG002
        """Return the share of the budget that is spent or promised to trials that run, ``None`` without a budget."""
        return None

    def plan_releases(self, noise: ScoreNoise | None, expect: Expect) -> Releases:
        """Return every release that is planned, by the split whose rows it reads; a private selection comes beside it.

        Args:
            noise: of scores of private rows, ``None`` where they are free.
            expect: returns what trials are expected to spend on training rows and on scores of validation rows; it is
                asked where nothing fixes that beforehand.
        """
        trainings, scores = expect()
        paid = {} if noise is None else {VALIDATION: tuple(scores)}
        return {TRAINING: tuple(trainings), **paid, **score_front(noise)}

    @property
    def decided_epsilon(self) -> float | None:
        """What all releases of a split may cost where results decide on them; ``None`` where they are planned."""
        return None

    def parts(self) -> Sequence["BudgetPart"]:
        """Return how the budget is cut, from the first part to the last; empty where it is not."""
        return ()

    def other_cuts(self) -> Mapping[str, "Spending"]:
        """Return cuts that a user may prefer, each under what would have to be asked for."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Budget(Spending):
    """A way of spending whose price is one number before the first result, however results are used."""

    epsilon: float  # of everything, at delta
    delta: float  # the probability the guarantee may fail with

    @property
    def budget(self) -> Self:
        """The budget itself."""
        return self

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return the row of a ledger that says how the sweep spends, as JSON values."""

    @classmethod
    @abstractmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Read back what `to_json` wrote.

        Raises:
            KeyError, TypeError, clipless.errors.AccountingError: something else.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetPart:
    """One part of a budget that is cut: some trials of one slot."""

    name: str
    trials: str
    share: float  # of the signal
    slot: PoissonGaussian
    epsilon: float  # of the whole part, by itself


def score_front(noise: ScoreNoise | None) -> Releases:
    """Return the scores of test rows of a front, where nothing else says how many points it may have."""
    return {} if noise is None else {TEST: (noise.paid_test(_POINTS).event,)}


def answer_alike(price: Price, cost: str) -> dict[str, Price]:
    """Return one price for all three questions; ``cost`` says what it is and why."""
    return dict.fromkeys(QUESTIONS, replace(price, statement=f"Price: {cost}"))
