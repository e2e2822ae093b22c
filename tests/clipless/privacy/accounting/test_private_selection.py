"""Private selection: the law of the number of candidates, and a price that no selection on paper exceeds."""

import inspect
import json
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from scipy import stats

from clipless.errors import AccountantsDisagreeError, AccountingError
from clipless.privacy.accounting import renyi, selection_price, selection_profile
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.accounting.pld_grid import LossGrid
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.selection_price import profile_epsilon, rdp_selection_epsilon, selection_epsilon
from clipless.privacy.accounting.selection_profile import largest_tails, log_ratio
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.randomness import RandomSource, SecureSource
from clipless.testing import SeededSource

DELTA = 1e-5


def spent(noise_multiplier, sampling_rate, steps, relation=Relation.ADD_OR_REMOVE_ONE):
    return PoissonGaussian(
        noise_multiplier=noise_multiplier, sampling_rate=sampling_rate, steps=steps, relation=relation
    )


class WordSource(RandomSource):
    """Gives the 128-bit numbers that it was made with, one after the other."""

    def __init__(self, *words):
        self._words = iter(words)

    @property
    def secure(self):
        return False

    def random_bytes(self, count):
        assert count == 16
        return bytearray(next(self._words).to_bytes(count, "big"))


def paper_law(repetitions, most):
    """Probabilities of K = 0 .. most as definition 1 of the paper writes them, and gamma, from the mean alone."""
    gamma = 1.0 / repetitions.mean
    p = np.exp(np.arange(most + 1) * math.log1p(-gamma)) / (1 / gamma - 1)
    p[0] = 0.0
    return p, gamma


# --- the number of candidates


def test_drawn_numbers_follow_the_law_of_the_paper():
    repetitions, draws = Repetitions(mean=6.0), 1000
    source = SeededSource(7)
    counts = np.bincount([repetitions.draw(source) for _ in range(draws)], minlength=400)
    expected = draws * paper_law(repetitions, len(counts) - 1)[0]
    assert not counts[expected == 0.0].any()
    edges = [0, *np.searchsorted(np.cumsum(expected), np.arange(50, draws, 50)) + 1]
    edges = sorted(set(edges))
    seen, wanted = (np.add.reduceat(x, edges) for x in (counts.astype(float), expected))
    inside = wanted > 5.0
    statistic = ((seen - wanted) ** 2 / np.maximum(wanted, 1e-9))[inside].sum()
    assert stats.chi2.sf(statistic, inside.sum() - 1) > 1e-4


def test_a_draw_inverts_the_distribution_function_to_one_part_in_two_to_the_hundred():
    repetitions = Repetitions(mean=3.0)
    with localcontext(prec=60):
        rest = 1 - repetitions._drawn_gamma()
        for k in range(1, 7):
            border = int((1 - rest**k) * 2**128)
            assert repetitions.draw(WordSource(border - 2**28)) == k
            assert repetitions.draw(WordSource(border + 2**28)) == k + 1


@pytest.mark.parametrize("mean", [1.1, 4.0, 100.0, 1e4])
def test_what_is_drawn_is_at_most_what_is_priced(mean):
    with localcontext(prec=60):
        drawn = 1 / Repetitions(mean=mean)._drawn_gamma()
    assert Decimal(mean) * (1 - Decimal("3e-12")) <= drawn <= Decimal(mean)


def test_the_least_uniform_number_and_the_largest_end_every_draw():
    assert Repetitions(mean=20.0).draw(WordSource(0)) == 1
    assert 20 < Repetitions(mean=20.0).draw(WordSource(2**128 - 1)) < 20_000


def test_no_seed_decides_the_number_unless_a_test_injects_one():
    assert inspect.signature(Repetitions.draw).parameters["source"].default is None
    numbers = {Repetitions(mean=100.0).draw() for _ in range(20)}
    assert len(numbers) > 5


@pytest.mark.parametrize(
    ("mean", "said"),
    [(1.0, "Expected 1.1 <= mean <= 10000, got mean=1.0"), (math.nan, "got mean=nan"), (1e5, "got mean=100000.0")],
)
def test_a_mean_that_is_none_is_refused(mean, said):
    with pytest.raises(AccountingError, match=said):
        Repetitions(mean=mean)


def test_a_law_travels_as_json_and_is_read_as_earlier_versions_wrote_it():
    repetitions = Repetitions(mean=7.0)
    assert Repetitions.from_json(json.loads(json.dumps(repetitions.to_json()))) == repetitions
    assert Repetitions.from_json({"distribution": "geometric", "mean": 7.0, "shape": None}) == repetitions


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({}, "Expected distribution and mean of a selection, got {}"),
        ("geometric", "Expected distribution and mean of a selection, got 'geometric'"),
        ({"distribution": "geometric", "mean": 2.0, "k": 3}, "Expected distribution and mean of a selection"),
        ({"distribution": "geometric", "mean": "2"}, "Expected the mean of a selection, got '2'"),
        (
            {"distribution": "poisson", "mean": 2.0, "shape": None},
            "geometric number of .*, got distribution='poisson'; ",
        ),
        ({"distribution": "negative-binomial", "mean": 2.0, "shape": 0.5}, "got distribution='negative-binomial'"),
        ({"distribution": "geometric", "mean": 2.0, "shape": 0.5}, "Expected a geometric number of candidates"),
    ],
)
def test_a_record_of_another_law_or_of_none_is_refused(record, said):
    with pytest.raises(AccountingError, match=said):
        Repetitions.from_json(record)


# --- the price


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("mean", "epsilon"), [(10, 6.65), (30, 7.54), (100, 8.39)])
def test_the_best_of_many_costs_what_the_paper_says(mean, epsilon):
    found = rdp_selection_epsilon(spent(3.0, 0.05, 2000), Repetitions(mean=mean), DELTA)
    assert found == pytest.approx(epsilon, rel=0.01)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("mean", "one_alpha", "epsilon", "attained"),
    [(10, 5.82, 5.03, 4.77), (30, 6.76, 5.82, 5.52), (100, 7.62, 6.63, 6.28)],
)
def test_profiles_price_the_best_of_many_lower(mean, one_alpha, epsilon, attained):
    """Worked out by hand on a coarser grid; a bound with one alpha for all tails, and what the worst order attains."""
    found = selection_epsilon(spent(3.0, 0.05, 2000), Repetitions(mean=mean), DELTA)
    assert attained < found <= epsilon < one_alpha
    assert found == pytest.approx(epsilon, rel=0.01)


def exact_ratio(mu, repetitions):
    """Supremum of the ratio for one Gaussian release, whose largest tail is known in closed form."""
    u = np.geomspace(1e-9, 1.0, 2_000_001)[:-1]
    v = stats.norm.cdf(stats.norm.ppf(u) + mu)
    _, gamma = paper_law(repetitions, 1)
    return 2 * np.log(np.max((gamma + (1 - gamma) * v) / (gamma + (1 - gamma) * u)))


def gaussian_profile(mu, epsilons):
    return stats.norm.cdf(mu / 2 - epsilons / mu) - np.exp(epsilons) * stats.norm.cdf(-mu / 2 - epsilons / mu)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mean", [1.1, 10.0, 1000.0])
def test_the_ratio_is_rounded_up_and_hardly_so(mean):
    repetitions, mu = Repetitions(mean=mean), 0.8
    epsilons = np.linspace(-12.0, 12.0, 20_001)
    found = log_ratio(epsilons, gaussian_profile(mu, epsilons), repetitions)
    exact = exact_ratio(mu, repetitions)
    assert exact <= found <= exact + 0.01 + 0.01 * exact


@pytest.mark.long
def test_coarse_cells_make_the_ratio_larger_and_never_smaller(monkeypatch):
    monkeypatch.setattr(selection_profile, "_CELLS", 12)
    epsilons = np.linspace(-12.0, 12.0, 20_001)
    found = log_ratio(epsilons, gaussian_profile(0.8, epsilons), Repetitions(mean=30.0))
    assert found > 1.05 * exact_ratio(0.8, Repetitions(mean=30.0))


def test_tails_are_bounded_by_the_best_of_all_points():
    epsilons = np.linspace(-6.0, 6.0, 301)
    deltas = gaussian_profile(1.5, epsilons)
    u = np.geomspace(1e-6, 1.0, 400)
    every = np.minimum(1.0, np.exp(epsilons)[:, None] * u + deltas[:, None])
    assert largest_tails(epsilons, deltas, u) == pytest.approx(every.min(axis=0), rel=1e-9)
    assert (largest_tails(epsilons, deltas, u) >= stats.norm.cdf(stats.norm.ppf(u) + 1.5) * (1 - 1e-12)).all()


@pytest.mark.parametrize(("trainings", "epsilon"), [(1, 3.55), (10, 13.6), (30, 27.7), (100, 68.9)])
def test_the_composition_of_as_many_costs_far_more(trainings, epsilon):
    assert rdp_epsilon(spent(3.0, 0.05, 2000 * trainings), DELTA) == pytest.approx(epsilon, rel=0.01)


def paper_price(event, repetitions, delta):
    """Theorem 2, minimised over one fine set of orders; moments from autodp, chords between whole orders."""
    orders = 1.0 + np.geomspace(0.05, 2000.0 if event.sampling_rate == 1.0 else 30.0, 1200)
    whole = np.floor(orders).astype(int)
    moment = {
        k: event.steps * renyi._cgf(k, event.noise_multiplier, event.sampling_rate) for k in {*whole, *(whole + 1)}
    }
    cgf = np.array([moment[k] + (x - k) * (moment[k + 1] - moment[k]) for x, k in zip(orders, whole, strict=True)])
    rdp = cgf / (orders - 1)
    _, gamma = paper_law(repetitions, 1)
    best = rdp + 2 * np.min((1 - 1 / orders) * rdp - math.log(gamma) / orders)
    best = best + math.log(repetitions.mean) / (orders - 1)
    return np.min(best + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("event", "mean"),
    [
        (spent(3.0, 0.05, 2000), 10.0),
        (spent(1.0, 0.01, 1000), 30.0),
        (spent(8.0, 1.0, 20), 1000.0),
        (spent(20.0, 1.0, 1), 30.0),
    ],
)
def test_two_implementations_of_the_paper_agree_to_one_percent(event, mean):
    law = Repetitions(mean=mean)
    ours, theirs = rdp_selection_epsilon(event, law, DELTA), paper_price(event, law, DELTA)
    assert ours == pytest.approx(theirs, rel=0.01)


def best_of(cdf, law, most=1200):
    """Return the distribution of the best of K outputs from that of one."""
    p, _ = paper_law(law, most)
    return np.diff(np.polynomial.polynomial.polyval(cdf, p), prepend=0.0)


ORDERS = {
    "ascending": lambda x: x,
    "descending": lambda x: -x,
    "from the middle": lambda x: -np.abs(x - 0.5),
    "from the ends": lambda x: np.abs(x - 0.5),
    "in blocks": lambda x: np.round(2 * x) % 3 + x / 1e3,
}


def law_of_best(masses, repetitions, ranked):
    """The law of the best of K, from the masses of cells of the output and their order."""
    return best_of(np.cumsum(masses[ranked]), repetitions)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rate", [1.0, 0.2])
@pytest.mark.parametrize("noise", [0.7, 3.0])
def test_no_order_of_the_outputs_attains_more_than_the_price(rate, noise):
    """Candidates are one Gaussian release of a row that is drawn or not, in the worst orders known and in odd ones."""
    repetitions, delta, event = Repetitions(mean=6.0), 1e-3, spent(noise, rate, 1)
    borders = np.linspace(-12.0, 13.0, 1201) * max(noise, 1.0)
    absent = np.diff(stats.norm.cdf(borders / noise))
    present = (1 - rate) * absent + rate * np.diff(stats.norm.cdf((borders - 1) / noise))
    bounds = [bound(event, repetitions, delta) for bound in (profile_epsilon, rdp_selection_epsilon)]
    for order in ORDERS.values():
        ranked = np.argsort(order((borders[1:] + borders[:-1]) / 2), kind="stable")
        p, q = (law_of_best(masses, repetitions, ranked) for masses in (absent, present))
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
        for epsilon in bounds:
            assert np.maximum(p - math.exp(epsilon) * q, 0.0).sum() <= delta
            assert np.maximum(q - math.exp(epsilon) * p, 0.0).sum() <= delta


def test_a_profile_is_above_the_exact_one_at_both_signs():
    (grid,) = loss_grids(2.0, 1.0, Relation.ADD_OR_REMOVE_ONE)
    assert isinstance(grid, LossGrid)
    epsilons, deltas = grid.profile(9)
    exact = gaussian_profile(3 / 2.0, epsilons)
    inside = np.abs(epsilons) < 20
    assert (epsilons[inside] < 0).any()
    assert (epsilons[inside] > 0).any()
    assert (deltas >= exact - 1e-15)[inside].all()
    assert deltas[inside] == pytest.approx(exact[inside], abs=1e-3)


def test_mass_at_infinite_loss_is_part_of_every_divergence():
    grid = LossGrid(np.array([0.5, 0.0, 0.49]), -1, 0.5, infinite=0.01)
    assert (grid.profile(1)[1] >= 0.01).all()
    assert (grid.profile(3)[1] >= 1 - 0.99**3).all()


def test_parts_of_different_noise_have_a_price_by_profiles_too():
    event, law = Composed((spent(8.0, 1.0, 20), spent(20.0, 0.5, 10))), Repetitions(mean=10)
    alone = profile_epsilon(spent(8.0, 1.0, 20), law, DELTA)
    assert alone < profile_epsilon(event, law, DELTA) < 1.1 * alone


def test_replace_one_is_priced_by_profiles_alone():
    event, law = spent(8.0, 0.5, 20, Relation.REPLACE_ONE), Repetitions(mean=10)
    assert selection_epsilon(event, law, DELTA) == profile_epsilon(event, law, DELTA)
    assert selection_epsilon(event, law, DELTA) > selection_epsilon(spent(8.0, 0.5, 20), law, DELTA)


def test_a_selection_on_paper_costs_more_than_one_training():
    """The price is no formality: at the epsilon of one release, its best of twenty is not private."""
    repetitions, borders = Repetitions(mean=20.0), np.linspace(-12.0, 13.0, 801)
    absent, present = (best_of(stats.norm.cdf(borders, shift, 1.0), repetitions) for shift in (0, 1))
    epsilon = rdp_epsilon(spent(1.0, 1.0, 1), 1e-3)
    worst = max(np.maximum(p - math.exp(epsilon) * q, 0.0).sum() for p, q in ((absent, present), (present, absent)))
    assert worst > 2e-3


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("noise_multiplier", "sampling_rate"), [(0.4, 0.5), (1.0, 0.001), (100.0, 0.5), (30.0, 0.99)])
def test_every_order_has_a_finite_moment_that_bounds_the_exact_one(noise_multiplier, sampling_rate):
    accountant = selection_price.RdpAccountant(selection_price._ORDERS)
    accountant.compose(selection_price._dp_event(spent(noise_multiplier, sampling_rate, 1)))
    assert np.isfinite(accountant.rdp).all()
    for order, rdp in zip(selection_price._ORDERS, accountant.rdp, strict=True):
        if order <= 16 and order == int(order):
            exact = renyi._cgf(int(order), noise_multiplier, sampling_rate) / (order - 1)
            assert rdp == pytest.approx(exact, rel=1e-7, abs=0.1 * selection_price._STEP_ROUNDING)


def test_the_price_grows_with_the_mean_and_is_never_below_one_training():
    event = spent(30.0, 1.0, 10)
    prices = [selection_epsilon(event, Repetitions(mean=mean), DELTA) for mean in (1.1, 3.0, 30.0)]
    assert claim(event, DELTA).epsilon < prices[0] < prices[1] < prices[2]


def test_parts_of_a_candidate_are_composed_before_it_is_selected():
    event, law = spent(8.0, 1.0, 20), Repetitions(mean=10)
    halves = Composed((event.with_steps(10), event.with_steps(10)))
    assert selection_epsilon(halves, law, DELTA) == pytest.approx(selection_epsilon(event, law, DELTA), rel=1e-9)
    more = Composed((event, spent(20.0, 1.0, 10)))
    assert selection_epsilon(more, law, DELTA) > selection_epsilon(event, law, DELTA)


@pytest.mark.parametrize(
    ("event", "price"),
    [
        (spent(2.0, 0.1, 0), 0.0),
        (spent(2.0, 0.0, 10), 0.0),
        (spent(math.inf, 0.5, 10), 0.0),
        (spent(0.0, 0.5, 10), math.inf),
    ],
)
def test_edges_are_priced_as_everywhere(event, price):
    assert selection_epsilon(event, Repetitions(mean=10), DELTA) == price


def test_an_impossible_delta_is_refused():
    with pytest.raises(AccountingError, match="0 < delta < 1"):
        selection_epsilon(spent(2.0, 0.1, 10), Repetitions(mean=10), 1.0)


def test_a_price_below_an_attack_on_one_candidate_is_not_claimed(monkeypatch):
    event = spent(2.0, 1.0, 7)
    monkeypatch.setattr(selection_price.RdpAccountant, "get_epsilon", lambda *_: 0.9 * attack_epsilon(event, DELTA))
    with pytest.raises(AccountantsDisagreeError, match="private selection claims"):
        selection_epsilon(event, Repetitions(mean=11), DELTA)


def test_the_secure_source_is_the_default(monkeypatch):
    asked = []
    monkeypatch.setattr(SecureSource, "random_bytes", lambda _, count: asked.append(count) or bytearray(count))
    assert Repetitions(mean=5.0).draw() == 1
    assert asked == [16]
