r"""Renyi differential privacy (RDP, Mironov 2017, arXiv 1702.07476), through autodp, at the best of all real orders.

``P`` and ``Q`` are the outputs of one step with and without one example. autodp gives ``K(a) = log E_Q (P/Q)^a`` of the
Poisson-sampled Gaussian exactly at integer orders (Zhu and Wang 2019, theorem 8); between them K is convex, so its
chord is above it. T steps cost ``T K``, and by Balle et al. (2020, arXiv 1905.09982, theorem 21), for every real order
x > 1,

    epsilon(x) = (T K(x) - log delta - log x) / (x - 1) + log(1 - 1/x).

``x - 1`` times it is convex in x, so there is one minimum. On the chord over [k, k+1], with C the numerator without
``log x``, continued to x = 1, its derivative has the sign of ``log x - C``: the best order is exp(C) or an end, and
bisection over k finds the chord.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from autodp.rdp_acct import anaRDPacct
from autodp.rdp_bank import RDP_gaussian

from clipless.errors import AccountingError
from clipless.privacy.accounting.spending import check_delta, costly_events, overflow_slack, too_little_noise
from clipless.privacy.events import Event, PoissonGaussian, Relation

_ROUNDING = 2.0**-49  # of K, and of order x log2(order), the size of autodp's log-gamma terms: more than was seen
HIGHEST_ORDER = 1024
"""Orders are searched up to one more."""


def rdp_epsilon(event: Event, delta: float) -> float:
    """Bound epsilon from above by Renyi differential privacy.

    Raises:
        AccountingError: delta is not in (0, 1), or the relation is replace-one.
    """
    check_delta(delta)
    _check_relation(event)
    parts = costly_events(event)
    if not parts:
        return 0.0
    usable = delta - overflow_slack(sum(part.steps for part in parts))
    if too_little_noise(parts) or not usable > 0.0:
        return math.inf
    return epsilon_of_cgf(lambda order: _composed_cgf(parts, order), usable)


def rdp_cgf(event: Event, order: int) -> float:
    """Return ``K(order)`` of all steps, rounded up: the Renyi divergence at a whole order, times order - 1.

    Raises:
        AccountingError: the relation is replace-one.
    """
    _check_relation(event)
    parts = costly_events(event)
    return math.inf if too_little_noise(parts) else _composed_cgf(parts, order)


def epsilon_at_order(cgf: float, order: float, delta: float) -> float:
    """Convert ``K(order)`` to epsilon, which is negative where little enough is spent."""
    return (cgf - math.log(delta) - math.log(order)) / (order - 1.0) + math.log1p(-1.0 / order)


def _check_relation(event: Event) -> None:
    if event.relation is not Relation.ADD_OR_REMOVE_ONE:
        raise AccountingError("RDP has no bound for Poisson sampling under replace-one; use pld_epsilon")


def _composed_cgf(parts: Sequence[PoissonGaussian], order: int) -> float:
    return sum(part.steps * _cgf(order, part.noise_multiplier, part.sampling_rate) for part in parts)


@lru_cache(maxsize=2**16)
def _cgf(order: int, noise_multiplier: float, sampling_rate: float) -> float:
    """``K(order)`` of one step, rounded up.

    autodp's ``evalRDP`` is asked with the smallest table it can be built with: the table only serves its own
    search over orders (and holds values too small by a factor 1 - q), building a large one costs 40 ms.
    """
    if order == 1:
        return 0.0

    def gaussian(alpha: float) -> float:
        return float(RDP_gaussian({"sigma": noise_multiplier}, alpha))

    rdp = gaussian
    if sampling_rate < 1.0:  # autodp takes log(1 - q) before it looks whether q is 1
        account = anaRDPacct(m=2)
        account.compose_poisson_subsampled_mechanisms(gaussian, sampling_rate)
        account.build_zeroth_oracle()
        rdp = account.evalRDP
    return (order - 1) * float(rdp(order)) * (1.0 + _ROUNDING) + _ROUNDING * order * math.log2(order)


def epsilon_of_cgf(cgf: Callable[[int], float], delta: float) -> float:
    """Minimise the conversion over real orders in [1, 1025].

    ``cgf`` is K at whole orders from 1 on: convex, with K(1) = 0.
    """

    def numerator_at_one(k: int) -> float:
        here = cgf(k)
        return here - (k - 1) * (cgf(k + 1) - here) - math.log(delta)

    low, high = 1, 2
    while high < HIGHEST_ORDER and math.log(high + 1) < numerator_at_one(high):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if math.log(middle + 1) < numerator_at_one(middle):
            low = middle + 1
        else:
            high = middle
    order = math.exp(min(max(numerator_at_one(low), math.log(low)), math.log(low + 1)))
    order = max(order, 1.0 + 1e-9)
    chord = cgf(low) + (order - low) * (cgf(low + 1) - cgf(low))
    return max(0.0, epsilon_at_order(chord, order, delta))
