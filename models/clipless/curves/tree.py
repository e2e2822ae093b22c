r"""Trees of noise: how much of it hides one row in a whole distribution function.

Counts c_i = |{rows <= tau_i}|, i = 1..N, are released with noise that neighbouring thresholds share: the N leaves of a
forest whose blocks of b^l leaves, l = 0..h, are its nodes, and

    y_i = c_i + sum of the noise of the h + 1 nodes above leaf i                                  (1)

(thesis "Enhancing differentially private machine learning", equation 6.3.1, where b = 2 and h = L = ceil(log2 N)).
Only y is released, never the noise of a node. What one row changes in c is the indicator of an interval of leaves; the
same y comes from the neighbouring data set if the noise of the nodes is shifted by any chi whose sums along paths are
that indicator. So the release is as private as its cheapest shift:

* Laplace noise of scale K / epsilon at each node: epsilon-DP, with K the largest of min |chi|_1;
* Gaussian noise of deviation sigma sqrt(E): the Gaussian mechanism with noise multiplier sigma, with E the largest of
  min |chi|_2^2, which is exactly the squared Mahalanobis distance of the two y.

`Tree.laplace_change` gives a K that some whole-numbered chi attains, `Tree.gaussian_change` gives E itself.

**Base 2 to the root: K = max(L, 1)**, where the thesis has L + 1. A prefix of k leaves of a block of 2^l leaves is a
signed sum of as many nodes as the non-adjacent form of k has digits, at most ceil((l + 1) / 2) (Lemma 6.3.1); by
symmetry, a suffix too. An interval with its ends in two children of a block of 2^(l+1) leaves, l + 1 <= L, is a suffix
of one and a prefix of the other: 2 ceil((l + 1) / 2) nodes, which is l + 1 <= L for odd l. For even l a non-adjacent
form of a k <= 2^l has l/2 + 1 digits only if all of 0, 2, .., l are used, so that k = 2^l - m where m has l/2 digits.
If both parts are of this kind, the interval is the parent less the two m: 1 + 2 (l/2) = l + 1 nodes. Otherwise one part
has at most l/2 digits: together l + 1 again. A prefix or suffix of the whole needs ceil((L + 1) / 2) <= max(L, 1).

Shape letters: N leaves.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import ceil
from typing import cast

import numpy as np
from numpy.typing import NDArray

from clipless.errors import AccountingError

Floats = NDArray[np.float64]

MOST_LEAVES = 2**20
_BASES = (2, 3, 4, 5, 6, 8, 10, 12, 16)
_ROUNDING = 1.0 + 2.0**-30  # of energies, in double precision


class Change(enum.Enum):
    """The largest change that one row makes in released counts up to thresholds."""

    ADDED = "one more from a threshold on"
    MOVED = "one more between two thresholds"
    RELABELLED = "one curve as if moved, or two curves as if added to one and removed from the other"

    def largest(self, added: float, moved: float) -> float:
        """Combine the costs of `ADDED` and `MOVED`, where costs of separate curves add up."""
        return {Change.ADDED: added, Change.MOVED: moved, Change.RELABELLED: max(moved, 2.0 * added)}[self]


@dataclass(frozen=True, slots=True)
class Tree:
    """A forest over N leaves whose blocks have ``base`` children each.

    Raises:
        AccountingError: there is no such tree.
    """

    leaves: int  # N
    base: int = 2  # b, children of a block
    height: int = 0  # h; the topmost blocks have b^h leaves

    def __post_init__(self) -> None:
        if not (
            1 <= self.leaves <= MOST_LEAVES and self.base >= 2 and 0 <= self.height <= depth(self.leaves, self.base)
        ):
            raise AccountingError(f"Expected 1 to {MOST_LEAVES} leaves under blocks of 2 children or more, got {self}")

    @classmethod
    def binary(cls, leaves: int) -> "Tree":
        """The thesis' tree: base 2, up to one root."""
        return cls(leaves, 2, depth(leaves, 2))

    @property
    def roots(self) -> int:
        """The number of topmost blocks."""
        return ceil(self.leaves / self._width(self.height))

    @property
    def spreads(self) -> float:
        """How many times larger than the largest normal number the noise of a count can be: one for each level."""
        return self.height + 1.0

    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each level, leaves first."""
        return tuple(ceil(self.leaves / self._width(level)) for level in range(self.height + 1))

    def path_sums(self, levels: Iterable[Floats]) -> Floats:
        """Sum the values of the nodes above each leaf, (N,); ``levels`` are those of `sizes`."""
        places_N = np.arange(self.leaves)
        above = [values[places_N // self._width(level)] for level, values in enumerate(levels)]
        return cast(Floats, sum(above))

    def _width(self, level: int) -> int:
        return int(self.base**level)

    def laplace_change(self, change: Change) -> float:
        """Return a K that is enough for any change that one row makes."""
        return change.largest(_laplace_change(self, False), _laplace_change(self, True))

    def gaussian_change(self, change: Change) -> float:
        """Return E, rounded up."""
        return change.largest(_gaussian_change(self, False), _gaussian_change(self, True)) * _ROUNDING

    def laplace_variance(self, change: Change) -> float:
        """Variance of the noise of each y at epsilon = 1."""
        return 2.0 * (self.height + 1) * self.laplace_change(change) ** 2

    def gaussian_variance(self, change: Change) -> float:
        """Variance of the noise of each y at noise multiplier 1."""
        return (self.height + 1) * self.gaussian_change(change)


def depth(leaves: int, base: int) -> int:
    """The least h with base^h >= leaves."""
    height = 0
    while base**height < leaves:
        height += 1
    return height


@cache
def best_tree(leaves: int, change: Change, *, gaussian: bool) -> Tree:
    """Return the tree with the least noise in each y, among bases to 16 and all heights."""
    trees = [Tree(leaves, base, height) for base in _BASES for height in range(depth(leaves, base) + 1)]

    def variance(tree: Tree) -> float:
        return tree.gaussian_variance(change) if gaussian else tree.laplace_variance(change)

    return min(trees, key=lambda tree: (variance(tree), tree.height, tree.base))


Pairs = frozenset[tuple[int, int]]


@cache
def _prefixes(base: int, level: int) -> Pairs:
    """Nodes needed for a prefix of a block, and for what is left of the block, over all prefixes."""
    if level == 0:
        return frozenset({(0, 1), (1, 0)})
    return frozenset(
        (min(q + x, base - q + y), min(base - 1 - q + y, 1 + q + x))
        for q, (x, y) in product(range(base), _prefixes(base, level - 1))
    )


@cache
def _laplace_change(tree: Tree, moved: bool) -> int:
    whole, roots, base = _prefixes(tree.base, tree.height), tree.roots, tree.base
    last = max(y + roots - 1 for _, y in whole)
    if not moved:
        return max(1, last)
    across = [y + roots - 2 + x for (_, y), (x, _) in product(whole, whole)] if roots > 1 else []
    within = [
        min(y1 + between + x2, 1 + x1 + (base - 2 - between) + y2)
        for level in range(tree.height)
        for (x1, y1), (x2, y2) in product(_prefixes(base, level), _prefixes(base, level))
        for between in range(base - 1)
    ]
    return max([1, last, *across, *within])


def _inner(base: int, level: int) -> float:
    """e_l: a block of that level whose leaves all lack s costs e_l s^2."""
    energy = 1.0
    for _ in range(level):
        energy = base * energy / (1.0 + base * energy)
    return energy


@cache
def _targets(base: int, level: int) -> tuple[tuple[float, float], ...]:
    """What prefixes of a block cost, e_l (s - m)^2 + C where nodes above give s already: those (m, C) that matter.

    The cost of a whole interval is convex in (m, C) of either end and grows with C: the vertices of the upper hull are
    enough.
    """
    if level == 0:
        return ((0.0, 0.0), (1.0, 0.0))
    below = _inner(base, level - 1)
    found = {(0.0, 0.0), (1.0, 0.0)}
    for q, (m, cost) in product(range(base), _targets(base, level - 1)):
        mean = (q + m) / base
        found.add((mean, cost + below * (q + m * m - base * mean * mean)))
    return _upper_hull(sorted(found))


def _upper_hull(points: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while hull and hull[-1][0] == x:
            hull.pop()
        while len(hull) >= 2 and (hull[-1][0] - hull[-2][0]) * (y - hull[-2][1]) >= (hull[-1][1] - hull[-2][1]) * (
            x - hull[-2][0]
        ):
            hull.pop()
        hull.append((x, y))
    return tuple(hull)


@cache
def _gaussian_change(tree: Tree, moved: bool) -> float:
    base, roots, height = tree.base, tree.roots, tree.height
    prefixes = _targets(base, height)
    top = _inner(base, height)
    suffixes = [(1.0 - m, cost) for m, cost in prefixes]
    last = max(top * (m * m + roots - 1) + cost for m, cost in suffixes)
    if not moved:
        return last
    found = [last]
    if roots > 1:
        found += [top * (m1 * m1 + m2 * m2 + roots - 2) + c1 + c2 for (m1, c1), (m2, c2) in product(suffixes, prefixes)]
    for level in range(height):  # both ends in children of one block of level + 1
        parts, below = _targets(base, level), _inner(base, level)
        for (m1, c1), (m2, c2), between in product(parts, parts, range(base - 1)):
            first = 1.0 - m1
            mean = (first + m2 + between) / base
            cost = c1 + c2 + below * (first * first + m2 * m2 + between - base * mean * mean)
            found.append(_from_the_top(tree, level + 1, mean, cost))
    return max(found)


def _from_the_top(tree: Tree, level: int, mean: float, cost: float) -> float:
    """The whole cost of what lies in one block of a level."""
    for above in range(level, tree.height):
        cost += _inner(tree.base, above) * mean * mean * (1.0 - 1.0 / tree.base)
        mean /= tree.base
    return _inner(tree.base, tree.height) * mean * mean + cost
