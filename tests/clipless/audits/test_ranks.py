"""The tight test of one run: no ranking beats that by posteriors, and its bound is above the truth at most as stated."""

from itertools import permutations, product

import numpy as np
import pytest
from scipy import special, stats

from clipless.audits.finding import AuditKind, Finding, judge
from clipless.audits.ranks import (
    Game,
    RankBound,
    loss_distribution,
    lower_bound,
    null_statistics,
    p_value,
    rank_weights,
    surest_p_value,
    tail_bound,
)
from clipless.errors import AuditError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.events import PoissonGaussian, Relation

DELTA = 1e-5


def gaussian(noise_multiplier=1.4, rate=1.0, steps=1, relation=Relation.ADD_OR_REMOVE_ONE):
    return PoissonGaussian(noise_multiplier=noise_multiplier, sampling_rate=rate, steps=steps, relation=relation)


def play(event, canaries, seed, noise=1.0, contribution=1.0, flipped=False):
    """Scores and coins of ideal canaries; what really happens has ``noise`` times the noise of the event."""
    generator = np.random.default_rng(seed)
    coins = generator.random(canaries) < 0.5
    drawn = generator.random((canaries, event.steps)) < event.sampling_rate
    seen = contribution * drawn * coins[:, None]
    seen = seen + noise * event.noise_multiplier * generator.standard_normal(drawn.shape)
    q, variance = event.sampling_rate, event.noise_multiplier**2
    with np.errstate(divide="ignore"):
        scores = np.logaddexp(np.log(1.0 - q), np.log(q) + (seen - 0.5) / variance).sum(axis=1)
    return -scores if flipped else scores, coins


def test_no_ranking_is_stochastically_above_the_one_by_posteriors():
    """All rankings of four canaries with any posteriors, by enumeration of their coins."""
    generator, weights = np.random.default_rng(0), np.array([-1.5, -0.2, 0.4, 2.0])

    def tails(posteriors):
        outcomes = []
        for coins in product([0, 1], repeat=4):
            chance = np.prod([p if c else 1 - p for p, c in zip(posteriors, coins, strict=True)])
            outcomes.append((weights @ (2.0 * np.array(coins) - 1.0), chance))
        values = sorted({value for value, _ in outcomes})
        return values, np.array([sum(c for v, c in outcomes if v >= value) for value in values])

    for _ in range(5):
        posteriors = np.sort(generator.random(4))
        values, best = tails(posteriors)
        for ranking in permutations(posteriors):
            other_values, other = tails(ranking)
            assert other_values == values
            assert (other <= best + 1e-12).all()


def test_losses_of_a_gaussian_are_those_of_its_formula():
    event = gaussian(1.4)
    losses, cumulated = loss_distribution(Game(event=event, canaries=100))
    mean = 0.5 / 1.4**2
    exact = 0.5 * (stats.norm.cdf(losses, mean, 1 / 1.4) + stats.norm.cdf(losses, -mean, 1 / 1.4))
    assert np.abs(cumulated - exact).max() < 0.02
    assert (np.diff(losses) > 0).all()
    assert cumulated[-1] == pytest.approx(1.0)


def test_weights_rise_with_the_rank_and_are_finite():
    weights = rank_weights(Game(event=gaussian(0.1), canaries=50))
    assert (np.diff(weights) >= 0).all()
    assert np.isfinite(weights).all()


def test_statistics_under_the_null_are_those_of_simulated_games():
    game = Game(event=gaussian(1.5, rate=0.3, steps=10), canaries=200)
    weights = rank_weights(game)
    drawn = []
    for seed in range(300):
        scores, coins = play(game.event, 200, seed)
        drawn.append(weights @ np.where(coins[np.argsort(scores)], 1.0, -1.0))
    null = null_statistics(weights.tobytes(), game, 499)
    assert stats.ks_2samp(drawn, null).pvalue > 1e-3
    assert np.mean(drawn) == pytest.approx(null.mean(), abs=4 * null.std() / np.sqrt(300))


@pytest.mark.long
@pytest.mark.parametrize(
    "event", [pytest.param(gaussian(1.4), marks=pytest.mark.long), gaussian(1.9, rate=0.25, steps=8)]
)
def test_the_bound_is_above_the_truth_at_most_as_often_as_stated_and_often_near_it(event):
    game, truth = Game(event=event, canaries=300), claim(event, DELTA).epsilon
    bounds = [lower_bound(*play(event, 300, seed), game, DELTA, 0.95).epsilon for seed in range(60)]
    above = sum(bound > truth for bound in bounds)
    assert stats.binom.sf(above - 1, 60, 0.05) > 1e-3
    assert above > 0  # and not by being idle
    assert np.median(bounds) > 0.3 * truth


@pytest.mark.long
def test_p_values_of_a_true_claim_are_below_any_level_as_rarely_as_it_says():
    game = Game(event=gaussian(2.0, rate=0.5, steps=4), canaries=150)
    p_values = np.array([lower_bound(*play(game.event, 150, seed), game, DELTA, 0.95).p_value for seed in range(100)])
    for level in (0.05, 0.2, 0.5):
        assert stats.binom.sf((p_values <= level).sum() - 1, 100, level) > 1e-3


@pytest.mark.parametrize("changes", [{"noise": 0.5}, {"contribution": 2.0}])
def test_half_the_noise_and_twice_the_contribution_are_contradicted(changes):
    event = gaussian(1.9, rate=0.25, steps=8)
    found = lower_bound(*play(event, 300, 1, **changes), Game(event=event, canaries=300), DELTA, 0.95)
    assert 0.0 < found.p_value <= 0.002
    assert found.epsilon > claim(event, DELTA).epsilon
    assert found.noise_multiplier < event.noise_multiplier


def test_no_statistic_has_a_p_value_of_zero():
    game = Game(event=gaussian(), canaries=50)
    assert 0.0 < p_value(1e9, rank_weights(game), game) < 1e-300


def chances(weights, losses, masses):
    """The exact law of W*: all losses of all canaries and all coins, as values and chances of these or more."""
    found = {}
    for places in product(range(len(losses)), repeat=len(weights)):
        posteriors = special.expit(losses[sorted(places)])
        for coins in product([0, 1], repeat=len(weights)):
            value = round(float(weights @ (2.0 * np.array(coins) - 1.0)), 9)
            chance = np.prod(masses[list(places)]) * np.prod(np.where(coins, posteriors, 1.0 - posteriors))
            found[value] = found.get(value, 0.0) + chance
    values = np.array(sorted(found))
    return values, np.cumsum([found[value] for value in values[::-1]])[::-1]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(8))
def test_no_statistic_of_a_small_game_is_more_frequent_than_the_tail_bound(seed):
    generator = np.random.default_rng(seed)
    losses, masses = np.sort(3.0 * generator.standard_normal(4)), generator.dirichlet(np.ones(4))
    if seed % 2:
        losses[[0, -1]] = -np.inf, np.inf
    cumulated = np.cumsum(masses)
    optimal = np.clip(losses, -5.0, 5.0)[np.minimum(np.searchsorted(cumulated, np.arange(1, 5) / 5), 3)]
    for weights in (optimal, np.sort(generator.standard_normal(4)), np.array([0.0, 0.0, 0.0, 1.0])):
        values, exact = chances(weights, losses, masses)
        rounded = values - 1e-9
        bounds = np.array([tail_bound(value, weights, losses, cumulated) for value in rounded])
        assert (exact <= bounds * (1.0 + 1e-9)).all()
        assert (np.diff(bounds) <= 0.0).all()


def test_the_tail_bound_is_above_what_is_simulated_and_by_less_than_a_factor_of_thirty():
    game = Game(event=gaussian(1.9, rate=0.25, steps=8), canaries=300)
    top = np.where(np.arange(300) < 285, 0.0, 1.0)
    for weights in (rank_weights(game), top):
        null = np.sort(null_statistics(weights.tobytes(), game, 1999))
        for beyond in (20, 100, 400):
            bound = tail_bound(null[-beyond], weights, *loss_distribution(game))
            assert beyond / 2000 < bound < 30 * beyond / 2000


def test_the_tail_bound_of_the_median_rejects_nothing_and_does_not_replace_what_is_simulated():
    game = Game(event=gaussian(2.0, rate=0.5, steps=4), canaries=150)
    weights = rank_weights(game)
    null = np.sort(null_statistics(weights.tobytes(), game, 499))
    assert p_value(null[-1], weights, game) == pytest.approx(2 / 500)
    assert p_value(float(np.median(null)), weights, game) == pytest.approx(0.5, abs=0.01)
    assert tail_bound(float(np.median(null)), weights, *loss_distribution(game)) > 0.9


CANARIES_TOLD = Game(event=gaussian(4.0, rate=0.1, steps=50), canaries=500)


def told(p):
    return Finding(
        kind=AuditKind.ONE_RUN,
        subject="",
        epsilon=1,
        delta=DELTA,
        attained=9,
        confidence=0.95,
        p_value=p,
        contradicted=True,
    )


@pytest.mark.long
def test_coins_that_are_all_told_are_contradicted_at_any_level_among_many_trials():
    coins = np.random.default_rng(0).random(500) < 0.5
    scores = np.where(coins, 1.0, -1.0)
    found = lower_bound(scores, coins, CANARIES_TOLD, DELTA, 0.95)
    assert found.p_value < 1e-100
    assert surest_p_value(scores, coins, CANARIES_TOLD) < 1e-4
    findings = [told(found.p_value), *(told(1.0) for _ in range(399))]
    assert [one.contradicted for one in judge(findings, 1e-6)] == [True] + [False] * 399


@pytest.mark.long
def test_half_the_noise_of_thousands_of_canaries_is_contradicted_where_one_in_a_million_may_be():
    event = gaussian(1.9, rate=0.25, steps=8)
    game = Game(event=event, canaries=4000)
    assert lower_bound(*play(event, 4000, 1, noise=0.5), game, DELTA, 0.95).p_value < 1e-20
    assert surest_p_value(*play(event, 4000, 1, noise=0.5), game) < 1e-6


@pytest.mark.long
def test_more_noise_than_claimed_proves_less():
    event = gaussian(1.4)
    right, more = (
        lower_bound(*play(event, 2000, 3, noise=noise), Game(event=event, canaries=2000), DELTA, 0.95).epsilon
        for noise in (1.0, 3.0)
    )
    assert 0.0 < more < 0.6 * right


def test_a_ranking_that_is_upside_down_or_random_proves_nothing():
    event = gaussian(1.4)
    nothing = RankBound(epsilon=0.0, noise_multiplier=np.inf, statistic=0.0, p_value=1.0)
    found = lower_bound(*play(event, 500, 0, flipped=True), Game(event=event, canaries=500), DELTA, 0.95)
    assert (found.epsilon, found.noise_multiplier, found.p_value) == (nothing.epsilon, np.inf, 1.0)


def test_the_surest_alone_are_judged_by_their_own_null():
    event = gaussian(1.9, rate=0.25, steps=8)
    game = Game(event=event, canaries=400)
    right = [surest_p_value(*play(event, 400, seed), game) for seed in range(100)]
    assert stats.binom.sf(sum(p <= 0.1 for p in right) - 1, 100, 0.1) > 1e-3
    assert np.mean(right) > 0.4
    assert surest_p_value(*play(event, 400, 0, noise=0.4), game) < 0.01


@pytest.mark.long
def test_a_higher_confidence_proves_less():
    scores, coins = play(gaussian(1.4), 1000, 5)
    game = Game(event=gaussian(1.4), canaries=1000)
    bounds = [lower_bound(scores, coins, game, DELTA, confidence).epsilon for confidence in (0.5, 0.95, 0.99)]
    assert bounds[0] > bounds[1] > bounds[2] > 0


def test_a_claim_that_costs_nothing_is_contradicted_by_any_success():
    game = Game(event=gaussian(np.inf), canaries=400)
    losses, cumulated = loss_distribution(game)
    assert cumulated[losses == 0.0] == pytest.approx(1.0)
    event = gaussian(1.4)
    weights = rank_weights(Game(event=event, canaries=400))
    scores, coins = play(event, 400, 0)
    statistic = float(weights @ np.where(coins[np.argsort(scores)], 1.0, -1.0))
    assert 0.0 < p_value(statistic, weights, game) < 1 / 2000


def test_infinite_losses_are_certain_posteriors():
    assert special.expit(np.array([-np.inf, np.inf])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("scores", "coins", "message"),
    [
        (np.zeros(3), np.zeros(4, dtype=bool), "Expected 3 scores and coins"),
        (np.zeros(4), np.zeros(4, dtype=bool), "Expected 3 scores and coins"),
        (np.array([0.0, np.nan, 1.0]), np.zeros(3, dtype=bool), "got NaN"),
    ],
)
def test_scores_and_coins_that_do_not_fit_are_refused(scores, coins, message):
    with pytest.raises(AuditError, match=message):
        lower_bound(scores, coins, Game(event=gaussian(), canaries=3), DELTA, 0.95)


def test_games_without_canaries_or_noise_are_refused():
    with pytest.raises(AuditError, match="canaries >= 2"):
        Game(event=gaussian(), canaries=1)
    with pytest.raises(AuditError, match="a claim with noise"):
        Game(event=gaussian(0.0), canaries=10)
