"""The inverse of accounting: noise for an epsilon, steps for an epsilon.

Every answer was priced by ``claim`` itself and lies on the safe side. RDP costs milliseconds and says where to start
and how steep epsilon is there; a few PLD evaluations do the rest. Epsilon is close to a power of the noise multiplier
and of the steps, so the searches are in logarithms.
"""

import math
from collections.abc import Callable, Container
from dataclasses import replace
from functools import cache, lru_cache

from scipy import optimize

from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.spending import LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER, MOST_STEPS
from clipless.privacy.events import PoissonGaussian, Relation

_AIM, _ENOUGH = 0.996, 0.99  # of the target: where a search for noise aims, and from where it is content
_SMALLEST, _LARGEST = 1e-9, 1e6  # stand for no and infinite epsilon in logarithms
_FLATTEST, _STEEPEST = 0.5, 50.0  # powers of the noise that epsilon can follow


@lru_cache(maxsize=1024, typed=True)
def noise_multiplier_for(
    epsilon: float, delta: float, sampling_rate: float, steps: int, relation: Relation = Relation.ADD_OR_REMOVE_ONE
) -> float:
    """Return a noise multiplier at which the claim is at most epsilon, and at least 0.99 epsilon.

    Args:
        epsilon: budget of all steps together.
        delta: the probability the guarantee may fail with.
        sampling_rate: probability with which each example takes part in a step.
        steps: number of steps, at least 1.
        relation: which data sets count as neighbours.

    Guarantees:
        ``claim(event, delta).epsilon <= epsilon`` for the event with the returned noise multiplier.

    Raises:
        AccountingError: an argument out of range, or no noise multiplier from 0.05 to 1e6 fits.
    """
    _check_epsilon(epsilon)
    event = PoissonGaussian(noise_multiplier=1.0, sampling_rate=sampling_rate, steps=steps, relation=relation)
    if not (event.steps >= 1 and event.sampling_rate > 0.0):
        raise AccountingError(
            f"Expected steps >= 1 and sampling_rate > 0, got steps={steps!r} and sampling_rate={sampling_rate!r}: "
            f"nothing is released, so no noise is needed"
        )
    low, high = LEAST_NOISE_MULTIPLIER, MOST_NOISE_MULTIPLIER  # what is tried next to find too little, enough noise
    noise, slope = _noise_by_rdp(event, epsilon, delta)
    tried: set[float] = set()
    last: tuple[float, float] | None = None
    while noise not in tried:
        price = claim(replace(event, noise_multiplier=noise), delta).epsilon
        if _ENOUGH * epsilon <= price <= epsilon:
            return noise
        excess = _log_ratio(price, _AIM * epsilon)
        if last is not None:
            slope = _clipped_slope((last[1] - excess) / math.log(noise / last[0]))
        last = (noise, excess)
        tried.add(noise)
        low, high = (noise, high) if price > epsilon else (low, noise)
        noise = _next_noise(noise * math.exp(min(max(excess / slope, -1.0), 1.0)), low, high, tried)
    is_met = high < MOST_NOISE_MULTIPLIER
    end = LEAST_NOISE_MULTIPLIER if is_met else MOST_NOISE_MULTIPLIER
    cost = claim(replace(event, noise_multiplier=end), delta).epsilon
    if is_met and cost > epsilon:
        return high  # the price jumps past epsilon where the range of an accountant ends: this noise costs less
    raise AccountingError(
        f"Expected an epsilon that noise_multipliers from {LEAST_NOISE_MULTIPLIER:g} to {MOST_NOISE_MULTIPLIER:g} can "
        f"meet, got epsilon={epsilon!r} at delta={delta!r}: {_remedy(cost, is_met=is_met)}"
    )


def _next_noise(proposal: float, low: float, high: float, tried: Container[float]) -> float:
    """Return the proposal if it is well inside, else an end not tried yet, else the middle; an end when they meet."""
    if low * 1.0001 < proposal < high / 1.0001:
        return proposal
    end = low if proposal <= low * 1.0001 else high
    return end if end not in tried or high <= low * 1.0001 else math.sqrt(low * high)


def _clipped_slope(slope: float) -> float:
    return min(max(slope, _FLATTEST), _STEEPEST)


def _remedy(cost: float, *, is_met: bool) -> str:
    """Return what to do where no noise costs about epsilon, by whether some costs less; ``cost`` is that of the end."""
    if is_met:
        least = f" to {0.99 * cost:.3g}" if 0.0 < cost < math.inf else ""
        return f"even the least noise costs less; lower epsilon{least}, or give the noise_multiplier instead"
    if not math.isfinite(cost):
        return "no noise costs so little at this delta; raise delta, or lower the steps or the sampling_rate"
    return f"even the most noise costs {cost:.4g}; raise epsilon or delta, or lower the steps or the sampling_rate"


def _noise_by_rdp(event: PoissonGaussian, epsilon: float, delta: float) -> tuple[float, float]:
    """Return about where the claim meets epsilon, and how log epsilon falls with log noise there."""
    proxy = replace(event, relation=Relation.ADD_OR_REMOVE_ONE)

    def excess(log_noise: float) -> float:
        return _log_ratio(rdp_epsilon(replace(proxy, noise_multiplier=math.exp(log_noise)), delta), epsilon)

    least, most = math.log(LEAST_NOISE_MULTIPLIER), math.log(MOST_NOISE_MULTIPLIER)
    low, high = -0.5, 0.5
    while excess(high) > 0.0 and high < most:
        low, high = high, min(high + 1.0, most)
    while excess(low) <= 0.0 and low > least:
        low, high = max(low - 1.0, least), low
    log_noise = optimize.brentq(excess, low, high, xtol=1e-2) if excess(low) > 0.0 >= excess(high) else high
    slope = _clipped_slope((excess(log_noise - 0.05) - excess(log_noise + 0.05)) / 0.1)
    if event.relation is Relation.REPLACE_ONE:
        log_noise += math.log(2.0)  # one example replaced moves the sum up to twice as far
    return min(max(math.exp(log_noise), LEAST_NOISE_MULTIPLIER), MOST_NOISE_MULTIPLIER), slope


@lru_cache(maxsize=1024, typed=True)
def steps_for(
    epsilon: float,
    delta: float,
    noise_multiplier: float,
    sampling_rate: float,
    relation: Relation = Relation.ADD_OR_REMOVE_ONE,
) -> int:
    """Return the largest number of steps whose claim is at most epsilon; arguments as for `noise_multiplier_for`.

    Guarantees:
        ``claim`` of the returned steps is at most epsilon, and of one more step above it.

    Raises:
        AccountingError: an argument out of range, no steps at all within epsilon, or more than ten million.
    """
    _check_epsilon(epsilon)
    event = PoissonGaussian(noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=1, relation=relation)

    @cache
    def price(steps: int) -> float:
        return claim(event.with_steps(steps), delta).epsilon

    low, high = _bracket_steps(price, event, epsilon, delta)
    root = optimize.brentq(
        lambda log_steps: _log_ratio(price(round(math.exp(log_steps))), epsilon),
        math.log(low),
        math.log(high),
        xtol=0.3 / high,
    )
    steps = round(math.exp(root))
    while price(steps) > epsilon:
        steps -= 1
    while price(steps + 1) <= epsilon:
        steps += 1
    return steps


def _bracket_steps(
    price: Callable[[int], float], event: PoissonGaussian, epsilon: float, delta: float
) -> tuple[int, int]:
    """Return a number of steps within epsilon, and a little more that is not."""
    settings = f"noise_multiplier={event.noise_multiplier!r} and sampling_rate={event.sampling_rate!r}"
    low, slope = _steps_by_rdp(event, epsilon, delta)
    while price(low) > epsilon:
        if low == 1:
            raise AccountingError(
                f"Expected epsilon >= {price(1):.6g}, what one step costs at {settings}, got "
                f"epsilon={epsilon!r}: raise epsilon or the noise_multiplier"
            )
        low = max(low // 2, 1)
    high = low
    while price(high) <= epsilon:
        if high == MOST_STEPS:
            raise AccountingError(
                f"Expected an epsilon that {MOST_STEPS} steps exceed, got epsilon={epsilon!r} at {settings}: lower "
                f"epsilon or the noise_multiplier, or give the number of steps instead"
            )
        growth = 1.01 * math.exp(min(_log_ratio(epsilon, max(price(high), _SMALLEST)) / slope, 1.0))
        low, high = high, min(max(high + 1, math.ceil(growth * high)), MOST_STEPS)
    return low, high


def _steps_by_rdp(event: PoissonGaussian, epsilon: float, delta: float) -> tuple[int, float]:
    """Return about how many steps fit into epsilon, and how log epsilon rises with log steps there."""
    noise = event.noise_multiplier
    if event.relation is Relation.REPLACE_ONE:
        noise /= 2  # one example replaced moves the sum up to twice as far
    proxy = replace(event, relation=Relation.ADD_OR_REMOVE_ONE, noise_multiplier=noise)

    @cache
    def price(steps: int) -> float:
        return rdp_epsilon(proxy.with_steps(steps), delta)

    low, high = 1, 2
    while high < MOST_STEPS and price(high) <= epsilon:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if price(middle) <= epsilon else (low, middle)
    slope = _log_ratio(price(4 * low), price(low)) / math.log(4.0) if 0.0 < price(low) < math.inf else 1.0
    return min(low, MOST_STEPS), min(max(slope, 0.3), 3.0)


def _log_ratio(epsilon: float, target: float) -> float:
    return math.log(min(max(epsilon, _SMALLEST), _LARGEST) / target)


def _check_epsilon(epsilon: float) -> None:
    if not 0.0 < epsilon < _LARGEST:
        raise AccountingError(f"Expected 0 < epsilon < {_LARGEST:g}, got epsilon={epsilon!r}")
