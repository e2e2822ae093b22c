"""Mechanisms that hide one row in counts up to each threshold, by noise that neighbouring thresholds share.

Shape letters: N thresholds.
"""

from dataclasses import dataclass
from math import isfinite, sqrt

import numpy as np

from clipless.curves.hierarchy import Hierarchy, best_hierarchy
from clipless.curves.toeplitz import SquareRoot
from clipless.curves.tree import Change, Floats, Tree, best_tree
from clipless.errors import AccountingError
from clipless.privacy.discrete_noise import discrete_laplace, scale_at_least
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.noise_grid import released_step, step_for
from clipless.privacy.randomness import RandomSource

_FINEST = 2.0**-20  # step of Gaussian noise; counts are whole numbers of it
_ROUNDING = 1.0 + 2.0**-40  # of normals and their sums in double precision


@dataclass(frozen=True, slots=True)
class Laplace:
    """Whole-numbered Laplace noise on a tree or a hierarchy: epsilon-DP, without a delta."""

    epsilon: float  # of the whole curve
    # of the noise; by default the quietest one for the number of thresholds, which is a hierarchy
    tree: Tree | Hierarchy | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.epsilon < float("inf"):
            raise AccountingError(f"Expected 0 < epsilon < inf, got epsilon={self.epsilon!r}")

    def release(self, counts_N: Floats, change: Change, source: RandomSource) -> Floats:
        """Return counts with noise, (N,)."""
        kind = self.kind_for(len(counts_N), change)
        scale = scale_at_least(kind.laplace_change(change) / self.epsilon)
        drawn = [discrete_laplace(size, scale, source).astype(np.float64) for size in kind.sizes()]
        if isinstance(kind, Tree):
            return counts_N + kind.path_sums(drawn)
        # Whole numbers up to here: what is computed from the noisy nodes sees nothing but them.
        exact = kind.sums(np.diff(counts_N, prepend=0.0))
        return kind.reconcile([sums + noise for sums, noise in zip(exact, drawn, strict=True)])

    def noise(self, leaves: int, change: Change, source: RandomSource) -> Floats:
        """Draw the noise of each count, (N,), to simulate it."""
        return self.release(np.zeros(leaves), change, source)

    def deviation(self, leaves: int, change: Change) -> float:
        """Standard deviation of the noise of a count, from above; of a hierarchy that of the mean variance."""
        kind = self.kind_for(leaves, change)
        scale = float(scale_at_least(kind.laplace_change(change) / self.epsilon))
        drawn = kind.height + 1 if isinstance(kind, Tree) else float(np.mean(kind.variances()))
        return sqrt(2.0 * drawn) * scale

    def kind_for(self, leaves: int, change: Change) -> Tree | Hierarchy:
        """Return the tree or hierarchy for so many counts."""
        if self.tree is None:
            tree, hierarchy = best_tree(leaves, change, gaussian=False), best_hierarchy(leaves)
            return hierarchy if hierarchy.laplace_variance(change) <= tree.laplace_variance(change) else tree
        _check_leaves(self.tree, leaves)
        return self.tree


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Gaussian noise on a tree, or that of the square root of summation: composes with training in a ledger."""

    noise_multiplier: float  # sigma; the release of the whole curve is one Gaussian mechanism with it
    # a tree or a `SquareRoot`; by default the one with less noise for the number of thresholds
    kind: Tree | SquareRoot | None = None

    def __post_init__(self) -> None:
        if not (self.noise_multiplier > 0.0 and isfinite(self.noise_multiplier)):
            raise AccountingError(f"Expected 0 < noise_multiplier < inf, got {self.noise_multiplier!r}")

    def release(self, counts_N: Floats, change: Change, source: RandomSource) -> Floats:
        """Return counts with noise, (N,), rounded to what is released."""
        step = float(released_step(self._std(self.kind_for(len(counts_N), change), change), _FINEST))
        return np.rint((counts_N + self.noise(len(counts_N), change, source)) / step) * step

    def noise(self, leaves: int, change: Change, source: RandomSource) -> Floats:
        """Draw the noise of each count, (N,), in whole numbers of a step that follows from its deviation.

        Raises:
            AccountingError: noise that is not exact in whole numbers.
        """
        kind = self.kind_for(leaves, change)
        std = self._std(kind, change)
        step = step_for(std * kind.spreads, _FINEST, 1.0)
        if isinstance(kind, SquareRoot):
            sums = kind.spread(source.normal(leaves).numpy())
        else:
            sums = kind.path_sums([source.normal(size).numpy() for size in kind.sizes()])
        return np.floor(sums * (std / step)) * step

    def _std(self, kind: Tree | SquareRoot, change: Change) -> float:
        """The deviation of each normal number of which the noise is made."""
        return self.noise_multiplier * sqrt(kind.gaussian_change(change)) * _ROUNDING

    def deviation(self, leaves: int, change: Change) -> float:
        """Largest standard deviation of the noise of a count."""
        return self.noise_multiplier * sqrt(self.kind_for(leaves, change).gaussian_variance(change))

    def event(self, relation: Relation) -> PoissonGaussian:
        """Return the event that the release of one curve spends, for a ledger.

        Under replace-one an event's multiplier is relative to a row's contribution, half of what a replacement may
        change; here it is relative to what a replacement changes, and counts twice.
        """
        factor = 2.0 if relation is Relation.REPLACE_ONE else 1.0
        return PoissonGaussian(
            noise_multiplier=factor * self.noise_multiplier, sampling_rate=1.0, steps=1, relation=relation
        )

    @classmethod
    def share(cls, noise_multiplier: float, curves: int, relation: Relation) -> "Gaussian":
        """Return the mechanism of each of so many curves that together are one event of a noise multiplier.

        Squares of the reciprocals of multipliers add up.
        """
        factor = 2.0 if relation is Relation.REPLACE_ONE else 1.0  # as in `event`
        return cls(noise_multiplier * sqrt(curves) / factor)

    def kind_for(self, leaves: int, change: Change) -> Tree | SquareRoot:
        """Return the kind of noise for so many counts."""
        if self.kind is None:
            return _quieter(best_tree(leaves, change, gaussian=True), SquareRoot(leaves), change)
        _check_leaves(self.kind, leaves)
        return self.kind


Mechanism = Laplace | Gaussian


def change_of(relation: Relation) -> Change:
    """Return the largest change that one row makes in one curve between neighbouring data sets."""
    return Change.MOVED if relation is Relation.REPLACE_ONE else Change.ADDED


def _quieter(tree: Tree, root: SquareRoot, change: Change) -> Tree | SquareRoot:
    return tree if tree.gaussian_variance(change) <= root.gaussian_variance(change) else root


def _check_leaves(kind: Tree | Hierarchy | SquareRoot, leaves: int) -> None:
    if kind.leaves != leaves:
        raise AccountingError(f"Expected noise for {leaves} counts, got {kind}")
