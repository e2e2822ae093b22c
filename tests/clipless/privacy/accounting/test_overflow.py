"""Every price pays, out of delta, for batches that overflow their slots: 2^-64 a step."""

import math

import pytest

from clipless.privacy.accounting.pld import pld_epsilon
from clipless.privacy.accounting.private_selection import Repetitions
from clipless.privacy.accounting.renyi import rdp_epsilon
from clipless.privacy.accounting.renyi_filter import RenyiFilter
from clipless.privacy.accounting.selection_price import rdp_selection_epsilon
from clipless.privacy.accounting.spending import MOST_STEPS, overflow_slack
from clipless.privacy.events import PoissonGaussian, Relation
from clipless.privacy.sampling import OVERFLOW

STEPS = 2**12
EVENT = PoissonGaussian(noise_multiplier=50.0, sampling_rate=0.01, steps=STEPS, relation=Relation.ADD_OR_REMOVE_ONE)
TEN = Repetitions(mean=10.0)
PRICES = {
    "pld": lambda delta: pld_epsilon(EVENT, delta),
    "rdp": lambda delta: rdp_epsilon(EVENT, delta),
    "selection": lambda delta: rdp_selection_epsilon(EVENT, TEN, delta),
}


def test_the_slack_of_steps_is_what_slots_may_fail_with():
    assert overflow_slack(STEPS) == STEPS * OVERFLOW == 2.0**-52


@pytest.mark.parametrize("name", PRICES)
def test_every_price_pays_for_batches_that_overflow(name, monkeypatch):
    """At a delta that they eat up, nothing can be promised; one that leaves something is priced."""
    for module in ("pld_grid", "renyi", "selection_price"):
        monkeypatch.setattr(f"clipless.privacy.accounting.{module}.overflow_slack", lambda steps: steps * 1e-9)
    price = PRICES[name]
    assert price(0.9e-9 * STEPS) == math.inf
    assert price(100e-9 * STEPS) < math.inf


def test_a_filter_pays_for_batches_that_overflow(monkeypatch):
    plain = RenyiFilter(16, 3.0, 1e-5).budget
    monkeypatch.setattr("clipless.privacy.accounting.renyi_filter.overflow_slack", lambda steps: steps * 1e-13)
    less = RenyiFilter(16, 3.0, 1e-5).budget
    assert less < plain
    assert RenyiFilter(16, 3.0, 0.9e-6).budget == -math.inf


def test_a_filter_admits_no_more_steps_than_it_pays_for():
    quiet = PoissonGaussian(
        noise_multiplier=1e6, sampling_rate=1e-6, steps=MOST_STEPS, relation=Relation.ADD_OR_REMOVE_ONE
    )
    given = RenyiFilter(16, 3.0, 1e-5)
    assert given.admits([], quiet)
    assert not given.admits([quiet], quiet.with_steps(1))
