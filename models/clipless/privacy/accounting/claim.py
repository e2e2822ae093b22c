r"""What an event costs: upper bounds on epsilon from two accountants that share no code, and checks on both.

**RDP** (Renyi differential privacy, Mironov 2017, arXiv 1702.07476), through autodp. ``P`` and ``Q`` are the outputs
of one step with and without one example. autodp gives ``K(a) = log E_Q (P/Q)^a`` of the Poisson-sampled Gaussian
exactly at integer orders (Zhu and Wang 2019, theorem 8); between them K is convex, so its chord is above it. T steps
cost ``T K``, and by Balle et al. (2020, arXiv 1905.09982, theorem 21), for every real order x > 1,

    epsilon(x) = (T K(x) - log delta - log x) / (x - 1) + log(1 - 1/x),

which ``renyi.py`` minimises.

**PLD** (privacy loss distributions, Sommer et al. 2019): dp_accounting prices one step. Losses live on a grid, and
every pessimistic rounding raises epsilon. On a grid of 1/16 of one step's standard deviation, with noise multipliers .8
to 6, rates .01 to .2 and 100 to 5000 steps, epsilon is 0.01 to 0.04 % above its limit. A fixed grid of 1e-2 was .01 to
130 % above, 1e-3 up to 3 %, 1e-4 up to .03 % in up to 1.3 s. ``loss_grid.py`` composes the steps of one mechanism, in 1
to 5 ms for each number of steps; dp_accounting composes different mechanisms.

**One price**: the grid depends on noise, rate and relation alone, and a price on no other price asked for. So the plan,
which asks for all epochs, the calibration, which asks for the last, and a card get one number for the same event.

**Private selection** (Papernot and Steinke 2022, arXiv 2110.03620), through dp_accounting: its RDP at an order needs
that of a candidate at two, so it is minimised over a set of orders. Up to an epsilon of 12 that is within 1 % of a far
finer set at delta <= 1e-3; from 20 on it may be twice it, with large shapes more: there the best orders are close to
1, where dp_accounting's series converge too slowly.

**Checks**: neither bound may fall below the other's optimistic estimate, nor below what ``attack_epsilon`` proves.

No accountant object leaves this file: autodp's cannot be pickled, so state elsewhere is frozen events.
"""

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import assert_never

import numpy as np
from autodp.rdp_acct import anaRDPacct
from autodp.rdp_bank import RDP_gaussian
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import pld_pmf, privacy_loss_mechanism
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_gaussian_mechanism
from dp_accounting.rdp import RdpAccountant

from clipless.errors import AccountantsDisagreeError, AccountingError
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.accounting.pld_grid import TAIL, FloatArray, IntArray, LossGrid, delta_slack
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import epsilon_of_cgf
from clipless.privacy.accounting.spending import LARGEST_LOSS, MOST_STEPS, check_delta, hopeless, spending
from clipless.privacy.events import Event, PoissonGaussian, Relation

_ROUNDING = 2.0**-49  # of K, and of order x log2(order), the size of autodp's log-gamma terms: more than was seen
_ORDERS = (
    2.0,
    2.75,
    *(k / 10 for k in range(30, 110)),
    *range(11, 64),
    *(round(64 * 2 ** (k / 4)) for k in range(25)),
)
_STEP_ROUNDING = 1e-11  # of epsilon for each step
_AGREEMENT = 1e-6  # all sides are rounded outwards; what is left is rounding in the last lines, below 1e-9


class Accountant(enum.StrEnum):
    """Who computed an epsilon."""

    PLD = "pld"
    RDP = "rdp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """An epsilon that may be stated, with what each accountant said.

    Attributes:
        epsilon: the smaller of both upper bounds.
        delta: the probability the guarantee may fail with.
        rdp: bound by RDP, None where it has none (replace-one): the cross-check between accountants is then absent.
        pld: bound by pessimistic PLD.
    """

    epsilon: float
    delta: float
    rdp: float | None
    pld: float

    @property
    def accountant(self) -> Accountant:
        """The accountant whose bound was claimed."""
        return Accountant.PLD if self.epsilon == self.pld else Accountant.RDP


def claim(event: Event, delta: float) -> Claim:
    """Price an event for publication.

    Guarantees:
        The mechanism is (epsilon, delta)-differentially private under the event's relation; every
        discretisation and rounding is upwards. Infinite where nothing can be promised.

    Raises:
        AccountingError: delta is not in (0, 1).
        AccountantsDisagreeError: RDP fell below the optimistic PLD, or a bound fell below what an attack attains.
    """
    found = _bounds(event, delta)
    _cross_check(event, found)
    return found


@lru_cache(maxsize=64)
def claims(event: PoissonGaussian, steps: tuple[int, ...], delta: float) -> tuple[Claim, ...]:
    """Price the event run for each number of steps: each entry equals ``claim`` of that many steps alone.

    The accountants are checked against each other and the attack at the largest number of steps.

    Raises:
        AccountingError: delta is not in (0, 1), or a number of steps is not an integer >= 0.
        AccountantsDisagreeError: as ``claim``.
    """
    found = {count: _bounds(event.with_steps(count), delta) for count in steps}
    if found:
        most = max(found)
        _cross_check(event.with_steps(most), found[most])
    return tuple(found[count] for count in steps)


def _bounds(event: Event, delta: float) -> Claim:
    pld = pld_epsilon(event, delta)
    rdp = rdp_epsilon(event, delta) if event.relation is Relation.ADD_OR_REMOVE_ONE else None
    return Claim(epsilon=pld if rdp is None else min(pld, rdp), delta=delta, rdp=rdp, pld=pld)


def _cross_check(event: Event, found: Claim) -> None:
    attacked = attack_epsilon(event, found.delta)
    for name, bound in ((Accountant.PLD, found.pld), (Accountant.RDP, found.rdp)):
        if bound is not None and _below(bound, attacked):
            raise AccountantsDisagreeError(
                f"{name} claims epsilon={bound:.6g} at delta={found.delta:g}, but an attack attains {attacked:.6g}: "
                f"{event}"
            )
    # The optimistic estimate is below the pessimistic one: a bound above the latter needs no look at the former.
    if found.rdp is not None and found.rdp < found.pld:
        optimistic = optimistic_epsilon(event, found.delta)
        if _below(found.rdp, optimistic):
            raise AccountantsDisagreeError(
                f"rdp claims epsilon={found.rdp:.6g} at delta={found.delta:g}, below the optimistic pld "
                f"{optimistic:.6g}: {event}"
            )


def _below(upper: float, lower: float) -> bool:
    return not upper >= lower - _AGREEMENT * max(1.0, lower)


def rdp_epsilon(event: Event, delta: float) -> float:
    """Bound epsilon from above by Renyi differential privacy.

    Raises:
        AccountingError: delta is not in (0, 1), or the relation is replace-one.
    """
    check_delta(delta)
    if event.relation is not Relation.ADD_OR_REMOVE_ONE:
        raise AccountingError("RDP has no bound for Poisson sampling under replace-one; use pld_epsilon")
    parts = spending(event)
    if not parts:
        return 0.0
    if hopeless(parts):
        return math.inf
    return epsilon_of_cgf(
        lambda order: sum(part.steps * _cgf(order, part.noise_multiplier, part.sampling_rate) for part in parts), delta
    )


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
    parts = spending(event)
    if not parts:
        return 0.0
    if hopeless(parts):
        return math.inf
    accountant = RdpAccountant(_ORDERS)
    candidate = dp_event.ComposedDpEvent([_dp_event(part) for part in parts])
    accountant.compose(dp_event.RepeatAndSelectDpEvent(candidate, repetitions.mean, repetitions.eta))
    slack = _STEP_ROUNDING * sum(part.steps for part in parts)
    epsilon = float(accountant.get_epsilon(delta)) * (1.0 + _AGREEMENT) + slack
    if _below(epsilon, attacked := attack_epsilon(event, delta)):
        raise AccountantsDisagreeError(
            f"private selection claims epsilon={epsilon:.6g} at delta={delta:g}, but an attack on one candidate "
            f"attains {attacked:.6g}: {event}"
        )
    return epsilon


def _dp_event(part: PoissonGaussian) -> dp_event.DpEvent:
    step = dp_event.PoissonSampledDpEvent(part.sampling_rate, dp_event.GaussianDpEvent(part.noise_multiplier))
    return dp_event.SelfComposedDpEvent(step, part.steps)


def pld_epsilon(event: Event, delta: float) -> float:
    """Bound epsilon from above by privacy loss distributions.

    Raises:
        AccountingError: delta is not in (0, 1).
    """
    check_delta(delta)
    parts = spending(event)
    if not parts:
        return 0.0
    if hopeless(parts):
        return math.inf
    if len(parts) > 1:
        return math.inf if _out_of_reach(event, delta) else composed_pld_epsilon(event, delta)
    (part,) = parts
    if part.steps > MOST_STEPS or not delta > delta_slack(part.steps):
        return math.inf
    grids = loss_grids(part.noise_multiplier, part.sampling_rate, part.relation)
    return max(grid.epsilon(part.steps, delta) for grid in grids)


@lru_cache(maxsize=64)
def loss_grids(noise_multiplier: float, sampling_rate: float, relation: Relation) -> tuple[LossGrid, ...]:
    """Return the losses of one step on a grid of its own, for each direction in which neighbours may differ."""
    part = PoissonGaussian(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=1, relation=relation)
    width = _interval([part], pessimistic=True)
    return tuple(LossGrid.from_dots(*_dots(part, direction, width), width) for direction in _adjacencies(part))


def optimistic_epsilon(event: Event, delta: float) -> float:
    """Estimate epsilon from below by privacy loss distributions, every rounding downwards; for checks.

    Raises:
        AccountingError: delta is not in (0, 1).
    """
    check_delta(delta)
    parts = spending(event)
    if not parts or hopeless(parts):
        return 0.0
    if _out_of_reach(event, delta):
        return attack_epsilon(event, delta)
    return composed_pld_epsilon(event, delta, pessimistic=False)


def composed_pld_epsilon(
    event: Event, delta: float, *, interval: float | None = None, pessimistic: bool = True
) -> float:
    """Bound epsilon by privacy loss distributions that dp_accounting composes, of an event that costs something.

    Args:
        event: what was released.
        delta: the probability the guarantee may fail with.
        interval: width of the grid of losses; by default fitted to the event.
        pessimistic: round everything up (an upper bound); otherwise everything down (a lower bound, for checks).

    Raises:
        AccountingError: interval is not a positive number.
    """
    if interval is not None and not 0.0 < interval < math.inf:
        raise AccountingError(f"Expected 0 < interval < inf, got interval={interval!r}")
    parts = spending(event)
    usable = _usable_delta(delta, parts, pessimistic)
    if not usable > 0.0:
        return math.inf
    width = _interval(parts, pessimistic) if interval is None else interval
    composed = reduce(
        lambda left, right: left.compose(right, TAIL),
        [
            _one_step(part.noise_multiplier, part.sampling_rate, part.relation, width, pessimistic).self_compose(
                part.steps, TAIL
            )
            for part in parts
        ],
    )
    try:
        return float(composed.get_epsilon_for_delta(usable))
    except OverflowError:  # dp_accounting searches downwards and takes exp(-loss): epsilon is below a loss of -700
        return 0.0


def _out_of_reach(event: Event, delta: float) -> bool:
    return sum(part.steps for part in spending(event)) > MOST_STEPS or attack_epsilon(event, delta) > LARGEST_LOSS


def _usable_delta(delta: float, parts: Sequence[PoissonGaussian], pessimistic: bool) -> float:
    slack = delta_slack(sum(part.steps for part in parts))
    if pessimistic:
        return delta - slack
    return delta + slack + 2 * len(parts) * TAIL  # dp_accounting adds the tails to optimistic masses too


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


def _interval(parts: Sequence[PoissonGaussian], pessimistic: bool) -> float:
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
