r"""What several rows cost together: a person with k rows, or k planted ones.

**Of an event.** k rows join each batch independently with probability q, and each moves the sum by at most its
sensitivity. The sum with them against that without is dominated by ``P = sum over i of w_i N(i, sigma^2)`` against
``Q = N(0, sigma^2)`` with binomial weights ``w_i = C(k, i) q^i (1 - q)^(k - i)``, step by step and adaptively (Ganesh
2024, arXiv 2401.10294). The loss ``L(x)`` of x increases, so the sets that attain the divergences are half-lines:

    H_alpha(P || Q) = P(X > x) - alpha Q(X > x) at alpha = e^L(x),    H_alpha(Q || P) = Q(X < x) - alpha P(X < x) at
    alpha = e^-L(x),

exact at every x: the lines between many x are upper bounds on a grid of losses, on which steps are composed.

**Of a profile.** With ``b(a) = min over alpha of (alpha a + H_alpha)``, the largest probability that one row makes of
a, k rows make at most ``b_k = b(b(... b(a)))`` of it (Dong, Roth and Su 2022, arXiv 1905.02383, theorem 2.14). On a
grid of a, ``b_k(a) - alpha a`` is at most its value with b_k at the upper and a at the lower end of each cell.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache, reduce
from math import inf, log, sqrt

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from scipy.special import log_ndtr, logsumexp, ndtr
from scipy.stats import binom

from clipless.privacy.accounting.pld import ComposedLosses, self_compose
from clipless.privacy.accounting.pld_grid import FloatArray, IntArray, LossGrid
from clipless.privacy.accounting.spending import (
    LARGEST_LOSS,
    MOST_STEPS,
    check_delta,
    costly_events,
    overflow_slack,
    too_little_noise,
)
from clipless.privacy.accounting.tradeoff.profile import Bound, PrivacyProfile, profile_bounds
from clipless.privacy.accounting.tradeoff.risk import risk_of
from clipless.privacy.events import Event, PoissonGaussian, Relation
from clipless.privacy.exposure import GROUPS, Basis, Exposure, GroupCost

_OUTPUTS = 4001  # at which divergences are taken
_TAILS = 9.5  # deviations of the outputs on either side; beyond is a probability of 1e-21
_CANCELLATION = 2.0**-50  # relative error of a difference of probabilities
_MOST_PARTS = 4  # of an event, for more of which group privacy is taken: seconds otherwise
_MOST_INFINITE = 0.1  # probability of a loss that floating point cannot hold, in one step
_LEAST = 1e-40  # below it lies one cell of probabilities
_CELLS = 2**12


@lru_cache(maxsize=64)
def expose(profile: PrivacyProfile, delta: float, event: Event | None = None) -> Exposure:
    """Return what a release means to a person with one, 2, 4 and 8 rows.

    Args:
        profile: of the release, for one row.
        delta: at which epsilons of groups are stated.
        event: what was released, where that is known and nothing else was.

    Raises:
        AccountingError: delta is not in (0, 1).
    """
    check_delta(delta)
    own = {} if event is None else {rows: cost for rows in GROUPS if (cost := group_price(event, rows, delta))}
    derived = {} if len(own) == len(GROUPS) else chain_rows(profile, GROUPS, delta)
    groups = []
    for rows in GROUPS:
        epsilon, shift = own.get(rows) or derived[rows]
        groups.append(GroupCost(rows=rows, epsilon=epsilon, shift=shift, basis=profile.basis, own=rows in own))
    return Exposure(risk=risk_of(profile), groups=tuple(groups))


@lru_cache(maxsize=256)
def group_price(event: Event, rows: int, delta: float) -> tuple[float, float] | None:
    """Return epsilon at delta, and how far probabilities move, where so many rows join or leave together.

    ``None`` under replace-one, and for more parts or steps than can be composed.

    Guarantees:
        Both are upper bounds; roundings are upwards.
    """
    parts = costly_events(event)
    steps = sum(part.steps for part in parts)
    if event.relation is not Relation.ADD_OR_REMOVE_ONE or len(parts) > _MOST_PARTS or steps > MOST_STEPS:
        return None
    if not parts:
        return 0.0, 0.0
    if too_little_noise(parts):
        return inf, 1.0
    width = _grid_width(parts, rows)
    dots = [_grid_dots(part, rows, width) for part in parts]
    if max(float(deltas[-1]) for both in dots for _, deltas in both) > _MOST_INFINITE:
        return inf, 1.0
    slack = (rows - 1) * overflow_slack(steps)
    if len(parts) == 1:
        bounds = [LossGrid.from_dots(*one, width).profile(steps) for one in dots[0]]
        profile = profile_bounds(bounds, Basis.PROFILE).with_slack(slack)
        return profile.epsilon(delta), profile.delta(0.0)
    composed = reduce(
        ComposedLosses.compose,
        (_compose(both, width, part.steps) for both, part in zip(dots, parts, strict=True)),
    )
    slack += composed.slack
    epsilon = float(composed.distribution.get_epsilon_for_delta(delta - slack)) if delta > slack else inf
    return epsilon, min(1.0, float(composed.distribution.get_delta_for_epsilon(0.0)) + slack)


def chain_rows(profile: PrivacyProfile, rows: Iterable[int], delta: float) -> dict[int, tuple[float, float]]:
    """Return epsilon at delta, and how far probabilities move, for each number of rows, by group privacy.

    Epsilon is infinite where the profile of one row says nothing of it.
    """
    wanted, found = frozenset(rows), {}
    cells = np.concatenate(([0.0], np.geomspace(_LEAST, 1.0, _CELLS)))
    lower, upper = cells[:-1], cells[1:]
    for count in range(1, max(wanted) + 1):
        upper = profile.caught(upper)
        if count in wanted:
            alpha = inf if upper[0] > delta else float(np.max((upper[1:] - delta) / lower[1:]))
            found[count] = (max(0.0, log(alpha)) if alpha > 0.0 else 0.0, min(1.0, float(np.max(upper - lower))))
    return found


@lru_cache(maxsize=64)
def _divergences(noise_multiplier: float, sampling_rate: float, rows: int) -> tuple[Bound, Bound, float]:
    """Return losses of one step and exact divergences there, in both directions, and the mean squared loss."""
    weights = binom.pmf(np.arange(rows + 1), rows, sampling_rate)
    shifts = np.arange(rows + 1) / noise_multiplier
    x = np.linspace(-_TAILS, shifts[-1] + _TAILS, _OUTPUTS)
    losses = logsumexp(shifts * x[:, None] - shifts**2 / 2.0, b=weights, axis=1)
    joined, left = ndtr(shifts - x[:, None]) @ weights, np.exp(losses + log_ndtr(-x))
    removed, kept = ndtr(x), np.exp(logsumexp(log_ndtr(x[:, None] - shifts), b=weights, axis=1) - losses)
    there = joined - left + _CANCELLATION * (joined + left)
    back = removed - kept + _CANCELLATION * (removed + kept)
    square = float(-np.diff(joined) @ np.maximum(losses[1:] ** 2, losses[:-1] ** 2))
    return _decreasing(losses, there), _decreasing(-losses[::-1], back[::-1]), square


def _decreasing(losses: FloatArray, deltas: FloatArray) -> Bound:
    kept = np.abs(losses) <= LARGEST_LOSS
    return losses[kept], np.minimum.accumulate(np.clip(deltas[kept], 0.0, 1.0))


def _grid_width(parts: Sequence[PoissonGaussian], rows: int) -> float:
    """Return a width as `pld.grid_width` chooses it for one row."""
    found = [_divergences(part.noise_multiplier, part.sampling_rate, rows) for part in parts]
    steps = sum(part.steps for part in parts)
    typical = sqrt(sum(part.steps * square for part, (*_, square) in zip(parts, found, strict=True)) / steps)
    span = max(float(np.ptp(losses)) for *bounds, _ in found for losses, _ in bounds)
    return max(min(typical / 16.0, 0.02), 1e-6, span / 2**15)


def _grid_dots(part: PoissonGaussian, rows: int, width: float) -> list[tuple[IntArray, FloatArray]]:
    """Return divergences on the grid, on the lines between exact ones."""
    *bounds, _ = _divergences(part.noise_multiplier, part.sampling_rate, rows)
    dots = []
    for losses, deltas in bounds:
        points = np.arange(np.floor(losses[0] / width), np.ceil(losses[-1] / width) + 1).astype(np.int64)
        alphas, known = np.append(0.0, np.exp(losses)), np.append(1.0, deltas)
        dots.append((points, np.interp(np.exp(points * width), alphas, known)))
    return dots


def _compose(dots: Sequence[tuple[IntArray, FloatArray]], width: float, steps: int) -> ComposedLosses:
    masses = [pld_pmf.create_pmf_pessimistic_connect_dots(width, *one).to_dense_pmf() for one in dots]
    return self_compose(PrivacyLossDistribution(*masses), steps)
