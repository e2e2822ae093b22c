r"""Lower bounds of epsilon from correct guesses: Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846).

m canaries take part by fair coins; an auditor names r of them with a guess each, v of which are right. Under (epsilon,
delta)-differential privacy, with respect to each canary and whatever it does with the others,

    P(v or more) <= P(B >= v) + 2 m delta max_i P(v > B >= v - i) / i,    B ~ Binomial(r, e^eps / (1 + e^eps)).

Nothing is assumed of the mechanism; in return the bound stays far below epsilon where delta matters. `ranks` is tight.
"""

import numpy as np
from scipy import special, stats

from clipless.audits.ranks import BoolArray, FloatArray
from clipless.errors import AuditError

_MOST_EPSILON = 50.0
_SHARE = 40  # one canary in so many is guessed to be in, and as many to be out


def guessed_epsilon(scores_M: FloatArray, coins_M: BoolArray, delta: float, confidence: float) -> float:
    """Bound epsilon from below by guesses on the canaries with the most extreme scores."""
    order, guesses = np.argsort(scores_M, kind="stable"), max(1, len(scores_M) // _SHARE)
    right = int(coins_M[order[-guesses:]].sum() + (~coins_M[order[:guesses]]).sum())
    return guesses_bound(len(scores_M), 2 * guesses, right, delta, confidence)


def guesses_bound(canaries: int, guesses: int, right: int, delta: float, confidence: float) -> float:
    """Return the largest epsilon that so many right guesses reject at 1 - confidence, 0 if they reject none.

    Raises:
        AuditError: numbers that do not fit together.
    """
    if not (0 <= right <= guesses <= canaries and 0.0 <= delta < 1.0 and 0.0 < confidence < 1.0):
        raise AuditError(f"Expected 0 <= right <= guesses <= canaries, got {right}, {guesses} and {canaries}")
    low, high = 0.0, _MOST_EPSILON
    if guesses_p_value(canaries, guesses, right, low, delta) > 1.0 - confidence:
        return 0.0
    while high - low > 1e-4:  # the p-value rises with epsilon
        middle = 0.5 * (low + high)
        rejected = guesses_p_value(canaries, guesses, right, middle, delta) <= 1.0 - confidence
        low, high = (middle, high) if rejected else (low, middle)
    return low


def guesses_p_value(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the chance of so many right guesses under (epsilon, delta)-differential privacy, from above."""
    rate = float(special.expit(epsilon))
    reached = float(stats.binom.sf(right - 1, guesses, rate))
    below_V = np.cumsum(stats.binom.pmf(np.arange(right - 1, -1, -1), guesses, rate))
    worst = float(np.max(below_V / np.arange(1, right + 1), initial=0.0))
    return min(1.0, reached + 2.0 * canaries * delta * worst)
