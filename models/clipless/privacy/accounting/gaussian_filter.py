r"""A budget for mechanisms that results choose, kept in one additive number: the filter of Gaussian privacy.

A mechanism has the *signal* mu, up to a slack s, if in both directions in which neighbours may differ

    H_alpha(P || Q) <= s + (1 - s) H_alpha(N(mu, 1) || N(0, 1))        for all alpha >= 1.

Observations of N(mu_i, 1), each mu_i chosen after those before, are increments of a Brownian motion with drift, read up
to the time of the sum of mu_i^2. So mechanisms with a sum of at most mu^2, and slacks of at most s together, have the
signal mu up to s, whoever chose them and whatever ran side by side (Smith and Thakurta 2022, arXiv 2210.17520;
``docs/mathematics.md``). Nothing is lost by composition; what a mechanism loses is its distance from a Gaussian one.

**The smallest signal** has a closed form. An upper bound of ``H`` that is linear between points of alpha is the largest
of its lines ``power - alpha false_alarms``, the ways to attack; it lies below the right-hand side if and only if each
attack is no better than the same false alarms allow there,

    mu >= Phi^-1((power - s) / (1 - s)) - Phi^-1(false_alarms / (1 - s)).

No alpha between two points escapes, for the lines are compared at all alphas.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import assert_never

import numpy as np
from scipy import special

from clipless.errors import AccountingError
from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.accounting.pld_grid import FloatArray, lower_hull
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_composed import selection_profiles
from clipless.privacy.accounting.spending import (
    LARGEST_LOSS,
    MOST_STEPS,
    check_delta,
    costly_events,
    overflow_slack,
    too_little_noise,
)
from clipless.privacy.events import Event, PoissonGaussian, Relation
from clipless.privacy.gaussian import SLACK_SHARE, GaussianCost, largest_signal

_ROUNDING = 1e-9  # of a signal, relative, for the arithmetic of this module: 10^6 times what was seen
_LEAST_SIGNAL = 1e-13  # likewise, absolute
_ROUNDS = 6  # of the search for the slack of one mechanism
_LEAST_SLACK = 4.0  # over what rounding adds to a divergence: less slack would ask for an infinite signal


@dataclass(frozen=True)
class GaussianFilter:
    """Tells which mechanisms still fit into a budget; its fields are fixed before the first one.

    Guarantees:
        If mechanisms start only while `fits` says so of the costs of all that have started and of the one that is to
        start, then all of them together are (epsilon, delta)-differentially private under the relation of their events.
        Each may be chosen by whatever was released before, and they may run side by side. A mechanism that ends early
        has its whole cost.

    Raises:
        AccountingError: a field is out of range.
    """

    epsilon: float  # price of everything that ever fits
    delta: float  # the probability the guarantee may fail with

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 0.0 < self.epsilon < LARGEST_LOSS:
            raise AccountingError(f"Expected 0 < epsilon < {LARGEST_LOSS:g}, got epsilon={self.epsilon!r}")

    @cached_property
    def budget(self) -> GaussianCost:
        """What there is: the largest signal whose divergence at epsilon is at most delta less the slack."""
        slack = SLACK_SHARE * self.delta
        return GaussianCost(largest_signal(self.epsilon, self.delta - slack) ** 2 * (1.0 - _ROUNDING), slack)

    def cost(self, event: Event) -> GaussianCost:
        """Return what an event takes; of the slack about the share that it takes of the signal."""
        parts = costly_events(event)
        if too_little_noise(parts):
            return GaussianCost(math.inf)
        return GaussianCost.total(_cost(part, self.budget) for part in parts)

    def selection_cost(self, candidate: Event, repetitions: Repetitions) -> GaussianCost:
        """Return what the best of a random number of candidates takes; what is trained afterwards has its own cost."""
        parts = costly_events(candidate)
        if not parts:
            return GaussianCost()
        if too_little_noise(parts) or sum(part.steps for part in parts) > MOST_STEPS:
            return GaussianCost(math.inf)
        return _selection_cost(candidate, repetitions, self.budget)

    def share(self, costs: Iterable[GaussianCost]) -> float:
        """Return which share of the budget costs take: of its signal or of its slack, whatever is larger."""
        total = GaussianCost.total(costs)
        return max(total.square / self.budget.square, total.slack / self.budget.slack)

    def fits(self, costs: Iterable[GaussianCost]) -> bool:
        """Return whether the budget has room for all of it."""
        return self.share(costs) <= 1.0


def needed_epsilon(events: Sequence[Event], delta: float) -> float:
    """Return the smallest epsilon, to 0.001 and rounded up, of a filter that has room for events; or infinity.

    Raises:
        AccountingError: delta is not in (0, 1).
    """

    def has_room(thousandths: int) -> bool:
        filter_ = GaussianFilter(thousandths / 1000.0, delta)
        return filter_.fits(map(filter_.cost, events))

    low, high = 0, math.ceil(1000.0 * LARGEST_LOSS) - 1
    if not has_room(high):
        return math.inf
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if has_room(middle) else (middle, high)
    return high / 1000.0


def pure_square(epsilon: float) -> float:
    """Return mu^2 of the smallest signal that dominates whatever is epsilon-differentially private, rounded up.

    All of that is dominated by randomised response, whose best attack has the power ``p = e^epsilon / (1 + e^epsilon)``
    at false alarms of ``1 - p``. Every other attack mixes it with ones that mu = 0 allows, so that it alone decides
    (Dong, Roth and Su 2019, arXiv 1905.02383, proposition 3): ``mu = Phi^-1(p) - Phi^-1(1 - p)``, without slack.

    Raises:
        AccountingError: epsilon is not positive and finite.
    """
    if not 0.0 < epsilon < math.inf:
        raise AccountingError(f"Expected 0 < epsilon < inf, got epsilon={epsilon!r}")
    signal = -2.0 * float(special.ndtri_exp(special.log_expit(-epsilon)))
    return (max(signal, 0.0) * (1.0 + _ROUNDING) + _LEAST_SIGNAL) ** 2


def smallest_signal(attacks: Iterable[tuple[FloatArray, FloatArray]], slack: float) -> float:
    """Return the smallest mu that is enough up to a slack, rounded up; infinite where none is.

    Args:
        attacks: for each direction false alarms and powers of attacks, see `attacks_of`. Shapes: (A,), (A,).
        slack: in [0, 1).
    """
    signals = [_LEAST_SIGNAL]
    for false_alarms, powers in attacks:
        counts = powers > slack
        reached = np.minimum((powers[counts] - slack) / (1.0 - slack), 1.0)
        allowed = np.minimum(false_alarms[counts] / (1.0 - slack), 1.0)
        with np.errstate(invalid="ignore"):  # inf - inf: no attack is better than false alarms that are certain
            signals += np.nan_to_num(special.ndtri(reached) - special.ndtri(allowed), nan=0.0, posinf=np.inf).tolist()
    return max(signals) * (1.0 + _ROUNDING) + _LEAST_SIGNAL


def attacks_of(alphas: FloatArray, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return false alarms and powers of the attacks that a profile leaves possible, from alpha = 1 on.

    Args:
        alphas: e^epsilon, positive and increasing. Shape: (P,).
        deltas: upper bounds of the divergences there. Shape: (P,).

    Returns:
        One attack for each line of the largest convex function below the points, and one without false alarms for what
        lies beyond them. Shapes: (A,), (A,).
    """
    at_one = np.interp(1.0, np.append(0.0, alphas), np.append(1.0, deltas))
    beyond = alphas > 1.0
    alphas, deltas = lower_hull(np.append(1.0, alphas[beyond]), np.append(at_one, deltas[beyond]))
    false_alarms = np.append(-np.diff(deltas) / np.diff(alphas), 0.0)
    return false_alarms, deltas + false_alarms * alphas


@lru_cache(maxsize=4096, typed=True)
def _cost(part: PoissonGaussian, budget: GaussianCost) -> GaussianCost:
    if part.steps > MOST_STEPS:
        return GaussianCost(math.inf)
    if part.sampling_rate == 1.0:
        square = part.steps * (_shift(part.relation) / part.noise_multiplier) ** 2
        return GaussianCost(square * (1.0 + _ROUNDING), overflow_slack(part.steps))
    return _cost_of(_attacks(part), budget)


def _cost_of(attacks: Sequence[tuple[FloatArray, FloatArray]], budget: GaussianCost) -> GaussianCost:
    """Return the cost with about the same share of the slack as of the signal."""
    least = _LEAST_SLACK * max(float(powers[-1]) for _, powers in attacks)
    slack = budget.slack
    for _ in range(_ROUNDS):
        share = smallest_signal(attacks, slack) ** 2 / budget.square
        slack = max(budget.slack * min(share, 1.0), least)
    if slack > budget.slack:
        return GaussianCost(math.inf)
    return GaussianCost(smallest_signal(attacks, slack) ** 2 * (1.0 + _ROUNDING), slack)


@lru_cache(maxsize=256, typed=True)
def _attacks(part: PoissonGaussian) -> tuple[tuple[FloatArray, FloatArray], ...]:
    """Return the attacks of each direction on one sampled mechanism."""
    grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
    profiles = [grid.profile(part.steps) for grid in grids]
    return tuple(attacks_of(np.exp(epsilons), deltas) for epsilons, deltas in profiles)


@lru_cache(maxsize=64, typed=True)
def _selection_cost(candidate: Event, repetitions: Repetitions, budget: GaussianCost) -> GaussianCost:
    return _cost_of([attacks_of(*profile) for profile in selection_profiles(candidate, repetitions)], budget)


def _shift(relation: Relation) -> float:
    """Return by how many contributions neighbours differ at most."""
    match relation:
        case Relation.ADD_OR_REMOVE_ONE:
            return 1.0
        case Relation.REPLACE_ONE:
            return 2.0
        case _:
            assert_never(relation)
