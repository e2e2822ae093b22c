"""What events cost together. Both accountants' numbers are upper bounds; so is each number here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Annotated

from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.exposure import Exposure
from sweeper.adapters import WHEN_KNOWN
from sweeper.records import TrialPlan
from sweeper.rounding import round_up

OWN = "own epsilon"  # of a point: that of its training alone
OWN_EPSILON = f"{OWN} (fixed in advance)"
FOR_ALL = "for the search and every model"  # what a price is for, where no more is kept secret
FIXED = "It was fixed before the first result, and holds however results are used."
GROWS = "Each further trial adds to it."
EXTENDED, ENDED = "extended", "ended early"  # what results may have chosen of a sweep, beside costs of its trials
UPPER_BOUND = "While trials run the price is an upper bound, computed more closely when the sweep ends."
OF_COPY = (
    "The price is not proven: the folder of the sweep may be a copy, and what the sweep drew since the copy was made "
    "comes on top."
)
_RELEASES = {"winner": "the winner alone", "front": "the front", "everything": "everything else"}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Price:
    """What releasing something costs: an upper bound of epsilon, for so many trainings."""

    epsilon: float
    delta: float
    events: int
    statement: str = ""
    # whether it was fixed before the first result, by a budget or a private selection, so that it holds however results
    # are used
    fixed: bool = False
    exposure: Annotated[Exposure | None, WHEN_KNOWN] = None  # what it means to a person
    # why it is not proven, in a sentence: results steer the sweep, where it is not fixed, or its folder may be a copy
    unproven: Annotated[str | None, WHEN_KNOWN] = None

    def __repr__(self) -> str:
        """Return what a terminal shows; ``in_words`` says why it is that.

        >>> Price(epsilon=2.99604, delta=1e-5, events=2)
        Price(epsilon 2.997 at delta 1e-05)
        """
        return f"Price(epsilon {round_up(self.epsilon)} at delta {self.delta!r}{self.doubt})"

    @property
    def released(self) -> bool:
        """Whether this may leave at a stated price; a private selection releases its winner and nothing else."""
        return self.events > 0 or isfinite(self.epsilon)

    @property
    def doubt(self) -> str:
        """What stands behind its number, where it is not proven."""
        return " (not proven)" if self.unproven else ""

    def qualify(self, sentence: str) -> str:
        """Return a sentence on what follows from this price; where the price is not proven, as one that depends on it.

        >>> Price(epsilon=3.0, delta=1e-5, events=2, unproven="It is steered.").qualify("At most 3 are found.")
        'If the price holds, which is not proven: at most 3 are found.'
        """
        lowered = f"{sentence[:1].lower()}{sentence[1:]}"
        return f"If the price holds, which is not proven: {lowered}" if self.unproven else sentence

    @property
    def course(self) -> str:
        """Whether further trials change it, and whether it is proven, in a sentence or two."""
        return " ".join(filter(None, [(FIXED if not self.unproven else "") if self.fixed else GROWS, self.unproven]))

    @property
    def in_words(self) -> str:
        """What it is and why; and, where nothing fixes it, that further trials change it and what is not proven."""
        says_more = self.released and (not self.fixed or self.unproven)
        return f"{self.statement} {self.course}" if says_more else self.statement


def state_unproven(chosen: Sequence[str]) -> str | None:
    """Return that the price is not proven because results steer the sweep, ``None`` where they choose nothing.

    Args:
        chosen: costs of trials that proposals choose after results, `EXTENDED` and `ENDED`.

    >>> state_unproven(["batch_size"]).partition(", but ")[2]
    'they choose batch_size; fix batch_size, or set privacy.sweep_epsilon.'
    >>> state_unproven(["extended"]).partition(", but ")[2]
    'it was extended, perhaps because of them; set privacy.sweep_epsilon.'
    """
    if not chosen:
        return None
    costs, course = ([one for one in chosen if (one in (EXTENDED, ENDED)) == late] for late in (False, True))
    names = " and ".join(filter(None, [", ".join(costs[:-1]), *costs[-1:]]))
    steers = [f"they choose {names}"] if costs else []
    steers += [f"it was {' and '.join(course)}, perhaps because of them"] if course else []
    fix = f"fix {names}, or " if costs else ""
    return (
        "The price is not proven: it assumes that results do not steer the sweep, but "
        f"{' and '.join(steers)}; {fix}set privacy.sweep_epsilon."
    )


def value_name(name: str) -> str:
    """Return what a value of a point is called where a price stands beside it: its epsilon is its own."""
    return OWN if name == "epsilon" else name


def prices_by_release(ledger: Mapping[str, Price]) -> dict[str, Price]:
    """Return the price under what it is for: once where it is the same whatever leaves.

    >>> one = Price(epsilon=3.0, delta=1e-5, events=2)
    >>> none = Price(epsilon=float("inf"), delta=1e-5, events=0)
    >>> list(prices_by_release({"winner": one, "front": one, "everything": one}))
    ['one model or all']
    >>> list(prices_by_release({"winner": one, "front": none, "everything": none}))
    ['the winner alone', 'the front', 'everything else']
    """
    if len({(one.epsilon, one.delta, one.statement) for one in ledger.values()}) == 1:
        return {"one model or all": next(iter(ledger.values()))}
    return {_RELEASES.get(question, question): one for question, one in ledger.items()}


def signal_of(event: PoissonGaussian) -> float:
    """Return ``q sqrt(steps) / sigma`` of a training: its cost grows with it, and squares of it add up."""
    return event.sampling_rate * sqrt(event.steps) / event.noise_multiplier


def drawn_by(plan: TrialPlan, epoch: int) -> int:
    """Return how many releases all repeats of a trial have made by the end of an epoch, 0 before the first."""
    return plan.repeats * steps_by(plan, epoch) if epoch else 0


def epochs_of(plan: TrialPlan, drawn: int) -> int:
    """Return how many epochs a trial has begun whose repeats have made so many releases together.

    No repeat is more than one epoch ahead of another.
    """
    return next((epoch for epoch in range(plan.epochs + 1) if drawn_by(plan, epoch) >= drawn), 0)


def whole_event(plan: TrialPlan) -> PoissonGaussian:
    """Return what a trial plans to spend: the releases of all its repeats, one mechanism."""
    return plan.event.with_steps(plan.repeats * plan.event.steps)


def steps_by(plan: TrialPlan, epoch: int) -> int:
    """Return how many releases a training has made by the end of an epoch, from 1, those before the first included."""
    return plan.preliminary_steps + epoch * plan.steps_per_epoch


def price(events: Sequence[PoissonGaussian], delta: float, *, tight: bool = False) -> Price:
    """Price the composition of all events.

    A single event costs what is claimed for it. Several are priced by RDP, whose composition is a sum: milliseconds.
    Under replace-one, which RDP cannot price with Poisson sampling, and if ``tight``, they too cost the smaller of RDP
    and PLD: seconds for dozens of trials.
    """
    if not events:
        return Price(epsilon=0.0, delta=delta, events=0)
    from clipless.privacy.accounting.claim import claim  # takes seconds, and what shows a sweep prices nothing
    from clipless.privacy.accounting.renyi import rdp_epsilon

    composed = Composed(tuple(events))
    if tight or len(events) == 1 or composed.relation is not Relation.ADD_OR_REMOVE_ONE:
        epsilon = claim(composed, delta).epsilon
    else:
        epsilon = rdp_epsilon(composed, delta)
    return Price(epsilon=epsilon, delta=delta, events=len(events))
