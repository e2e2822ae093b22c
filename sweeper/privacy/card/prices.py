"""What a card states of one point's cost: from the event of its training and a ledger, and from nothing else.

Whoever makes a card and whoever checks one compute these numbers by the same functions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clipless.privacy.events import Composed, Event, PoissonGaussian
from sweeper.adapters import dump
from sweeper.privacy.card.content import EventPrice, ExposureFacts, ModelPrice, PointExposures
from sweeper.privacy.exposures import expose_event
from sweeper.privacy.pricing import Price

if TYPE_CHECKING:
    from sweeper.privacy.entries import Entry
    from sweeper.privacy.ledger import Ledger


def charged_entries(ledger: "Ledger", trial: str) -> "tuple[Entry, ...]":
    """Return what a ledger charges to a trial."""
    return tuple(entry for entry in ledger.entries() if entry.trial == trial and entry.drawn)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPrices:
    """The prices of a point, as a `Guarantee` has them."""

    fixed_in_advance: EventPrice
    chosen_afterwards: EventPrice
    selected: float | None
    price: ModelPrice | None
    trainings: int


def point_prices(
    event: PoissonGaussian,
    steps: int,
    repeats: int,
    delta: float,
    ledger: Mapping[str, Price],
    attempts: "Sequence[Entry]",
) -> PointPrices:
    """Return the prices of a point.

    Args:
        event: everything that one training of the trial plans.
        steps: of it, by the end of the point's epoch.
        repeats: trainings of the trial.
        delta: of the claim.
        ledger: what the sweep costs.
        attempts: what the ledger charges to the trial.
    """
    return PointPrices(
        fixed_in_advance=price_event(event.with_steps(steps), delta),
        chosen_afterwards=price_event(_charged(event, repeats, attempts), delta),
        selected=_selected(ledger),
        price=_price(ledger),
        trainings=_trainings(attempts),
    )


def point_exposure(
    event: PoissonGaussian, steps: int, repeats: int, delta: float, attempts: "Sequence[Entry]"
) -> PointExposures:
    """Return what both prices of a training mean to a person; the arguments are those of `point_prices`."""
    return PointExposures(
        fixed_in_advance=_exposure(event.with_steps(steps), delta),
        chosen_afterwards=_exposure(_charged(event, repeats, attempts), delta),
    )


def _exposure(event: Event, delta: float) -> ExposureFacts:
    return ExposureFacts.model_validate(dump(expose_event(event, delta)))


def price_scores(planned: PoissonGaussian, delta: float, attempts: "Sequence[Entry]") -> EventPrice:
    """Return what the releases of validation scores cost that a ledger charges to a trial."""
    charged = [event for entry in attempts for event in entry.charged_scores]
    return price_event(_compose(charged or [planned]), delta)


def price_event(event: Event, delta: float) -> EventPrice:
    """Return what is claimed for an event, and by which bounds."""
    from clipless.privacy.accounting.claim import claim  # takes seconds, and few who read sweeps make cards

    priced = claim(event, delta)
    steps = sum(part.steps for part in (event.events if isinstance(event, Composed) else (event,)))
    return EventPrice(epsilon=priced.epsilon, rdp=priced.rdp, pld=priced.pld, steps=steps)


def _charged(event: PoissonGaussian, repeats: int, attempts: "Sequence[Entry]") -> Event:
    return _compose([entry.charged for entry in attempts] or [event.with_steps(repeats * event.steps)])


def _trainings(attempts: "Sequence[Entry]") -> int:
    """Return how often a trial was begun: attempts that go on from each other are one training."""
    return sum(not entry.goes_on for entry in attempts) or 1


def _selected(ledger: Mapping[str, Price]) -> float | None:
    """Return the price of a winner that was selected privately, None where everything may leave."""
    return None if all(answer.released for answer in ledger.values()) else ledger["winner"].epsilon


def _price(ledger: Mapping[str, Price]) -> ModelPrice | None:
    """Return the price of a model of the sweep, None where it is not known."""
    price = ledger.get("winner")
    return None if price is None or not price.released else ModelPrice(epsilon=price.epsilon, fixed=price.fixed)


def _compose(events: Sequence[PoissonGaussian]) -> Event:
    """Return the composition, where all are of one mechanism as one event of it."""
    steps: dict[PoissonGaussian, int] = {}
    for event in events:
        mechanism = event.with_steps(0)
        steps[mechanism] = steps.get(mechanism, 0) + event.steps
    parts = tuple(mechanism.with_steps(count) for mechanism, count in steps.items())
    return parts[0] if len(parts) == 1 else Composed(parts)
