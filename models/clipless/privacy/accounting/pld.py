"""Privacy loss distributions (PLD, Sommer et al. 2019): dp_accounting prices one step.

Losses live on a grid, and every pessimistic rounding raises epsilon. On a grid of 1/16 of one step's standard
deviation, with noise multipliers .8 to 6, rates .01 to .2 and 100 to 5000 steps, epsilon is 0.01 to 0.04 % above its
limit. A fixed grid of 1e-2 was .01 to 130 % above, 1e-3 up to 3 %, 1e-4 up to .03 % in up to 1.3 s. `pld_grid` composes
the steps of one mechanism, in 1 to 5 ms for each number of steps; dp_accounting composes different mechanisms.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import assert_never

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf, privacy_loss_mechanism
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism

from clipless.errors import AccountingError
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.accounting.pld_grid import TAIL, FloatArray, IntArray, LossGrid, rounding_slack
from clipless.privacy.accounting.spending import (
    LARGEST_LOSS,
    MOST_STEPS,
    check_delta,
    costly_events,
    overflow_slack,
    too_little_noise,
)
from clipless.privacy.events import Event, PoissonGaussian, Relation

_RARELY = 1e-3  # sampled; next to all losses are the same, and rounding takes most
_TAIL_DELTAS = (1e-12, 1e-9, 1e-6)  # a profile reaches to the epsilon of the first that has a finite one


def pld_epsilon(event: Event, delta: float) -> float:
    """Bound epsilon from above by privacy loss distributions.

    Raises:
        AccountingError: delta is not in (0, 1).
    """
    check_delta(delta)
    parts = costly_events(event)
    if not parts:
        return 0.0
    if too_little_noise(parts):
        return math.inf
    if len(parts) > 1:
        return math.inf if _out_of_reach(event, delta) else composed_pld_epsilon(event, delta)
    (part,) = parts
    if part.steps > MOST_STEPS:
        return math.inf
    grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
    found = max(grid.epsilon(part.steps, delta) for grid in grids)
    if found == math.inf and part.sampling_rate < _RARELY:  # rounding took delta; no rate costs more than 1
        return pld_epsilon(replace(part, sampling_rate=1.0), delta)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class ComposedLosses:
    """Losses that dp_accounting composed.

    Attributes:
        distribution: of these losses.
        slack: the most that rounding in its transforms, and batches that overflow, change in a divergence.
    """

    distribution: PrivacyLossDistribution
    slack: float

    def compose(self, other: "ComposedLosses") -> "ComposedLosses":
        """Return the losses of both."""
        found = self.distribution.compose(other.distribution, TAIL)
        pairs = zip(_masses(self.distribution), _masses(other.distribution), strict=True)
        rounding = max(rounding_slack(0, left, len(left) + len(right)) for left, right in pairs)
        return ComposedLosses(found, self.slack + other.slack + rounding)


def self_compose(one: PrivacyLossDistribution, steps: int) -> ComposedLosses:
    """Return the losses of some steps of the losses of one."""
    found = one.self_compose(steps, TAIL)
    pairs = zip(_masses(found), _masses(one), strict=True)
    rounding = max(rounding_slack(steps, masses, max(len(masses), len(before))) for masses, before in pairs)
    return ComposedLosses(found, rounding + overflow_slack(steps))


def _masses(composed: PrivacyLossDistribution) -> list[FloatArray]:
    """Return the masses of finite losses for each direction, which dp_accounting does not show."""
    return [getattr(composed, name).to_dense_pmf()._probs for name in ("_pmf_remove", "_pmf_add")]


@lru_cache(maxsize=64)
def loss_grids(noise_multiplier: float, sampling_rate: float, relation: Relation) -> tuple[LossGrid, ...]:
    """Return the losses of one step on a grid of its own, for each direction in which neighbours may differ."""
    part = PoissonGaussian(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=1, relation=relation)
    width = grid_width([part], pessimistic=True)
    return tuple(LossGrid.from_dots(*_dots(part, direction, width), width) for direction in _adjacencies(part))


def optimistic_epsilon(event: Event, delta: float) -> float:
    """Estimate epsilon from below by privacy loss distributions, every rounding downwards; for checks.

    Raises:
        AccountingError: delta is not in (0, 1).
    """
    check_delta(delta)
    parts = costly_events(event)
    if not parts or too_little_noise(parts):
        return 0.0
    if _out_of_reach(event, delta):
        return attack_epsilon(event, delta)
    found = composed_pld_epsilon(event, delta, pessimistic=False)
    return found if found <= LARGEST_LOSS else attack_epsilon(event, delta)


def composed_pld_epsilon(
    event: Event, delta: float, *, interval: float | None = None, pessimistic: bool = True
) -> float:
    """Bound epsilon by privacy loss distributions that dp_accounting composes, of an event that costs something.

    The grid of losses has the width ``interval``, by default one fitted to the event. Everything is rounded up (an
    upper bound) if ``pessimistic``, otherwise down (a lower bound, for checks).

    Raises:
        AccountingError: interval is not a positive number.
    """
    if interval is not None and not 0.0 < interval < math.inf:
        raise AccountingError(f"Expected 0 < interval < inf, got interval={interval!r}")
    with np.errstate(over="ignore"):  # of exp() of losses beyond `LARGEST_LOSS`
        composed = composed_pld(event, interval, pessimistic)
    # optimistic masses have the tails too
    slack = -composed.slack if pessimistic else composed.slack + 2 * len(costly_events(event)) * TAIL
    return epsilon_of(composed.distribution, delta + slack)


def epsilon_of(composed: PrivacyLossDistribution, delta: float) -> float:
    """Return epsilon of losses that dp_accounting composed; infinite where no delta is left."""
    if not delta > 0.0:
        return math.inf
    try:
        with np.errstate(over="ignore"):
            return float(composed.get_epsilon_for_delta(delta))
    except OverflowError:  # dp_accounting searches downwards and takes exp(-loss): epsilon is below a loss of -700
        return 0.0


def composed_profile(event: Event) -> tuple[FloatArray, FloatArray]:
    """Return increasing epsilons of either sign, and upper bounds of both directions' divergences there.

    The event costs something, and dp_accounting composes its parts.
    """
    return sample_profile(composed_pld(event, None, pessimistic=True))


def sample_profile(losses: ComposedLosses) -> tuple[FloatArray, FloatArray]:
    """Return increasing epsilons of either sign, and upper bounds of both directions' divergences there.

    The losses are pessimistic but for their slack.
    """
    composed = losses.distribution
    tails = (float(composed.get_epsilon_for_delta(delta)) for delta in _TAIL_DELTAS)
    reach = min(LARGEST_LOSS, max(1.0, next((tail for tail in tails if tail < math.inf), math.inf)))
    epsilons = np.linspace(-reach, reach, 4001)
    return epsilons, np.clip(np.asarray(composed.get_delta_for_epsilon(epsilons)) + losses.slack, 0.0, 1.0)


@lru_cache(maxsize=2)
def composed_pld(event: Event, interval: float | None, pessimistic: bool) -> ComposedLosses:
    """Return the losses of an event that costs something, composed by dp_accounting; arguments as above."""
    parts = costly_events(event)
    width = grid_width(parts, pessimistic) if interval is None else interval
    return reduce(
        ComposedLosses.compose,
        [
            self_compose(
                _one_step(part.noise_multiplier, part.sampling_rate, part.relation, width, pessimistic), part.steps
            )
            for part in parts
        ],
    )


def _out_of_reach(event: Event, delta: float) -> bool:
    return sum(part.steps for part in costly_events(event)) > MOST_STEPS or attack_epsilon(event, delta) > LARGEST_LOSS


@lru_cache(maxsize=16)
def _one_step(
    noise_multiplier: float, sampling_rate: float, relation: Relation, width: float, pessimistic: bool
) -> PrivacyLossDistribution:
    part = PoissonGaussian(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=1, relation=relation)
    if pessimistic:
        dots = [_dots(part, direction, width) for direction in _adjacencies(part)]
        masses = [pld_pmf.create_pmf_pessimistic_connect_dots(width, points, deltas) for points, deltas in dots]
        # dense: a sparse one takes the power size**steps of integers to decide whether to stay sparse
        return PrivacyLossDistribution(*(mass.to_dense_pmf() for mass in masses))
    return from_gaussian_mechanism(
        standard_deviation=noise_multiplier,
        pessimistic_estimate=False,
        value_discretization_interval=width,
        sampling_prob=sampling_rate,
        use_connect_dots=False,  # which is pessimistic
        neighboring_relation=_neighbors(relation),
    )


def _adjacencies(part: PoissonGaussian) -> list[privacy_loss_mechanism.AdjacencyType]:
    kinds = privacy_loss_mechanism.AdjacencyType
    match part.relation:
        case Relation.ADD_OR_REMOVE_ONE:
            return [kinds.REMOVE] if part.sampling_rate == 1.0 else [kinds.REMOVE, kinds.ADD]
        case Relation.REPLACE_ONE:
            return [kinds.REPLACE]
        case _:
            assert_never(part.relation)


def _dots(
    part: PoissonGaussian, direction: privacy_loss_mechanism.AdjacencyType, width: float
) -> tuple[IntArray, FloatArray]:
    """Return losses, in units of ``width``, and dp_accounting's hockey-stick divergences there.

    The divergence is convex in exp(loss), so any set of losses may be connected, always from above. Up to 64 widths
    (four deviations) every one is taken, beyond that steps of 1/64 of the loss: a thousand instead of ten thousands.
    """
    loss = privacy_loss_mechanism.GaussianPrivacyLoss(
        part.noise_multiplier, sampling_prob=part.sampling_rate, adjacency_type=direction
    )
    bounds = loss.connect_dots_bounds()
    first, last = math.floor(bounds.epsilon_lower / width), math.ceil(bounds.epsilon_upper / width)
    reach = max(-first, last, 128)
    sparse = np.round(np.geomspace(64, reach, math.ceil(64 * math.log(reach / 64)) + 1))
    sizes = np.concatenate((np.arange(64), sparse)).astype(np.int64)
    points = np.unique(np.clip(np.concatenate((-sizes, sizes)), first, last))
    return points, np.minimum.accumulate(loss.get_delta_for_epsilon(points * width))


def _neighbors(relation: Relation) -> NeighboringRelation:
    match relation:
        case Relation.ADD_OR_REMOVE_ONE:
            return NeighboringRelation.REPLACE_SPECIAL
        case Relation.REPLACE_ONE:
            return NeighboringRelation.REPLACE_ONE
        case _:
            assert_never(relation)


def grid_width(parts: Sequence[PoissonGaussian], pessimistic: bool) -> float:
    """Grid width from the root mean square over steps of (a bound of) the standard deviation of one step's loss.

    Connect-the-dots enlarges the variance of a step by width^2 / 6 at most; plain rounding moves its mean by half
    a width, so a drift of about 2 % of epsilon over all steps sets the optimistic width. The lower ends bound memory.
    """
    steps = sum(part.steps for part in parts)
    variance = sum(part.steps * _loss_deviation(part) ** 2 for part in parts)
    typical = math.sqrt(variance / steps)
    width = typical / 16 if pessimistic else 0.16 * typical / math.sqrt(steps)
    span = max(_loss_range(part) for part in parts)
    return max(min(width, 0.02), 1e-6, span / 2**17, 16 * math.sqrt(variance) / 2**21)


def _loss_deviation(part: PoissonGaussian) -> float:
    sigma, rate = part.noise_multiplier, part.sampling_rate
    drawn_or_not = math.sqrt(rate * (1.0 - rate)) / (2.0 * sigma**2)
    return min(rate * math.sqrt(math.expm1(sigma**-2)), drawn_or_not + 1.0 / sigma)


def _loss_range(part: PoissonGaussian) -> float:
    """Return about how far losses spread in both directions, with outputs within ten deviations."""
    sigma = part.noise_multiplier
    return 2.0 * math.log1p(part.sampling_rate * math.expm1(0.5 / sigma**2 + 10.0 / sigma))
