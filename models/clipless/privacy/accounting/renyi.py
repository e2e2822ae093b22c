"""From Renyi moments to epsilon: the best order out of all real ones, exactly.

K is the logarithm of a moment by order, known at integers and convex, so that its chords bound it from above. By Balle
et al. (2020, arXiv 1905.09982, theorem 21), for every real order x > 1,

    epsilon(x) = (K(x) - log delta - log x) / (x - 1) + log(1 - 1/x).

``x - 1`` times it is convex in x, so there is one minimum. On the chord over [k, k+1], with C the numerator without
``log x``, continued to x = 1, its derivative has the sign of ``log x - C``: the best order is exp(C) or an end, and
bisection over k finds the chord.
"""

import math
from collections.abc import Callable

_HIGHEST_ORDER = 1024


def epsilon_of_cgf(cgf: Callable[[int], float], delta: float) -> float:
    """Minimise the conversion over real orders in [1, 1025].

    Args:
        cgf: K at whole orders from 1 on, convex, with K(1) = 0.
        delta: the probability the guarantee may fail with.
    """

    def numerator_at_one(k: int) -> float:
        here = cgf(k)
        return here - (k - 1) * (cgf(k + 1) - here) - math.log(delta)

    low, high = 1, 2
    while high < _HIGHEST_ORDER and math.log(high + 1) < numerator_at_one(high):
        low, high = high, 2 * high
    while low < high:
        middle = (low + high) // 2
        if math.log(middle + 1) < numerator_at_one(middle):
            low = middle + 1
        else:
            high = middle
    order = math.exp(min(max(numerator_at_one(low), math.log(low)), math.log(low + 1)))
    order = max(order, 1.0 + 1e-9)
    chord = cgf(low) + (order - low) * (cgf(low + 1) - cgf(low))
    return max(0.0, (chord - math.log(delta) - math.log(order)) / (order - 1.0) + math.log1p(-1.0 / order))
