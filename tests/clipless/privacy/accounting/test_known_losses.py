"""What it costs if an observer knows which candidates of a private selection were lost: the worst places, by search.

With the places S lost, K' = K - |S & {1..K}| candidates are compared. Write G_k = P(K >= k). The j-th that is left
stood at place j + l_j, where l_j counts the losses before it, so P(K' >= j) = G_{j + l_j}, and the derivative of the
generating function of K' is the sum over j of G_{j + l_j} c_j(z), c_j(z) = j z^(j-1) - (j-1) z^(j-2). Its ratio at two
arguments is largest for the l that makes sum_j G_{j + l_j} (c_j(z) - ratio c_j(z')) positive: dynamic programming over
l, which does not fall and ends at most at the number of losses.
"""

import itertools
import math

import numpy as np

from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_profile import largest_tails
from clipless.privacy.events import Relation

STEPS, DELTA = 2000, 1e-5


def masses(repetitions, rest=1e-10):
    """P(K = k) for k from 1, until so much is left."""
    gamma = repetitions.gamma
    k = np.arange(1, math.ceil(math.log(1 / rest) / -math.log1p(-gamma)) + 1)
    return gamma * (1 - gamma) ** (k - 1.0)


def terms(z, count):
    """The numbers c_j(z). Shape: (Z, J)."""
    j, z = np.arange(1, count + 1), z[:, None]
    return j * z ** (j - 1.0) - (j - 1) * z ** np.maximum(j - 2.0, 0)


def largest_log_ratio(mass, z, other, losses):
    """The largest log ratio of derivatives at z and other, over all sets of so many lost places; the largest of all."""
    reach = np.concatenate((np.cumsum(mass[::-1])[::-1], np.zeros(losses + 2)))
    above, below = terms(z, len(mass)), terms(other, len(mass))
    low, high = np.zeros(len(z)), np.full(len(z), 10.0)
    for _ in range(25):
        middle = (low + high) / 2
        weights = above - np.exp(middle)[:, None] * below
        best = np.zeros((len(z), losses + 1))
        for j in range(len(mass), 0, -1):
            value = reach[j - 1 : j + losses] * weights[:, j - 1 : j] + best
            best = np.maximum.accumulate(value[:, ::-1], axis=1)[:, ::-1]
        low, high = np.where(best[:, 0] > 0, middle, low), np.where(best[:, 0] > 0, high, middle)
    return float(high.max())


def ratio_without(mass, z, other, lost):
    """The same for one set of lost places, from the definition."""
    k = np.arange(1, len(mass) + 1)
    left = k - np.cumsum(np.isin(k, lost))
    at = [float(np.sum(mass * left * x ** np.maximum(left - 1.0, 0))) for x in (z, other)]
    return math.log(at[0] / at[1])


def test_no_set_of_lost_places_exceeds_what_the_search_finds():
    mass = masses(Repetitions(mean=3.0), 1e-6)
    z, other = 0.7, 0.35
    found = largest_log_ratio(mass, np.array([z]), np.array([other]), 2)
    tried = [ratio_without(mass, z, other, lost) for n in (0, 1, 2) for lost in itertools.combinations(range(1, 15), n)]
    assert max(tried) <= found <= max(tried) + 1e-3


def test_knowing_sixteen_lost_candidates_raises_the_price_a_little():
    """The numbers of docs/mathematics.md."""
    mass = masses(Repetitions(mean=10.0))
    grids = loss_grids(3.0, 0.05, Relation.ADD_OR_REMOVE_ONE)
    u_C = np.concatenate(([0.0], np.geomspace(1e-6, 1.0, 150)))
    found = max(
        grid.epsilon(STEPS, DELTA / 10)
        + largest_log_ratio(mass, 1 - u_C[:-1], 1 - largest_tails(*other.profile(STEPS), u_C[1:]), 16)
        for grid, other in zip(grids, reversed(grids), strict=True)
    )
    assert 5.18 < found <= 5.20
