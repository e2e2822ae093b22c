"""A public query to the parties, and a party's answer from its rows.

A value of a row has a place in a domain of 2^n thresholds: that of the first one it does not exceed. A query names some
of these thresholds and asks how many rows of each group do not exceed them. What is summed over parties, and what gets
noise, are the rows between neighbouring thresholds and in blocks of these (`clipless.curves.hierarchy`): whole numbers
that are linear in the counts, of which a row changes one on each level. The counts that fit them best are computed from
the released sums.

Shape letters: R rows, C groups, T thresholds, M sums.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from clipless.curves.classes import class_change
from clipless.curves.hierarchy import Hierarchy, best_hierarchy
from clipless.curves.release import Laplace, change_of
from clipless.curves.tree import Change, Floats
from clipless.errors import AccountingError, FederationError
from clipless.federated.primitives import check_no_wrap
from clipless.privacy.discrete_noise import laplace_share, scale_at_least
from clipless.privacy.events import Relation
from clipless.privacy.randomness import RandomSource, SecureSource

Integers = NDArray[np.int64]

MOST_GROUPS = 2
MOST_LEVELS = 20


@dataclass(frozen=True, slots=True)
class PartyRows:
    """The secret rows of one party."""

    places: Integers  # (R,) the first threshold of the domain at which each row counts
    groups: Integers  # (R,) the group in which it counts

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.places)


@dataclass(frozen=True, slots=True)
class Query:
    """Counts of rows up to thresholds, with noise.

    Raises:
        FederationError: thresholds that do not increase from 0 on, or another number of groups.
        AccountingError: an epsilon that is not positive and finite.
    """

    thresholds: tuple[int, ...]  # increasing places in the domain
    groups: int  # 1, or 2 for the rows of two classes
    epsilon: float  # of all sums together
    relation: Relation = Relation.ADD_OR_REMOVE_ONE  # which data sets of all parties are neighbours

    def __post_init__(self) -> None:
        steps = np.diff(np.array(self.thresholds, dtype=np.int64))
        if not (self.thresholds and self.thresholds[0] >= 0 and self.thresholds[-1] < 2**MOST_LEVELS):
            raise FederationError(f"Expected thresholds from 0 to below 2^{MOST_LEVELS}, got none or others")
        if not (steps > 0).all():
            raise FederationError("Expected thresholds that increase, got some that do not")
        if not 1 <= self.groups <= MOST_GROUPS:
            raise FederationError(f"Expected 1 or 2 groups, got {self.groups!r}")
        self.noise_of(1, 1)

    @property
    def change(self) -> Change:
        """The largest change that one row makes in the sums."""
        return change_of(self.relation) if self.groups == 1 else class_change(self.relation)

    @property
    def size(self) -> int:
        """The number of sums: M."""
        return self.groups * sum(self._blocks.sizes())

    @property
    def pure_parts(self) -> tuple[float, ...]:
        """The epsilon of each sum that one row changes, by one: their noise is independent (`Hierarchy`)."""
        changed = round(self._blocks.laplace_change(self.change))
        return (self.epsilon / changed,) * changed

    @property
    def _blocks(self) -> Hierarchy:
        return best_hierarchy(len(self.thresholds))

    def noise_of(self, contributors: int, enough: int) -> "SharedLaplace":
        """Return the noise of so many contributors, of whom so many would be enough."""
        return SharedLaplace(self.epsilon, contributors=contributors, enough=enough)

    def counts(self, rows: PartyRows) -> Integers:
        """Return how many of a party's rows do not exceed each threshold, (C, T), without noise."""
        sorted_ = (np.sort(rows.places[rows.groups == group]) for group in range(self.groups))
        return np.stack([np.searchsorted(places, self.thresholds, side="right") for places in sorted_])

    def sums(self, counts: Integers) -> Integers:
        """Return the sums of blocks of values between neighbouring thresholds, (C, M / C): linear in counts (C, T)."""
        levels = [np.diff(counts, axis=1, prepend=0)]
        for size in self._blocks.sizes()[1:]:
            levels.append(np.add.reduceat(levels[-1], np.arange(size) * self._blocks.base, axis=1))
        return np.concatenate(levels, axis=1)

    def noise(self, mechanism: "SharedLaplace", source: RandomSource | None = None) -> Integers:
        """Draw one contributor's noise of the sums, (C, M / C), as ``mechanism`` shares it."""
        source, count = source or SecureSource(), len(self.thresholds)
        return np.stack([mechanism.of_one.blocks(count, self.change, source) for _ in range(self.groups)])

    def reconcile(self, sums: Integers) -> NDArray[np.float64]:
        """Return the counts (C, T) that fit noisy sums (C, M / C) best: post-processing."""
        ends = np.cumsum(self._blocks.sizes())[:-1]
        return np.stack([self._blocks.reconcile(np.split(own.astype(np.float64), ends)) for own in sums])

    def check_rows(self, rows: int, mechanism: "SharedLaplace") -> None:
        """Refuse more rows than sums have room for."""
        check_no_wrap(rows, mechanism.deviation(len(self.thresholds), self.change))


@dataclass(frozen=True, slots=True)
class _OnBlocks(Laplace):
    """Laplace noise at the sums of blocks of a hierarchy: whole numbers, so that it can be drawn in shares."""

    def kind_for(self, leaves: int, change: Change) -> Hierarchy:
        """Return the hierarchy for so many counts.

        Raises:
            AccountingError: the noise is that of another number of counts, or not that of a hierarchy.
        """
        del change
        found = best_hierarchy(leaves) if self.tree is None else self.tree
        if not isinstance(found, Hierarchy) or found.leaves != leaves:
            raise AccountingError(f"Expected the noise of a hierarchy for {leaves} counts, got {found}")
        return found


@dataclass(frozen=True, slots=True)
class SharedLaplace(_OnBlocks):
    """Noise of a curve that several contributors add, each a share of its own.

    Each draws noise of power 1 / ``enough`` at every block (`clipless.privacy.discrete_noise`). Whoever
    knows the noise of some contributors faces the sum of the others': as long as these are ``enough`` or more, it is
    the noise of `Laplace` on that tree, or that and something independent of it.

    Attributes:
        epsilon: against whoever does not know the noise of ``enough`` of the contributors.
        contributors: whose noise is in the sums.
        enough: how many of them suffice for epsilon.
    """

    contributors: int = 1
    enough: int = 1

    def __post_init__(self) -> None:
        Laplace.__post_init__(self)
        if not 1 <= self.enough <= self.contributors:
            raise AccountingError(
                f"Expected noise of {self.enough} contributors or more, got that of {self.contributors}"
            )

    @property
    def power(self) -> Fraction:
        """The power of all noise together, at least 1."""
        return Fraction(self.contributors, self.enough)

    @property
    def of_one(self) -> "_OneShare":
        """One contributor's share of the noise."""
        return _OneShare(self.epsilon, self.tree, self.enough)

    def release(self, counts_N: Floats, change: Change, source: RandomSource) -> Floats:
        """Return counts with the noise that all contributors make together, (N,)."""
        kind = self.kind_for(len(counts_N), change)
        exact = np.concatenate(kind.sums(np.diff(counts_N, prepend=0.0)))
        noisy = exact + _draw(self, self.power, len(counts_N), change, source)
        return kind.reconcile(np.split(noisy, np.cumsum(kind.sizes())[:-1]))

    def deviation(self, leaves: int, change: Change) -> float:
        """Standard deviation of the noise of a count, from above."""
        return sqrt(self.power) * Laplace.deviation(self, leaves, change)


@dataclass(frozen=True, slots=True)
class _OneShare(_OnBlocks):
    """Too little noise by itself, where more than one is needed."""

    enough: int = 1

    def blocks(self, leaves: int, change: Change, source: RandomSource) -> Integers:
        """Draw the noise of each block, leaves first."""
        return _draw(self, Fraction(1, self.enough), leaves, change, source)


def _draw(mechanism: _OnBlocks, power: Fraction, leaves: int, change: Change, source: RandomSource) -> Integers:
    kind = mechanism.kind_for(leaves, change)
    scale = scale_at_least(kind.laplace_change(change) / mechanism.epsilon)
    return laplace_share(sum(kind.sizes()), scale, power, source)


def places(thresholds: Floats, values_R: Iterable[float]) -> Integers:
    """Return the first threshold of a domain that each value does not exceed; the last one for values beyond.

    A value that is not a number has the last place.
    """
    found = np.searchsorted(thresholds, np.asarray(values_R, dtype=np.float64), side="left")
    return np.minimum(found, len(thresholds) - 1).astype(np.int64)
