"""Private selection at run time: independent candidates, the conditions of the price, and the winner.

A *candidate* is one run of one fixed random experiment: draw a configuration from the prior, draw initial weights,
train all planned steps, score every epoch. It releases all its iterates, so its event is that of all planned steps
and picking its best epoch is post-processing. The winner is the best candidate of a secret random number of them.

A candidate whose process died after its first noise is *lost*: its outcome is the worst there is, it is never the
winner and never starts again, which would be a second draw. Losing is part of the experiment that all candidates are,
as long as what kills one looks at nothing but that candidate and the machine (docs/mathematics.md). One that had drawn
nothing yet may start again, or leave its place to another.

Nobody but the winner may be seen. While a sweep selects privately, nothing below may be written where it stays, sent
to a tracking store, printed or logged; what a crash needs lies in a folder that only its owner can read and that is
removed when the winner is written:

* the number of candidates drawn, or how many have begun, ended, failed or were lost, nor how often the driver died: no
  progress display, no trial ids in messages, no length of any list, no hypervolume over time, and no ledger whose rows
  can be counted. Behind a winner whose conditions held, the ledger that stays has one row: the event, the distribution,
  and that its conditions held;
* rows of trials and points, decisions, proposals, configurations, plans, models and checkpoints of any other
  candidate; Ray's result folders and logs; MLflow runs of candidates; the study of the sampler;
* the winner's own trial id, which bounds the number from below, in file names and in the card too, and the seed of
  its initial weights;
* prices that depend on the number: `prices.answers` states none;
* durations: a tracking run is made when the winner is known, start and end together, and files get one time. Who can
  watch the machine learns how long it worked, and with it about how many candidates there were; the standing
  condition that timing is not protected says so.

What may leave: the winner's configuration, all its epochs with their scores and models, its test scores, and the
spec; and, where the budget of the sweep holds a final, everything of that one, which trains in sight once the winner
is known. If a condition was broken, everything may leave, at the price of the composition of everything that was
charged, and no final is trained.

Nothing here trains, and nothing imports Ray, MLflow or Optuna.
"""

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from clipless.datasets import Evaluation
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import PoissonGaussian, Relation
from sweeper.records import Objective, Point
from sweeper.specification.constraints import OutcomeConstraint

if TYPE_CHECKING:
    from clipless.privacy.randomness import RandomSource

UNDECIDED = "The selection was ended before its winner was known."
WINNER_TRIAL = "t0001"  # the winner's own id would bound the number of candidates
_WORD_BYTES = 16
NOISE_TOLERANCE = 1e-9  # relative; the price counts with that much less noise


class Ending(enum.Enum):
    """How a candidate ended."""

    COMPLETED = "completed"  # trained every planned step
    UNDEFINED = "undefined"  # stopped at a score that is not a number: its outcome, the worst there is
    REFUSED = "refused"  # its configuration has no plan; it never saw the data: the worst outcome too
    LOST = "lost"  # its process, or the driver, died: likewise the worst outcome
    STOPPED = "stopped"  # ended before its plan by a decision, of a scheduler or a budget
    CRASHED = "crashed"  # ended by anything else


_BREAKS = {
    Ending.STOPPED: "was ended before its planned steps were done",
    Ending.CRASHED: "crashed, and what made it crash may have been the data",
}


def _open_source() -> "RandomSource":
    from clipless.privacy.randomness import SecureSource  # torch, which a ledger that is only read does not need

    return SecureSource()


class IndependentProposer:
    """Draws configurations and initial seeds, each independent of all others: the prior of private selection.

    It answers where ``space.suggest`` asks Optuna. A seeded sampler would not do: with a public seed the candidates
    are a fixed list, and the winner's configuration tells which place of the list it had.
    """

    def __init__(self, source: "RandomSource | None" = None) -> None:
        self._source = source or _open_source()

    def suggest_float(self, name: str, low: float, high: float, *, step: float | None, log: bool) -> float:  # noqa: ARG002
        """Return a number, uniform between the ends, in its logarithm or on the grid."""
        if step is not None:
            return min(low + step * self._below(math.floor((high - low) / step + 1e-8) + 1), high)
        if log:
            return min(max(math.exp(self._between(math.log(low), math.log(high))), low), high)
        return min(self._between(low, high), high)

    def suggest_int(self, name: str, low: int, high: int, *, step: int, log: bool) -> int:  # noqa: ARG002
        """Return a whole number, uniform on the grid or, rounded, in the logarithm."""
        if log:
            return min(max(round(math.exp(self._between(math.log(low - 0.5), math.log(high + 0.5)))), low), high)
        return low + step * self._below((high - low) // step + 1)

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:  # noqa: ARG002
        """Return one of the choices."""
        return choices[self._below(len(choices))]

    def initial_seed(self) -> int:
        """Return a seed for the initial weights of one candidate, of 63 bits."""
        return self._below(2**63)

    def _below(self, count: int) -> int:
        word = int.from_bytes(self._source.random_bytes(_WORD_BYTES), "big")
        return word * count >> 8 * _WORD_BYTES

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._below(2**53) / 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a price needs to know of a private selection."""

    event: PoissonGaussian  # what every candidate spends on the training rows
    repetitions: Repetitions  # the distribution of their number
    # what every candidate spends on private validation rows, ``None`` where they are public
    scores: PoissonGaussian | None = None
    breaks: tuple[str, ...] = ()  # the conditions that did not hold, one sentence each
    undecided: bool = False  # whether the selection has not ended: until then no price of a winner holds

    @property
    def broken(self) -> tuple[str, ...]:
        """Why the price of a winner does not hold, one sentence each; empty if it does."""
        return (*((UNDECIDED,) if self.undecided else ()), *self.breaks)

    @property
    def planned(self) -> "Terms":
        """The terms as they were before the first candidate."""
        return replace(self, breaks=(), undecided=False)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: nothing in them depends on how many candidates there were, unless something broke."""
        return {
            "event": self.event.to_json(),
            "repetitions": self.repetitions.to_json(),
            "scores": None if self.scores is None else self.scores.to_json(),
            "broken": list(self.breaks),
            "undecided": self.undecided,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Terms":
        """Read back what ``to_json`` wrote.

        Raises:
            KeyError, TypeError, AccountingError: something else.
        """
        scores = content["scores"]
        return cls(
            event=PoissonGaussian.from_json(content["event"]),
            repetitions=Repetitions.from_json(content["repetitions"]),
            scores=None if scores is None else PoissonGaussian.from_json(scores),
            breaks=tuple(map(str, content["broken"])),
            undecided=content.get("undecided", False) is not False,
        )

    @property
    def priced(self) -> PoissonGaussian:
        """The event with the least noise that ``same_event`` lets pass."""
        return replace(self.event, noise_multiplier=self.event.noise_multiplier * (1.0 - 2.0 * NOISE_TOLERANCE))


@dataclass(slots=True)
class _Candidate:
    planned: bool = False
    drawn: bool = False
    ending: Ending | None = None
    best: tuple[tuple[float, ...], Point] | None = None


@dataclass(slots=True, kw_only=True)
class PrivateSelection:
    """One private selection, fed with what happens to its candidates.

    It has more than fifteen methods because each event of a candidate and each question about them is one.
    """

    terms: Terms  # event and distribution, known before the first candidate begins
    objectives: Sequence[Objective]  # of the sweep; the first one that is not epsilon is the score
    constraints: Sequence[OutcomeConstraint] = ()  # what the winner should meet
    evaluation: Evaluation = Evaluation.PUBLIC  # what the scored rows are
    # of the number of candidates and of their configurations; tests inject one, and say so
    source: "RandomSource" = field(default_factory=_open_source)
    # the number that an earlier driver of the same selection has drawn; drawn now if ``None``
    earlier: InitVar[int | None] = None
    number: int = field(init=False, repr=False)  # how many candidates to train; secret
    _candidates: dict[str, _Candidate] = field(init=False, repr=False, default_factory=dict)
    _broken: dict[str, None] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self, earlier: int | None) -> None:
        self.number = self.terms.repetitions.draw(self.source) if earlier is None else earlier

    @property
    def left(self) -> int:
        """How many candidates have not begun."""
        return self.number - len(self._candidates)

    @property
    def is_over(self) -> bool:
        """Whether every candidate has ended."""
        return self.left == 0 and all(entry.ending is not None for entry in self._candidates.values())

    def begin(self, candidate: str) -> None:
        """Enter a candidate, in the order of proposals; a second time it is one that started again."""
        if candidate in self._candidates and self._candidates[candidate].drawn:
            self._break(f"Candidate {candidate} was started again, so that one of its trainings was thrown away.")
        self._candidates.setdefault(candidate, _Candidate())

    def draw(self, candidate: str) -> None:
        """Take that a candidate is about to draw its first noise."""
        self._candidates[candidate].drawn = True

    def has_drawn(self, candidate: str) -> bool:
        """Whether a candidate may have drawn noise."""
        return self._candidates[candidate].drawn

    def withdraw(self, candidate: str) -> None:
        """Leave the place of a candidate that has drawn nothing to another one; one that has drawn is lost."""
        if self._candidates[candidate].drawn:
            self.end(candidate, Ending.LOST)
        else:
            del self._candidates[candidate]

    def plan(self, candidate: str, event: PoissonGaussian, scores: PoissonGaussian | None = None) -> None:
        """Take what a candidate is about to spend, on training rows and on scores of private validation rows."""
        entry = self._candidates[candidate]
        if entry.drawn:
            self._break(f"Candidate {candidate} planned anew after its first noise.")
        entry.planned = True
        if not same_event(self.terms.event, event):
            self._break(f"Candidate {candidate} planned another event than the one that is priced.")
        if scores != self.terms.scores:
            self._break(f"Candidate {candidate} planned other releases of scores than those that are priced.")

    def score(self, point: Point) -> None:
        """Take one epoch of a candidate; the best one is what it will be compared by."""
        entry = self._candidates[point.trial]
        if not entry.planned:
            self._break(f"Candidate {point.trial} was scored without a plan.")
        rank = self._rank(point)
        if rank is not None and (entry.best is None or rank > entry.best[0]):
            entry.best = (rank, point)

    def end(self, candidate: str, ending: Ending) -> None:
        """Take how a candidate ended; only one that completed has a score, whatever earlier epochs had."""
        entry = self._candidates[candidate]
        entry.ending = ending
        if ending is Ending.REFUSED and entry.planned:
            self._break(f"Candidate {candidate} was refused after it had been planned.")
        if ending in _BREAKS:
            self._break(f"Candidate {candidate} {_BREAKS[ending]}.")

    @property
    def trouble(self) -> str | None:
        """The first condition that is known to be broken already, ``None`` while none is."""
        return next(iter(self._broken), None)

    def broken(self) -> tuple[str, ...]:
        """Return the conditions that do not hold, one sentence each; complete once all candidates have ended."""
        return (*self._broken, *self._missing(), *self.unsound())

    def broken_so_far(self) -> tuple[str, ...]:
        """Return the conditions that no candidate to come can mend."""
        return (*self._broken, *self.unsound())

    def settled(self) -> Terms:
        """Return the terms with what was broken: what ``prices.answers`` takes."""
        return replace(self.terms, breaks=self.broken())

    def winner(self) -> Point | None:
        """Return the best epoch of the best candidate, ``None`` if there is no score.

        Candidates are ranked by what they miss of the constraints, less first, then by the score, and within one
        candidate epochs by the smaller epsilon too. Of equal candidates the one that was proposed first wins. That is
        as good as a coin toss that nobody's data can load: candidates are independent and of one law, so given what
        they released every order of proposals is equally likely, and a uniform random mark on each candidate, by which
        ties would be broken, makes theorem 2 of the paper apply and leaves the same law of the winner. Which came
        first in *time* would not do: how long training takes depends on the data.
        """
        ranked = [entry.best for entry in self._candidates.values() if entry.best and entry.ending is Ending.COMPLETED]
        return max(ranked, key=lambda best: best[0][:2])[1] if ranked else None  # max keeps the first of equals

    def _rank(self, point: Point) -> tuple[float, ...] | None:
        utility = next(one for one in self.objectives if one.name != "epsilon")
        score, epsilon = point.values.get(utility.name, math.nan), point.values.get("epsilon", math.inf)
        if math.isnan(score):
            return None
        missed = sum(max(0.0, one.violation(point.values)) for one in self.constraints)
        return (-missed, utility.direction.sign * score, -epsilon)

    def _break(self, reason: str) -> None:
        self._broken.setdefault(reason)

    def _missing(self) -> list[str]:
        ended = sum(entry.ending is not None for entry in self._candidates.values())
        if ended == len(self._candidates) == self.number:
            return []
        return [f"{self.number} candidates were drawn, but {len(self._candidates)} began and {ended} ended."]

    def unsound(self) -> list[str]:
        """Return the conditions that do not hold whatever candidates do, one sentence each."""
        found = []
        if not self.source.secure:
            found.append("Candidates and their number came from an injected generator, not from the secure one.")
        if self.evaluation is Evaluation.EXPLORATORY:
            found.append("Scores were taken on rows of the same people without paying for it.")
        if self.evaluation is Evaluation.PRIVATE and self.terms.scores is None:
            found.append("Scores were taken on private rows without noise that is priced.")
        if self.terms.event.relation is not Relation.ADD_OR_REMOVE_ONE:
            found.append("The relation is not add-or-remove-one, which alone has a price.")
        return found


def same_event(first: PoissonGaussian, other: PoissonGaussian) -> bool:
    """Whether two trainings spend the same, but for the last digits of noise that two machines have calibrated.

    >>> event = PoissonGaussian(noise_multiplier=2.0, sampling_rate=0.1, steps=9, relation=Relation.ADD_OR_REMOVE_ONE)
    >>> same_event(event, event.with_steps(9)), same_event(event, event.with_steps(10))
    (True, False)
    """
    close = math.isclose(first.noise_multiplier, other.noise_multiplier, rel_tol=NOISE_TOLERANCE)
    return close and replace(first, noise_multiplier=other.noise_multiplier) == other
