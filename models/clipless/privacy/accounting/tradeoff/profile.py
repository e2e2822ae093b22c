r"""Privacy profiles: upper bounds of the divergences of neighbours, from whatever is known of what was released.

With ``H_alpha(P || Q) = sup over A of P(A) - alpha Q(A)``, P and Q the outputs on two neighbours, a profile holds
bounds of H at increasing alphas, from ``H_0 = 1`` on, in every direction in which neighbours may differ. H is convex in
alpha and does not increase: the line between two bounds is a bound, and so is the last one at every larger alpha.

Sources, from the tightest: the loss distribution of an event (`pld_grid`, `pld`), that of a private selection and a
final (`selection_composed`), Renyi divergences, which give a pair (epsilon, delta) for every delta, and one such pair:

    H_alpha(P || Q) <= delta at alpha = e^epsilon,   and   H_{1/alpha}(P || Q) = 1 - (1 - H_alpha(Q || P)) / alpha.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from scipy import special

from clipless.privacy.accounting.pld import composed_profile, loss_grids
from clipless.privacy.accounting.pld_grid import FloatArray, lower_hull
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.selection_composed import explored_profile, selection_profiles
from clipless.privacy.accounting.spending import LARGEST_LOSS, MOST_STEPS, costly_events, too_little_noise
from clipless.privacy.events import Event
from clipless.privacy.exposure import Basis

_ROUNDING = 1.0 + 2.0**-49  # of a sum of two terms
_DEVIATIONS = 9.0  # of the losses of a Gaussian to which its profile reaches; beyond is a probability of 1e-19
_POINTS = 4001
_DELTAS = np.geomspace(1e-12, 0.5, 48)  # at which Renyi divergences are converted

Bound = tuple[FloatArray, FloatArray]
"""Logarithms of increasing alphas, the first of which is -inf, and bounds of the divergences there. Shapes: (A,), (A,).
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyProfile:
    """Bounds of the divergences of neighbours.

    Attributes:
        bounds: one for each direction, and each part of the data, in which neighbours may differ.
        basis: what they were computed from.
    """

    bounds: tuple[Bound, ...]
    basis: Basis

    @cached_property
    def _corners(self) -> tuple[tuple[FloatArray, FloatArray, FloatArray], ...]:
        """Alphas, and bounds there, of which one is the tightest for each probability, and slopes between them."""
        corners = (lower_hull(np.exp(epsilons), deltas) for epsilons, deltas in self.bounds)
        return tuple((alphas, deltas, np.diff(deltas) / np.diff(alphas)) for alphas, deltas in corners)

    def caught(self, false_alarms: FloatArray) -> FloatArray:
        """Return the largest probability under one neighbour of an outcome that has these under the other.

        Guarantees:
            Never less than any test attains, for each alpha that is known gives an upper bound.

        Args:
            false_alarms: probabilities. Shape: (F,).

        Returns:
            Shape: (F,).
        """
        found = []
        for alphas, deltas, slopes in self._corners:
            tightest = np.searchsorted(slopes, -false_alarms)
            found.append(false_alarms * alphas[tightest] + deltas[tightest])
        largest: FloatArray = np.max(found, axis=0)
        return np.minimum(largest * _ROUNDING, 1.0)

    def delta(self, epsilon: float) -> float:
        """Return a bound of the divergence at an epsilon of either sign; at 0, of the total variation."""
        alpha = math.exp(min(epsilon, LARGEST_LOSS))
        found = max(float(np.interp(alpha, np.exp(epsilons), deltas)) for epsilons, deltas in self.bounds)
        return min(found * _ROUNDING, 1.0)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which the divergence is known to be at most delta."""
        return max(_solve(*bound, delta) for bound in self.bounds)

    def with_slack(self, slack: float) -> "PrivacyProfile":
        """Return the profile of what may tell neighbours apart with this probability, and is as before otherwise."""
        bounds = tuple(
            (epsilons, np.minimum(np.append(deltas[:1], deltas[1:] + slack), 1.0)) for epsilons, deltas in self.bounds
        )
        return replace(self, bounds=bounds)


NOTHING = PrivacyProfile(bounds=((np.array([-np.inf, 0.0]), np.array([1.0, 0.0])),), basis=Basis.PROFILE)
"""Of nothing that depends on the rows."""

_EVERYTHING = PrivacyProfile(bounds=((np.array([-np.inf, 0.0]), np.array([1.0, 1.0])),), basis=Basis.PROFILE)


def merge_splits(profiles: Iterable[PrivacyProfile]) -> PrivacyProfile:
    """Return the profile of releases of splits of the data, where neighbours differ in one split."""
    found = tuple(profiles)
    bases = {one.basis for one in found}
    loosest = next((basis for basis in (Basis.PAIR, Basis.RENYI) if basis in bases), Basis.PROFILE)
    return PrivacyProfile(bounds=tuple(bound for one in found for bound in one.bounds), basis=loosest)


@lru_cache(maxsize=16)
def profile_event(event: Event) -> PrivacyProfile:
    """Return the profile of an event by its privacy loss distribution, which bounds nothing if that is out of reach."""
    parts = costly_events(event)
    if not parts:
        return NOTHING
    if too_little_noise(parts) or sum(part.steps for part in parts) > MOST_STEPS:
        return _EVERYTHING
    if len(parts) == 1:
        (part,) = parts
        grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
        return profile_bounds((grid.profile(part.steps) for grid in grids), Basis.PROFILE)
    return profile_bounds([composed_profile(event)], Basis.PROFILE)


@lru_cache(maxsize=16)
def profile_by_renyi(event: Event) -> PrivacyProfile:
    """Return the profile of an event by its Renyi divergences, a sum over its parts: milliseconds for many parts.

    Raises:
        AccountingError: the relation is replace-one.
    """
    pairs = [(rdp_epsilon(event, float(delta)), float(delta)) for delta in _DELTAS]
    return replace(_of_pairs(pairs), basis=Basis.RENYI)


def profile_gaussian(signal: float, slack: float) -> PrivacyProfile:
    """Return the profile of what has a signal up to a slack, see `clipless.privacy.accounting.gaussian_filter`."""
    reach = min(0.5 * signal**2 + _DEVIATIONS * signal, LARGEST_LOSS)
    epsilons = np.linspace(-reach, reach, _POINTS)
    here = special.ndtr(0.5 * signal - epsilons / signal)
    there = np.exp(epsilons + special.log_ndtr(-0.5 * signal - epsilons / signal))
    deltas = np.clip(here - there + 2.0**-49 * (here + there), 0.0, 1.0)
    return profile_bounds([(epsilons, deltas)], Basis.PROFILE).with_slack(slack)


def profile_pair(epsilon: float, delta: float) -> PrivacyProfile:
    """Return what follows from one pair (epsilon, delta)."""
    return _of_pairs([(epsilon, delta)])


@lru_cache(maxsize=16)
def profile_selection(candidate: Event, repetitions: Repetitions, final: Event | None = None) -> PrivacyProfile:
    """Return the profile of the best of a random number of candidates, and of a ``final`` that follows from it."""
    parts = (*costly_events(candidate), *(() if final is None else costly_events(final)))
    if too_little_noise(parts) or sum(part.steps for part in parts) > MOST_STEPS:
        return _EVERYTHING
    if final is not None and costly_events(final):
        if not costly_events(candidate):
            return profile_event(final)
        return profile_bounds([explored_profile(candidate, repetitions, final)], Basis.PROFILE)
    if not costly_events(candidate):
        return NOTHING
    with np.errstate(divide="ignore"):
        bounds = tuple((np.log(alphas), deltas) for alphas, deltas in selection_profiles(candidate, repetitions))
    return PrivacyProfile(bounds=bounds, basis=Basis.PROFILE)


def profile_bounds(profiles: Iterable[Bound], basis: Basis) -> PrivacyProfile:
    """Return the profile with these bounds at increasing epsilons of either sign; ``H_0 = 1`` joins them."""
    bounds = tuple((np.append(-np.inf, epsilons), np.append(1.0, deltas)) for epsilons, deltas in profiles)
    return PrivacyProfile(bounds=bounds, basis=basis)


def _of_pairs(pairs: Iterable[tuple[float, float]]) -> PrivacyProfile:
    known = [(epsilon, delta) for epsilon, delta in pairs if epsilon <= LARGEST_LOSS]
    if not known:
        return replace(_EVERYTHING, basis=Basis.PAIR)
    dots = [(-math.inf, 1.0)]
    for epsilon, delta in known:
        mirrored = -math.expm1(-epsilon) + delta * math.exp(-epsilon)
        dots += [(epsilon, delta), (-epsilon, min(mirrored * _ROUNDING, 1.0))]
    epsilons, deltas = (np.array(column) for column in zip(*sorted(dots), strict=True))
    epsilons, first = np.unique(epsilons, return_index=True)  # of equal alphas the smallest bound stands first
    with np.errstate(divide="ignore"):
        alphas, deltas = lower_hull(np.exp(epsilons), deltas[first])
        return PrivacyProfile(bounds=((np.log(alphas), deltas),), basis=Basis.PAIR)


def _solve(epsilons: FloatArray, deltas: FloatArray, delta: float) -> float:
    """Return where the lines between bounds of a divergence come down to delta, from which on all are at most that."""
    above = np.flatnonzero(~(deltas <= delta))
    last = int(above[-1])  # H_0 = 1 is above
    if last + 1 == len(deltas):
        return math.inf
    low, high = np.exp(epsilons[last : last + 2])
    share = (deltas[last] - delta) / (deltas[last] - deltas[last + 1])
    return max(0.0, math.log((low + share * (high - low)) * _ROUNDING))
