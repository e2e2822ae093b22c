"""Every way of sharing the noise composes to the same multiplier; one has the least variance."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from clipless import TauCCE, make_plan, zoo
from clipless.privacy.allocation import NoiseAllocation, noise_multipliers

SENSITIVITIES = {"a": 11.3, "b": 4.0, "c": 0.7}
SIZES = {"a": 144, "b": 18432, "c": 1280}
PROBLEMS = st.lists(st.tuples(st.floats(1e-4, 1e4), st.integers(1, 10**7)), min_size=1, max_size=8)
quick = settings(max_examples=100, deadline=None, derandomize=True, database=None)


def composed_multiplier(multipliers):
    """(sum_k sigma_k^-2)^-1/2: Gaussian mechanisms side by side are one."""
    return sum(sigma**-2 for sigma in multipliers.values()) ** -0.5


def allocate(allocation, sensitivities=SENSITIVITIES, sizes=SIZES, sigma=1.0):
    return noise_multipliers(allocation, sigma, sensitivities, sizes)


def variance(multipliers, sensitivities=SENSITIVITIES, sizes=SIZES):
    return sum(sizes[k] * (multipliers[k] * sensitivities[k]) ** 2 for k in sensitivities)


def named(problem):
    return {str(i): delta for i, (delta, _) in enumerate(problem)}, {str(i): d for i, (_, d) in enumerate(problem)}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("allocation", NoiseAllocation)
@given(problem=PROBLEMS, sigma=st.floats(0.1, 100))
@quick
def test_every_allocation_composes_to_the_requested_multiplier(allocation, problem, sigma):
    multipliers = noise_multipliers(allocation, sigma, *named(problem))
    assert composed_multiplier(multipliers) == pytest.approx(sigma, rel=1e-9)


@given(problem=PROBLEMS, seed=st.integers(0, 10**6))
@quick
def test_no_other_allocation_of_the_same_privacy_has_less_variance(problem, seed):
    sensitivities, sizes = named(problem)
    least = variance(allocate(NoiseAllocation.MIN_VARIANCE, sensitivities, sizes), sensitivities, sizes)
    generator = np.random.default_rng(seed)
    for _ in range(20):
        shares = generator.dirichlet(np.full(len(problem), 0.5)) + 1e-12
        rival = dict(zip(sensitivities, (shares / shares.sum()) ** -0.5, strict=True))
        assert composed_multiplier(rival) == pytest.approx(1.0)
        assert least <= variance(rival, sensitivities, sizes) * (1 + 1e-9)


def test_a_numerical_optimiser_finds_no_less_variance():
    names = list(SENSITIVITIES)

    def objective(logits):
        shares = np.exp(logits) / np.exp(logits).sum()  # sigma_k^-2, adding up to 1
        return np.log(variance(dict(zip(names, shares**-0.5, strict=True))))

    found = np.exp(optimize.minimize(objective, np.zeros(3), tol=1e-12).fun)
    assert variance(allocate(NoiseAllocation.MIN_VARIANCE)) == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("sigma", [0.5, 3.0])
def test_variances_are_those_of_the_formulas(sigma):
    deltas, sizes = SENSITIVITIES.values(), SIZES.values()
    loads = [delta * sqrt(size) for delta, size in zip(deltas, sizes, strict=True)]
    expected = {
        NoiseAllocation.GLOBAL: sum(d**2 for d in deltas) * sum(sizes),
        NoiseAllocation.PER_LAYER: len(loads) * sum(load**2 for load in loads),
        NoiseAllocation.MIN_VARIANCE: sum(loads) ** 2,
    }
    for allocation, value in expected.items():
        assert variance(allocate(allocation, sigma=sigma)) == pytest.approx(sigma**2 * value)


def test_one_parameter_receives_the_requested_multiplier_whatever_the_allocation():
    for allocation in NoiseAllocation:
        assert allocate(allocation, {"only": 3.0}, {"only": 100}, 2.0) == {"only": pytest.approx(2.0)}


def test_global_noise_is_the_same_everywhere():
    multipliers = allocate(NoiseAllocation.GLOBAL)
    stds = [multipliers[name] * SENSITIVITIES[name] for name in SENSITIVITIES]
    assert stds == pytest.approx([sqrt(sum(d**2 for d in SENSITIVITIES.values()))] * 3)


def norms(sensitivities, sizes):
    """Of the whole noise, by allocation."""
    return {a: sqrt(variance(allocate(a, sensitivities, sizes), sensitivities, sizes)) for a in NoiseAllocation}


def test_least_variance_saves_much_where_sensitivities_differ():
    norm = norms(SENSITIVITIES, SIZES)
    assert norm[NoiseAllocation.MIN_VARIANCE] < 0.75 * norm[NoiseAllocation.PER_LAYER]
    assert norm[NoiseAllocation.MIN_VARIANCE] < 0.45 * norm[NoiseAllocation.GLOBAL]


def test_least_variance_saves_a_third_on_a_small_convolutional_network():
    model = zoo.convnet((1, 28, 28), 10, input_norm=5.0, width=16, depth=2, hidden=64)
    plan = make_plan(model, TauCCE(), population=60_000, batch_size=1000, delta=1e-5, noise_multiplier=1.0, epochs=1)
    norm = norms(plan.sensitivities, plan.sizes)
    assert norm[NoiseAllocation.MIN_VARIANCE] < 0.66 * norm[NoiseAllocation.PER_LAYER]
    assert norm[NoiseAllocation.MIN_VARIANCE] < 0.66 * norm[NoiseAllocation.GLOBAL]


def test_an_unknown_allocation_is_refused():
    with pytest.raises(AssertionError, match="unreachable"):
        allocate("min-variance")
