"""Exact whole-numbered Laplace noise: no rounding of a floating-point number tells anything of the hidden count.

Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020), algorithms 1 and 2, for many
values at once: everything is comparisons of uniform integers from the secure source.

**Shares of it.** Discrete Laplace noise is G - G' of two geometric numbers, P(G = g) = (1 - q) q^g with q = exp(-1 /
scale), whose generating function is the power r = 1 of ((1 - q) / (1 - q z))^r: numbers whose laws have the powers
r_1, r_2, .. sum to one with the power r_1 + r_2 + .. . So noise of power r from each of h = 1 / r parties sums to
discrete Laplace noise exactly, and that of more parties is the same with something independent added, which hides no
less. A number of power r <= 1 is the part of a geometric G that Polya's urn gives to a colour of weight r beside one of
weight 1 - r: given the sum of two independent numbers of powers r and 1 - r, the first is beta-binomial, as that colour
is after G draws.
"""

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clipless.errors import AccountingError

if TYPE_CHECKING:
    from clipless.privacy.randomness import RandomSource

Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]

_LARGEST = 2**20  # of numerator and denominator of a scale: products stay far below 2^63


def scale_at_least(scale: float) -> Fraction:
    """Return a scale that is no smaller than the given one, with a numerator and denominator that can be sampled.

    Raises:
        AccountingError: it is not between 2^-20 and 2^20.
    """
    if not 1.0 / _LARGEST <= scale <= _LARGEST / 2:
        raise AccountingError(f"Expected a scale between 2^-20 and 2^19, got {scale!r}; choose another epsilon")
    exact = Fraction(scale)
    parts = max(1, int(_LARGEST / max(1.0, scale)) // 2)
    rounded = Fraction(-((-exact.numerator * parts) // exact.denominator), parts)
    return rounded if rounded >= exact else exact


def discrete_laplace(count: int, scale: Fraction, source: "RandomSource") -> Integers:
    """Return ``count`` independent whole numbers z with probability proportional to exp(-|z| / scale).

    Guarantees:
        Exact, but for the quality of the source's bits. A whole-numbered shift by k changes no probability by more than
        a factor exp(|k| / scale).
    """
    t, s = scale.numerator, scale.denominator
    if not (0 < t <= _LARGEST and 0 < s <= _LARGEST):
        raise AccountingError(f"Expected a scale with terms up to {_LARGEST}, got {scale}; see scale_at_least")
    drawn = np.zeros(count, dtype=np.int64)
    open_ = np.arange(count)
    while len(open_):
        magnitude = _geometric(len(open_), t, source) // s
        negative = source.bernoulli(len(open_), 0.5)
        taken = ~(negative & (magnitude == 0))
        drawn[open_[taken]] = np.where(negative, -magnitude, magnitude)[taken]
        open_ = open_[~taken]
    return drawn


def laplace_share(count: int, scale: Fraction, power: Fraction, source: "RandomSource") -> Integers:
    """Return ``count`` whole numbers; those of parties whose powers sum to 1 sum to `discrete_laplace` noise.

    Args:
        count: how many.
        scale: of the sum of such parties.
        power: of one party, or of several at once.
        source: of the noise.

    Guarantees:
        Exact, but for the quality of the source's bits; powers that sum to more than 1 hide no less.
    """
    t, s = scale.numerator, scale.denominator
    if not (0 < t <= _LARGEST and 0 < s <= _LARGEST):
        raise AccountingError(f"Expected a scale with terms up to {_LARGEST}, got {scale}; see scale_at_least")
    if not 0 < power <= _LARGEST or not power.denominator <= _LARGEST:
        raise AccountingError(f"Expected 0 < power <= 2^20 of a share of noise, got {power}")
    whole, rest = divmod(power, 1)
    drawn = np.zeros(count, dtype=np.int64)
    for sign in (1, -1):
        for _ in range(whole):
            drawn += sign * (_geometric(count, t, source) // s)
        if rest:
            drawn += sign * _urn(_geometric(count, t, source) // s, rest, source)
    return drawn


def _urn(draws: Integers, weight: Fraction, source: "RandomSource") -> Integers:
    """How often the first of two colours, of weights w and 1 - w, comes in Polya's urn, for each number of draws."""
    first = np.zeros(len(draws), dtype=np.int64)
    open_, draw = np.flatnonzero(draws > 0), 0
    a, h = weight.numerator, weight.denominator
    while len(open_):  # the chance is (w + those that came) / (1 + draws so far)
        came = _below(np.full(len(open_), h * (1 + draw)), source) < a + h * first[open_]
        first[open_[came]] += 1
        draw += 1
        open_ = open_[draws[open_] > draw]
    return first


def _geometric(count: int, t: int, source: "RandomSource") -> Integers:
    """Whole numbers x >= 0 with probability proportional to exp(-x / t)."""
    low = np.zeros(count, dtype=np.int64)
    open_ = np.arange(count)
    while len(open_):
        tried = _below(np.full(len(open_), t), source)
        taken = _bernoulli_exp(tried, t, source)
        low[open_[taken]] = tried[taken]
        open_ = open_[~taken]
    high = np.zeros(count, dtype=np.int64)
    open_ = np.arange(count)
    while len(open_):  # how often exp(-1) comes true before it does not
        open_ = open_[_bernoulli_exp(np.ones(len(open_), dtype=np.int64), 1, source)]
        high[open_] += 1
    return low + t * high


def _bernoulli_exp(numerators: Integers, denominator: int, source: "RandomSource") -> Booleans:
    """True with probability exp(-numerator / denominator), for fractions in [0, 1]."""
    parity = np.zeros(len(numerators), dtype=np.int64)
    open_, step = np.arange(len(numerators)), 1
    while len(open_):  # the first k for which a Bernoulli(fraction / k) fails is odd with probability exp(-fraction)
        succeeded = _below(np.full(len(open_), denominator * step), source) < numerators[open_]
        parity[open_[~succeeded]] = step % 2
        open_, step = open_[succeeded], step + 1
    odd: Booleans = parity == 1
    return odd


def _below(bounds: Integers, source: "RandomSource") -> Integers:
    """Uniform whole numbers from 0 to below each bound."""
    drawn = np.zeros(len(bounds), dtype=np.int64)
    open_ = np.arange(len(bounds))
    while len(open_):
        words = np.frombuffer(source.random_bytes(8 * len(open_)), dtype=np.uint64) >> np.uint64(1)
        limit = bounds[open_].astype(np.uint64)
        whole = np.uint64(2**63) // limit * limit  # what is above would make small numbers likelier
        taken = words < whole
        drawn[open_[taken]] = (words % limit)[taken].astype(np.int64)
        open_ = open_[~taken]
    return drawn
