r"""What a release takes of an account, and what there is to take: one additive number and its slack.

A mechanism costs ``(mu^2, s)`` if Gaussian observations of signal mu dominate it up to the slack s, in both directions:
``delta_i(eps) <= (1 - s) delta_G(mu; eps) + s`` for all eps >= 0, with delta_G as in `clipless.privacy.gaussian`.
Mechanisms that are chosen after everything before them, with ``sum mu_i^2 <= mu^2`` and ``sum s_i <= s`` whatever
happens, together satisfy ``delta(eps) <= delta_G(mu; eps) + s`` (Smith and Thakurta 2022, arXiv 2210.17520). So the
budget ``(epsilon, delta)`` of an account is the pair ``(mu^2, s)`` with ``delta_G(mu; epsilon) + s = delta``.

Events are priced by `clipless.privacy.accounting.gaussian_filter`, whose arithmetic takes seconds to import; to look at
an account needs none of it. Amounts are whole multiples of two powers of two, costs rounded up to them and budgets
down. Sums and differences of such numbers are exact in double precision, so what is left does not depend on the order
of entries and never drifts.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from clipless.errors import AccountingError
from clipless.privacy.events import Event, PoissonGaussian
from clipless.privacy.gaussian import SLACK_SHARE, GaussianCost, largest_signal, smallest_epsilon

if TYPE_CHECKING:
    from clipless.privacy.accounting.private_selection import Repetitions

SQUARE_STEP = 2.0**-40  # of mu^2
SLACK_STEP = 2.0**-52
MOST_SIGNAL = 2.0**6  # whose epsilon is in the thousands
MOST_SQUARE = MOST_SIGNAL**2  # sums of multiples are exact up to here
_ROUNDING = 2.0**-50  # relative, of a square, a root or a difference

NOTHING = GaussianCost()


def total(costs: Iterable[GaussianCost]) -> GaussianCost:
    """Return the sum of costs, which is exact if they are whole multiples."""
    costs = tuple(costs)
    return GaussianCost(sum(cost.square for cost in costs), sum(cost.slack for cost in costs))


def is_within(cost: GaussianCost, most: GaussianCost) -> bool:
    """Whether a cost is no more than another in both numbers; one with a number that is none is not."""
    return cost.square <= most.square and cost.slack <= most.slack


def left_of(whole: GaussianCost, taken: GaussianCost) -> GaussianCost:
    """Return what is left, in each of both numbers; none of it is below 0."""
    return GaussianCost(max(whole.square - taken.square, 0.0), max(whole.slack - taken.slack, 0.0))


def larger(one: GaussianCost, other: GaussianCost) -> GaussianCost:
    """Return a cost that covers either of two, of which one applies to each row."""
    return GaussianCost(max(one.square, other.square), max(one.slack, other.slack))


def rounded_up(cost: GaussianCost) -> GaussianCost:
    """Return the least cost of whole multiples that covers a cost; an infinite one stays infinite."""
    return GaussianCost(_to_step(cost.square, SQUARE_STEP, math.ceil), _to_step(cost.slack, SLACK_STEP, math.ceil))


def rounded_down(cost: GaussianCost) -> GaussianCost:
    """Return the largest cost of whole multiples that is within a cost."""
    return GaussianCost(_to_step(cost.square, SQUARE_STEP, math.floor), _to_step(cost.slack, SLACK_STEP, math.floor))


def is_whole(cost: GaussianCost) -> bool:
    """Whether both numbers are whole multiples, none of them negative, so that sums of them are exact."""
    sound = 0.0 <= cost.square <= MOST_SQUARE and 0.0 <= cost.slack <= 1.0
    return sound and cost == rounded_down(cost)


def _to_step(value: float, step: float, rounded: Callable[[float], int]) -> float:
    return rounded(value / step) * step if math.isfinite(value) else value


def budget_of(epsilon: float, delta: float) -> GaussianCost:
    """Return what may be spent under ``(epsilon, delta)``, a twentieth of delta as slack.

    Raises:
        AccountingError: not epsilon > 0 and 0 < delta < 1, or more than can be added up.
    """
    if not (0.0 < epsilon < math.inf and 0.0 < delta < 1.0):
        raise AccountingError(f"Expected epsilon > 0 and 0 < delta < 1, got epsilon={epsilon!r}, delta={delta!r}")
    slack = rounded_down(GaussianCost(0.0, SLACK_SHARE * delta)).slack
    budget = GaussianCost(_largest_square(epsilon, delta, slack), slack)
    if not (budget.square > 0.0 and slack > 0.0):
        raise AccountingError(
            f"Expected a budget of which something can be spent, got epsilon={epsilon!r} at delta={delta!r}"
        )
    return budget


def raised_budget(epsilon: float, delta: float, opened: GaussianCost) -> GaussianCost:
    """Return what may be spent under the larger ``(epsilon, delta)`` of an account that was opened with a budget.

    It has as much slack for each square as that budget, so that a release takes the same share of both before and
    after; with a twentieth of delta the slack that is spent already would leave next to none for a larger signal.

    Raises:
        AccountingError: as `budget_of`.
    """
    budget_of(epsilon, delta)  # refuses what is none
    low, high = opened.slack, delta
    while low < (slack := (low + high) / 2) < high:
        wanted = opened.slack * _largest_square(epsilon, delta, slack)
        low, high = (slack, high) if wanted > slack * opened.square else (low, slack)
    slack = rounded_down(GaussianCost(0.0, low)).slack
    return GaussianCost(_largest_square(epsilon, delta, slack), slack)


def is_covered(budget: GaussianCost, epsilon: float, delta: float) -> bool:
    """Whether everything that a budget has room for is (epsilon, delta)-differentially private together."""
    return 0.0 <= budget.slack < delta and budget.square <= _largest_square(epsilon, delta, budget.slack)


def _largest_square(epsilon: float, delta: float, slack: float) -> float:
    signal = largest_signal(epsilon, delta - slack, most=MOST_SIGNAL)
    return rounded_down(GaussianCost(signal**2 * (1.0 - _ROUNDING))).square


def epsilon_within(left: GaussianCost, budget: GaussianCost, delta: float) -> float:
    """Return the epsilon at delta of a release that takes what is left: the same share of the signal and of the slack.

    Of a budget of which no slack is left, that is 0, however much signal there is.
    """
    part = min(left.square / budget.square, left.slack / budget.slack)
    return epsilon_of(GaussianCost(part * budget.square, part * budget.slack), delta)


def epsilon_of(cost: GaussianCost, delta: float) -> float:
    """Return the epsilon at delta of everything that a cost covers, rounded up; infinite if the slack is all of delta.

    >>> f"{epsilon_of(GaussianCost(0.721**2, 1e-7), 1e-5):.2f}"
    '3.01'
    """
    if cost.slack >= delta or not math.isfinite(cost.square):
        return math.inf
    return smallest_epsilon(math.sqrt(cost.square) * (1.0 + _ROUNDING), (delta - cost.slack) * (1.0 - _ROUNDING))


def event_cost(event: Event, epsilon: float, delta: float) -> GaussianCost:
    """Return what an event takes of an account of ``(epsilon, delta)``, its share of the slack that of the signal.

    Raises:
        clipless.errors.AccountingError: no accountant here can price it.
    """
    from clipless.privacy.accounting.gaussian_filter import GaussianFilter  # takes seconds

    return rounded_up(GaussianFilter(epsilon, delta).cost(event))


def scores_cost(event: PoissonGaussian, epsilon: float, delta: float) -> GaussianCost:
    """Return what to reserve for an event of scores whose releases are charged one by one, each rounded up."""
    one = event_cost(replace(event, steps=1), epsilon, delta)
    return GaussianCost(event.steps * one.square, event.steps * one.slack)


def selection_cost(candidate: Event, repetitions: "Repetitions", epsilon: float, delta: float) -> GaussianCost:
    """Return what the best of a random number of candidates takes of an account of ``(epsilon, delta)``.

    Raises:
        clipless.errors.AccountingError: no accountant here can price it.
    """
    from clipless.privacy.accounting.gaussian_filter import GaussianFilter  # takes seconds

    return rounded_up(GaussianFilter(epsilon, delta).selection_cost(candidate, repetitions))


def pure_cost(epsilons: Iterable[float]) -> GaussianCost:
    """Return what independent mechanisms take that are epsilon-differentially private without a delta.

    Raises:
        clipless.errors.AccountingError: an epsilon that is not positive and finite.
    """
    from clipless.privacy.accounting.gaussian_filter import pure_square  # takes seconds

    return rounded_up(GaussianCost(math.fsum(map(pure_square, epsilons)) * (1.0 + _ROUNDING)))
