r"""The price of the best of a random number of independent candidates: two upper bounds, and checks on both.

**RDP** (Papernot and Steinke 2022, arXiv 2110.03620, theorem 2), through dp_accounting: its bound at an order
needs that of a candidate at two, so it is minimised over a set of orders. Up to an epsilon of 12 that is within 1 % of
a far finer set at delta <= 1e-3; from 20 on it may be twice it: there the best orders are close to 1, where
dp_accounting's series converge too slowly.

**Profiles**: ``delta_A(epsilon) <= m delta_Q(epsilon - log r)``, see ``selection_profile.py``. With noise multiplier 3,
rate 0.05, 2000 steps and delta 1e-5, ten candidates in the mean cost 5.02, where RDP says 6.65 and a choice of the
worst order attains 4.77.

**Checks**: neither bound may fall below what ``attack_epsilon`` proves of one candidate.
"""

import math
from functools import lru_cache

from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant

from clipless.errors import AccountantsDisagreeError
from clipless.privacy.accounting.lower_bound import AGREEMENT, attack_epsilon, falls_below
from clipless.privacy.accounting.pld import composed_profile, loss_grids, pld_epsilon
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_profile import log_ratio
from clipless.privacy.accounting.spending import (
    MOST_STEPS,
    check_delta,
    costly_events,
    overflow_slack,
    too_little_noise,
)
from clipless.privacy.events import Event, PoissonGaussian, Relation

_ORDERS = (2.0, 2.75, *(k / 10 for k in range(30, 110)), *range(11, 64), *(round(64 * 2 ** (k / 4)) for k in range(25)))
_STEP_ROUNDING = 1e-11  # of epsilon for each step
_GEOMETRIC = 1.0  # shape of the truncated negative binomial


@lru_cache(maxsize=256)
def selection_epsilon(event: Event, repetitions: Repetitions, delta: float) -> float:
    """Bound the epsilon of releasing the best of a random number of independent candidates, and nothing else of them.

    Args:
        event: what one candidate spends, the same for each.
        repetitions: distribution of their number, which is drawn from it and stays secret.
        delta: the probability the guarantee may fail with.

    Guarantees:
        Let each candidate be drawn from one fixed distribution of configurations, trained at the cost of the event and
        ranked by a total order on what it releases. Then the best one is (epsilon, delta)-differentially private under
        the event's relation. Roundings are upwards.

    Raises:
        AccountingError: delta is not in (0, 1).
        AccountantsDisagreeError: a bound fell below what an attack on one candidate attains.
    """
    check_delta(delta)
    parts = costly_events(event)
    if not parts:
        return 0.0
    if too_little_noise(parts):
        return math.inf
    attacked = attack_epsilon(event, delta)
    bounds = {"pld": profile_epsilon(event, repetitions, delta)}
    if event.relation is Relation.ADD_OR_REMOVE_ONE:
        bounds["rdp"] = rdp_selection_epsilon(event, repetitions, delta)
    for name, bound in bounds.items():
        if falls_below(bound, attacked):
            raise AccountantsDisagreeError(
                f"private selection claims epsilon={bound:.6g} by {name} at delta={delta:g}, but an attack on one "
                f"candidate attains {attacked:.6g}: {event}"
            )
    return min(bounds.values())


def rdp_selection_epsilon(event: Event, repetitions: Repetitions, delta: float, final: Event | None = None) -> float:
    """Bound it by Renyi differential privacy, together with a ``final`` that is spent after the selection.

    For add-or-remove-one and events of finite cost.
    """
    parts, after = costly_events(event), () if final is None else costly_events(final)
    accountant = RdpAccountant(_ORDERS)
    candidate = dp_event.ComposedDpEvent([_dp_event(part) for part in parts])
    accountant.compose(dp_event.RepeatAndSelectDpEvent(candidate, repetitions.mean, _GEOMETRIC))
    for part in after:
        accountant.compose(_dp_event(part))
    explored, final_steps = (sum(part.steps for part in run) for run in (parts, after))
    usable = delta - overflow_slack(repetitions.mean * explored + final_steps)
    if not usable > 0.0:
        return math.inf
    slack = _STEP_ROUNDING * (explored + final_steps)
    return float(accountant.get_epsilon(usable)) * (1.0 + AGREEMENT) + slack


def profile_epsilon(event: Event, repetitions: Repetitions, delta: float) -> float:
    """Bound it by privacy profiles; for an event of finite cost."""
    least = delta / repetitions.mean
    parts = costly_events(event)
    if len(parts) == 1 and parts[0].steps <= MOST_STEPS:
        (part,) = parts
        grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
        return max(
            grid.epsilon(part.steps, least) + log_ratio(*opposite.profile(part.steps), repetitions)
            for grid, opposite in zip(grids, reversed(grids), strict=True)
        )
    epsilon = pld_epsilon(event, least)
    return epsilon if epsilon == math.inf else epsilon + log_ratio(*composed_profile(event), repetitions)


def _dp_event(part: PoissonGaussian) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(part.sampling_rate, dp_event.GaussianDpEvent(part.noise_multiplier))
    return dp_event.SelfComposedDpEvent(step, part.steps)
