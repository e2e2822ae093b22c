r"""The best of a random number of candidates, priced by privacy profiles.

K candidates are independent draws of one mechanism, K secret with generating function phi and mean ``m = phi'(1)``;
the best is released, by a total order. On two neighbours a candidate has the laws Q and Q', the best A and A'. With
``u = Q(> y)`` the best has the law ``A(dy) = phi'(1 - u) Q(dy)``, and Q'(> y) is at most

    v(u) = min over alpha of (alpha u + delta_{Q'||Q}(log alpha)),

delta being the privacy profile (hockey-stick divergence) in that direction. phi' increases, so with

    r = sup over u in [0, 1] of phi'(1 - u) / phi'(1 - min(1, v(u)))

``phi'(Q(<= y)) <= r phi'(Q'(<= y))`` at every y, hence

    delta_A(epsilon) <= integral of phi'(Q(<= y)) [dQ - (e^epsilon / r) dQ']_+ <= m delta_{Q||Q'}(epsilon - log r).

A pair that dominates Q and Q' may stand in for them in both profiles. Taking one alpha for all u gives the bound of
Koskela, Redberg and Wang (2024, arXiv 2402.06701). For geometric K, ``phi'(1 - u)`` is proportional to
``(gamma + (1 - gamma) u)^-2``.

The supremum is taken over cells of u, with v at the upper end of each and u at the lower: it is rounded up.
"""

import math

import numpy as np
import numpy.typing as npt

from clipless.privacy.accounting.private_selection import Repetitions

_LEAST_TAIL = 1e-9  # below it lies one cell
_CELLS = math.ceil(2e3 * -math.log(_LEAST_TAIL))
_ROUNDING = 1e-9  # of r, for the arithmetic of this module: far more than was seen

FloatArray = npt.NDArray[np.float64]


def log_ratio(epsilons: FloatArray, deltas: FloatArray, repetitions: Repetitions) -> float:
    """Return log r, rounded up.

    Args:
        epsilons: increasing, of either sign. Shape: (E,).
        deltas: upper bounds there of the profile of a candidate, in the direction from Q' to Q. Shape: (E,).
        repetitions: distribution of the number of candidates.
    """
    u_C = np.concatenate(([0.0], np.geomspace(_LEAST_TAIL, 1.0, _CELLS)))
    v_C = largest_tails(epsilons, deltas, u_C[1:])
    return _log_ratio(u_C[:-1], v_C, repetitions.gamma) + _ROUNDING


def largest_tails(epsilons: FloatArray, deltas: FloatArray, u_C: FloatArray) -> FloatArray:
    """Return an upper bound of v(u), at most 1, for each u. Shapes: (E,), (E,), (C,) -> (C,).

    Every alpha gives a bound. The profile is convex in alpha, so the best one for u is where its slope is -u.
    """
    alpha_E = np.exp(epsilons)
    falls = np.maximum.accumulate(np.diff(deltas) / np.diff(alpha_E))  # slopes, increasing but for rounding
    best_C = np.searchsorted(falls, -u_C)
    return np.minimum(1.0, alpha_E[best_C] * u_C + deltas[best_C])


def _log_ratio(u_C: FloatArray, v_C: FloatArray, gamma: float) -> float:
    ratio = np.max((gamma + (1.0 - gamma) * v_C) / (gamma + (1.0 - gamma) * u_C))
    return 2.0 * max(0.0, math.log(ratio))
