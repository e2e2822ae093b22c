"""What the price of a sweep means to a person: from everything that it prices, however much of that is known.

A way of spending says what it prices (`Release`): the profile of one row's influence, and the event itself where groups
of rows can be priced by it. One that says nothing has its pair (epsilon, delta) alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import Composed, Event, PoissonGaussian, Relation
from clipless.privacy.exposure import Exposure
from clipless.privacy.gaussian import GaussianCost
from clipless.privacy.noisy_counts import in_one_split
from sweeper.privacy.pricing import Price

if TYPE_CHECKING:
    from clipless.privacy.accounting.tradeoff.profile import PrivacyProfile

_ROUNDING = 1.0 + 2.0**-50  # of a root


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Everything that a price covers.

    Attributes:
        profile: of one row's influence on it.
        event: what is released, where nothing else is; ``None`` where several rows can only be priced by the profile.
    """

    profile: "PrivacyProfile"
    event: Event | None = None


def release_composition(
    splits: Iterable[Sequence[PoissonGaussian]], *, apart: bool, tight: bool = False
) -> Release | None:
    """Return what was spent on training, validation and test rows, fixed in advance; ``None`` without any.

    Args:
        splits: events of each split.
        apart: whether the split of a row depends on that row alone.
        tight: as in `pricing.price`: whether several events are composed by their loss distributions.
    """
    spent = tuple(tuple(events) for events in splits if events)
    every = tuple(event for events in spent for event in events)
    return _release_composition(spent if apart and in_one_split(every) else (every,), tight) if every else None


@lru_cache(maxsize=8)
def _release_composition(splits: tuple[tuple[PoissonGaussian, ...], ...], tight: bool) -> Release:
    from clipless.privacy.accounting.tradeoff.profile import merge_splits, profile_by_renyi, profile_event

    def profile(events: tuple[PoissonGaussian, ...]) -> "PrivacyProfile":
        composed = Composed(events)
        by_losses = tight or len(events) == 1 or composed.relation is not Relation.ADD_OR_REMOVE_ONE
        return profile_event(composed) if by_losses else profile_by_renyi(composed)

    if len(splits) == 1:
        return Release(profile=profile(splits[0]), event=Composed(splits[0]))
    return Release(profile=merge_splits(map(profile, splits)))


@lru_cache(maxsize=8)
def release_slots(
    slots: tuple[PoissonGaussian, ...], pools: tuple[PoissonGaussian, ...], slack: float, *, own: bool
) -> Release:
    """Return all that a budget in slots may release.

    Args:
        slots: everything that slots, and a sketch, may spend on training rows.
        pools: everything that scores of the rows of each other split may spend.
        slack: the probability with which trainings that slots only dominate may tell neighbours apart.
        own: whether every training so far has the mechanism of its slot. What slots dominate for one row they need not
            dominate for several.
    """
    from clipless.privacy.accounting.tradeoff.profile import merge_splits, profile_event

    event = Composed(slots)
    trained = profile_event(event).with_slack(slack)
    if pools:
        return Release(profile=merge_splits([trained, *map(profile_event, pools)]))
    return Release(profile=trained, event=event if own else None)


@lru_cache(maxsize=8)
def release_selection(
    candidates: tuple[PoissonGaussian, ...], repetitions: Repetitions, tests: tuple[PoissonGaussian, ...]
) -> Release:
    """Return the winner of a private selection: what a candidate spends on each split, and scores of test rows."""
    from clipless.privacy.accounting.tradeoff.profile import merge_splits, profile_event, profile_selection

    selected = [profile_selection(candidate, repetitions) for candidate in candidates]
    return Release(profile=merge_splits([*selected, *([profile_event(Composed(tests))] if tests else [])]))


@lru_cache(maxsize=8)
def release_explored(
    parts: tuple[tuple[PoissonGaussian, PoissonGaussian | None], ...],
    repetitions: Repetitions,
    pools: tuple[PoissonGaussian, ...],
    slack: float,
) -> Release:
    """Return a private selection and the final that follows from it.

    Args:
        parts: what a candidate and the final spend on training rows, and on scores of validation rows.
        repetitions: of the candidates.
        pools: everything that scores of the rows of each other split may spend.
        slack: as in `release_slots`.
    """
    from clipless.privacy.accounting.tradeoff.profile import merge_splits, profile_event, profile_selection

    explored = [profile_selection(candidate, repetitions, final).with_slack(slack) for candidate, final in parts]
    return Release(profile=merge_splits([*explored, *map(profile_event, pools)]))


@lru_cache(maxsize=8)
def release_gaussian(budget: GaussianCost) -> Release:
    """Return everything that a filter of Gaussian privacy ever admits."""
    from clipless.privacy.accounting.tradeoff.profile import profile_gaussian

    return Release(profile=profile_gaussian(budget.square**0.5 * _ROUNDING, budget.slack))


def expose_prices(prices: Mapping[str, Price], release: Release | None) -> dict[str, Price]:
    """Return prices with what they mean to a person, those of what may not leave as they are."""
    return {
        question: replace(price, exposure=expose_price(price, release)) if price.released else price
        for question, price in prices.items()
    }


def expose_price(price: Price, release: Release | None) -> Exposure:
    """Return what a price means to a person; without a release, by its epsilon and delta alone."""
    from clipless.privacy.accounting.tradeoff.group import expose
    from clipless.privacy.accounting.tradeoff.profile import profile_pair
    from clipless.privacy.accounting.tradeoff.risk import pair_risk

    if release is None:
        return expose(profile_pair(price.epsilon, price.delta), price.delta)
    found = expose(release.profile, price.delta, release.event)
    return replace(found, risk=found.risk.at_most(pair_risk(price.epsilon, price.delta)))


def expose_event(event: Event, delta: float) -> Exposure:
    """Return what one event means to a person, by its loss distribution and by what is claimed for it."""
    from clipless.privacy.accounting.claim import claim
    from clipless.privacy.accounting.tradeoff.profile import profile_event

    epsilon = claim(event, delta).epsilon
    return expose_price(
        Price(epsilon=epsilon, delta=delta, events=1), Release(profile=profile_event(event), event=event)
    )
