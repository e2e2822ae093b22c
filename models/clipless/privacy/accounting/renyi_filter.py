"""A budget that refunds steps that were not run: the Renyi filter of Feldman and Zrnic (2021, arXiv 2008.11193).

At one order fixed beforehand, trainings are admitted as long as their Renyi divergences, the next one's plan included,
add up to no more than the budget. What is admitted, and how long it runs, may depend on all results before. The whole
is (order, budget)-RDP, so it costs the budget, whatever was spent of it: the sum of what happened to be run is no
bound, for results chose it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from clipless.errors import AccountingError
from clipless.privacy.accounting.renyi import HIGHEST_ORDER, epsilon_at_order, rdp_cgf
from clipless.privacy.accounting.spending import MOST_STEPS, check_delta, overflow_slack
from clipless.privacy.events import PoissonGaussian

_ROUNDING = 2.0**-48  # of a sum, its terms being rounded up, and of the budget


@dataclass(frozen=True, slots=True)
class RenyiFilter:
    """Tells which trainings still fit into a budget; its fields are fixed before the first one.

    Guarantees:
        If every training runs only if `admits` said so, given all that ran before with the steps it really took,
        then all of them together are (epsilon, delta)-differentially private under add-or-remove-one.

    Raises:
        AccountingError: a field is out of range.
    """

    order: int  # the Renyi order, a whole number from 2 to 1024
    epsilon: float  # price of everything that is ever admitted
    delta: float  # the probability the guarantee may fail with

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not (type(self.order) is int and 2 <= self.order <= HIGHEST_ORDER):
            raise AccountingError(f"Expected a whole order from 2 to {HIGHEST_ORDER}, got order={self.order!r}")
        if not 0.0 < self.epsilon < math.inf:
            raise AccountingError(f"Expected 0 < epsilon < inf, got epsilon={self.epsilon!r}")

    @property
    def budget(self) -> float:
        """The largest divergence that converts to at most ``epsilon``, rounded down; nothing fits if negative."""
        usable = self.delta - overflow_slack(MOST_STEPS)
        if not usable > 0.0:
            return -math.inf
        conversion = epsilon_at_order(0.0, self.order, usable)
        return self.epsilon - conversion - _ROUNDING * (self.epsilon + abs(conversion))

    def spent(self, events: Iterable[PoissonGaussian]) -> float:
        """Return the sum of the events' divergences at the order, rounded up; infinite for more than `MOST_STEPS`.

        Raises:
            AccountingError: an event's relation is not add-or-remove-one.
        """
        events = tuple(events)
        if sum(event.steps for event in events) > MOST_STEPS:
            return math.inf
        total = math.fsum(rdp_cgf(event, self.order) for event in events)
        return total / (self.order - 1) * (1.0 + _ROUNDING)

    def admits(self, run: Sequence[PoissonGaussian], planned: PoissonGaussian) -> bool:
        """Return whether a training may be begun.

        Args:
            run: what ran before, each with the steps it took, and what is running, each with the steps it may take.
            planned: the training, with all the steps it may take.

        Raises:
            AccountingError: an event's relation is not add-or-remove-one.
        """
        return self.spent([*run, planned]) <= self.budget


@lru_cache(maxsize=256)
def best_order(event: PoissonGaussian, epsilon: float, delta: float) -> int:
    """Return the order at which most trainings like the event fit into the budget, to be fixed beforehand.

    Raises:
        AccountingError: an argument is out of range, the event's relation is not add-or-remove-one, or the event
            costs nothing or more than epsilon at every order.
    """

    def trainings(order: int) -> float:
        fixed = RenyiFilter(order, epsilon, delta)
        spent = fixed.spent([event])
        return fixed.budget / spent if spent > 0.0 else 0.0

    def needed(order: int) -> float:
        fixed = RenyiFilter(order, epsilon, delta)
        return epsilon - fixed.budget + fixed.spent([event])

    best = max(range(2, HIGHEST_ORDER + 1), key=trainings)
    if trainings(best) < 1.0:
        least = min(map(needed, range(2, HIGHEST_ORDER + 1)))
        needs = f"needs {math.ceil(1000.0 * least) / 1000.0:g}" if math.isfinite(least) else "costs more than any"
        cost = needs if event.steps and event.sampling_rate else "costs nothing"
        raise AccountingError(
            f"Expected an epsilon that a filter can divide into trainings, got epsilon={epsilon!r} at delta={delta!r}, "
            f"where a training of {event.steps} steps at sampling rate {event.sampling_rate:g} with noise multiplier "
            f"{event.noise_multiplier:g} {cost}; raise epsilon or the noise, or train shorter"
        )
    return best
