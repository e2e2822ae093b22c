"""Noisy sums of blocks that are made to agree: best linear fit, what one row changes, and nothing but noisy nodes."""

import numpy as np
import pytest

from clipless.curves import release as release_module
from clipless.curves.hierarchy import Hierarchy, best_hierarchy
from clipless.curves.release import Laplace
from clipless.curves.tree import Change, Tree, best_tree
from clipless.errors import AccountingError
from clipless.privacy.discrete_noise import scale_at_least
from clipless.testing import SeededSource

FORESTS = [
    Hierarchy(1),
    Hierarchy(7, 2, 3),
    Hierarchy(10, 3, 3),
    Hierarchy(37, 6, 2),
    Hierarchy(16, 4, 2),
    Hierarchy(5, 2, 4),
]


def matrix(forest):
    """Which leaves each node sums, level by level."""
    return np.vstack([level.reshape(-1, forest.leaves) for level in _levels(forest)])


def _levels(forest):
    for level, size in enumerate(forest.sizes()):
        above = np.zeros((size, forest.leaves))
        above[np.arange(forest.leaves) // forest.base**level, np.arange(forest.leaves)] = 1.0
        yield above


@pytest.mark.parametrize("forest", FORESTS, ids=str)
def test_counts_are_those_of_the_leaves_that_fit_the_nodes_best(forest):
    sums, generator = matrix(forest), np.random.default_rng(0)
    up_to = np.tril(np.ones((forest.leaves, forest.leaves))) @ np.linalg.pinv(sums)
    drawn = generator.normal(size=len(sums))
    nodes = np.split(drawn, np.cumsum(forest.sizes())[:-1])
    np.testing.assert_allclose(forest.reconcile(nodes), up_to @ drawn, atol=1e-10)
    np.testing.assert_allclose(forest.variances(), np.diag(up_to @ up_to.T), atol=1e-10)
    leaves = generator.integers(0, 9, forest.leaves).astype(float)
    np.testing.assert_allclose(np.concatenate(forest.sums(leaves)), sums @ leaves)
    np.testing.assert_allclose(forest.reconcile(forest.sums(leaves)), np.cumsum(leaves), atol=1e-9)


@pytest.mark.parametrize("forest", FORESTS, ids=str)
def test_no_row_changes_all_nodes_together_by_more_than_noise_is_scaled_for(forest):
    """Every neighbour: a value more, one moved anywhere or beyond all thresholds, one that changes its class."""
    columns = matrix(forest).T
    added = max(np.abs(column).sum() for column in columns)
    moved = max(np.abs(first - second).sum() for first in (*columns, 0.0 * columns[0]) for second in columns)
    assert added == forest.laplace_change(Change.ADDED)
    assert moved <= forest.laplace_change(Change.MOVED)
    assert max(moved, 2.0 * added) <= forest.laplace_change(Change.RELABELLED)


@pytest.mark.parametrize("change", list(Change))
@pytest.mark.parametrize("forest", FORESTS[1:4], ids=str)
def test_the_noise_of_every_node_has_the_scale_of_what_one_row_changes(monkeypatch, forest, change):
    asked = []

    def watched(size, scale, _source):
        asked.append((size, scale))
        return np.zeros(size, dtype=np.int64)

    monkeypatch.setattr(release_module, "discrete_laplace", watched)
    Laplace(0.3, forest).release(np.arange(float(forest.leaves)), change, SeededSource(0))
    assert [size for size, _ in asked] == list(forest.sizes())
    assert {scale for _, scale in asked} == {scale_at_least(forest.laplace_change(change) / 0.3)}


def test_what_is_released_depends_on_noisy_nodes_and_on_nothing_else(monkeypatch):
    """A row more with noise that hides it leads to the same bits: no rounding shows which of the two it was."""
    forest, generator = Hierarchy(37, 6, 3), np.random.default_rng(1)
    leaves = np.zeros(37)  # so that no larger number swallows the last bits
    noise = [generator.integers(-40, 40, size) for size in forest.sizes()]
    for row in range(37):
        more = leaves.copy()
        more[row] += 1.0
        hidden = [
            drawn - (second - first)
            for drawn, first, second in zip(noise, forest.sums(leaves), forest.sums(more), strict=True)
        ]
        found = []
        for values, drawn in ((leaves, noise), (more, hidden)):
            waiting = iter(drawn)
            monkeypatch.setattr(
                release_module, "discrete_laplace", lambda *_, waiting=waiting: np.asarray(next(waiting))
            )
            found.append(Laplace(1.0, forest).release(np.cumsum(values), Change.ADDED, SeededSource(0)))
        assert found[0].tobytes() == found[1].tobytes()


@pytest.mark.long
@pytest.mark.parametrize("leaves", [16, pytest.param(127, marks=pytest.mark.long)])
def test_counts_have_the_stated_mean_error(leaves):
    mechanism, source = Laplace(0.5), SeededSource(3)
    forest = mechanism.kind_for(leaves, Change.ADDED)
    chosen = Laplace(0.5, forest)  # which is not looked for at every draw
    found = np.mean([chosen.noise(leaves, Change.ADDED, source) ** 2 for _ in range(800)])
    assert found == pytest.approx(forest.laplace_variance(Change.ADDED) / 0.25, rel=0.08)
    assert mechanism.deviation(leaves, Change.ADDED) == pytest.approx(np.sqrt(found), rel=0.05)


@pytest.mark.parametrize("change", list(Change))
@pytest.mark.parametrize("leaves", [3, 8, 31, 128, 1000, 4096])
def test_the_default_is_the_quietest_there_is(leaves, change):
    tree, kind = best_tree(leaves, change, gaussian=False), Laplace(1.0).kind_for(leaves, change)
    assert kind.laplace_variance(change) <= min(
        tree.laplace_variance(change), best_hierarchy(leaves).laplace_variance(change)
    )
    if leaves >= 8:
        assert isinstance(kind, Hierarchy)
        assert kind.laplace_variance(change) < 0.6 * tree.laplace_variance(change)


def test_a_tree_or_hierarchy_of_another_length_is_refused():
    for kind in (Tree.binary(8), Hierarchy(8)):
        with pytest.raises(AccountingError, match="Expected noise for 9 counts"):
            Laplace(1.0, kind).release(np.zeros(9), Change.ADDED, SeededSource(0))
    for wrong in ({"leaves": 0}, {"leaves": 4, "base": 1}, {"leaves": 4, "levels": 0}):
        with pytest.raises(AccountingError, match="Expected 1 to"):
            Hierarchy(**wrong)
