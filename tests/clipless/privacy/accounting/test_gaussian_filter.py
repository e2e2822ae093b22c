"""The Gaussian filter: every signal dominates its mechanism at all epsilons, and no adaptive choice spends more."""

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from clipless.errors import AccountingError
from clipless.privacy.accounting import gaussian_filter
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.gaussian_filter import (
    GaussianFilter,
    attacks_of,
    needed_epsilon,
    smallest_signal,
)
from clipless.privacy.accounting.lower_profile import lower_profiles
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.selection_composed import selection_profiles
from clipless.privacy.accounting.selection_price import selection_epsilon
from clipless.privacy.accounting.spending import MOST_STEPS
from clipless.privacy.events import Composed, Relation
from clipless.privacy.gaussian import SLACK_SHARE, GaussianCost, gaussian_divergence
from tests.clipless.factories import event

DELTA = 1e-5
FILTER = GaussianFilter(3.0, DELTA)
TRAINING = event(6.85, 0.152, 140)
EVENTS = [
    TRAINING,
    event(2.7, 0.152, 140),
    event(1.2, 0.3, 15),
    event(0.8, 0.02, 500),
    event(0.7, 0.5, 1),
    event(0.3, 0.001, 3),
    event(40.0, 0.9, 7),
]


def divergences(mean, other, rate, sigma, alphas):
    """Both directions' divergences of one sampled step, computed on outputs between which nothing escapes."""
    points = np.linspace(-40.0 * sigma - 2.0, 40.0 * sigma + 2.0, 100_001)
    cells = np.diff(special.ndtr((points[:, None] - [0.0, mean, other]) / sigma), axis=0).T
    present, absent = ((1 - rate) * cells[0] + rate * cells[1], (1 - rate) * cells[0] + rate * cells[2])
    return [
        np.array([np.maximum(p - alpha * q, 0.0).sum() for alpha in alphas])
        for p, q in ((present, absent), (absent, present))
    ]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("noise", "rate"), [(0.7, 0.5), (1.2, 0.05), (3.0, 0.9), (0.4, 0.01)])
def test_the_signal_dominates_one_step_at_every_epsilon_in_both_directions(noise, rate, relation):
    cost = FILTER.cost(event(noise, rate, 1, relation=relation))
    signal, epsilons = math.sqrt(cost.square), np.concatenate((np.linspace(0.0, 12.0, 250), [1e-4, 1e-3]))
    bound = [cost.slack + (1 - cost.slack) * gaussian_divergence(signal, epsilon) for epsilon in epsilons]
    other = -1.0 if relation is Relation.REPLACE_ONE else 0.0
    for found in divergences(1.0, other, rate, noise, np.exp(epsilons)):
        assert np.all(found <= np.array(bound) + 1e-14)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mechanism", EVENTS, ids=str)
def test_the_signal_is_the_smallest_that_dominates_many_steps(mechanism):
    """Against profiles rounded the other way: dominated at the signal, and no longer at 1 % less."""
    cost = GaussianFilter(30.0, DELTA).cost(mechanism)
    signal, epsilons = math.sqrt(cost.square), np.linspace(0.0, 30.0, 3001)

    def excess(mu):
        most = [cost.slack + (1 - cost.slack) * gaussian_divergence(mu, epsilon) for epsilon in epsilons]
        return max(float(np.max(lower(epsilons) - most)) for lower in lower_profiles(mechanism))

    assert excess(signal) <= 0.0 < excess(0.98 * signal)


def test_a_gaussian_mechanism_has_its_own_signal():
    assert FILTER.cost(event(4.0, 1.0, 3)).square == pytest.approx(3 / 16, rel=1e-8)
    assert FILTER.cost(event(4.0, 1.0, 3, relation=Relation.REPLACE_ONE)).square == pytest.approx(12 / 16, rel=1e-8)
    for relation in Relation:  # the closed form is that of the profiles
        exact, sampled = (FILTER.cost(event(4.0, rate, 3, relation=relation)) for rate in (1.0, 1.0 - 1e-9))
        assert exact.square <= sampled.square * (1 + 1e-7)
        assert sampled.square == pytest.approx(exact.square, rel=2e-3)


def test_no_line_of_a_profile_escapes_between_its_points():
    """Two points far apart: the chord between them is above the Gaussian profile that both ends are on."""
    alphas = np.exp([0.0, 3.0])
    ends = np.array([gaussian_divergence(1.0, epsilon) for epsilon in (0.0, 3.0)])
    signal = smallest_signal([attacks_of(alphas, ends)], float(ends[-1]) * 1.01)
    assert signal > 1.2
    inside = np.linspace(0.0, 3.0, 200)
    chord = np.interp(np.exp(inside), alphas, ends)
    slack = float(ends[-1]) * 1.01
    assert all(slack + (1 - slack) * gaussian_divergence(signal, e) >= c for e, c in zip(inside, chord, strict=True))


def test_what_lies_beyond_the_last_point_has_to_be_in_the_slack():
    alphas, deltas = np.exp([0.0, 1.0]), np.array([0.3, 1e-3])
    assert smallest_signal([attacks_of(alphas, deltas)], 0.9e-3) == math.inf
    assert smallest_signal([attacks_of(alphas, deltas)], 1.1e-3) < math.inf


@pytest.mark.parametrize(("epsilon", "delta"), [(3.0, 1e-5), (0.1, 1e-6), (50.0, 1e-9), (0.01, 0.01)])
def test_the_budget_is_the_largest_signal_at_epsilon_and_delta(epsilon, delta):
    budget = GaussianFilter(epsilon, delta).budget
    signal = math.sqrt(budget.square)
    assert budget.slack == SLACK_SHARE * delta
    assert gaussian_divergence(signal, epsilon) + budget.slack <= delta
    assert gaussian_divergence(signal * (1 + 1e-7), epsilon) + budget.slack > delta


@pytest.mark.parametrize(
    ("mechanism", "one", "four", "twelve"),
    [
        (event(2.70, 0.152, 140), 3.01, 6.75, 13.28),
        (TRAINING, 1.01, 2.17, 4.05),
        (event(3.57, 0.2, 150), 3.01, 6.74, 13.25),
        (event(5.06, 0.08, 2000), 3.01, 6.72, 13.17),
    ],
    ids=["mnist at 3", "mnist at 1", "digits at 3", "a long training"],
)
def test_trainings_fit_as_the_table_says(mechanism, one, four, twelve):
    for count, epsilon in ((1, one), (4, four), (12, twelve)):
        fixed = GaussianFilter(epsilon, DELTA)
        assert fixed.fits([fixed.cost(mechanism)] * count)
        assert claim(mechanism.with_steps(count * mechanism.steps), DELTA).epsilon > 0.93 * epsilon


@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(4))
def test_what_fits_is_claimed_at_no_more_than_the_budget(seed):
    draw = random.Random(seed)
    mixed = [event(draw.uniform(1, 20), draw.uniform(0.01, 1.0), draw.randint(1, 300)) for _ in range(30)]
    run = []
    for mechanism in mixed:
        if FILTER.fits(map(FILTER.cost, [*run, mechanism])):
            run.append(mechanism)
    assert 0 < len(run) < 30
    assert claim(Composed(tuple(run)), DELTA).epsilon <= 3.0


def test_an_adversary_who_chooses_by_what_it_has_seen_gains_nothing():
    """Observations of chosen signals, as long as they fit; the likelihood ratio of all of them is the best attack."""
    menu = [event(sigma, 1.0, 1) for sigma in (2.0, 5.0, 12.0)]
    costs = [FILTER.cost(mechanism) for mechanism in menu]
    signals, squares = np.array([0.5, 0.2, 1 / 12]), np.array([cost.square for cost in costs])
    policies = (
        lambda loss: np.where(loss > 0, 0, 2),
        lambda loss: np.where(loss > 1, 2, 1),
        lambda loss: np.zeros(len(loss), int),
    )
    for policy in policies:
        losses = []
        for present in (1.0, 0.0):
            draw = np.random.default_rng(7)
            loss, left = np.zeros(10_000), np.full(10_000, FILTER.budget.square)
            for _ in range(90):
                chosen = policy(loss)
                chosen = np.where(squares[chosen] <= left, chosen, 2)
                fits = squares[chosen] <= left
                mu = np.where(fits, signals[chosen], 0.0)
                loss += mu * draw.normal(present * mu, 1.0) - mu**2 / 2
                left -= np.where(fits, squares[chosen], 0.0)
            assert left.max() < squares[2]
            losses.append(loss)
        for epsilon in (0.0, 0.5, 1.5):
            bound = gaussian_divergence(math.sqrt(FILTER.budget.square), epsilon)
            for found in (losses[0], -losses[1]):
                gains = np.maximum(-np.expm1(np.minimum(epsilon - found, 0.0)), 0.0)
                assert bound / 2 < gains.mean() < bound + 4 * gains.std() / 100


@pytest.mark.long
def test_a_selection_has_a_signal_that_dominates_its_profile():
    repetitions, fixed = Repetitions(mean=10.0), GaussianFilter(20.0, DELTA)
    cost = fixed.selection_cost(TRAINING, repetitions)
    for alphas, deltas in selection_profiles(TRAINING, repetitions):
        beyond = alphas >= 1.0
        bound = [
            cost.slack + (1 - cost.slack) * gaussian_divergence(math.sqrt(cost.square), math.log(alpha))
            for alpha in alphas[beyond][::50]
        ]
        assert np.all(deltas[beyond][::50] <= bound)
    assert needed_epsilon([TRAINING], DELTA) < selection_epsilon(TRAINING, repetitions, DELTA)
    assert fixed.selection_cost(event(0.01, 0.1, 1), repetitions).square == math.inf
    assert fixed.selection_cost(TRAINING.with_steps(0), repetitions) == GaussianCost()


def test_edges_fail_closed():
    assert not FILTER.fits([FILTER.cost(event(0.0, 0.1, 1))])
    assert not FILTER.fits([FILTER.cost(event(0.01, 0.1, 1)), GaussianCost()])
    assert not FILTER.fits([FILTER.cost(event(1e6, 1e-6, MOST_STEPS + 1))])
    assert FILTER.fits([FILTER.cost(event(0.0, 0.1, 0))])
    assert FILTER.share([]) == 0.0
    assert not FILTER.fits([GaussianCost(0.0, 1.1 * SLACK_SHARE * DELTA)])
    nearly = GaussianCost((1.0 - 1e-12) * FILTER.budget.square)
    assert FILTER.fits([nearly])
    assert not FILTER.fits([nearly, GaussianCost(1e-11 * FILTER.budget.square)])
    for epsilon, delta in ((0.0, DELTA), (-1.0, DELTA), (math.inf, DELTA), (math.nan, DELTA), (3.0, 0.0), (3.0, 1.0)):
        with pytest.raises(AccountingError, match="Expected"):
            GaussianFilter(epsilon, delta)


def test_the_needed_epsilon_is_enough_and_a_thousandth_less_is_not():
    needed = needed_epsilon([TRAINING, event(20.0, 1.0, 2)], DELTA)
    for epsilon, fits in ((needed, True), (needed - 0.0011, False)):
        fixed = GaussianFilter(epsilon, DELTA)
        assert fixed.fits(map(fixed.cost, [TRAINING, event(20.0, 1.0, 2)])) == fits
    assert needed_epsilon([event(0.01, 1.0, 1)], DELTA) == math.inf


def test_a_cost_depends_on_the_relation(monkeypatch):
    quiet = event(20.0, 0.1, 50)
    replaced = replace(quiet, relation=Relation.REPLACE_ONE)
    assert FILTER.cost(replaced).square > 3.5 * FILTER.cost(quiet).square
    monkeypatch.setattr(gaussian_filter, "_ROUNDING", 1e-3)
    assert FILTER.cost(event(21.0, 1.0, 50)).square > 50 / 21.0**2 * (1 + 0.9e-3)
