"""Private distribution functions: privacy by enumeration, errors by their law, and what is read off them."""

from math import exp

import numpy as np
import pytest
from scipy.stats import norm

from clipless.curves import ecdf as module
from clipless.curves.ecdf import PrivateEcdf, PublicSource, largest_noise, release_ecdf
from clipless.curves.grid import Grid
from clipless.curves.release import Gaussian, Laplace
from clipless.curves.smoothing import smooth
from clipless.curves.toeplitz import SquareRoot
from clipless.curves.tree import Change, Tree
from clipless.errors import AccountingError, DataError
from clipless.privacy.discrete_noise import discrete_laplace, scale_at_least
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.testing import SeededSource

RELATIONS = [Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE]
GRID = Grid.linear(-3.0, 3.0, 257)
VALUES = np.random.default_rng(0).normal(size=5000)


def released(mechanism, values=VALUES, grid=GRID, relation=Relation.REPLACE_ONE, seed=0):
    return release_ecdf(values, grid, mechanism, population=len(values), relation=relation, source=SeededSource(seed))


def law(tree, scale, reach):
    """The law of the noise in all counts: probabilities by whole numbers, which nodes up to ``reach`` lead to."""
    ratio, sizes = exp(-1 / scale), tree.sizes()
    drawn = np.indices((2 * reach + 1,) * sum(sizes)).reshape(sum(sizes), -1) - reach
    masses = np.prod((1 - ratio) / (1 + ratio) * ratio ** np.abs(drawn), axis=0)
    sums = tree.path_sums(np.split(drawn.astype(float), np.cumsum(sizes)[:-1]))
    most = reach * (tree.height + 1)
    found = np.zeros((2 * most + 1,) * tree.leaves)
    np.add.at(found, tuple(sums.astype(int) + most), masses)
    return found


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("tree", [Tree.binary(2), Tree(3, 3, 1), Tree(3, 2, 0)], ids=str)
def test_no_released_curve_is_likelier_for_a_neighbour_than_epsilon_allows(tree, relation):
    """Every curve that noise of up to 9 at each node leads to, under both data sets; those in the middle, by bins."""
    epsilon, change = 2.0, Change.MOVED if relation is Relation.REPLACE_ONE else Change.ADDED
    curves, leaves = law(tree, tree.laplace_change(change) / epsilon, 9), tree.leaves
    worst, middle = 0.0, tuple(slice(size // 2 - 2, size // 2 + 3) for size in curves.shape)
    for start in range(leaves):
        for end in range(start + 1, leaves + 1) if change is Change.MOVED else [leaves]:
            shift = tuple(int(start <= leaf < end) for leaf in range(leaves))
            other = np.roll(curves, shift, axis=tuple(range(leaves)))
            worst = max(worst, np.abs(np.log(curves[middle] / other[middle])).max())
    assert 0.6 * epsilon < worst <= epsilon * (1 + 1e-4)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(
    "mechanism", [Laplace(0.7), Laplace(0.7, Tree.binary(256)), Gaussian(1.5), Gaussian(1.5, Tree.binary(256))], ids=str
)
def test_shares_have_the_stated_deviation(mechanism, relation):
    errors = []
    for seed in range(40):
        curve = released(mechanism, relation=relation, seed=seed)
        errors.append((curve.shares - GRID.counts(VALUES) / len(VALUES))[:-1])
    observed = np.sqrt(np.mean(np.square(errors), axis=0))
    assert observed.max() < curve.deviation * 1.5
    worst = observed[-64:] if mechanism == Gaussian(1.5) else observed  # the square root's grows with the threshold
    assert np.sqrt(np.mean(worst**2)) == pytest.approx(curve.deviation, rel=0.15)


@pytest.mark.long
def test_the_squared_error_is_that_of_the_thesis_at_its_scale():
    """2 (L + 1)^3 / epsilon^2 with noise of scale (L + 1) / epsilon, within 3 %."""
    tree, epsilon = Tree.binary(256), 1.0
    ours = tree.laplace_change(Change.MOVED)
    asked = epsilon * ours / (tree.height + 1)  # the scale that the thesis has at epsilon
    scale = scale_at_least(ours / asked)
    drawn = [discrete_laplace(800 * size, scale, SeededSource(1)).reshape(size, 800) for size in tree.sizes()]
    errors = tree.path_sums([levels.astype(float) for levels in drawn])
    assert np.mean(np.square(errors)) == pytest.approx(2 * (tree.height + 1) ** 3 / epsilon**2, rel=0.03)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_gaussian_curve_is_one_gaussian_mechanism_for_the_ledger(relation):
    """A neighbour's curve lies at most 1 / sigma away, in units of the noise; an event of a replaced row counts two."""
    tree, sigma = Tree.binary(8), 3.0
    change = Change.MOVED if relation is Relation.REPLACE_ONE else Change.ADDED
    mechanism = Gaussian(sigma, tree)
    draws = np.array([mechanism.noise(8, change, SeededSource(seed)) for seed in range(1500)])
    precision = np.linalg.inv(np.cov(draws.T))
    worst = max(
        np.array([float(a <= i < b) for i in range(8)]) @ precision @ [float(a <= i < b) for i in range(8)]
        for a in range(8)
        for b in (range(a + 1, 9) if change is Change.MOVED else [8])
    )
    assert np.sqrt(worst) == pytest.approx(1 / sigma, rel=0.08)
    factor = 2.0 if relation is Relation.REPLACE_ONE else 1.0
    assert mechanism.event(relation) == PoissonGaussian(
        noise_multiplier=factor * sigma, sampling_rate=1.0, steps=1, relation=relation
    )


def test_without_noise_the_curve_is_the_distribution_function(monkeypatch):
    monkeypatch.setattr(Laplace, "release", lambda _self, counts, _change, _source: counts)
    curve = released(Laplace(1.0))
    for t in (-4.0, -3.0, -0.123, 0.0, 1.7, 2.99, 3.0, 9.0):
        below = GRID.thresholds[GRID.thresholds <= t]
        expected = np.mean(np.clip(VALUES, None, 3.0) <= below[-1]) if len(below) else 0.0
        assert curve(np.array([t]))[0] == pytest.approx(expected)
    np.testing.assert_allclose(curve.quantiles([0.1, 0.5, 0.9]), np.quantile(VALUES, [0.1, 0.5, 0.9]), atol=6 / 256)
    assert curve.inverse(1.0) == 3.0
    assert curve.inverse(0.0) == -3.0
    np.testing.assert_allclose(curve.histogram([-4, 0, 1, 3]).sum(), 1.0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300, -1e300, -3.0, 3.0, 0.0])
def test_one_row_of_any_value_adds_one_from_a_threshold_on(value):
    before, after = GRID.counts(VALUES), GRID.counts(np.append(VALUES, value))
    changed = after - before
    assert set(changed) <= {0.0, 1.0}
    assert (np.diff(changed) >= 0).all()
    assert changed[-1] == 1.0


def test_noise_does_not_look_at_the_rows():
    other = released(Laplace(1.0), values=-VALUES)
    ours = released(Laplace(1.0))
    difference = (ours.shares - other.shares) * len(VALUES)
    np.testing.assert_allclose(difference, GRID.counts(VALUES) - GRID.counts(-VALUES), atol=1e-9)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_released_curve_has_noise_for_what_its_relation_says(relation):
    change = Change.MOVED if relation is Relation.REPLACE_ONE else Change.ADDED
    noise = (released(Laplace(1.0), relation=relation).shares * len(VALUES) - GRID.counts(VALUES))[:-1]
    np.testing.assert_allclose(noise, Laplace(1.0).noise(len(GRID) - 1, change, SeededSource(0)), atol=1e-6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sampling", [False, True])
def test_a_band_covers_the_truth_as_often_as_it_says(sampling):
    curves = [released(Gaussian(20.0), seed=seed) for seed in range(100)]
    width = curves[0].band(0.9, draws=200, sampling=sampling)  # of the mechanism, the same for each
    covered = sum(np.abs(curve.shares - GRID.counts(VALUES) / len(VALUES)).max() <= width for curve in curves)
    assert covered >= 80
    assert covered <= 99 or sampling


class OneNormal:
    """Noise of one threshold, a normal, that counts how often it was drawn."""

    def __init__(self, seed=0):
        self.generator, self.drawn = np.random.default_rng(seed), 0

    def noise(self, *_):
        self.drawn += 1
        return self.generator.standard_normal(1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("risk", [0.05, 0.0005])
def test_noise_exceeds_its_bound_with_the_risk_however_small(risk):
    for draws, runs in ((19, 60), (200, 20)):
        bounds = [largest_noise(OneNormal(seed), 1, Change.ADDED, risk, draws=draws) for seed in range(runs)]
        assert 0.6 * risk < np.mean(2 * norm.sf(bounds)) < 1.4 * risk


def test_noise_is_simulated_once_and_as_often_as_its_risk_needs():
    one = OneNormal()
    wide, narrow = (largest_noise(one, 1, Change.ADDED, risk) for risk in (0.025, 0.1))
    assert (one.drawn, wide > narrow) == (400, True)
    largest_noise(one, 1, Change.ADDED, 0.001)
    assert one.drawn == 400 + 9999


def test_a_risk_that_no_simulation_reaches_is_refused():
    with pytest.raises(DataError, match="Expected a risk that 40000 draws tell, got"):
        released(Laplace(1.0)).band(1.0 - 5e-5)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("way", ["isotonic", 1, 2])
def test_smoothing_makes_a_curve_increase_and_reduces_its_error(way):
    truth, before, after = GRID.counts(VALUES) / len(VALUES), 0.0, 0.0
    for seed in range(5):
        curve = released(Laplace(0.1, Tree.binary(256)), seed=seed)
        found = smooth(curve, way)
        assert (np.diff(found.shares) >= 0).all()
        assert found.shares[0] >= 0.0
        assert found.shares[-1] == 1.0
        before += np.mean((curve.shares - truth) ** 2)
        after += np.mean((found.shares - truth) ** 2)
    assert after < 0.7 * before


@pytest.mark.parametrize("way", [1, 2])
def test_the_programs_find_the_smallest_change_of_the_nodes(way):
    """Two thresholds and three nodes: shares 0.6 and 0.2 have to meet."""
    curve = PrivateEcdf(
        Grid(np.array([0.0, 1.0, 2.0])),
        np.array([0.6, 0.2, 1.0]),
        10,
        Laplace(1.0, Tree.binary(2)),
        Relation.REPLACE_ONE,
    )
    found = smooth(curve, way).shares
    assert found[1] == pytest.approx(found[0], abs=1e-6)
    assert 0.2 - 1e-6 <= found[0] <= 0.6 + 1e-6
    if way == 2:
        assert found[0] == pytest.approx(0.4, abs=1e-6)


def test_a_curve_that_increases_stays_as_it_is():
    curve = released(Laplace(1e4, Tree.binary(256)))
    increasing = smooth(curve)
    for way in ("isotonic", 1, 2):
        np.testing.assert_allclose(smooth(increasing, way).shares, increasing.shares, atol=1e-7)


def test_the_programs_can_look_at_some_thresholds_only():
    found = smooth(released(Laplace(0.2, Tree.binary(256))), 2, at=range(0, 256, 32))
    assert (np.diff(found.shares) >= 0).all()
    assert len(np.unique(found.shares[:-1])) <= 8


def test_the_programs_want_the_noise_of_a_tree():
    with pytest.raises(DataError, match="use 'isotonic'"):
        smooth(released(Gaussian(1.0, SquareRoot(256))), 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Grid(np.array([0.0])),
        lambda: Grid(np.array([0.0, 0.0])),
        lambda: Grid(np.array([0.0, np.nan])),
        lambda: Grid.linear(1.0, 0.0, 5),
        lambda: Grid.linear(0.0, np.inf, 5),
        lambda: Grid.logarithmic(0.0, 1.0, 5),
        lambda: Laplace(0.0),
        lambda: Laplace(float("inf")),
        lambda: Gaussian(0.0),
        lambda: released(Laplace(1.0, Tree.binary(8))),
        lambda: release_ecdf(VALUES, GRID, Laplace(1.0), population=0),
        lambda: released(Laplace(1.0)).band(1.0),
    ],
)
def test_what_cannot_be_released_is_refused(make):
    with pytest.raises((AccountingError, DataError), match="Expected"):
        make()


def test_simulated_noise_says_that_it_is_not_secret():
    assert not PublicSource().secure
    assert PublicSource(3).random_bytes(8) == PublicSource(3).random_bytes(8)


def test_a_release_draws_from_a_secure_source_unless_told_otherwise(monkeypatch):
    made = []
    monkeypatch.setattr(module, "SecureSource", lambda: made.append(1) or SeededSource(0))
    release_ecdf(VALUES, GRID, Laplace(1.0), population=len(VALUES))
    assert made == [1]
