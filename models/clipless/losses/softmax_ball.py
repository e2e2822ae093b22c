r"""The largest ``|softmax(u) - e_y|`` over ``|u| <= rho``, from above.

K = 2: the norm is ``sqrt(2) (1 - p_y)``, largest at ``u = rho (-1, 1) / sqrt(2)``: ``sqrt(2) sigmoid(sqrt(2) rho)``.

K >= 3. Write ``E_j = exp(u_j)``, ``Y = E_y``, ``T = sum_{j != y} E_j`` and let c be the largest squared norm. A point
that attains it maximises, over the ball, the function that is nowhere positive there::

    M(u) = (Y + T)^2 (|softmax(u) - e_y|^2 - c) = T^2 + sum_{j != y} E_j^2 - c (Y + T)^2

so that for every j != y and one multiplier lambda >= 0 of the ball::

    dM/du_j - 2 lambda u_j = 2 E_j^2 - beta E_j - 2 lambda u_j = 0,      beta = 2 c (Y + T) - 2 T          (1)

The derivative of (1) in u_j at fixed beta is ``q(E_j) = 4 E_j^2 - beta E_j - 2 lambda``. Two competitors i, j of
*equal* logits may be moved by ``e_i - e_j``, which is tangent to the ball and leaves T unchanged to first order; the
second derivative of the Lagrangian along it is ``2 q(E_j)``, which must not be positive.

* ``lambda = 0``: (1) has the one root ``E = beta / 2``, so all K - 1 >= 2 competitors are equal, with
  ``q = beta^2 / 2 > 0``: impossible. The maximum lies on the sphere.
* ``lambda > 0``: q has exactly one positive root, so (1), positive for u -> -inf, falls and then rises: at most two
  roots, ``q <= 0`` at the lower and ``q > 0`` at the upper one. At most one competitor sits at the upper root.

So all competitors but at most one share one logit. Shifting all logits changes no softmax, so a maximiser also has
mean zero (else centring it would give one inside the ball). With a = the exceptional competitor, n = K - 2 others, it
lies on the circle spanned by the orthonormal directions of (y, a, others)::

    (-1, 1, 0) / sqrt(2)        and        (1, 1, -2/n, ..., -2/n) / sqrt(2 K / n)                         (2)

which is searched on a grid of angles. The Jacobian ``diag(p) - p p^T`` of the softmax has norm at most 1/2, so between
two angles ``delta`` apart the norm exceeds the larger of its two ends by at most ``rho delta / 4``: that is added, and
with it the result is an upper bound, above the supremum by no more than that.

Taking the others at 0, as in the two-class extreme, is too small: 1.288 instead of 1.380 at K = 10, rho = 5.
"""

from functools import lru_cache
from math import exp, pi, sqrt

import numpy as np

_ANGLES = 2**15
_ROUNDING = 1e-12


@lru_cache(maxsize=1024)
def largest_softmax_error(logits: int, radius: float) -> float:
    """Upper bound on the largest norm of ``softmax(u) - e_y`` over ``|u| <= radius`` and all y.

    K >= 2 ``logits``; a ``radius`` of inf is no bound.

    Returns:
        At most sqrt(2), at least the supremum, and above it by at most ``1e-4 * radius``.
    """
    whole = sqrt(2.0)
    if radius * pi / (2 * _ANGLES) > whole:
        return whole
    if logits == 2:
        return min(whole, whole / (1.0 + exp(-whole * radius)) * (1.0 + _ROUNDING))
    slack = radius * (2.0 * pi / _ANGLES) / 4.0
    return min(whole, _largest_on_circle(logits, radius) * (1.0 + _ROUNDING) + slack)


def _largest_on_circle(logits: int, radius: float) -> float:
    others = logits - 2
    angle_A = np.arange(_ANGLES) * (2.0 * pi / _ANGLES)
    across_A = radius * np.cos(angle_A) / sqrt(2.0)
    along_A = radius * np.sin(angle_A) / sqrt(2.0 * logits / others)
    logits_3A = np.stack([along_A - across_A, along_A + across_A, -2.0 / others * along_A])
    exp_3A = np.exp(logits_3A - logits_3A.max(axis=0))
    p_3A = exp_3A / (exp_3A[0] + exp_3A[1] + others * exp_3A[2])
    # 1 - p_y without cancellation
    missed_A = p_3A[1] + others * p_3A[2]
    return float(np.sqrt(missed_A**2 + p_3A[1] ** 2 + others * p_3A[2] ** 2).max())
