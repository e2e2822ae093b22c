r"""Noisy sums of blocks, made to agree: the quietest counts up to thresholds that whole-numbered Laplace noise gives.

The N leaves of a forest hold how many values lie between neighbouring thresholds, and each node of its h levels the sum
of the leaves below it. A row is in one leaf, so that adding it changes h nodes by one, and moving it at most 2 h:
Laplace noise of scale h / epsilon or 2 h / epsilon at each node makes all of them epsilon-DP. Released are counts up to
each threshold from the leaves that fit the noisy nodes best (least squares: Hay et al. 2010, "Boosting the accuracy of
differentially private histograms through consistency"), which is post-processing, whatever it computes.

A `clipless.curves.tree.Tree` adds the noise of nodes to the counts themselves. It draws h + 1 values for each count and
shifts them by as few as a row needs; here a count has the error of few nodes only, because blocks are wide and each
level says something of the others. The mean variance is three to six times smaller at every length above 4; sums of
blocks are linear in the rows, so that several parties can form them together (`clipless.federated`).

Shape letters: N leaves, M nodes of a level.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from clipless.curves.tree import MOST_LEAVES, Change, Floats
from clipless.errors import AccountingError

_BASES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64)

Nodes = list[Floats]
"""One array for each level, leaves first."""


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A forest over N leaves whose blocks have ``base`` children each, with ``levels`` levels of nodes.

    Raises:
        AccountingError: there is no such forest.
    """

    leaves: int  # N
    base: int = 2  # b, children of a block
    levels: int = 1  # h, leaves included

    def __post_init__(self) -> None:
        if not (1 <= self.leaves <= MOST_LEAVES and self.base >= 2 and 1 <= self.levels <= 1 + 20):
            raise AccountingError(f"Expected 1 to {MOST_LEAVES} leaves under blocks of 2 children or more, got {self}")

    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each level, leaves first."""
        return tuple(ceil(self.leaves / self.base**level) for level in range(self.levels))

    def sums(self, leaves_N: Floats) -> Nodes:
        """Return the sums of the leaves below each node."""
        sums = [leaves_N]
        for size in self.sizes()[1:]:
            sums.append(np.add.reduceat(sums[-1], np.arange(size) * self.base))
        return sums

    def reconcile(self, nodes: Sequence[Floats]) -> Floats:
        """Return the counts up to each leaf, (N,), of the leaves that fit the nodes best."""
        totals, variances = [nodes[0]], [np.ones(self.leaves)]
        for own in nodes[1:]:
            below, spread = (self._sum_levels(values, len(own)) for values in (totals[-1], variances[-1]))
            totals.append((own * spread + below) / (spread + 1.0))
            variances.append(spread / (spread + 1.0))
        found = totals[-1]
        for level in range(self.levels - 2, -1, -1):
            parents = np.arange(len(totals[level])) // self.base
            below, spread = (self._sum_levels(values, len(found)) for values in (totals[level], variances[level]))
            found = totals[level] + variances[level] * ((found - below) / spread)[parents]
        return np.cumsum(found)

    def laplace_change(self, change: Change) -> float:
        """Return how much one row changes all nodes together, in absolute value."""
        return change.largest(float(self.levels), 2.0 * self.levels)

    def variances(self) -> Floats:
        """Variance of each count up to a leaf, (N,), for noise of variance 1 at each node."""
        return _variances(self)

    def laplace_variance(self, change: Change) -> float:
        """Mean variance of the counts at epsilon = 1."""
        return 2.0 * self.laplace_change(change) ** 2 * float(np.mean(self.variances()))

    def _sum_levels(self, values: Floats, size: int) -> Floats:
        sums: Floats = np.add.reduceat(values, np.arange(size) * self.base)
        return sums


@cache
def best_hierarchy(leaves: int) -> Hierarchy:
    """Return the hierarchy with the least mean variance, among bases to 64 and all numbers of levels."""
    return min(_candidates(leaves), key=lambda one: (one.laplace_variance(Change.ADDED), one.levels, one.base))


def _candidates(leaves: int) -> Iterator[Hierarchy]:
    for base in _BASES:
        levels = 1
        while levels == 1 or base ** (levels - 1) < leaves * base:
            yield Hierarchy(leaves, base, levels)
            levels += 1
        if base >= leaves:
            return


@cache
def _variances(forest: Hierarchy) -> Floats:
    """From the leaves upwards: the variance of each node's sum, of the part of it up to a leaf, and their covariance.

    What a node itself says of its sum corrects both (a Kalman step of an observation with variance 1).
    """
    places: NDArray[np.int64] = np.arange(forest.leaves)
    whole = np.ones(forest.leaves)
    part, both = np.ones(forest.leaves), np.ones(forest.leaves)
    for size in forest.sizes()[1:]:
        before = np.cumsum(whole) - whole  # of all nodes to the left, of this block and of others
        parents = places // forest.base
        left = before[places] - before[parents * forest.base]
        part, both = part + left, both + left
        spread = np.add.reduceat(whole, np.arange(size) * forest.base)
        part -= both**2 / (spread[parents] + 1.0)
        both = both / (spread[parents] + 1.0)
        whole, places = spread / (spread + 1.0), parents
    found: Floats = part + (np.cumsum(whole) - whole)[places]
    return found
