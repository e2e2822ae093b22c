"""How much noise hides one row in a curve: by linear programs, by matrices, by enumeration."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import linprog

from clipless.curves.toeplitz import SquareRoot
from clipless.curves.tree import Change, Tree, best_tree, depth
from clipless.errors import AccountingError

FULL = [Tree.binary(2**level) for level in range(5)]
OTHERS = [Tree(16, 2, 2), Tree(9, 3, 2), Tree(16, 4, 2), Tree(12, 4, 1), Tree(10, 5, 1), Tree(7, 7, 1)]
CUT = [Tree.binary(11), Tree(20, 3, 2), Tree(10, 4, 1), Tree(6, 2, 0)]


def above(tree):
    """Z: which node lies above which leaf."""
    columns = [
        [(leaf // tree.base**level) == node for leaf in range(tree.leaves)]
        for level, size in enumerate(tree.sizes())
        for node in range(size)
    ]
    return np.array(columns, dtype=float).T


def changes(leaves, change):
    """Every indicator of leaves that one row changes in one curve."""
    ends = combinations(range(leaves + 1), 2) if change is Change.MOVED else ((a, leaves) for a in range(leaves))
    for start, end in ends:
        indicator = np.zeros(leaves)
        indicator[start:end] = 1.0
        yield indicator


def least_absolute(nodes, indicator):
    return linprog(np.ones(2 * nodes.shape[1]), A_eq=np.hstack([nodes, -nodes]), b_eq=indicator, method="highs").fun


@pytest.mark.sampled(5)
@pytest.mark.parametrize("change", [Change.ADDED, Change.MOVED])
@pytest.mark.parametrize("tree", FULL + OTHERS, ids=str)
def test_laplace_noise_is_scaled_for_the_cheapest_shift_of_the_worst_row(tree, change):
    nodes = above(tree)
    worst = max(least_absolute(nodes, indicator) for indicator in changes(tree.leaves, change))
    assert tree.laplace_change(change) == pytest.approx(worst)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("change", [Change.ADDED, Change.MOVED])
@pytest.mark.parametrize("tree", CUT, ids=str)
def test_a_tree_that_is_cut_off_is_never_scaled_for_less_than_the_worst_row(tree, change):
    nodes = above(tree)
    worst = max(least_absolute(nodes, indicator) for indicator in changes(tree.leaves, change))
    assert tree.laplace_change(change) >= worst - 1e-9
    mahalanobis = np.linalg.inv(nodes @ nodes.T)
    assert tree.gaussian_change(change) >= max(i @ mahalanobis @ i for i in changes(tree.leaves, change))


@pytest.mark.parametrize("level", range(1, 20))
def test_a_binary_tree_needs_as_many_nodes_as_it_is_high_and_half_of_them_for_one_end(level):
    tree = Tree.binary(2**level)
    assert tree.laplace_change(Change.MOVED) == level
    assert tree.laplace_change(Change.ADDED) == level // 2 + 1
    assert tree.laplace_variance(Change.MOVED) == 2 * (level + 1) * level**2  # the thesis has 2 (L + 1)^3


@pytest.mark.parametrize("change", [Change.ADDED, Change.MOVED])
@pytest.mark.parametrize("tree", FULL + OTHERS, ids=str)
def test_gaussian_noise_is_scaled_for_the_largest_distance_that_a_row_can_cause(tree, change):
    nodes = above(tree)
    mahalanobis = np.linalg.inv(nodes @ nodes.T)
    worst = max(indicator @ mahalanobis @ indicator for indicator in changes(tree.leaves, change))
    assert worst <= tree.gaussian_change(change) <= worst * (1 + 1e-8)


@pytest.mark.parametrize("change", [Change.ADDED, Change.MOVED])
@pytest.mark.parametrize("leaves", [1, 2, 5, 33])
def test_the_square_root_is_scaled_for_the_largest_change_of_what_it_hides(leaves, change):
    kind = SquareRoot(leaves)
    root = np.array([kind.spread(column) for column in np.eye(leaves)]).T
    np.testing.assert_allclose(root @ root, np.tril(np.ones((leaves, leaves))), atol=1e-12)
    inverse = np.linalg.inv(root)
    worst = max(np.sum((inverse @ indicator) ** 2) for indicator in changes(leaves, change))
    assert worst <= kind.gaussian_change(change) <= worst * (1 + 1e-8)
    assert kind.gaussian_variance(change) == pytest.approx(worst * np.sum(root**2, axis=1).max())


def test_beyond_what_is_looked_at_pair_by_pair_the_square_root_is_scaled_for_more():
    exact, bounded = SquareRoot(2048).gaussian_change(Change.MOVED), SquareRoot(2049).gaussian_change(Change.MOVED)
    assert exact < bounded < 2 * SquareRoot(2049).gaussian_change(Change.ADDED) * (1 + 1e-8)


@pytest.mark.parametrize("kind", [Tree.binary(64), SquareRoot(64)], ids=str)
def test_a_row_with_another_label_is_the_worse_of_a_move_and_of_two_curves(kind):
    added, moved = kind.gaussian_change(Change.ADDED), kind.gaussian_change(Change.MOVED)
    assert kind.gaussian_change(Change.RELABELLED) == max(moved, 2 * added)


def test_noise_of_a_leaf_is_that_of_the_nodes_above_it():
    tree = Tree(6, 2, 2)
    assert tree.sizes() == (6, 3, 2)
    sums = tree.path_sums([np.arange(6.0), 10 * np.arange(3.0), 100 * np.arange(2.0)])
    np.testing.assert_array_equal(sums, [0, 1, 12, 13, 124, 125])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("gaussian", [False, True])
def test_the_best_tree_is_no_worse_than_the_binary_one(gaussian):
    for leaves in (2, 10, 100, 1000):
        best, binary = best_tree(leaves, Change.MOVED, gaussian=gaussian), Tree.binary(leaves)
        variances = [
            tree.gaussian_variance(Change.MOVED) if gaussian else tree.laplace_variance(Change.MOVED)
            for tree in (best, binary)
        ]
        assert variances[0] <= variances[1]


@pytest.mark.parametrize(("leaves", "base", "height"), [(0, 2, 0), (4, 1, 1), (4, 2, 3), (4, 2, -1), (2**20 + 1, 2, 1)])
def test_what_is_no_tree_is_refused(leaves, base, height):
    with pytest.raises(AccountingError):
        Tree(leaves, base, height)


def test_depth_is_the_least_that_covers_all_leaves():
    assert [depth(leaves, 2) for leaves in (1, 2, 3, 4, 5)] == [0, 1, 2, 2, 3]
