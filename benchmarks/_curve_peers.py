"""What private curves are compared with: the thesis' forms, OpenDP's tree and quantiles, and what no mechanism beats.

OpenDP is an optional peer: `pip install opendp`, or a folder that holds it on PYTHONPATH. Without it its columns are
empty. "The thesis" is "Enhancing differentially private machine learning", chapter 6.
"""

from functools import cache
from math import ceil, log2
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clipless.curves.grid import Grid
from clipless.curves.release import Laplace
from clipless.curves.tree import Change, Tree

Floats = NDArray[np.float64]


def thesis_noise(epsilon: float, leaves: int, change: Change) -> Laplace:
    """Theorem 6.3.1: scale (L + 1) / epsilon at each node, on the tree to the root."""
    tree = Tree.binary(leaves)
    return Laplace(epsilon * tree.laplace_change(change) / (levels(leaves) + 1), tree)


def levels(leaves: int) -> int:
    """L."""
    return ceil(log2(leaves)) if leaves > 1 else 0


def algorithm_10(
    scores_R: Floats, positive_R: NDArray[np.bool_], grid: Grid, epsilon: float, generator: np.random.Generator
) -> float:
    """The thesis' private Hosmer-Lemeshow statistic of ten groups."""
    share = 1.0 / (epsilon / (levels(len(grid)) + 9))
    tree = Tree.binary(len(grid))
    counts = grid.counts(scores_R) + tree.path_sums([generator.laplace(0, share, size) for size in tree.sizes()])
    wanted = np.arange(1, 10) / 10 * len(scores_R)
    inner = grid.thresholds[np.minimum(np.searchsorted(np.maximum.accumulate(counts), wanted), len(grid) - 1)]
    groups = np.searchsorted(inner, scores_R, side="left")
    sums = [np.bincount(groups, values, 10) for values in (scores_R, 1.0 - scores_R, positive_R, ~positive_R)]
    e1, e0, o1, o0 = (found + generator.laplace(0, share, 10) for found in sums)
    e1, e0 = np.maximum(e1, 0.5), np.maximum(e0, 0.5)
    return float(np.sum((o1 - e1) ** 2 / e1 + (o0 - e0) ** 2 / e0))


def least_gaussian_variance(leaves: int) -> float:
    """No Gaussian factorisation of sums up to a threshold has less at multiplier 1: (nuclear norm / N)^2."""
    angles = (2.0 * np.arange(1, leaves + 1) - 1.0) * np.pi / (4.0 * leaves + 2.0)
    return float(np.sum(0.5 / np.sin(angles)) / leaves) ** 2


@cache
def opendp() -> ModuleType | None:
    """OpenDP, if it is there."""
    try:
        import opendp.prelude as library  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    library.enable_features("contrib")
    found: ModuleType = library
    return found


def opendp_counts(bins_N: Floats, epsilon: float, releases: int) -> Floats:
    """OpenDP's counts up to each leaf of its tree with the branching factor it chooses, (releases, N)."""
    library = opendp()
    assert library is not None
    leaves, branching = len(bins_N), library.t.choose_branching_factor(len(bins_N))
    space = library.vector_domain(library.atom_domain(T="i32"), size=leaves), library.l1_distance(T="i32")
    tree = library.t.make_b_ary_tree(*space, leaf_count=leaves, branching_factor=branching)
    scale = library.binary_search_param(lambda s: tree >> library.m.then_laplace(scale=s), d_in=1, d_out=epsilon)
    measurement = tree >> library.m.then_laplace(scale=scale)
    agree = library.t.make_consistent_b_ary_tree(branching, TIA="i32", TOA="f64")
    given = [int(count) for count in bins_N]
    return np.array([np.cumsum(agree(measurement(given)))[:leaves] for _ in range(releases)])


def opendp_quantiles(values_R: Floats, grid: Grid, shares: Floats, epsilon: float) -> Floats:
    """OpenDP's quantiles one by one, each with its part of epsilon, among the thresholds as candidates."""
    library: Any = opendp()
    space = library.vector_domain(library.atom_domain(T=float, nan=False)), library.symmetric_distance()
    candidates, part = grid.thresholds.tolist(), epsilon / len(shares)

    def made(alpha: float, scale: float) -> Any:
        quantile = library.m.then_private_quantile(library.max_divergence(), candidates, alpha, scale)
        return space >> quantile

    found = []
    for alpha in shares.tolist():
        scale = library.binary_search_param(lambda s, a=alpha: made(a, s), d_in=1, d_out=part, T=float)
        found.append(made(alpha, scale)(values_R.tolist()))
    return np.array(found)
