r"""How often an attacker finds a row: the trade-off function, from a privacy profile.

A test accuses with probability ``a = Q(A)`` where the row was not used, a false alarm, and with ``P(A)`` where it was.
Of every test, by the definition of the divergences,

    P(A) <= min over alpha of (alpha a + H_alpha(P || Q)),

and by the lemma of Neyman and Pearson some test attains it if H is exact (Dong, Roth and Su 2022, arXiv 1905.02383).
Each alpha at which H is bounded gives a bound, so that none is missed between those of a grid, only found too large.
``P(A) - Q(A) <= H_1``, the advantage. The same holds for every outcome A of anything computed from the release: an
outcome of probability a has at most ``P(A)`` with one more row, so that a planted row moves no probability by more than
the advantage.

Who asks whether a row is missing tests Q against P; the larger of both directions is stated.
"""

from functools import lru_cache
from math import ceil

import numpy as np

from clipless.privacy.accounting.tradeoff.profile import PrivacyProfile, profile_event, profile_pair
from clipless.privacy.events import PoissonGaussian
from clipless.privacy.exposure import FALSE_ALARMS, Risk

_PARTS = 10**6  # of a probability, in which it is stated


def risk_of(profile: PrivacyProfile) -> Risk:
    """Return what an attacker gains by a release of this profile."""
    low, middle, high = map(_rounded_up, profile.caught(np.array(FALSE_ALARMS)))
    return Risk(caught=(low, middle, high), advantage=_rounded_up(profile.delta(0.0)), basis=profile.basis)


@lru_cache(maxsize=64)
def event_risks(event: PoissonGaussian, steps: tuple[int, ...]) -> tuple[Risk, ...]:
    """Return the risk of an event run for each number of steps."""
    return tuple(risk_of(profile_event(event.with_steps(count))) for count in steps)


@lru_cache(maxsize=1024)
def pair_risk(epsilon: float, delta: float) -> Risk:
    """Return what follows from one pair (epsilon, delta)."""
    return risk_of(profile_pair(epsilon, delta))


def _rounded_up(probability: float) -> float:
    return min(1.0, ceil(probability * _PARTS) / _PARTS)
