"""The price of a private selection (Papernot and Steinke 2022, arXiv 2110.03620), through dp_accounting.

Its RDP at an order needs that of a candidate at two, so it is minimised over a set of orders. Up to an epsilon of 12
that is within 1 % of a far finer set at delta <= 1e-3; from 20 on it may be twice it, with large shapes more: there the
best orders are close to 1, where dp_accounting's series converge too slowly.
"""

import math
from functools import lru_cache

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from clipless.errors import AccountantsDisagreeError, AccountingError
from clipless.privacy.accounting.lower_bound import AGREEMENT, attack_epsilon, falls_below
from clipless.privacy.accounting.parts import check_delta, spending_parts, too_little_noise
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.events import Event, PoissonGaussian, Relation

_ORDERS = (
    2.0,
    2.75,
    *(k / 10 for k in range(30, 110)),
    *range(11, 64),
    *(round(64 * 2 ** (k / 4)) for k in range(25)),
)
_STEP_ROUNDING = 1e-11  # of epsilon for each step


@lru_cache(maxsize=256)
def selection_epsilon(event: Event, repetitions: Repetitions, delta: float) -> float:
    """Bound the epsilon of releasing the best of a random number of independent candidates, and nothing else of them.

    Args:
        event: what one candidate spends, the same for each.
        repetitions: distribution of their number, which is drawn from it and stays secret.
        delta: the probability the guarantee may fail with.

    Guarantees:
        Let each candidate be drawn from one fixed distribution of configurations, trained at the cost of the event and
        ranked by a total order on what it releases. Then the best one (nothing, where their number is 0) is (epsilon,
        delta)-differentially private: theorems 2 and 6 of the paper. Roundings are upwards.

    Raises:
        AccountingError: delta is not in (0, 1), or the relation is replace-one.
        AccountantsDisagreeError: the bound fell below what an attack on one candidate attains.
    """
    check_delta(delta)
    if event.relation is not Relation.ADD_OR_REMOVE_ONE:
        raise AccountingError(
            "Expected add-or-remove-one for private selection, which RDP prices: it has no bound for Poisson sampling "
            "under replace-one"
        )
    parts = spending_parts(event)
    if not parts:
        return 0.0
    if too_little_noise(parts):
        return math.inf
    accountant = RdpAccountant(_ORDERS)
    candidate = dp_event.ComposedDpEvent([_dp_event(part) for part in parts])
    accountant.compose(dp_event.RepeatAndSelectDpEvent(candidate, repetitions.mean, repetitions.eta))
    slack = _STEP_ROUNDING * sum(part.steps for part in parts)
    epsilon = float(accountant.get_epsilon(delta)) * (1.0 + AGREEMENT) + slack
    if falls_below(epsilon, attacked := attack_epsilon(event, delta)):
        raise AccountantsDisagreeError(
            f"private selection claims epsilon={epsilon:.6g} at delta={delta:g}, but an attack on one candidate "
            f"attains {attacked:.6g}: {event}"
        )
    return epsilon


def _dp_event(part: PoissonGaussian) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(part.sampling_rate, dp_event.GaussianDpEvent(part.noise_multiplier))
    return dp_event.SelfComposedDpEvent(step, part.steps)
