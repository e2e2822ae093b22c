"""The price of an event: known values, exact mechanisms, edges, laws, and accountants that watch each other."""

import itertools
import math
import time
from decimal import Decimal, localcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clipless.errors import AccountantsDisagreeError, AccountingError
from clipless.privacy.accounting import claim as claim_module
from clipless.privacy.accounting import pld, renyi
from clipless.privacy.accounting.claim import Accountant, claim, claims
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.accounting.pld import composed_pld_epsilon, optimistic_epsilon, pld_epsilon
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.spending import overflow_slack
from clipless.privacy.events import Composed, Relation
from tests.clipless.factories import event, gaussian_epsilon

ADD, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE
DELTA = 1e-5
ORDINARY = list(itertools.product((0.8, 2.0, 6.0), (0.01, 0.05, 0.2), (100, 1000)))
few = settings(max_examples=10, deadline=None, derandomize=True, database=None)
several = settings(max_examples=30, deadline=None, derandomize=True, database=None)
noises, rates, lengths = st.floats(0.6, 20.0), st.floats(0.002, 1.0), st.integers(1, 3000)


# --- known values


@pytest.mark.parametrize(
    ("spent", "rdp"), [(event(2.0, 1 / 60, 5460), 2.987618328313939), (event(4.0, 0.2, 1325), 9.976297955096285)]
)
def test_rdp_reproduces_autodp_to_its_last_digits(spent, rdp):
    # autodp's own search over orders stops up to 3e-9 above the minimum
    assert rdp - 3e-9 < rdp_epsilon(spent, DELTA) < rdp + 1e-11
    assert rdp_epsilon(spent, DELTA) == pytest.approx(rdp, rel=1e-9)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("spent", "pld", "digits"),
    [
        (event(2.0, 1 / 60, 5460), 2.742, 3),
        (event(4.0, 0.2, 1325), 9.137, 3),
        (event(3.0, 0.05, 2000), 3.268, 3),
        (event(3.0, 0.05, 2000, REPLACE), 6.99, 2),
    ],
)
def test_pld_reproduces_dp_accounting(spent, pld, digits):
    fine = composed_pld_epsilon(spent, DELTA, interval=1e-4)
    assert round(fine, digits) == pld
    assert fine <= pld_epsilon(spent, DELTA) < fine * 1.0005


def test_rdp_at_integer_orders_is_close_to_rdp_at_all_orders():
    assert 3.547 <= rdp_epsilon(event(3.0, 0.05, 2000), DELTA) <= 3.547 * 1.004


@pytest.mark.sampled(5)
@pytest.mark.parametrize("noise_multiplier", [0.5, 2.0, 50.0])
@pytest.mark.parametrize("sampling_rate", [1e-5, 0.01, 0.5])
def test_moments_are_those_of_the_definition_rounded_up(noise_multiplier, sampling_rate):
    for order in (2, 3, 17, 64, 300, 1025):
        with localcontext(prec=60):
            q, variance = Decimal(sampling_rate), Decimal(noise_multiplier) ** 2
            exact = sum(
                math.comb(order, j) * (1 - q) ** (order - j) * q**j * (Decimal(j * (j - 1)) / (2 * variance)).exp()
                for j in range(order + 1)
            ).ln()
            excess = Decimal(renyi._cgf(order, noise_multiplier, sampling_rate)) - exact
            assert 0 <= excess <= Decimal("4e-15") * (order * Decimal(math.log2(order)) + exact)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "spent", [event(0.8, 0.2, 30), event(2.0, 0.01, 1000), event(20.0, 1.0, 50), event(60.0, 0.1, 3)]
)
def test_no_order_gives_less_than_the_minimum_over_orders(spent):
    cgf = [spent.steps * renyi._cgf(k, spent.noise_multiplier, spent.sampling_rate) for k in range(1, 202)]
    for delta in (1e-9, 1e-5, 0.3, 0.9):
        ours = rdp_epsilon(spent, delta)
        for k, share in itertools.product(range(1, 201), (0.05, 0.25, 0.5, 0.75, 1.0)):
            x, chord = k + share, (1 - share) * cgf[k - 1] + share * cgf[k]
            tried = (chord - math.log(delta - overflow_slack(spent.steps)) - math.log(x)) / (x - 1) + math.log1p(-1 / x)
            assert ours <= max(0.0, tried) + 1e-12


# --- exact mechanisms


@pytest.mark.sampled(5)
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("mu", [0.03, 0.5, 4.0])
@pytest.mark.parametrize("delta", [1e-10, 1e-5, 1e-2])
def test_without_sampling_pld_is_the_gaussian_mechanism_from_above(relation, mu, delta):
    exact = gaussian_epsilon(mu * (1 if relation is ADD else 2), delta)
    for steps in (1, 500):
        spent = event(math.sqrt(steps) / mu, 1.0, steps, relation)
        for ours in (pld_epsilon(spent, delta), composed_pld_epsilon(spent, delta)):
            assert exact <= ours <= exact * 1.005 + 1e-9


def test_different_gaussians_compose_to_one():
    parts = Composed((event(20.0, 1.0, 30), event(5.0, 1.0, 1), event(20.0, 1.0, 10)))
    exact = gaussian_epsilon(math.sqrt(40 / 400 + 1 / 25), DELTA)
    assert exact <= pld_epsilon(parts, DELTA) <= exact * 1.002
    assert exact <= rdp_epsilon(parts, DELTA) <= exact * 1.15


@pytest.mark.parametrize("relation", Relation)
def test_composition_of_equal_events_is_the_longer_event(relation):
    spent = event(1.5, 0.05, 100, relation)
    assert claim(Composed((spent, spent.with_steps(150))), DELTA) == claim(spent.with_steps(250), DELTA)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", Relation)
def test_composition_of_different_events_is_between_the_dearest_and_the_sum(relation):
    parts = [event(1.5, 0.05, 100, relation), event(4.0, 0.2, 300, relation), event(0.9, 0.01, 20, relation)]
    prices = [claim(part, DELTA).epsilon for part in parts]
    together = claim(Composed(tuple(parts)), 3 * DELTA).epsilon
    assert max(claim(part, 3 * DELTA).epsilon for part in parts) < together < sum(prices)
    assert claim(Composed(tuple(reversed(parts))), 3 * DELTA).epsilon == pytest.approx(together, rel=1e-9)


# --- the accountants agree


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("noise_multiplier", "sampling_rate", "steps"), ORDINARY)
def test_optimistic_pld_pld_and_rdp_come_in_this_order(noise_multiplier, sampling_rate, steps):
    spent = event(noise_multiplier, sampling_rate, steps)
    stated = claim(spent, DELTA)
    optimistic = optimistic_epsilon(spent, DELTA)
    assert 0.95 * stated.pld < optimistic < stated.pld < stated.rdp
    assert attack_epsilon(spent, DELTA) < stated.pld
    assert stated.epsilon == stated.pld
    assert stated.accountant is Accountant.PLD


@few
@given(noises, rates, lengths, st.sampled_from([1e-8, 1e-5, 1e-3]), st.sampled_from(Relation))
def test_no_claim_is_below_what_the_attack_proves(noise_multiplier, sampling_rate, steps, delta, relation):
    spent = event(noise_multiplier, sampling_rate, steps, relation)
    assert attack_epsilon(spent, delta) <= claim(spent, delta).epsilon


@pytest.mark.parametrize("spent", [event(2.0, 0.05, 1000), Composed((event(2.0, 0.05, 500), event(3.0, 0.2, 100)))])
@pytest.mark.parametrize("accountant", ["rdp_epsilon", "pld_epsilon"])
@pytest.mark.parametrize("factor", [0.0, 0.5, math.nan])
def test_an_accountant_that_falls_below_the_attack_is_caught(monkeypatch, accountant, factor, spent):
    honest = getattr(claim_module, accountant)
    monkeypatch.setattr(claim_module, accountant, lambda *args, **options: factor * honest(*args, **options))
    with pytest.raises(AccountantsDisagreeError, match=f"{accountant[:3]} claims .* attack attains"):
        claim(spent, DELTA)


def test_a_wrong_accountant_is_caught_under_replace_one_too(monkeypatch):
    spent = event(3.0, 0.05, 2000)
    assert claim(spent, DELTA).pld == pld_epsilon(spent, DELTA)
    monkeypatch.setattr(claim_module, "pld_epsilon", lambda _event, delta: pld_epsilon(spent, delta))
    with pytest.raises(AccountantsDisagreeError, match="attack attains"):  # the price of the other relation
        claim(event(3.0, 0.05, 2000, REPLACE), DELTA)


@pytest.mark.long
def test_rdp_below_the_optimistic_pld_is_caught(monkeypatch):
    spent = event(0.8, 0.01, 100)  # where the attack alone is weak
    too_small = 0.97 * pld_epsilon(spent, DELTA)
    assert attack_epsilon(spent, DELTA) < too_small
    monkeypatch.setattr(claim_module, "rdp_epsilon", lambda _event, _delta: too_small)
    with pytest.raises(AccountantsDisagreeError, match="optimistic"):
        claim(spent, DELTA)


def test_rdp_between_both_plds_is_claimed(monkeypatch):
    spent = event(0.8, 0.01, 100)
    smaller = 0.999 * pld_epsilon(spent, DELTA)
    monkeypatch.setattr(claim_module, "rdp_epsilon", lambda _event, _delta: smaller)
    assert claim(spent, DELTA).epsilon == smaller
    assert claim(spent, DELTA).accountant is Accountant.RDP


def test_the_optimistic_estimate_is_not_computed_where_it_cannot_matter(monkeypatch):
    monkeypatch.setattr(claim_module, "optimistic_epsilon", lambda *_: pytest.fail("computed"))
    claim(event(2.0, 0.05, 1000), DELTA)


# --- one price, whoever asks


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(("noise_multiplier", "sampling_rate"), [(0.8, 0.01), (3.0, 0.05), (6.0, 0.2), (1.0, 1.0)])
def test_the_claims_of_epochs_are_the_claims_of_each_alone_to_the_last_bit(noise_multiplier, sampling_rate, relation):
    spent, steps = event(noise_multiplier, sampling_rate, 1, relation), (100, 1, 0, 7, 100, 2000)
    together = claims(spent, steps, DELTA)
    pld.loss_grids.cache_clear()
    assert together == tuple(claim(spent.with_steps(count), DELTA) for count in steps)
    alone = claim(Composed((spent.with_steps(3), spent.with_steps(4))), DELTA)
    assert alone == together[3]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize(("noise_multiplier", "sampling_rate"), [(0.8, 0.01), (3.0, 0.05), (6.0, 0.2), (20.0, 1.0)])
def test_our_composition_is_that_of_dp_accounting(noise_multiplier, sampling_rate, relation):
    for steps in (1, 7, 100, 2000):
        spent = event(noise_multiplier, sampling_rate, steps, relation)
        width = pld.loss_grids(noise_multiplier, sampling_rate, relation)[0].width
        theirs = composed_pld_epsilon(spent, DELTA, interval=width)
        assert pld_epsilon(spent, DELTA) == pytest.approx(theirs, rel=1e-7, abs=1e-9)


def test_claims_rise_and_refuse():
    rising = claims(event(2.0, 0.02, 1), tuple(range(0, 3000, 50)), DELTA)
    assert all(before.pld < after.pld and before.rdp < after.rdp for before, after in itertools.pairwise(rising))
    assert claims(event(2.0, 0.02, 1), (), DELTA) == ()
    for bad in (-1, 1.5, math.nan):
        with pytest.raises(AccountingError, match="steps"):
            claims(event(2.0, 0.02, 1), (3, bad), DELTA)
    with pytest.raises(AccountingError, match="delta"):
        claims(event(2.0, 0.02, 1), (3,), 0.0)


def test_claims_are_checked_where_most_is_spent(monkeypatch):
    monkeypatch.setattr(claim_module, "rdp_epsilon", lambda spent, _: 0.1 * spent.steps / 1000)
    with pytest.raises(AccountantsDisagreeError, match="attack attains"):
        claims(event(2.0, 0.05, 1), (1, 1000, 10), 1.1 * DELTA)


def test_pld_ends_where_losses_overflow():
    spent = event(1.0, 0.5, 1)
    passing = [pld_epsilon(spent.with_steps(count), DELTA) for count in (0, *range(400, 6001, 400), 20_000, 10**8)]
    assert all(before <= after for before, after in itertools.pairwise(passing))
    assert passing[-3:] == [math.inf] * 3
    assert all(math.isinf(after) for before, after in itertools.pairwise(passing) if math.isinf(before))


def best_seconds(work):
    """CPU seconds, so that a busy machine does not count."""
    seconds = []
    for _ in range(3):
        for cached in (renyi._cgf, pld.loss_grids, claims):
            cached.cache_clear()
        start = time.process_time()
        work()
        seconds.append(time.process_time() - start)
    return min(seconds)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("noise_multiplier", "sampling_rate", "steps"), [(2.0, 1 / 60, 60), (6.0, 0.2, 5)])
def test_the_claims_of_50_epochs_cost_seconds_at_most(noise_multiplier, sampling_rate, steps):
    spent, epochs = event(noise_multiplier, sampling_rate, 1), tuple(steps * epoch for epoch in range(1, 51))
    assert best_seconds(lambda: claims(spent, epochs, DELTA)) < 5


# --- laws


@pytest.mark.long
@several
@given(noises, rates, lengths, st.integers(1, 500), st.floats(1.01, 2.0))
def test_rdp_rises_with_steps_and_rate_and_falls_with_noise_and_delta(noise, rate, steps, more, factor):
    epsilon = rdp_epsilon(event(noise, rate, steps), DELTA)
    slack = 1 + 1e-9
    assert rdp_epsilon(event(noise, rate, steps + more), DELTA) * slack >= epsilon
    assert rdp_epsilon(event(noise, min(1.0, rate * factor), steps), DELTA) * slack >= epsilon
    assert rdp_epsilon(event(noise * factor, rate, steps), DELTA) <= epsilon * slack
    assert rdp_epsilon(event(noise, rate, steps), DELTA * factor) <= epsilon * slack


@few
@given(noises, rates, lengths, st.integers(1, 500), st.floats(1.01, 2.0), st.sampled_from(Relation))
def test_pld_rises_with_steps_and_rate_and_falls_with_noise_and_delta(noise, rate, steps, more, factor, relation):
    epsilon = pld_epsilon(event(noise, rate, steps, relation), DELTA)
    slack = 1.002  # grids differ; each alone is above the truth by less
    assert pld_epsilon(event(noise, rate, steps + more, relation), DELTA) * (1 + 1e-9) >= epsilon
    assert pld_epsilon(event(noise, min(1.0, rate * factor), steps, relation), DELTA) * slack >= epsilon
    assert pld_epsilon(event(noise * factor, rate, steps, relation), DELTA) <= epsilon * slack
    assert pld_epsilon(event(noise, rate, steps, relation), DELTA * factor) <= epsilon


@few
@given(noises, rates, st.integers(1, 500))
def test_replacing_costs_at_least_as_much_as_removing_and_at_most_half_the_noise(noise, rate, steps):
    replaced = pld_epsilon(event(noise, rate, steps, REPLACE), DELTA)
    assert pld_epsilon(event(noise, rate, steps), DELTA) <= 1.001 * replaced
    assert replaced <= 1.001 * pld_epsilon(event(noise / 2, rate, steps), DELTA)


# --- edges


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("free", [(math.inf, 0.5, 10), (1.0, 0.0, 10), (1.0, 0.5, 0), (0.0, 0.5, 0), (0.0, 0.0, 10)])
def test_what_releases_nothing_is_free(free, relation):
    stated = claim(event(*free, relation), DELTA)
    assert (stated.epsilon, stated.pld) == (0.0, 0.0)
    assert stated.rdp == (0.0 if relation is ADD else None)
    assert optimistic_epsilon(event(*free, relation), DELTA) == 0.0


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("noise_multiplier", [0, 0.0, 5e-324, 1e-3, 0.0499])
def test_what_has_no_noise_to_speak_of_has_no_guarantee(noise_multiplier, relation):
    bare = event(noise_multiplier, 0.5, 10, relation)
    for spent in (bare, Composed((event(5.0, 0.5, 10, relation), bare))):
        assert claim(spent, DELTA).epsilon == math.inf
        assert optimistic_epsilon(spent, DELTA) == 0.0


def test_noise_beyond_all_measure_is_priced_from_above():
    assert claim(event(1e200, 0.5, 10), 1e-9) == claim(event(1e6, 0.5, 10), 1e-9)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("relation", Relation)
def test_what_is_beyond_pld_is_left_to_rdp(relation):
    for spent, delta in [
        (event(0.5, 1.0, 1000, relation), DELTA),  # epsilon beyond 700
        (event(50.0, 1e-6, 2 * 10**7, relation), DELTA),  # steps beyond ten million
        (event(5.0, 0.01, 100, relation), 1e-14),  # delta below the rounding of the transforms
    ]:
        stated = claim(spent, delta)
        assert stated.pld == math.inf
        assert optimistic_epsilon(spent, delta) < math.inf
        if relation is ADD:
            assert stated.epsilon == stated.rdp < math.inf
            assert stated.accountant is Accountant.RDP
        else:
            assert stated.epsilon == math.inf


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("sampling_rate", [1e-300, 1e-12, 1e-6, 1 - 1e-16, 1 - 1e-9])
@pytest.mark.parametrize("delta", [1e-12, 0.5, 1 - 1e-9])
def test_extreme_rates_and_deltas_have_prices(sampling_rate, relation, delta):
    spent = event(2.0, sampling_rate, 100, relation)
    assert 0.0 <= claim(spent, delta).epsilon <= claim(event(2.0, 1.0, 100, relation), delta).epsilon * 1.001


def test_an_optimistic_estimate_that_drifts_below_all_losses_is_nothing():
    assert composed_pld_epsilon(event(1.0, 0.5, 100), DELTA, interval=10.0, pessimistic=False) == 0.0


def test_rdp_refuses_replace_one_and_the_cross_check_is_absent():
    spent = event(3.0, 0.05, 2000, REPLACE)
    with pytest.raises(AccountingError, match="replace-one"):
        rdp_epsilon(spent, DELTA)
    stated = claim(spent, DELTA)
    assert stated.rdp is None
    assert stated.epsilon == stated.pld == pld_epsilon(spent, DELTA)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 1.5, math.nan, math.inf])
@pytest.mark.parametrize("price", [claim, rdp_epsilon, pld_epsilon, optimistic_epsilon])
def test_delta_is_a_probability(price, delta):
    for spent in (event(2.0, 0.1, 10), event(2.0, 0.1, 0)):
        with pytest.raises(AccountingError, match=r"Expected 0 < delta < 1, got delta="):
            price(spent, delta)


@pytest.mark.parametrize("interval", [0.0, -1e-3, math.nan, math.inf])
def test_intervals_are_positive(interval):
    with pytest.raises(AccountingError, match="interval"):
        composed_pld_epsilon(event(2.0, 0.1, 10), DELTA, interval=interval)


@pytest.mark.parametrize("interval", [1e-3, 1e-2, 0.1, 1.0])
def test_a_coarser_grid_is_a_higher_bound(interval):
    spent = event(3.0, 0.05, 200)
    finer = pld_epsilon(spent, DELTA)
    assert composed_pld_epsilon(spent, DELTA, interval=interval) > 0.999 * finer
    assert composed_pld_epsilon(spent, DELTA, interval=interval, pessimistic=False) < finer
