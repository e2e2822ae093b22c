"""Which events may fill a slot: against exact privacy profiles, by adaptive quadrature and in closed form."""

import math
import random
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats
from scipy.special import ndtr

from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.domination import (
    DOMINATION_SLACK,
    _is_below,
    delta_of_slots,
    dominated_noise_multiplier,
    dominates,
)
from clipless.privacy.accounting.lower_profile import LowerProfile, lower_profiles
from clipless.privacy.accounting.pld import loss_grids
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from tests.clipless.factories import event

DELTA = 1e-5


SLOT = event(2.0, 0.1, 100)


def test_a_slot_is_filled_by_itself_by_fewer_steps_and_by_more_noise_only():
    assert dominates(SLOT, SLOT, DELTA)
    assert dominates(SLOT, SLOT.with_steps(99), DELTA)
    assert not dominates(SLOT, SLOT.with_steps(101), DELTA)
    assert dominates(SLOT, replace(SLOT, noise_multiplier=2.001), DELTA)
    assert not dominates(SLOT, replace(SLOT, noise_multiplier=1.999), DELTA)
    assert dominated_noise_multiplier(SLOT, 0.1, 100, DELTA) == dominated_noise_multiplier(SLOT, 0.1, 98, DELTA) == 2.0
    assert dominated_noise_multiplier(SLOT, 0.1, 50, DELTA) < 1.7


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", list(Relation))
def test_calibrated_noise_is_dominated_and_hardly_more_than_needed(relation):
    slot = replace(SLOT, relation=relation)
    for rate, steps in ((0.1, 110), (0.1, 20), (0.2, 30), (0.05, 300), (1.0, 5), (0.1, 5000)):
        noise = dominated_noise_multiplier(slot, rate, steps, DELTA)
        assert dominates(slot, event(noise, rate, steps, relation), DELTA)
        assert not dominates(slot, event(noise / 1.002, rate, steps, relation), DELTA)


def test_what_costs_nothing_fits_anywhere_and_nothing_else_fits_into_it():
    for free in (event(math.inf, 0.1, 10), event(1.0, 0.0, 10), event(1.0, 0.1, 0)):
        assert dominates(SLOT, free, DELTA)
        assert dominates(free, free, DELTA)
        assert not dominates(free, SLOT, DELTA)
        with pytest.raises(AccountingError, match="No noise multiplier"):
            dominated_noise_multiplier(free, 0.2, 10, DELTA)


def test_what_cannot_be_compared_is_refused():
    assert not dominates(SLOT, replace(SLOT, relation=Relation.REPLACE_ONE), DELTA)
    assert not dominates(replace(SLOT, relation=Relation.REPLACE_ONE), SLOT, DELTA)
    assert not dominates(SLOT, event(0.0, 0.1, 1), DELTA)
    assert not dominates(event(0.0, 0.1, 100), SLOT, DELTA)
    assert not dominates(SLOT, event(1e5, 0.05, 200_000), DELTA)
    with pytest.raises(AccountingError, match="No noise multiplier"):
        dominated_noise_multiplier(SLOT, 0.05, 200_000, DELTA)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(AccountingError, match="delta"):
            dominates(SLOT, SLOT, delta)


def test_a_delta_within_the_rounding_of_transforms_dominates_nothing_but_parts():
    assert dominates(SLOT, event(2.2, 0.1, 110), DELTA)
    assert not dominates(SLOT, event(2.2, 0.1, 110), 1e-9)
    assert dominates(SLOT, SLOT.with_steps(99), 1e-9)


def test_every_training_pays_its_share_of_delta():
    assert delta_of_slots(DELTA, 0) <= DELTA
    assert delta_of_slots(DELTA, 16) == pytest.approx(DELTA * (1 - 16 * DOMINATION_SLACK))
    assert delta_of_slots(DELTA, 16) + 16 * DOMINATION_SLACK * DELTA <= DELTA
    for trainings in (-1, round(1 / DOMINATION_SLACK)):
        with pytest.raises(AccountingError, match="trainings"):
            delta_of_slots(DELTA, trainings)


class Exact:
    """Privacy profiles of one or two steps by quadrature, and of any number of unsampled ones in closed form."""

    def __init__(self, event, reverse):
        self.event, self.reverse = event, reverse
        self.x = np.linspace(-12 * event.noise_multiplier, 12 * event.noise_multiplier + 1, 1001)

    def ratio(self, x):
        rate, sigma = self.event.sampling_rate, self.event.noise_multiplier
        ratio = 1 - rate + rate * np.exp((x - 0.5) / sigma**2)
        return 1 / ratio if self.reverse else ratio

    def one_step(self, alpha):
        """With the threshold at which the likelihood ratio is alpha."""
        rate, sigma = self.event.sampling_rate, self.event.noise_multiplier
        present = (1 / alpha if self.reverse else alpha) - 1 + rate
        with np.errstate(divide="ignore"):
            cut = 0.5 + sigma**2 * np.log(np.maximum(present, 0.0) / rate)
        sign = -1 if self.reverse else 1
        absent, there = ndtr(-sign * cut / sigma), ndtr(-sign * (cut - 1) / sigma)
        mixed = (1 - rate) * absent + rate * there
        return np.maximum(absent - alpha * mixed if self.reverse else mixed - alpha * absent, 0.0)

    def __call__(self, epsilons):
        rate, sigma, steps = self.event.sampling_rate, self.event.noise_multiplier, self.event.steps
        alpha = np.exp(epsilons)
        if rate == 1.0:
            mu = math.sqrt(steps) / sigma
            return ndtr(mu / 2 - epsilons / mu) - alpha * ndtr(-epsilons / mu - mu / 2)
        if steps == 1:
            return self.one_step(alpha)
        absent, there = stats.norm.pdf(self.x, 0, sigma), stats.norm.pdf(self.x, 1, sigma)
        density = absent if self.reverse else (1 - rate) * absent + rate * there
        return np.trapezoid(density * self.one_step(alpha[:, None] / self.ratio(self.x)), self.x)


EPSILONS = np.concatenate([np.linspace(0, 0.5, 40), np.linspace(0.6, 8, 30)])


@lru_cache
def exact_profile(event, side):
    return Exact(event, side)(EPSILONS)


def excess(slot, event):
    """Return by how much the event's exact profiles exceed what the slot allows, for each direction."""
    allowed = DOMINATION_SLACK * DELTA
    return [
        float(np.max(exact_profile(event, side) - allowed - (1 - allowed) * exact_profile(slot, side)))
        for side in (False, True)
    ]


def exact_threshold(slot, rate, steps):
    """Return the least noise at which exact profiles are ordered."""
    low, high = 0.2, 100.0
    while high > 1.0002 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if max(excess(slot, event(middle, rate, steps))) <= 1e-13 else (middle, high)
    return high


@pytest.mark.long
def test_exact_profiles_of_two_steps_agree_with_a_plain_sum_over_both_outputs():
    asked, x = event(0.8, 0.3, 2), np.linspace(-6.0, 7.0, 2001)
    absent = stats.norm.pdf(x, 0, 0.8)
    present = 0.7 * absent + 0.3 * stats.norm.pdf(x, 1, 0.8)
    p, q = np.outer(present, present), np.outer(absent, absent)
    for epsilon in (0.0, 0.3):
        alpha, cell = math.exp(epsilon), (x[1] - x[0]) ** 2
        for reverse, total in enumerate((np.maximum(p - alpha * q, 0).sum(), np.maximum(q - alpha * p, 0).sum())):
            assert Exact(asked, bool(reverse))(np.array([epsilon]))[0] == pytest.approx(total * cell, rel=1e-4)


ONE_OR_TWO_STEPS = [(1.0, 0.3, 1), (0.5, 0.05, 1), (0.5, 0.1, 2), (2.0, 0.1, 2), (5.0, 0.9, 2), (1.0, 1.0, 1)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("noise", "rate", "steps"), [*ONE_OR_TWO_STEPS, (20.0, 1.0, 1000), (8.0, 1.0, 5000)])
def test_lower_profiles_are_below_exact_ones_and_close(noise, rate, steps):
    asked = event(noise, rate, steps)
    bounds = lower_profiles(asked)
    assert len(bounds) == (1 if rate == 1.0 else 2)
    for reverse, bound in enumerate(bounds):
        knots = np.concatenate([EPSILONS, bound.losses[:: max(1, len(bound.losses) // 500)]])
        exact, ours = Exact(asked, bool(reverse))(knots), bound(knots)
        assert np.all(ours <= exact + 1e-15)
        assert ours[0] >= 0.98 * exact[0]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("slot", ONE_OR_TWO_STEPS)
@pytest.mark.parametrize("shape", [(0.1, 2), (0.6, 1), (1.0, 20)])
def test_nothing_is_dominated_below_the_exact_threshold(slot, shape):
    slot = event(*slot)
    threshold = exact_threshold(slot, *shape)
    assert max(excess(slot, event(0.999 * threshold, *shape))) > 0.0
    assert not dominates(slot, event(0.999 * threshold, *shape), DELTA)


@pytest.mark.parametrize(
    ("slot", "shape"),
    [((2.0, 0.1, 2), (0.08, 2)), ((5.0, 0.9, 2), (0.6, 1)), ((5.0, 0.9, 2), (1.0, 1)), ((1.0, 1.0, 1), (1.0, 20))],
)
def test_clearly_ordered_pairs_are_dominated(slot, shape):
    slot = event(*slot)
    assert dominates(slot, event(1.03 * exact_threshold(slot, *shape), *shape), DELTA)


@pytest.mark.parametrize(
    ("slot", "other", "violated"), [((1.0, 0.1, 1), (2.3, 0.2, 1), 1), ((2.3, 0.2, 1), (1.2, 0.1, 1), 0)]
)
def test_an_order_in_one_direction_is_not_enough(slot, other, violated):
    slot, other = event(*slot), event(*other)
    beyond = excess(slot, other)
    assert beyond[violated] > 1e-5
    assert beyond[1 - violated] <= 0.0
    assert not dominates(slot, other, DELTA)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(20))
def test_random_pairs_are_dominated_only_if_exactly_ordered(seed):
    draw = random.Random(seed)

    def some():
        return event(math.exp(draw.uniform(-0.5, 2)), draw.choice([1.0, draw.uniform(0.02, 0.9)]), draw.randint(1, 2))

    slot, other = some(), some()
    for one, two in ((slot, other), (other, slot)):
        if dominates(one, two, DELTA):
            assert max(excess(one, two)) <= 1e-13


@pytest.mark.parametrize("steps", [1, 30, 400, 5000])
def test_calibrated_gaussian_noise_is_that_of_the_closed_form(steps):
    slot = event(10.0, 1.0, 100)
    needed = 10.0 * math.sqrt(steps / 100)
    assert not dominates(slot, event(needed / 1.0001, 1.0, steps), DELTA)
    assert 0.9999 <= dominated_noise_multiplier(slot, 1.0, steps, DELTA) / needed <= 1.005


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", list(Relation))
def test_dominated_events_compose_to_no_more_than_their_slots(relation):
    slots = [event(4.0, 0.1, 100, relation), event(12.0, 0.3, 50, relation)]
    shapes = [(0.2, 60), (0.05, 300)]
    filling = [
        event(dominated_noise_multiplier(slot, *shape, DELTA), *shape, relation)
        for slot, shape in zip(slots, shapes, strict=True)
    ]
    price = claim(Composed(tuple(slots)), delta_of_slots(DELTA, 2)).epsilon
    assert claim(Composed(tuple(filling)), DELTA).epsilon <= price * 1.0005


@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(2.7, 0.152, 140), (1.0, 0.05, 500), (3.0, 0.05, 2000), (200.0, 0.001, 50)]
)
@pytest.mark.parametrize("relation", list(Relation))
def test_bounds_of_a_training_from_below_and_above_lie_close_together(noise, rate, steps, relation):
    asked = event(noise, rate, steps, relation)
    for grid, bound in zip(loss_grids(noise, rate, relation), lower_profiles(asked), strict=True):
        epsilons, upper = grid.profile(steps)
        epsilons, upper = epsilons[epsilons >= 0.0], upper[epsilons >= 0.0]
        lower = bound(epsilons)
        assert np.all(lower <= upper)
        assert np.all(lower[upper > 1e-7] >= 0.94 * upper[upper > 1e-7])


def test_between_knots_a_line_below_both_ends_may_still_cross_what_vanishes():
    """The slot's bound is zero from where it vanishes; an event above the slack there is not dominated."""
    bound = LowerProfile(np.array([1.0]), np.array([1e-3]), 0.0)
    alpha = np.array([1.0, math.e])
    below = 1e-3 * (1 - alpha / math.e)
    assert not _is_below(np.array([0.0, 3.0]), np.array([below[0], 0.0]), bound, 1e-9)
    assert not _is_below(np.array([0.0, 1.0, 3.0]), np.array([below[0], 1e-8, 1e-8]), bound, 1e-9)
    assert not _is_below(np.array([0.0, 0.9]), np.array([below[0], 1e-8]), bound, 1e-9)


def test_the_slack_is_all_that_an_event_may_exceed_its_slot_by():
    bound = LowerProfile(np.array([0.5, 2.0, 8.0]), np.array([0.1, 0.2, 1e-6]), 0.0)
    epsilons = np.linspace(0.0, 9.0, 901)
    exact = np.maximum(bound(epsilons), 0.0)
    assert _is_below(epsilons, 1e-3 + 0.998 * exact, bound, 1.01e-3 + 1e-6)
    assert not _is_below(epsilons, 1e-3 + exact, bound, 0.99e-3)
    assert not _is_below(epsilons, 1e-9 + exact, bound, 0.0)


def test_between_its_points_an_event_counts_as_the_chord_in_alpha():
    """At both points it is no more than the slot; the slot bends between them, and the chord passes above."""
    bound = LowerProfile(np.array([1.0, 3.0, 6.0]), np.array([0.08, 0.8, 1e-3]), 0.0)
    sparse, dense = np.array([0.0, 2.0, 3.0, 4.0]), np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert not _is_below(sparse, bound(sparse), bound, 2e-3)
    assert _is_below(dense, bound(dense), bound, 2e-3)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("noise", "rate"), [(0.06, 0.9), (0.15, 0.9), (0.25, 0.05)])
def test_outputs_that_one_neighbour_cannot_show_are_left_out(noise, rate):
    slot = PoissonGaussian(noise_multiplier=noise, sampling_rate=rate, steps=20, relation=Relation.REPLACE_ONE)
    for profile in lower_profiles(slot):
        assert np.isfinite(profile.losses).all()
    assert dominates(slot, slot, 1e-5) in (True, False)
    assert dominates(slot, replace(slot, noise_multiplier=noise / 4), 1e-5) is False
