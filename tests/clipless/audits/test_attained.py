"""From noise multipliers to lower bounds: below the claim, near it, and kept for trainings of one noise."""

from math import inf

import pytest

from clipless.audits.attained import attained_epsilon
from clipless.audits.audited_training import Effort
from clipless.privacy.accounting.claim import claim
from clipless.privacy.events import PoissonGaussian, Relation


def spent(noise):
    return PoissonGaussian(noise_multiplier=noise, sampling_rate=0.2, steps=100, relation=Relation.ADD_OR_REMOVE_ONE)


@pytest.mark.parametrize("effort", list(Effort))
@pytest.mark.parametrize("noise", [1.0, 3.0, 8.0])
def test_what_is_attained_is_below_the_claim_and_near_it(noise, effort):
    claimed, least = claim(spent(noise), 1e-5).epsilon, 0.4 if effort is Effort.BRIEF else 0.95
    assert least * claimed < attained_epsilon(spent(noise), noise, 1e-5, effort) <= claimed


@pytest.mark.parametrize("effort", list(Effort))
def test_more_noise_attains_no_more_and_no_noise_everything(effort):
    found = [attained_epsilon(spent(1.0), noise, 1e-5, effort) for noise in (0.0, 0.5, 1.0, 2.0, inf)]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (inf, 0.0)


def test_multipliers_that_hardly_differ_are_priced_once():
    one, other = (attained_epsilon(spent(1.0), noise, 1e-5, Effort.CHEAP) for noise in (1.00011, 1.00012))
    assert one == other
