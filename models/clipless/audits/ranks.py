r"""How much epsilon a ranking of canaries proves: the tight test of one run.

**The game.** For each of m canaries a fair coin S_i, drawn by the auditor, says whether it takes part. The
auditor sees the output, ranks the canaries (most likely to have taken part last) and scores

    W = sum_i a(rank of canary i) (2 S_i - 1),    a(1) <= a(2) <= ... <= a(m) fixed in advance.            (1)

**The claim.** Under a pair (P, Q) of one canary's outputs when it takes part and when not: all that the auditor sees is
a function of m independent draws Y_i, from P where S_i = 1, from Q where not, and of randomness that knows no coin. (A
mechanism whose canaries do not interfere, and are each at most as distinguishable as P from Q, is of this form: by
Blackwell's theorem, outputs with a trade-off function above that of (P, Q) are a function of a draw from P or Q.)

**Theorem.** Then W is stochastically at most W*, the score of the ranking by the posterior p_i = P(S_i = 1 | Y_i).

*Proof.* Given all Y and the other randomness, coins are independent with P(S_i = 1) = p_i, and the ranking is fixed. If
it puts canary i right below j although p_i > p_j, exchange both. With weights a <= b of the two places, only the
outcomes in which exactly one of both took part tell the rankings apart: the two places then add b - a or a - b, and the
former has the probability p_j (1 - p_i) before the exchange, p_i (1 - p_j) >= p_j (1 - p_i) after it. The rest of the
sum is independent of the two. So each exchange raises W stochastically, and finitely many sort the canaries by p_i.
Averaging over Y keeps that. []

So the null distribution of W* needs the distribution of the posterior alone, and that is the privacy loss distribution
of the claim: the log odds of p_i are log(dP/dQ)(Y_i). Losses that are rounded up, as those of the
pessimistic accountant, belong to a pair that dominates (P, Q), and the theorem holds for it. Guessing the last k
canaries to be in, the first k to be out and abstaining otherwise is the choice a = -1, 0, 1. Taken here is the loss
that the claim expects at a rank, with which (1) is about the logarithm of the likelihood ratio and wastes little.

**Small p-values.** Simulated nulls tell none below 1 / (R + 1). With t > 0 and p the posterior at a loss l, let
g(a, l) = p e^(ta) + (1 - p) e^(-ta), what a canary of weight a is expected to give. For any function h of losses,

    E exp(t W*) = E prod_i g(a_i, L_(i)) <= prod_i max_l g(a_i, l) e^(-h(l)) . (E e^(h(L)))^m,            (2)

L_(1) <= ... <= L_(m) the losses in order: h(L_(1)) + ... + h(L_(m)) knows no order, and losses are independent. The
slope of log g over p rises with a. So let h rise from a loss to the next as log g(b, .) does, b the weight of the last
rank at which the claim expects the former or a lower loss: then log g(a_i, .) - h rises up to the loss that the claim
expects at rank i, falls from there on, and the maximum is there. By Markov's inequality P(W* >= w) is at most B(w), the
least of (2) times e^(-tw) over fixed t. B falls with w and is continuous: {B(W*) <= x} is {W* >= w'} for a w' with
B(w') <= x, so B(W*) is a p-value. It counts only where no simulated null reaches W: at levels from 1 / (R + 1) on the
simulated p-value alone rejects, at those below B alone, so that neither costs the other any of the level.

**A lower bound.** Nulls form a family, ordered by their noise multiplier: one with less noise dominates one with more.
The one with the least noise that W rejects at the level 1 - confidence is exceeded by the truth with that confidence,
where the truth is a member of the family. Rejecting the claim itself needs no such reading: what ran was not a
mechanism of the form above, with losses as claimed.

References:
    Xiang et al. 2025, Tight Privacy Audit in One Run (arXiv 2509.08704): trade-off functions and order statistics.
    Mahloujifar et al. 2025, Auditing f-Differential Privacy in One Run (arXiv 2410.22235).

Shape letters: M canaries, L losses, R repetitions.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy import special

from clipless.audits.attained import epsilon_at_least
from clipless.errors import AuditError
from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.events import PoissonGaussian

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_REPETITIONS, _MORE_REPETITIONS = 499, 1999  # of null distributions; more for a claim that the first ones reject
_TILTS = 2.0 ** np.arange(-12.0, 12.5, 0.5)  # t of (2), for weights whose mean square is 1
_AT_ONCE = 2**20  # numbers that are held at once
_PER_OCTAVE = 240  # nulls in a family, for each factor of two in the noise: 0.3 % apart
_LEAST, _MOST = -4 * _PER_OCTAVE, 5 * _PER_OCTAVE
_SUREST = 20  # one canary in so many
_MOST_LOSS = 50.0  # of a weight: an infinite one would be all of the sum


@dataclass(frozen=True, slots=True, kw_only=True)
class Game:
    """The claim about each canary.

    Attributes:
        event: what a canary that takes part goes through.
        canaries: m.

    Raises:
        AuditError: fewer than two canaries, or an event without noise.
    """

    event: PoissonGaussian
    canaries: int

    def __post_init__(self) -> None:
        if not self.canaries >= 2:
            raise AuditError(f"Expected canaries >= 2, got {self.canaries!r}")
        if not self.event.noise_multiplier > 0.0:
            raise AuditError("Expected a claim with noise, got noise_multiplier=0")

    def with_noise(self, noise_multiplier: float) -> "Game":
        """Return the same game under another noise multiplier."""
        return replace(self, event=replace(self.event, noise_multiplier=noise_multiplier))


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBound:
    """The lower bound that one run proves.

    Attributes:
        epsilon: lower bound at the confidence asked for.
        noise_multiplier: of the rejected null with the least noise; infinite if none was rejected.
        statistic: W.
        p_value: of the claim.
    """

    epsilon: float
    noise_multiplier: float
    statistic: float
    p_value: float


def lower_bound(scores_M: FloatArray, coins_M: BoolArray, game: Game, delta: float, confidence: float) -> RankBound:
    """Return the bound that a ranking of canaries by scores proves; ties stand in the canaries' order, blind to coins.

    The family of nulls has the rate, the steps and the relation of the claim.

    Raises:
        AuditError: not one score and one coin for each canary, or a score that is NaN.
    """
    weights_M = rank_weights(game)
    statistic = rank_statistic(scores_M, coins_M, weights_M)
    found = _least_noise_rejected(statistic, weights_M, game, 1.0 - confidence)
    return RankBound(
        epsilon=0.0 if found is None else epsilon_at_least(found.event, delta),
        noise_multiplier=inf if found is None else found.event.noise_multiplier,
        statistic=statistic,
        p_value=p_value(statistic, weights_M, game),
    )


def surest_p_value(scores_M: FloatArray, coins_M: BoolArray, game: Game) -> float:
    """Return the p-value of the claim by the highest scores alone: the weights of all others are equal."""
    weights_M = np.zeros(game.canaries)
    weights_M[-max(1, game.canaries // _SUREST) :] = 1.0
    return p_value(rank_statistic(scores_M, coins_M, weights_M), weights_M, game)


def rank_statistic(scores_M: FloatArray, coins_M: BoolArray, weights_M: FloatArray) -> float:
    """Return W of the ranking by scores; errors as above."""
    if not scores_M.shape == coins_M.shape == weights_M.shape:
        raise AuditError(f"Expected {len(weights_M)} scores and coins, got {scores_M.shape} and {coins_M.shape}")
    if np.isnan(scores_M).any():
        raise AuditError("Expected scores that can be ordered, got NaN")
    return float(weights_M @ np.where(coins_M[np.argsort(scores_M, kind="stable")], 1.0, -1.0))


def rank_weights(game: Game) -> FloatArray:
    """Return a of (1): the losses that the claim expects, from the lowest rank to the highest. Shape: (M,)."""
    losses, cumulated = loss_distribution(game)
    ranks = np.arange(1, game.canaries + 1) / (game.canaries + 1)
    return np.clip(losses[_places(cumulated, ranks)], -_MOST_LOSS, _MOST_LOSS)


def p_value(statistic: float, weights_M: FloatArray, game: Game) -> float:
    """Return the chance of W or more under the claim of ``game``, from above.

    Exact as a Monte Carlo test, for the statistic is one of exchangeable draws under the null. More are drawn where
    none of the first reaches it, which lowers a p-value only below what the first could tell; and where none of these
    does, `tail_bound` lowers it only below what they could. Weights rise with the rank.
    """
    for repetitions in (_REPETITIONS, _MORE_REPETITIONS):
        at_least = int((null_statistics(weights_M.tobytes(), game, repetitions) >= statistic).sum())
        if at_least:
            return (1 + at_least) / (1 + repetitions)
    return min(1 / (1 + repetitions), tail_bound(statistic, weights_M, *loss_distribution(game)))


def tail_bound(statistic: float, weights_M: FloatArray, losses_L: FloatArray, cumulated_L: FloatArray) -> float:
    """Return B of the statistic, by (2): an upper bound of the chance of W* or more, never 0.

    Args:
        statistic: W.
        weights_M: a of (1); they rise with the rank.
        losses_L: as `loss_distribution` returns them.
        cumulated_L: their probabilities.
    """
    canaries, masses_L = len(weights_M), np.diff(cumulated_L, prepend=0.0)
    expected_M = _places(cumulated_L, np.arange(1, canaries + 1) / (canaries + 1))
    ranks_L = np.searchsorted(expected_M, np.arange(len(losses_L)), side="right")
    b_L = weights_M[np.maximum(ranks_L - 1, 0)]
    took_part_L, did_not_L = special.log_expit(losses_L), special.log_expit(-losses_L)

    def log_g(tilted: FloatArray, places: NDArray[np.intp] | slice) -> FloatArray:
        found: FloatArray = np.logaddexp(took_part_L[places] + tilted, did_not_L[places] - tilted)
        return found

    exponent = 0.0
    for tilt in _TILTS / (np.sqrt(np.mean(weights_M**2)) or 1.0):
        b = tilt * b_L[:-1]
        h_L = np.concatenate(([0.0], np.cumsum(log_g(b, slice(1, None)) - log_g(b, slice(-1)))))
        most = float((log_g(tilt * weights_M, expected_M) - h_L[expected_M]).sum())
        exponent = min(exponent, most + canaries * float(special.logsumexp(h_L, b=masses_L)) - tilt * statistic)
    return max(float(np.exp(exponent)), np.finfo(float).tiny)


@lru_cache(maxsize=1024)
def null_statistics(weights: bytes, game: Game, repetitions: int) -> FloatArray:
    """Return draws of W* (R,). Games of one size share their uniform numbers, so more noise hardly ever gives more."""
    losses, cumulated = loss_distribution(game)
    posteriors = special.expit(losses)
    weights_M = np.frombuffer(weights)
    generator, found = np.random.default_rng(20250910), np.empty(repetitions)
    for part in np.array_split(np.arange(repetitions), 1 + repetitions * game.canaries // _AT_ONCE):
        sums = np.cumsum(generator.standard_exponential((len(part), game.canaries + 1)), axis=1)
        ordered_RM = sums[:, :-1] / sums[:, -1:]  # order statistics of uniform numbers
        took_part = generator.random(ordered_RM.shape) < posteriors[_places(cumulated, ordered_RM)]
        found[part] = 2.0 * (took_part @ weights_M) - weights_M.sum()
    return found


def loss_distribution(game: Game) -> tuple[FloatArray, FloatArray]:
    """Return increasing losses of canaries that may take part, and their cumulated probabilities. Shapes: (L,).

    Mass that the accountant moved to an infinite loss is there; so is what then lacks under Q, at minus infinity.
    """
    losses, under_p = _losses(game.event)
    under_p = np.maximum(under_p, 0.0)
    under_q = under_p * np.exp(-losses)
    out, taking_part = max(0.0, 1.0 - under_q.sum()), max(0.0, 1.0 - under_p.sum())
    masses = np.concatenate(([out], under_p + under_q, [taking_part]))
    return np.concatenate(([-inf], losses, [inf])), np.cumsum(masses / masses.sum())


def _losses(event: PoissonGaussian) -> tuple[FloatArray, FloatArray]:
    if event.steps == 0 or event.sampling_rate == 0.0 or event.noise_multiplier == inf:
        return np.zeros(1), np.ones(1)
    losses, masses, _ = loss_grids(event.noise_multiplier, event.sampling_rate, event.relation)[0].compose(event.steps)
    return losses, masses


def _places(cumulated_L: FloatArray, uniform: FloatArray) -> NDArray[np.intp]:
    found = np.searchsorted(cumulated_L, uniform.ravel()).reshape(uniform.shape)
    return np.minimum(found, len(cumulated_L) - 1)


def _least_noise_rejected(statistic: float, weights_M: FloatArray, claim: Game, level: float) -> Game | None:
    """Return the rejected null with the least noise, by bisection; None if that with the most noise is kept."""

    def null(place: int) -> Game:
        return claim.with_noise(claim.event.noise_multiplier * 2.0 ** (place / _PER_OCTAVE))

    def rejects(place: int) -> bool:
        draws_R = null_statistics(weights_M.tobytes(), null(place), _REPETITIONS)
        return 1 + int((draws_R >= statistic).sum()) <= level * (1 + _REPETITIONS)

    kept, last = _LEAST - 1, _MOST
    if not rejects(last):
        return None
    while last - kept > 1:
        middle = (kept + last) // 2
        kept, last = (kept, middle) if rejects(middle) else (middle, last)
    return null(last)
