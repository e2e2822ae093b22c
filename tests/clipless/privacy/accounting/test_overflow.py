"""Every price pays, out of delta, for batches that overflow their slots: 2^-64 a step."""

import math
from dataclasses import replace

import pytest

from clipless.privacy.accounting.gaussian_filter import GaussianFilter, _attacks, _cost
from clipless.privacy.accounting.pld import composed_pld, pld_epsilon
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.selection_price import rdp_selection_epsilon
from clipless.privacy.accounting.spending import MOST_STEPS, overflow_slack
from clipless.privacy.events import Composed, PoissonGaussian, Relation
from clipless.privacy.sampling import OVERFLOW

STEPS = 2**12
EVENT = PoissonGaussian(noise_multiplier=50.0, sampling_rate=0.01, steps=STEPS, relation=Relation.ADD_OR_REMOVE_ONE)
TEN = Repetitions(mean=10.0)
PRICES = {
    "pld": lambda delta: pld_epsilon(EVENT, delta),
    "composed": lambda delta: pld_epsilon(Composed((replace(EVENT, noise_multiplier=60.0), EVENT)), delta),
    "rdp": lambda delta: rdp_epsilon(EVENT, delta),
    "selection": lambda delta: rdp_selection_epsilon(EVENT, TEN, delta),
}


def test_the_slack_of_steps_is_what_slots_may_fail_with():
    assert overflow_slack(STEPS) == STEPS * OVERFLOW == 2.0**-52


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", PRICES)
def test_every_price_pays_for_batches_that_overflow(name, monkeypatch):
    """At a delta that they eat up, nothing can be promised; one that leaves something is priced."""
    composed_pld.cache_clear()
    for module in ("pld", "pld_grid", "renyi", "selection_price"):
        monkeypatch.setattr(f"clipless.privacy.accounting.{module}.overflow_slack", lambda steps: steps * 1e-9)
    price = PRICES[name]
    assert price(0.9e-9 * STEPS) == math.inf
    assert price(100e-9 * STEPS) < math.inf
    composed_pld.cache_clear()


@pytest.mark.parametrize("rate", [0.01, 1.0])
def test_a_filter_pays_for_batches_that_overflow(rate, monkeypatch):
    quiet = PoissonGaussian(noise_multiplier=1e3, sampling_rate=rate, steps=STEPS, relation=Relation.ADD_OR_REMOVE_ONE)
    for module in ("pld_grid", "gaussian_filter"):
        monkeypatch.setattr(f"clipless.privacy.accounting.{module}.overflow_slack", lambda steps: steps * 1e-12)
    _cost.cache_clear()
    _attacks.cache_clear()
    given = GaussianFilter(3.0, 1e-5)
    assert given.cost(quiet).slack >= STEPS * 1e-12
    assert not given.fits([given.cost(quiet)] * 150)
    _cost.cache_clear()
    _attacks.cache_clear()


def test_a_filter_admits_no_more_steps_than_it_pays_for():
    quiet = PoissonGaussian(
        noise_multiplier=1e6, sampling_rate=1e-6, steps=MOST_STEPS, relation=Relation.ADD_OR_REMOVE_ONE
    )
    given = GaussianFilter(3.0, 1e-5)
    assert given.fits([given.cost(quiet)])
    assert not given.fits([given.cost(quiet.with_steps(MOST_STEPS + 1))])
