"""A training as a ledger charges it, and all that a ledger charges together."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from clipless.privacy.events import PoissonGaussian
from sweeper.privacy.evaluation.paid_scores import PaidScores
from sweeper.privacy.selection import Terms
from sweeper.rounding import number_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One training."""

    trial: str
    attempt: int  # 1 for its first training, 2 when it was started again, ...
    event: PoissonGaussian
    steps: int | None = None  # what was run, ``None`` while the entry is open
    kept: int = 0  # steps of earlier attempts that this one goes on from
    ends: tuple[int, ...] = ()  # steps of the trial after which it may be ended, where a budget refunds the others
    goes_on: bool = False  # whether a later attempt goes on from this one, and plans the steps that it did not run
    # what was planned for scores of private validation rows, ``None`` where they are free
    scores: PaidScores | None = None
    scored: int | None = None  # releases of scores that were made, ``None`` while that is not known
    stage: int | None = None  # whose slot it fills, where the budget is cut into slots
    drawn: bool = True  # whether noise may have been drawn; false until that is marked
    granted: tuple[int, ...] = ()  # steps of the trial up to which an account has let it draw, one after another

    @property
    def planned(self) -> PoissonGaussian:
        """What the whole trial plans, the steps that this attempt goes on from included."""
        return self.event.with_steps(self.kept + self.event.steps)

    @property
    def planned_scores(self) -> PoissonGaussian | None:
        """What the whole trial plans for scores of private validation rows, ``None`` where they are free."""
        return None if self.scores is None else self.scores.event.with_steps(self.scores.kept + self.scores.event.steps)

    @property
    def charged(self) -> PoissonGaussian:
        """What is charged: the planned steps, more if more were run; only those run if another attempt goes on."""
        if not self.drawn:
            return self.event.with_steps(0)
        planned = 0 if self.goes_on else self.event.steps
        return self.event.with_steps(max(planned, self.steps or 0))

    @property
    def spent(self) -> PoissonGaussian:
        """What was run, or what is planned while the entry is open; a privacy filter counts the blocks it began."""
        return self.event.with_steps(self.event.steps if self.steps is None else self.steps)

    @property
    def charged_scores(self) -> tuple[PoissonGaussian, ...]:
        """What is charged for scores: all that were planned, or those made if another attempt makes the others."""
        if self.scores is None or not self.drawn:
            return ()
        planned = 0 if self.goes_on and self.scored is not None else self.scores.event.steps
        return (self.scores.event.with_steps(max(planned, self.scored or 0)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChargedEvents:
    """Everything that a ledger charges, by the split whose rows it was computed from.

    Attributes:
        training: one event for each training.
        again: how many of these are further attempts at a trial that has one; the others are of a trial each.
        validation: what trainings are charged for scores of private validation rows.
        test: what scores or curves of private test rows are charged; behind a private selection those of the winner.
        apart: whether the split of a row depends on that row alone, where there are private scores.
        selection: the private selection, with the conditions that broke; ``None`` before its end or without one.
    """

    training: Sequence[PoissonGaussian] = ()
    again: int = 0
    validation: Sequence[PoissonGaussian] = ()
    test: Sequence[PoissonGaussian] = ()
    apart: bool = True
    selection: Terms | None = None

    def with_more(self, trials: int, like: Entry) -> "ChargedEvents":
        """Return it with further trials, of which each is charged what the whole trial of an entry plans."""
        scores = () if like.planned_scores is None else (like.planned_scores,)
        training, validation = (*self.training, *trials * (like.planned,)), (*self.validation, *trials * scores)
        return replace(self, training=training, validation=validation)

    @property
    def trainings_in_words(self) -> str:
        """How many trainings there are: so many trials, or attempts at fewer trials."""
        attempts, trials = len(self.training), number_of(len(self.training) - self.again, "trial")
        return f"{number_of(attempts, 'attempt')} at {trials}" if self.again else trials
