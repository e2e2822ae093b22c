"""The attack proves what it says: it attains the Gaussian mechanism and never exceeds an upper bound."""

import math

import pytest

from clipless.errors import AccountingError
from clipless.privacy.accounting.claim import claim
from clipless.privacy.accounting.lower_bound import attack_epsilon
from clipless.privacy.accounting.pld import pld_epsilon
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from tests.clipless.factories import event, gaussian_epsilon

ADD, REPLACE = Relation.ADD_OR_REMOVE_ONE, Relation.REPLACE_ONE


@pytest.mark.parametrize("mu", [0.05, 0.5, 3.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_without_sampling_the_attack_is_optimal(mu, delta):
    for relation, times in ((ADD, 1), (REPLACE, 2)):
        exact = gaussian_epsilon(times * mu, delta)
        assert 0.98 * exact <= attack_epsilon(event(10 / mu, 1.0, 100, relation), delta) <= exact * (1 + 1e-9)


@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("free", [(0.01, 0.5, 10), (math.inf, 0.5, 10), (1.0, 0.0, 10), (1.0, 0.5, 0), (1e4, 1e-6, 3)])
def test_nothing_is_proved_where_nothing_is_spent_or_nothing_needs_proof(free, relation):
    assert attack_epsilon(event(*free, relation), 1e-5) == 0.0


def test_the_most_costly_part_of_a_composition_is_attacked():
    cheap, dear = event(8.0, 0.01, 100), event(2.0, 0.1, 100)
    assert attack_epsilon(Composed((cheap, dear)), 1e-5) == attack_epsilon(dear, 1e-5) > attack_epsilon(cheap, 1e-5)


def test_equal_parts_of_a_composition_are_attacked_together():
    part = event(2.0, 0.1, 100)
    assert attack_epsilon(Composed((part, part)), 1e-5) == attack_epsilon(part.with_steps(200), 1e-5)


def test_endless_training_is_attacked_in_its_first_steps():
    assert attack_epsilon(event(2.0, 0.1, 10**9), 1e-5) == attack_epsilon(event(2.0, 0.1, 20_000), 1e-5) > 0


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan, math.inf])
def test_delta_is_a_probability(delta):
    with pytest.raises(AccountingError, match="delta"):
        attack_epsilon(event(1.0, 0.1, 10), delta)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.9999, 0.408, 21), (0.99, 0.4, 8), (0.9, 0.5, 50)])
def test_the_attack_is_no_stronger_than_true_where_nearly_every_row_takes_part_in_every_step(rate, noise, steps):
    """Where turnouts that are as good as never seen decide how often the opposite row looks like this one."""
    event = PoissonGaussian(noise_multiplier=noise, sampling_rate=rate, steps=steps, relation=Relation.REPLACE_ONE)
    attained = attack_epsilon(event, 1e-5)
    assert 0.98 * pld_epsilon(event, 1e-5) < attained <= pld_epsilon(event, 1e-5)
    assert claim(event, 1e-5).epsilon >= attained
